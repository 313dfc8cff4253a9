// One conversation: microphone, session and loudspeaker put together, without a word about the page around them.

import {LiveClient} from "./live.js";
import {Microphone} from "./microphone.js";
import {Playback} from "./playback.js";
import {TurnTaking} from "./turntaking.js";

function asset(name) {
  return new URL(name, import.meta.url).href;
}

// `on` has, besides those of LiveClient but `audio`: `user(level)` and `model(level)` every 20 ms, `state(name)`,
// `firstAudio(seconds)`, `interruption(seconds)`, `played(report)`, `paused(on)` when the browser holds the audio back,
// and `microphoneLost()`.
// To be called within the click that asked for it, else some browsers would not let it sound.
export function newContext() {
  return new AudioContext({latencyHint: "interactive"});
}

export class Conversation {
  // `context` is closed with the conversation.  Rejects with a DOMException when there is no microphone to be had, or when
  // `signal` was aborted before there was one; nothing is left open then.
  static async open({context, url, key, session, format, on, signal, connect = options => new LiveClient(url, options)}) {
    let stream;
    try {
      const modules = ["microphone.worklet.js", "playback.worklet.js"].map(asset);
      [stream] = await Promise.all([
        Microphone.ask(),
        ...modules.map(module => context.audioWorklet.addModule(module)),
      ]);
      signal.throwIfAborted();
      // Not awaited: a browser that holds the audio back leaves this pending, and says so by the context's state.
      if (context.state !== "running") context.resume();
      return new Conversation(context, stream, {key, session, format, on, connect});
    } catch (error) {
      for (const track of stream?.getTracks() ?? []) track.stop();
      await context.close();
      throw error;
    }
  }

  constructor(context, stream, {key, session, format, on, connect}) {
    this.context = context;
    this.on = on;
    this.turns = new TurnTaking({onFirstAudio: on.firstAudio, onInterruption: on.interruption});
    this.state = "";
    this.playback = new Playback(context, format, {onReport: report => this.#played(report)});
    this.microphone = new Microphone(context, stream, format, {
      onBlock: block => this.#heard(block),
      onLost: () => on.microphoneLost(),
    });
    context.onstatechange = () => on.paused(context.state !== "running");
    this.client = connect({
      key, session, format,
      handlers: {
        started: session => {
          if (this.microphone.muted) this.client.mute(true);
          on.started(session);
          if (context.state !== "running") on.paused(true);
        },
        event: on.event,
        quiet: on.quiet,
        audio: bytes => this.playback.play(bytes),
        ended: ending => {
          this.#release();
          on.ended(ending);
        },
      },
    });
  }

  mute(on) {
    this.microphone.muted = on;
    this.client.mute(on);
  }

  // After a pause by the browser, in a click.
  resume() {
    return this.context.resume();
  }

  // The microphone is off at once; `ended` follows when the server has said the rest.
  close() {
    this.microphone.close();
    this.client.close();
  }

  #heard({bytes, rms, time}) {
    this.client.append(bytes);
    this.turns.hearUser({rms, time});
    this.on.user(rms);
    this.#tellState();
  }

  #played(report) {
    // As it is heard, and not as it is handed to the device.
    this.turns.hearModel({rms: report.rms, time: report.time + (this.context.outputLatency || 0)});
    this.on.model(report.rms);
    this.on.played(report);
    this.#tellState();
  }

  #tellState() {
    if (this.client?.state !== "active" || this.turns.state === this.state) return;
    this.on.state((this.state = this.turns.state));
  }

  #release() {
    this.context.onstatechange = null;
    this.microphone.close();
    this.playback.close();
    this.context.close();
  }
}
