// The conversation as bubbles, in the order of the session's clock.

import {Turns} from "./turns.js";

const WHO = {user: "You", assistant: "Model"};
const FINISHED_MS = 1500;  // without another piece
const SPOKEN = 20;  // turns kept for screen readers to announce
const NEAR_PX = 80;  // from the end: then it follows

export function clock(ms) {
  const s = Math.floor(ms / 1000);
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`;
}

export class Transcript {
  // `list`: an `ol`; `live`: a region that screen readers read out, which gets whole turns only.
  constructor(list, live) {
    this.list = list;
    this.live = live;
    this.begin();
  }

  // A new session: its clock begins anew.
  begin() {
    for (const [turn, timer] of this.timers ?? []) {
      clearTimeout(timer);
      this.#announce(turn);
    }
    this.turns = new Turns();
    this.items = new Map();  // turn -> li, bounded as the turns are
    this.timers = new Map();  // turn -> timer, likewise
    if (!this.list.children.length) return;
    for (const old of [...this.list.children].slice(0, -100)) old.remove();
    const rule = document.createElement("li");
    rule.className = "rule";
    rule.textContent = "New session";
    this.list.append(rule);
  }

  add(side, piece) {
    const box = this.list.parentElement;
    const follows = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
    const {turn, at, dropped} = this.turns.add(side, piece);
    if (dropped) this.#drop(dropped);
    if (at !== null) this.#insert(turn, at);
    const item = this.items.get(turn);
    if (item) item.querySelector(".words").textContent = turn.text;
    if (follows) box.scrollTop = box.scrollHeight;
    clearTimeout(this.timers.get(turn));
    this.timers.set(turn, setTimeout(() => this.#announce(turn), FINISHED_MS));
  }

  #insert(turn, at) {
    const item = document.createElement("li");
    item.className = `turn ${turn.side}`;
    const who = document.createElement("span");
    who.className = "who";
    who.textContent = WHO[turn.side];
    const when = document.createElement("time");
    when.textContent = clock(turn.startMs);
    who.append(" ", when);
    const words = document.createElement("p");
    words.className = "words";
    item.append(who, words);
    this.items.set(turn, item);
    const after = this.items.get(this.turns.all[at + 1]);
    this.list.insertBefore(item, after ?? null);
  }

  #drop(turn) {
    this.items.get(turn)?.remove();
    this.items.delete(turn);
    clearTimeout(this.timers.get(turn));
    this.timers.delete(turn);
  }

  #announce(turn) {
    this.timers.delete(turn);
    const line = document.createElement("p");
    line.textContent = `${WHO[turn.side]}: ${turn.text}`;
    this.live.append(line);
    while (this.live.children.length > SPOKEN) this.live.firstElementChild.remove();
  }
}
