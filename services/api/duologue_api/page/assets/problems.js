// What went wrong, in plain words: {title, text}, `again` what the button says, `key` whether the key is to be asked for.

const KEY_WANTED = {
  title: "This server asks for a key",
  text: "Enter an API key that the server's operator gave you.", key: true, again: "",
};

export const INSECURE = {
  title: "The browser gives no microphone here",
  text: "A page may use the microphone only over HTTPS, or on the machine that the server runs on "
    + "(http://localhost or http://127.0.0.1). Open this page by one of these.",
  again: "",
};
export const KEY_UNSENDABLE = {
  title: "A browser can't send this key",
  text: "It has characters that a browser can't put into the opening of a WebSocket, such as a blank or a slash. Ask the "
    + "server's operator for a key of letters and digits.",
  key: true, again: "",
};
export const UNREACHABLE = {
  title: "The server can't be reached",
  text: "It may have been stopped, or your network is down.", again: "Try again",
};
export const MICROPHONE_LOST = {
  title: "The microphone is gone",
  text: "It was unplugged, or the browser took it away. The conversation has ended.", again: "Start again",
};
export const PAUSED = {
  title: "The browser has paused the sound",
  text: "Another application may be using it.", again: "Go on",
};

// Of getUserMedia or the AudioContext.
export function ofMicrophone(error) {
  switch (error.name) {
    case "NotAllowedError":
    case "SecurityError":
      return {
        title: "The microphone is not allowed",
        text: "Allow it for this page (the icon beside the address, or the site's settings), then try again.",
        again: "Try again",
      };
    case "NotFoundError":
    case "OverconstrainedError":
      return {
        title: "There is no microphone",
        text: "The browser finds none. Plug one in, or switch it on, then try again.", again: "Try again",
      };
    case "NotReadableError":
    case "AbortError":
      return {
        title: "The microphone can't be used",
        text: "Another program may hold it. Close that one, then try again.", again: "Try again",
      };
  }
  return {title: "The sound could not be started", text: `The browser says: ${error.message}`, again: "Try again"};
}

// Of an answer to `GET v1/models` other than 200; `given` whether a key was shown.
export function ofStatus(status, message, given) {
  if (status === 401) {
    return given
      ? {...KEY_WANTED, title: "The server does not know this key", text: "Check it for typing mistakes."}
      : KEY_WANTED;
  }
  if (status === 403) return {title: "The server does not let this page in", text: message, again: "Try again"};
  return {title: "The server has a problem", text: message || `It answered ${status}.`, again: "Try again"};
}

const REFUSED = {
  session_limit_reached: ["The server is full", "All its places are taken. Try again in a moment."],
  model_unavailable: ["This model is not ready", "Some part of it is missing or still starting. Try again in a moment."],
  server_draining: ["The server is shutting down", "Try again in a moment; another one may take over."],
  model_not_found: ["There is no such model any more", "Choose another one."],
};
const CLOSED = {
  expired: ["The session has ended", "The server lets a session last only so long."],
  connection_lost: ["The session was lost", "A part of the server failed. What was said stays below."],
  content: ["The server has ended the session", "Because of what was said."],
};

// Of an ending that LiveClient tells; `null`: all is well.
export function ofEnding({how, code, reason, error}) {
  if (how === "closed") {
    const [title, text] = CLOSED[reason] ?? [];
    return title ? {title, text, again: "Start again"} : null;
  }
  if (how === "refused") {
    const [title, text] = REFUSED[error?.code] ?? (code === 1013 ? REFUSED.session_limit_reached
      : ["The server did not start a session", error?.message ?? "It did not say why."]);
    return {title, text, again: "Try again"};
  }
  if (how === "unreachable") return UNREACHABLE;
  return {
    title: "The connection was lost",
    text: "The network failed, or the server was stopped. What was said stays below.", again: "Reconnect",
  };
}
