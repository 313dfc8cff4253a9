"""What a client asked for in `session.start` and `session.update`, checked and resolved."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from duologue.models import HISTORY, INSTRUCTIONS
from duologue_api.live import schema
from duologue_api.live.events import Audio, AudioFormat, AudioOutput, SessionResource, VoiceId
from duologue_api.live.refused import Refused, shown

if TYPE_CHECKING:
    from duologue_api.port import ModelStatus

BUILT_IN_VOICES = frozenset(
    (
        "alloy",
        "ash",
        "ballad",
        "beacon",
        "bossa",
        "cedar",
        "cinder",
        "coral",
        "delta",
        "echo",
        "gleam",
        "marin",
        "meridian",
        "quartz",
        "ripple",
        "sage",
        "shida",
        "shimmer",
        "stone",
        "tempo",
        "verse",
        "vesper",
        "willow",
    )
)
"""Voices that clients name because OpenAI has them (openai-python 3.57, `built_in_voice.py`)."""
DEFAULT_VOICE = "marin"
OPENAI_MODEL = re.compile(r"gpt-live-\d+(-[\w.-]+)?", re.ASCII)
"""Models that clients name because OpenAI has them: `gpt-live-1` is LiveKit's and others' default."""
MAX_INSTRUCTIONS_BYTES = 16_384 * 8
MAX_INPUT_BYTES = 8_192 * 8
"""OpenAI's limits are 16,384 and 8,192 tokens.  Eight bytes of UTF-8 a token is above every language's mean, so
nothing that OpenAI takes is refused; and what is taken still fits the messages of the bus."""
MAX_PROBLEMS = 1000
"""Beyond so many mistakes none is picked out: listing them would hold up every other session."""
MAX_DELEGATION_BYTES = 1 << 20
"""Of JSON, however many updates it came in."""
UPDATABLE = frozenset({"delegation", "triggers"})


class Notice(msgspec.Struct, frozen=True):
    """To be said in an `info` event after `session.started`."""

    code: str
    message: str


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved `session`, in plain values that can be stored."""

    model: str
    instructions: str | None
    """`None`: the model's own."""
    format: AudioFormat
    """Of both directions."""
    voice: str
    """One of the model's; empty: the only one it has."""
    spoken_as: str | VoiceId
    """The voice as it is echoed."""
    delegation: dict[str, Any]
    input: list[dict[str, Any]]
    """Earlier messages, oldest first, as the client wrote them: role and one text part each."""
    store: bool
    triggers: list[dict[str, Any]]
    client: dict[str, Any] | None
    safety_identifier: str | None
    notices: tuple[Notice, ...]

    @property
    def messages(self) -> list[tuple[str, str]]:
        """`input` as (role, text), oldest first."""
        return [(message["role"], message["content"][0]["text"]) for message in self.input]

    def resource(self, session_id: str, expires_at: int) -> SessionResource:
        """The session as events show it; `expires_at` in Unix seconds."""
        return SessionResource(
            id=session_id,
            expires_at=expires_at,
            model=self.model,
            status="active",
            audio=Audio(format=self.format, output=AudioOutput(voice=self.spoken_as)),
            delegation=_without_secrets(self.delegation),
            input=self.input,
            store=self.store,
            instructions=self.instructions,
            triggers=self.triggers,
            client=self.client,
            safety_identifier=self.safety_identifier,
        )


def check(session: Any, models: Sequence["ModelStatus"]) -> SessionConfig:
    """`session`: decoded JSON.  Raises `Refused` with the first thing that is wrong, `param` its place."""
    try:
        shape = schema.SessionShape.model_validate(session)
    except ValidationError as error:
        raise _refusal(error) from None
    notices: list[Notice] = []
    model = _model(shape.model, models, notices)
    instructions = shape.instructions if shape.instructions and not shape.instructions.isspace() else None
    if instructions is not None and len(instructions.encode()) > MAX_INSTRUCTIONS_BYTES:
        raise _invalid("session.instructions", f"more than {MAX_INSTRUCTIONS_BYTES} bytes of UTF-8")
    form = shape.audio.format
    _check_triggers(shape.triggers)
    voice, spoken_as = _voice(shape.audio.output.voice, model, notices)
    _note_lacking(shape, model, notices)
    _note_unsupported(shape, notices)
    return SessionConfig(
        model=model.id,
        instructions=instructions,
        format=AudioFormat(type=form.type, rate=form.rate),
        voice=voice,
        spoken_as=spoken_as,
        # Strictly checked values are what the client wrote, and are echoed as such.
        delegation=session.get("delegation") or {"type": "client"},
        input=_newest(session.get("input", []), notices),
        store=shape.store,
        triggers=session.get("triggers", []),
        client=session.get("client"),
        safety_identifier=shape.safety_identifier,
        notices=tuple(notices),
    )


