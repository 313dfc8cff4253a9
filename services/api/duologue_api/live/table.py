"""What of the Live protocol is served: one table, which the parser reads and docs/protocol.md is made of.

python -m duologue_api.live.table > docs/protocol.md
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from duologue.errors import TABLE, ErrorKind


class Support(Enum):
    """How an event or a field is served."""

    SERVED = "supported"
    INFO = "accepted with info"
    """Checked, echoed, and without effect: an `info` says so."""
    REFUSED = "refused"
    NEVER = "never sent"


class Row(NamedTuple):
    event: str
    support: Support
    notes: str = ""


S, I, R, N = Support.SERVED, Support.INFO, Support.REFUSED, Support.NEVER  # noqa: E741

CLIENT = (
    Row("session.start", S, "once, and before all others; `session.started`, or `error` and the end"),
    Row("session.update", I, "`session.updated`; changes `delegation` and `triggers`, see below"),
    Row(
        "session.input_audio.append",
        S,
        "no answer; chunks may have any length of whole samples, and silence is sent, too",
    ),
    Row(
        "session.input_audio.mute",
        S,
        "`session.input_audio.muted`; from this sample on the model hears silence, and the session clock goes on",
    ),
    Row("session.input_audio.unmute", S, "`session.input_audio.unmuted`"),
    Row(
        "session.close",
        S,
        "units under way are answered, then `session.usage.updated`, `session.closed`, close code 1000",
    ),
    Row("session.instructions.append", R),
    Row("session.thinking.append", R),
    Row("session.commentary.append", R),
    Row("session.output_audio.fixture.play", R),
    Row("response.item.create", R, "nothing is delegated here"),
    Row("response.create", R, "nothing is delegated here"),
    Row("decision.create", R),
    Row("decision.item.create", R),
    Row("decision.item.delete", R),
    Row("transport.dtmf.send", R, "of telephone transports"),
)
"""Client → server, all of the protocol (openai-python 3.57)."""

UNSUPPORTED = frozenset(row.event for row in CLIENT if row.support is Support.REFUSED)
"""Commands of the protocol that this server doesn't carry out: refused each time, never swallowed."""

SERVER = (
    Row("session.started", S, "every stage has taken the session; audio sent before waits for that"),
    Row("session.updated", S, "the whole session after an update"),
    Row("session.input_audio.muted", S, "from the sample that followed the command"),
    Row("session.input_audio.unmuted", S, "from the sample that followed the command"),
    Row(
        "session.output_audio.delta",
        S,
        "one a unit of input, zeros included: output runs on the session clock, which is the input audio; never "
        "empty, and in other formats than the model's own cut elsewhere",
    ),
    Row(
        "session.output_transcript.delta",
        S,
        "with the unit in which it is said; `start_ms` and `end_ms` on the session clock",
    ),
    Row(
        "session.input_transcript.delta",
        S,
        "where the model transcribes what it hears (`pocket`): words with the times at which they were said, on the "
        "session clock, once they are certain",
    ),
    Row(
        "session.usage.updated",
        S,
        "every 15 s of session clock and at the close; `context_window` where the model has a budget",
    ),
    Row("session.closed", S, "reason `close_requested`, `expired` (after the lifetime) or `connection_lost`"),
    Row("error", S, "see below"),
    Row("info", S, "see below"),
    Row("session.instructions.appended", N),
    Row("session.thinking.appended", N),
    Row("session.commentary.appended", N),
    Row("session.output_audio.fixture.playing", N),
    Row("session.output_audio.fixture.played", N),
    Row("session.delegation.created", N),
    Row("response.event", N),
    Row("decision.event", N),
    Row("decision.item.created", N),
    Row("decision.item.deleted", N),
    Row("session.input_audio.append", N, "of sideband sockets"),
    *(
        Row(f"transport.{name}", N, "of telephone transports")
        for name in ("dtmf.received", "dtmf.send", "dtmf.sent", "ringing", "answered", "failed")
    ),
)
"""Server → client, all of the protocol."""

