// The page: its elements, and what they do.

import {models} from "./catalogue.js";
import {Conversation, newContext} from "./conversation.js";
import {FORMATS, formatNamed} from "./formats.js";
import {keyCanBeSent} from "./live.js";
import {EventLog, lineOf} from "./log.js";
import {Measure, milliseconds} from "./measures.js";
import {Meter, Ribbon} from "./meters.js";
import * as problems from "./problems.js";
import {Transcript} from "./transcript.js";

const $ = id => document.getElementById(id);
const base = new URL(".", document.baseURI);
const liveUrl = Object.assign(new URL("v1/live/sessions", base), {protocol: base.protocol === "https:" ? "wss:" : "ws:"});

const STATES = {
  listening: "Listening", hearing: "Listening to you", speaking: "Speaking", both: "Both talking",
};
const BUFFER_TOLD_S = 0.5;

const log = new EventLog($("log"), $("log-count"));
const transcript = new Transcript($("turns"), $("spoken"));
const ribbon = new Ribbon($("ribbon"));
const userMeter = new Meter($("user-level")), modelMeter = new Meter($("model-level"));
const firstAudio = new Measure($("first-audio"), $("first-audio-more"));
const interruption = new Measure($("interruption"), $("interruption-more"));

let offered = [];
let conversation = null;
let opening = new AbortController();  // of the conversation that is not there yet
let muted = false;
let bufferToldAt = 0;
let told = null;  // the problem that is shown

// ---------------------------------------------------------------- what is shown

// "idle", "starting", "live", "ending"
function setPhase(phase, state = "") {
  document.body.dataset.phase = phase;
  document.body.dataset.state = "";
  const running = phase !== "idle";
  $("talk-label").textContent = running ? "Stop" : "Start talking";
  $("talk").disabled = phase === "ending";
  $("fields").disabled = running;
  $("mute").disabled = phase !== "live";
  $("state").textContent = state;
  $("session-line").hidden = phase !== "live";
  if (!running) {
    userMeter.show(0);
    modelMeter.show(0);
  }
}

function setMuted(on) {
  muted = on;
  document.body.dataset.muted = on;
  $("mute").setAttribute("aria-pressed", on);
  $("mute").textContent = on ? "Muted" : "Mute";
}

// `act` is what the button does.
function tell(problem, act = start) {
  told = problem;
  $("notice").hidden = !problem;
  if (!problem) return;
  $("notice-title").textContent = problem.title;
  $("notice-text").textContent = problem.text;
  $("again").textContent = problem.again;
  $("again").hidden = !problem.again;
  $("again").onclick = () => act();
  log.add(`${problem.title}. ${problem.text}`, {bad: true});
  if (problem.key) {
    $("key-field").hidden = false;
    $("settings").open = true;
    $("key").focus();
  }
}

function fill(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, label, disabled]) => {
    const option = new Option(label, value);
    option.disabled = Boolean(disabled);
    return option;
  }));
  if (entries.some(([value]) => value === chosen)) select.value = chosen;
}

function showModels() {
  const usable = offered.find(model => model.ready) ?? offered[0];
  const before = offered.find(model => model.id === $("model").value && model.ready);
  fill($("model"), offered.map(({id, ready}) => [id, ready ? id : `${id} (not ready)`, !ready]), (before ?? usable)?.id);
  showVoices();
}

function showVoices() {
  const model = offered.find(each => each.id === $("model").value);
  const voices = model?.voices ?? [];
  fill($("voice"), voices.length ? voices.map(voice => [voice, voice]) : [["", "Its own"]], $("voice").value);
  $("voice").disabled = voices.length < 2;
  $("model-help").textContent = model?.description ?? "";
}

// ---------------------------------------------------------------- what is done

// Whether the server lets us in and has a model.
async function look() {
  const key = $("key").value.trim();
  if (key && !keyCanBeSent(key)) {
    tell(problems.KEY_UNSENDABLE);
    return false;
  }
  try {
    offered = await models(base, key);
  } catch (error) {
    if (!error.problem) throw error;
    tell(error.problem, error.problem === problems.UNREACHABLE ? look : start);
    return false;
  }
  showModels();
  tell(null);
  return true;
}