def update(config: SessionConfig, session: Any) -> SessionConfig:
    """`config` as `session` (decoded JSON) of a `session.update` changes it, with the notices of that change: fields of
    `delegation` are merged into what it was, lists replaced, and what is not named stays.  Raises `Refused` as
    `check` does, `config` being as it was then."""
    if not isinstance(session, dict):
        raise _invalid("session", "expected an object")
    for name in session:
        if name not in schema.SessionShape.model_fields:
            raise _unknown(f"session.{name if len(name) <= 64 else name[:64] + '…'}")
    for name in session:
        if name not in UPDATABLE:
            raise _immutable(f"session.{name}")
    given = session.get("delegation")
    merged = {
        "delegation": config.delegation if given is None else _merged(config.delegation, given),
        "triggers": session.get("triggers", config.triggers),
    }
    try:
        shape = schema.UpdateShape.model_validate(merged)
    except ValidationError as error:
        raise _refusal(error) from None
    if len(msgspec.json.encode(merged["delegation"])) > MAX_DELEGATION_BYTES:
        raise _invalid("session.delegation", f"more than {MAX_DELEGATION_BYTES} bytes")
    _check_triggers(shape.triggers)
    notices: list[Notice] = []
    _note_unserved(
        None if given is None else shape.delegation, shape.triggers if "triggers" in session else [], notices
    )
    return msgspec.structs.replace(config, **merged, notices=tuple(notices))


def _merged(before: dict[str, Any], given: Any) -> Any:
    """`given` into `before`, the fields of the backend's own settings one by one.  Its type can't change."""
    if not isinstance(given, dict):
        return given
    if given.get("type", before["type"]) != before["type"]:
        raise _immutable("session.delegation.type")
    settings = before["type"]
    both = {**before, **given}
    if isinstance(given.get(settings), dict):
        both[settings] = {**before.get(settings, {}), **given[settings]}
    return both


def _check_triggers(triggers: Sequence[schema.Trigger]) -> None:
    if len({trigger.event_type for trigger in triggers}) < len(triggers):
        raise _invalid("session.triggers", "more than one trigger for an event type")


def _model(asked: str, models: Sequence["ModelStatus"], notices: list[Notice]) -> "ModelStatus":
    """The model of that name.  OpenAI's stands for the first, since some clients name it unless they are told not
    to; whoever names another one means it."""
    for model in models:
        if model.id == asked:
            return model
    if models and OPENAI_MODEL.fullmatch(asked):
        notices.append(Notice("model_mapped", f"There is no {shown(asked)} here; this is {models[0].id}."))
        return models[0]
    there_is = ", ".join(each.id for each in models) or "none"
    raise Refused(
        "model_not_found",
        f"There is no model {shown(asked)} here. Models: {there_is}.",
        param="session.model",
    )


def _voice(
    asked: str | schema.CustomVoice | None, model: "ModelStatus", notices: list[Notice]
) -> tuple[str, str | VoiceId]:
    """(the model's voice, how it is echoed).  A built-in name stands for the default voice, since some clients
    always send one; whoever names another voice means it, so that must be there."""
    default = model.voices[0] if model.voices else ""
    if isinstance(asked, schema.CustomVoice):
        if asked.id in model.voices:
            return asked.id, VoiceId(id=asked.id)
    elif asked is None:
        return default, default or DEFAULT_VOICE
    elif asked in model.voices:
        return asked, asked
    elif asked in BUILT_IN_VOICES:
        instead = f"its default, {default!r}" if default else "the only one it has"
        notices.append(
            Notice("voice_mapped", f"{model.id} has no voice {asked!r} and speaks with {instead}.")
        )
        return default, default or asked
    name = asked.id if isinstance(asked, schema.CustomVoice) else asked
    voices = ", ".join(model.voices) or "none but its own; leave it out"
    raise _invalid("session.audio.output.voice", f"{model.id} has no voice {shown(name)}; voices: {voices}")


def _newest(messages: list[dict[str, Any]], notices: list[Notice]) -> list[dict[str, Any]]:
    """The newest messages that fit, oldest first.  Too long a history is cut and not refused: clients send all of
    it again whenever they reconnect, and could not any more."""
    kept = 0
    room = MAX_INPUT_BYTES
    for message in reversed(messages):
        room -= len(message["content"][0]["text"].encode())
        if room < 0:
            break
        kept += 1
    cut = len(messages) - kept
    if cut:
        notices.append(Notice("input_trimmed", f"The oldest {cut} messages of input were too long to keep."))
    return messages[cut:]


