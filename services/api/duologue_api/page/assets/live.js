// The Live protocol from a client's side, over one WebSocket: docs/protocol.md.
//
// The page knows a session only by `append`, `mute`, `close` and the handlers below, so that a client that resumes can
// take this one's place.

import {fromBase64, toBase64} from "./formats.js";

export const SUBPROTOCOL = "openai-live";
const KEY_SUBPROTOCOL = "openai-insecure-api-key.";
const UNSENT_S = 5;  // of audio that waits for a slow network; beyond it the newest is not sent
const START_S = 70;  // the server itself gives up after 60
const QUIET_S = 4, LOST_S = 40;  // without a word; a server may pause for 30 s before it gives a session up
const CLOSE_S = 8;

// The characters that a subprotocol may have (RFC 9110, token).
export function keyCanBeSent(key) {
  return /^[-!#$%&'*+.^_`|~0-9A-Za-z]+$/.test(key);
}

// `handlers`: `started(session)`, `audio(bytes)`, `event(event)` for every other event, `quiet(on)` when the server has
// said nothing for a while and when it does again, and once, at last, `ended({how, code, reason, error})` with `how` one of
// "refused" (instead of `session.started`), "unreachable" (no socket), "closed" (by `session.closed`), "lost".
export class LiveClient {
  constructor(url, {key, session, format, handlers, socket = WebSocket}) {
    this.handlers = handlers;
    this.unsentBytes = UNSENT_S * format.rate * format.bytesPerSample * 4 / 3;
    this.state = "connecting";
    this.error = this.closed = null;
    this.events = this.unsent = 0;
    this.heardAt = performance.now();
    this.isQuiet = false;
    this.socket = new socket(url, key ? [SUBPROTOCOL, KEY_SUBPROTOCOL + key] : [SUBPROTOCOL]);
    this.socket.onopen = () => {
      this.state = "starting";
      this.#send({type: "session.start", session});
    };
    this.socket.onmessage = ({data}) => this.#hear(JSON.parse(data));
    this.socket.onclose = ({code, reason}) => this.#end(code, reason);
    this.watch = setInterval(() => this.#look(), 1000);
  }

  // Bytes in the session's format; before `started` they are not sent.  Whether they were.
  append(bytes) {
    if (this.state !== "active" || !bytes.length) return false;
    if (this.socket.bufferedAmount > this.unsentBytes) {
      this.unsent += bytes.length;
      return false;
    }
    this.#send({type: "session.input_audio.append", audio: toBase64(bytes)});
    return true;
  }

  mute(on) {
    if (this.state === "active") this.#send({type: `session.input_audio.${on ? "mute" : "unmute"}`});
  }

  // Asks for the end; `ended` follows.
  close() {
    if (this.state === "active") {
      this.state = "closing";
      this.#send({type: "session.close"});
      this.giveUp = setTimeout(() => this.#end(1006, "no answer"), 1000 * CLOSE_S);
    } else if (this.state !== "closing") {
      this.#end(1000, "left");
    }
  }

  #send(event) {
    event.event_id = `page_${++this.events}`;
    this.socket.send(JSON.stringify(event));
  }

  #hear(event) {
    this.heardAt = performance.now();
    this.#setQuiet(false);
    switch (event.type) {
      case "session.output_audio.delta":
        this.handlers.audio(fromBase64(event.delta));
        return;
      case "session.started":
        this.state = "active";
        this.handlers.started(event.session);
        break;
      case "session.closed":
        this.closed = event;
        break;
      case "error":
        if (this.state === "starting") this.error ??= event.error;
        break;
    }
    this.handlers.event(event);
  }

  #look() {
    const silentS = (performance.now() - this.heardAt) / 1000;
    if (this.state === "active") this.#setQuiet(silentS > QUIET_S);
    if (silentS > (this.state === "active" ? LOST_S : START_S)) this.#end(1006, "no answer");
  }

  #setQuiet(on) {
    if (on !== this.isQuiet) this.handlers.quiet((this.isQuiet = on));
  }

  #end(code, reason) {
    if (this.state === "ended") return;
    const before = this.state;
    this.state = "ended";
    clearInterval(this.watch);
    clearTimeout(this.giveUp);
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
    this.socket.close();
    let how = "lost";
    if (this.closed) how = "closed";
    else if (before === "connecting") how = code === 1000 ? "closed" : "unreachable";
    else if (before === "starting") how = code === 1000 ? "closed" : "refused";
    this.handlers.ended({how, code, reason: this.closed?.reason ?? reason, error: this.error});
  }
}