function chosen() {
  const format = formatNamed($("format").value), voice = $("voice").value;
  const audio = {format: {type: format.type, rate: format.rate}};
  if (voice) audio.output = {voice};
  const session = {model: $("model").value, audio};
  const instructions = $("instructions").value.trim();
  if (instructions) session.instructions = instructions;
  return {session, format, key: $("key").value.trim()};
}

async function start() {
  if (document.body.dataset.phase !== "idle") return;
  if (!isSecureContext || !navigator.mediaDevices?.getUserMedia) {
    tell(problems.INSECURE);
    return;
  }
  setPhase("starting", "Connecting");
  setMuted(false);
  const context = newContext(), {signal} = (opening = new AbortController());
  const opened = await look() ? await open(context, signal) : await context.close();
  if (signal.aborted) return;
  conversation = opened ?? null;
  if (!conversation) setPhase("idle", "Ready when you are");
}

async function open(context, signal) {
  const {session, format, key} = chosen();
  try {
    return await Conversation.open({context, url: liveUrl.href, key, session, format, on: handlers, signal});
  } catch (error) {
    if (!signal.aborted) tell(problems.ofMicrophone(error));
    return null;
  }
}

function stop() {
  if (!conversation) {
    // The browser may still ask for the microphone; whatever the answer, it comes too late.
    opening.abort();
    setPhase("idle", "Ready when you are");
    return;
  }
  setPhase("ending", "Ending");
  conversation.close();
}

const handlers = {
  started(session) {
    $("empty").hidden = true;
    transcript.begin();
    setPhase("live", STATES.listening);
    document.body.dataset.state = "listening";
    $("session-model").textContent = session.model;
    $("session-id").textContent = ` · ${session.id}`;
  },
  event(event) {
    if (event.type === "session.input_transcript.delta") transcript.add("user", event);
    if (event.type === "session.output_transcript.delta") transcript.add("assistant", event);
    const line = lineOf(event);
    if (line) log.add(line, {bad: event.type === "error"});
  },
  state(name) {
    document.body.dataset.state = name;
    $("state").textContent = STATES[name];
  },
  user(rms) {
    userMeter.show(rms);
    ribbon.hear("user", rms);
  },
  model(rms) {
    modelMeter.show(rms);
    ribbon.hear("model", rms);
  },
  firstAudio(seconds) {
    firstAudio.add(seconds);
    log.add(`first audio after ${milliseconds(seconds)}`);
  },
  interruption(seconds) {
    interruption.add(seconds);
    log.add(`interrupted within ${milliseconds(seconds)}`);
  },
  played({time, queuedS, underruns}) {
    if (time - bufferToldAt < BUFFER_TOLD_S && time > bufferToldAt) return;
    bufferToldAt = time;
    $("buffered").textContent = milliseconds(queuedS);
    $("buffered-more").textContent = underruns ? `${underruns} ${underruns === 1 ? "gap" : "gaps"}` : "of its voice";
  },
  quiet(on) {
    log.add(on ? "the server is silent" : "the server is back");
    $("state").textContent = on ? "Waiting for the server" : STATES[document.body.dataset.state];
  },
  paused(on) {
    if (on) tell(problems.PAUSED, () => conversation?.resume());
    else if (told === problems.PAUSED) tell(null);
  },
  microphoneLost() {
    tell(problems.MICROPHONE_LOST);
    stop();
  },
  async ended(ending) {
    conversation = null;
    setPhase("idle", "Ready when you are");
    // A browser is not told why a WebSocket was refused; an ordinary request is.
    if (ending.how === "unreachable" && !(await look())) return;
    if (told !== problems.MICROPHONE_LOST) tell(problems.ofEnding(ending));
  },
};

$("talk").addEventListener("click", () => (document.body.dataset.phase === "idle" ? start() : stop()));
$("mute").addEventListener("click", () => {
  setMuted(!muted);
  conversation?.mute(muted);
});
$("model").addEventListener("change", showVoices);
$("form").addEventListener("submit", event => {
  event.preventDefault();
  look();
});
addEventListener("pagehide", () => conversation?.close());

fill($("format"), FORMATS.map(({name, label}) => [name, label]), FORMATS[0].name);
if (matchMedia("(max-width: 52rem)").matches) $("settings").open = false;
setPhase("idle", "Ready when you are");
look();
