// What happened, the newest first.

const LINES = 200;

export class EventLog {
  constructor(list, count) {
    this.list = list;
    this.count = count;
    this.total = 0;
  }

  add(text, {bad = false} = {}) {
    const line = document.createElement("li"), time = document.createElement("time");
    time.textContent = new Date().toTimeString().slice(0, 8);
    if (bad) line.className = "bad";
    line.append(time, text);
    this.list.prepend(line);
    while (this.list.children.length > LINES) this.list.lastElementChild.remove();
    this.count.textContent = String(++this.total);
  }
}

// A server event in a line, without its audio; `null` for those too frequent to be told one by one.
export function lineOf(event) {
  switch (event.type) {
    case "session.input_transcript.delta":
    case "session.output_transcript.delta":
      return null;
    case "session.started":
      return `session.started ${event.session.id}`;
    case "session.closed":
      return `session.closed: ${event.reason}, ${event.usage?.seconds ?? "?"} s`;
    case "session.usage.updated":
      return `session.usage.updated: ${event.usage.seconds} s`;
    case "error":
      return `error ${event.error.code}: ${event.error.message}`;
    case "info":
      return `info ${event.code}: ${event.message}`;
  }
  return event.type;
}