def _note_lacking(shape: schema.SessionShape, model: "ModelStatus", notices: list[Notice]) -> None:
    """What this model does not do and another one may."""
    if INSTRUCTIONS in model.unsupported and shape.instructions and not shape.instructions.isspace():
        notices.append(Notice("unsupported_instructions", f"{model.id} takes no instructions."))
    if HISTORY in model.unsupported and shape.input:
        notices.append(Notice("unsupported_input", f"{model.id} does not hear of an earlier conversation."))


def _note_unsupported(shape: schema.SessionShape, notices: list[Notice]) -> None:
    _note_unserved(shape.delegation, shape.triggers, notices)
    if shape.client is not None:
        notices.append(Notice("unsupported_client", "client has no effect on a WebSocket."))


def _note_unserved(
    delegation: schema.Delegation | None, triggers: Sequence[schema.Trigger], notices: list[Notice]
) -> None:
    kind = getattr(delegation, "type", "client")
    if kind != "client":
        notices.append(Notice("unsupported_delegation", f"Nothing is delegated here ({kind} was asked for)."))
    if triggers:
        notices.append(Notice("unsupported_triggers", "Triggers have no effect here."))


def _without_secrets(delegation: dict[str, Any]) -> dict[str, Any]:
    """An MCP tool's `authorization` is never echoed."""
    tools = delegation.get("responses", {}).get("tools")
    if not tools:
        return delegation
    shown_tools = [{key: value for key, value in tool.items() if key != "authorization"} for tool in tools]
    return {**delegation, "responses": {**delegation["responses"], "tools": shown_tools}}


# ---------------------------------------------------------------- mistakes


def _invalid(param: str, why: str) -> Refused:
    return Refused("invalid_value", f"Invalid value: '{param}': {why}.", param=param)


def _unknown(param: str) -> Refused:
    return Refused("unknown_parameter", f"Unknown parameter: '{param}'.", param=param)


def _immutable(param: str) -> Refused:
    why = f"'{param}' can't be changed once the session has started."
    return Refused("immutable_field_update", why, param=param)


def _refusal(error: ValidationError) -> Refused:
    if error.error_count() > MAX_PROBLEMS:
        return _invalid("session", f"it has {error.error_count()} mistakes")
    problems = error.errors(include_url=False)
    # A field that nobody knows says most about what was meant, e.g. `session.voice`; but pydantic lists them last.
    first = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    param = _place(first)
    match first["type"]:
        case "extra_forbidden":
            return _unknown(param)
        case "missing" | "union_tag_not_found" if _is_missing(first):
            return Refused(
                "missing_required_parameter", f"Missing required parameter: '{param}'.", param=param
            )
    return _invalid(param, _why(first))


def _is_missing(problem: ErrorDetails) -> bool:
    """For a union, `union_tag_not_found` also covers a value that is no object, or a tag that is no string."""
    given = problem["input"]
    return problem["type"] == "missing" or (isinstance(given, dict) and _tag_field(problem) not in given)


def _tag_field(problem: ErrorDetails) -> str:
    """The field by which the union at this place is told."""
    return "role" if "input" in problem["loc"][:1] else "type"


def _place(problem: ErrorDetails) -> str:
    """E.g. `session.input[0].content`; tags of unions left out."""
    place = "session"
    for step in problem["loc"]:
        if isinstance(step, int):
            place += f"[{step}]"
        elif not step.startswith("<"):
            place += f".{step if len(step) <= 64 else step[:64] + '…'}"
    if problem["type"].startswith("union_tag") and isinstance(problem["input"], dict):
        place += f".{_tag_field(problem)}"
    return place


def _why(problem: ErrorDetails) -> str:
    given, context = problem["input"], problem.get("ctx", {})
    match problem["type"]:
        case "literal_error":
            return f"expected {context['expected']}, got {shown(given)}"
        case "union_tag_invalid":
            allowed = str(context["expected_tags"]).replace("<", "").replace(">", "")
            return f"expected one of {allowed}, got {str(context['tag'])[:64]}"
        case "union_tag_not_found" | "model_type" | "model_attributes_type" | "dict_type":
            return "expected an object"
        case "too_long" | "too_short" if context.get("max_length", context.get("min_length")) == 1:
            return "expected exactly one text part"
        case "too_long":
            return f"more than {context['max_length']} items"
    message = problem["msg"]
    return message[0].lower() + message[1:]
