// Who speaks, and how fast the model reacts, from the loudness of both sides.  Times are seconds of the audio context's
// clock, levels root mean squares of 20 ms.
//
// First audio: from the end of what the user said to the first sound of the answer, as it is played.
// Interruption: from the beginning of what the user said over the model to the model's last sound.

const MODEL_LOUD = 0.0018;  // as LiveKit's gate has it; a silent model sends zeros
const USER_LOUD = 0.01, OVER_FLOOR = 4;
const USER_HOLD_S = 0.3, MODEL_HOLD_S = 0.4;  // pauses within speech
const WORD_S = 0.12;  // shorter sounds are no speech
const ANSWER_S = 15, STOP_S = 5;  // later than that, it had another reason

// Speech of one side.
class Side {
  constructor(holdS) {
    this.holdS = holdS;
    this.speaking = false;
    this.began = this.ended = -Infinity;  // of the present or last speech: its first and its last loud block
    this.candidate = null;
  }

  // `from` and `to` bound the block.  Returns "began", "ended" or nothing.
  hear(loud, from, to, leastS) {
    if (loud) {
      if (!this.speaking) {
        this.candidate ??= from;
        if (to - this.candidate < leastS) return undefined;
        this.speaking = true;
        this.began = this.candidate;
        this.ended = to;
        return "began";
      }
      this.ended = to;
    } else if (!this.speaking) {
      this.candidate = null;
    } else if (to - this.ended >= this.holdS) {
      this.speaking = false;
      this.candidate = null;
      return "ended";
    }
    return undefined;
  }
}

export class TurnTaking {
  // `onFirstAudio(seconds)` and `onInterruption(seconds)` are called as they are measured.
  constructor({onFirstAudio, onInterruption}) {
    this.user = new Side(USER_HOLD_S);
    this.model = new Side(MODEL_HOLD_S);
    this.floor = USER_LOUD / OVER_FLOOR;
    this.onFirstAudio = onFirstAudio;
    this.onInterruption = onInterruption;
    this.answered = true;
    this.interruptedAt = null;
  }

  hearUser({rms, time}, blockS = 0.02) {
    // The background: sinks at once, rises within seconds, so that speech hardly lifts it.
    if (rms > 0) this.floor = Math.min(rms, this.floor * 1.004, 0.05);
    const loud = rms > Math.max(USER_LOUD, OVER_FLOOR * this.floor);
    const change = this.user.hear(loud, time - blockS, time, WORD_S);
    if (change !== "began") return;
    this.answered = false;
    if (this.model.speaking) this.interruptedAt = this.user.began;
  }

  hearModel({rms, time}, blockS = 0.02) {
    const change = this.model.hear(rms > MODEL_LOUD, time - blockS, time, 0);
    if (change === "began") {
      const waitedS = this.model.began - this.user.ended;
      if (!this.answered && waitedS >= 0 && waitedS < ANSWER_S) this.onFirstAudio(waitedS);
      this.answered = true;
    } else if (change === "ended" && this.interruptedAt !== null) {
      const tookS = this.model.ended - this.interruptedAt;
      if (tookS >= 0 && tookS < STOP_S) this.onInterruption(tookS);
      this.interruptedAt = null;
    }
  }

  get state() {
    if (this.user.speaking && this.model.speaking) return "both";
    if (this.model.speaking) return "speaking";
    return this.user.speaking ? "hearing" : "listening";
  }
}