FIELDS = (
    Row("model", S, "required"),
    Row("model: gpt-live-…", I, "`model_mapped`: stands for the first model, unless one is called so"),
    Row("instructions", S, "up to 16,384 tokens; blank: the model's own"),
    Row("instructions: where the model takes none", I, "`unsupported_instructions`"),
    Row("audio.format", S, "`audio/pcm` 24000 (the default) or 16000, `audio/pcmu` 8000, `audio/pcma` 8000"),
    Row("audio.output.voice", S, "one of the model's (`GET /v1/models`); any other name is refused"),
    Row("audio.output.voice: a built-in name", I, "`voice_mapped`: the model speaks with its own"),
    Row("input", S, "up to 128 messages; of too long a history the oldest go: `input_trimmed`"),
    Row("input: where the model takes none", I, "`unsupported_input`"),
    Row("delegation: client", S, "the default"),
    Row("delegation: responses, decisions", I, "`unsupported_delegation`, tools included"),
    Row("triggers", I, "`unsupported_triggers`"),
    Row("store", S, "both directions are recorded, with all that the model decided (docs/sessions.md)"),
    Row("client", I, "`unsupported_client`"),
    Row("safety_identifier", S, "echoed"),
    Row("any other", R, "`unknown_parameter`, with its path in `param`"),
)
"""Of `session` in `session.start`."""

INFOS = {
    "model_mapped": "OpenAI's own model was asked for (the default of LiveKit's client), and the first one here answers",
    "voice_mapped": "a built-in voice was asked for, and the model speaks with its own",
    "input_trimmed": "`input` was too long, its oldest messages are left out",
    "unsupported_instructions": "the model takes no instructions (`GET /v1/models` tells what each has not)",
    "unsupported_input": "the model does not hear of an earlier conversation",
    "unsupported_delegation": "nothing is delegated here",
    "unsupported_triggers": "triggers have no effect",
    "unsupported_client": "`client` has no effect on a WebSocket",
    "session_expiring": "the lifetime ends in a minute (of one shorter than two minutes, at its half)",
}
"""Codes of `info`."""

MEANINGS: Mapping[str, str] = {
    "invalid_event": "not JSON, no type, too long, too deep, out of order",
    "unsupported_event": "a command that is not served",
    "invalid_audio": "base64 that is none, no sample, an odd number of bytes of PCM: the append is refused whole",
    "unknown_parameter": "the configuration: a field that there is not",
    "missing_required_parameter": "the configuration: a field that there must be",
    "invalid_value": "the configuration: a value that can't be",
    "immutable_field_update": "`session.update` of what can't change",
    "model_not_found": "no such model",
    "start_timeout": "no `session.start` for 60 s",
    "input_backlog": "input runs 5 s ahead of the model: the oldest is replaced by silence, one `error` an episode; "
    "or, by the server's policy, the session ends",
    "output_backlog": "you read too slowly: the oldest audio was dropped, the message tells how much; one an "
    "episode, and after 30 s the end",
    "session_limit_reached": "a stage has no place for another session, or too many sockets wait for their "
    "`session.start`: try again",
    "model_unavailable": "a stage has no worker yet: try again",
    "server_draining": "the server is going down: try again",
    "session_failed": "a stage lost the session's state",
    "internal_error": "a bug of the server's",
    "invalid_api_key": "no such key",
    "forbidden": "see [Open servers](#open-servers)",
    "not_found": "nothing there",
    "session_id_not_found": "no such session, or it has no such socket",
    "method_not_allowed": "HTTP only",
    "upgrade_required": "this is a WebSocket endpoint",
    "not_implemented": "sessions over WebRTC",
}
"""Every code of `duologue.errors.TABLE`, for its reader."""


def page() -> str:
    """docs/protocol.md."""
    return PAGE.format(
        client=_table(("client event", "served", "answer, notes"), CLIENT),
        server=_table(("server event", "served", "when"), SERVER),
        fields=_table(("field", "served", "notes"), FIELDS),
        infos=_rows(("code", "meaning"), ((f"`{code}`", why) for code, why in INFOS.items())),
        errors=_rows(
            ("code", "type", "meaning", "then"),
            (
                (f"`{code}`", f"`{kind.type}`", MEANINGS.get(code, ""), _then(code, kind))
                for code, kind in TABLE.items()
            ),
        ),
    )


def _table(head: Sequence[str], rows: Iterable[Row]) -> str:
    return _rows(head, ((_code(row.event), row.support.value, row.notes) for row in rows))


