// Pieces of transcript into turns: who said what, by the session's clock.

const GAP_MS = 1000;
const TURNS = 200;
const LETTERS = 2000;  // of a turn; a longer one goes on in the next

export class Turns {
  constructor() {
    this.all = [];  // by the beginning; at most TURNS
  }

  // A piece of `side` ("user" or "assistant").  Returns {turn, at, dropped}: the turn that it became part of, that turn's
  // index if it is new, else null, and the oldest turn if it had to go.
  add(side, {delta, start_ms: start, end_ms: end}) {
    const last = this.all.findLast(turn => turn.side === side);
    const joins = last && start - last.endMs <= GAP_MS && start >= last.startMs && last.text.length < LETTERS
      && !this.all.some(turn => turn.side !== side && turn.startMs > last.endMs && turn.startMs < start);
    if (joins) {
      last.text += delta;
      last.endMs = Math.max(last.endMs, end);
      return {turn: last, at: null, dropped: null};
    }
    const turn = {side, text: delta.trimStart(), startMs: start, endMs: end};
    let at = this.all.length;
    while (at > 0 && this.all[at - 1].startMs > start) at--;
    this.all.splice(at, 0, turn);
    if (this.all.length <= TURNS) return {turn, at, dropped: null};
    const dropped = this.all.shift();
    return {turn, at: dropped === turn ? null : at - 1, dropped};
  }
}