def _code(name: str) -> str:
    field, colon, value = name.partition(":")
    return name if " " in field else f"`{field}`{colon}{value}"


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def _then(code: str, kind: ErrorKind) -> str:
    """What becomes of the connection."""
    if kind.close is None:
        return "session lives" if kind.status == 400 else f"HTTP {kind.status}"
    if kind.status in (401, 403):
        return f"HTTP {kind.status}"
    if kind.ends is not None:
        return f"close {kind.close}; of a started session `session.closed` with `{kind.ends}`, close 1000"
    return {
        "output_backlog": f"session lives; in the end close {kind.close}",
        "input_backlog": f"session lives; or `session.closed` with `connection_lost`, close 1000 "
        f"(before `session.started`: close {kind.close})",
        "start_timeout": f"close {kind.close}",
        "model_not_found": f"close {kind.close}",
    }.get(code, f"session lives; in answer to `session.start`: close {kind.close}")


PAGE = """# The Live protocol as it is served

<!-- Made by `python -m duologue_api.live.table > docs/protocol.md`; a test holds it up to date. -->

`GET /v1/live/sessions` upgraded to a WebSocket; text frames of JSON; audio is base64 in them. Types are those of
`openai.types.live` (openai-python 3.57); tests validate every event against them, unknown fields forbidden.

## Client events

{client}

What is refused is answered by `error` with code `unsupported_event` and your `event_id`; the session lives on. Every
answer to a command carries its `event_id` as `client_event_id`.

In `session` of `session.start`:

{fields}

`session.update` takes `delegation` and `triggers`. The fields of `delegation` and of its `responses` or `decisions` are
merged with what they were, lists (`tools`, `questions`, `triggers`) replaced, and what is left out stays. `delegation.type`
and all other fields of `session` can't change: `immutable_field_update`, with the field in `param`.

## Server events

{server}

## Audio

One format for both directions, mono. `audio/pcm` is int16, little-endian; `audio/pcmu` and `audio/pcma` are G.711 at 8 kHz,
a byte a sample. Where the model works at another rate the server resamples (soxr HQ in float32, one rounding). What
comes out depends on the samples alone, not on how they were cut into appends, and n units of input have n units of
output at the close. On the way a resampler holds back, added to the model's own delay:

| between | input, a unit is complete | output, of each unit comes with the next |
|---|---|---|
| equal rates | at once | nothing |
| 16 and 24 kHz | 20 to 40 ms after its last sample (mean 31) | the last 6 to 37 ms (mean 21) |
| 8 and 24 kHz | 20 to 80 ms (mean 53) | the last 12 to 73 ms (mean 43) |
| 8 and 16 kHz | 20 to 120 ms (mean 74) | the last 12 to 115 ms (mean 64) |

A listening model's output is exact zeros, which is `0xFF` in µ-law and `0xD5` in A-law.

## Notices

{infos}

## Errors

{errors}

Before every close there is an `error` or a `session.closed`, but for what the transport itself can't take: a frame of more
than 8 MiB (1009), text that is not UTF-8 (1007), no answer to a ping for 20 s (1011), and more than 4096 parts of
messages, pings and pongs at once, or 1000 a second (1008).

## Open servers

A server without keys listens on loopback, which any web page can reach by the browser of whoever looks at it. So it takes
no request

- whose `Origin` is not its own: scheme `http` or `https`, same host, same port. A page of another port of this machine is
  of another origin;
- that a page of another site or port made blindly (`Sec-Fetch-Site`), other than by a link to here;
- whose `Host` is a name that a name server could turn to this machine: only `localhost`, `*.localhost` and IP addresses
  are answered.

Clients that are no browsers send no `Origin` and need nothing. A page of yours elsewhere needs a key: give the server one,
and open the socket with the subprotocols `openai-live` and `openai-insecure-api-key.<key>`; only the first is echoed.

## Other routes

`GET /` is the [talk page](talk-page.md), which needs no key itself. `GET /v1/models` (with `duologue.ready`, `description`,
`voices`, `unit_s`, `input_rate`, `output_rate`, `unsupported`), `GET /healthz`, `GET /readyz` (503 with the reason until every stage of a
model has a worker), `GET /metrics` (Prometheus). `POST /v1/live/sessions` (WebRTC) answers 501; sideband and fork sockets
404.
"""

if __name__ == "__main__":
    print(page(), end="")
