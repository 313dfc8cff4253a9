"""What `session` in `session.start` may say, and how it is resolved."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue.audio.formats import FORMATS, Format
from duologue.errors import TABLE
from duologue.models import HISTORY, INSTRUCTIONS
from duologue_api.live.config import MAX_INPUT_BYTES, MAX_INSTRUCTIONS_BYTES, SessionConfig, check, update
from duologue_api.live.events import VoiceId
from duologue_api.live.refused import Refused
from duologue_api.port import ModelStatus

pytestmark = pytest.mark.unit

MODELS = (
    ModelStatus("voiced", "Has voices", True, ("robin", "wren"), 0.08),
    ModelStatus("plain", "Has one voice", False, (), 1.0),
)


def resolve(**session: Any) -> SessionConfig:
    return check({"model": "voiced", **session}, MODELS)


def refusal(session: Any) -> tuple[str, str | None]:
    with pytest.raises(Refused) as refused:
        check(session, MODELS)
    assert refused.value.code in TABLE
    assert len(refused.value.message) < 400
    return refused.value.code, refused.value.param


def codes(config: SessionConfig) -> list[str]:
    return [notice.code for notice in config.notices]


def message(role: str = "user", text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": [{"text": text}], **fields}


def questions(**question: Any) -> dict[str, Any]:
    return {"questions": [question]}


def test_defaults() -> None:
    config = check({"model": "plain"}, MODELS)
    assert (config.format.type, config.format.rate) == ("audio/pcm", 24000)
    assert (config.voice, config.spoken_as) == ("", "marin")
    assert config.instructions is None
    assert config.delegation == {"type": "client"}
    assert (config.input, config.triggers, config.store, config.notices) == ([], [], False, ())


@pytest.mark.parametrize("blank", [None, "", "  \n"])
def test_blank_instructions_mean_the_models_own(blank: str | None) -> None:
    assert resolve(instructions=blank).instructions is None


def test_nothing_is_told_of_what_was_not_asked_for() -> None:
    bare = ModelStatus("bare", "", True, (), 0.08, (INSTRUCTIONS, HISTORY, "tools"))
    assert check({"model": "bare", "instructions": " ", "input": []}, [bare]).notices == ()
    both = check({"model": "bare", "instructions": "Sing.", "input": [message()]}, [bare])
    assert codes(both) == ["unsupported_instructions", "unsupported_input"]
    assert (both.instructions, both.input) == ("Sing.", [message()]), "echoed all the same"
    assert codes(resolve(instructions="Sing.", input=[message()])) == []


def test_null_means_the_same_as_nothing_where_it_may_stand() -> None:
    assert resolve(instructions=None, delegation=None, safety_identifier=None) == resolve()


# ---------------------------------------------------------------- what is refused

RESPONSES = {"type": "responses", "responses": {"model": "m"}}


def responses(**fields: Any) -> dict[str, Any]:
    return {"model": "voiced", "delegation": {"type": "responses", "responses": {"model": "m", **fields}}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"voice": "marin"}, "session.voice"),
        ({"type": "live"}, "session.type"),
        ({"audio": {"input": {}}}, "session.audio.input"),
        ({"audio": {"format": {"type": "audio/pcm", "rat": 1}}}, "session.audio.format.rat"),
        ({"audio": {"output": {"voice": {"id": "wren", "x": 1}}}}, "session.audio.output.voice.x"),
        ({"input": [message(), message(name="x")]}, "session.input[1].name"),
        ({"input": [{"role": "user", "content": [{"text": "a", "x": 1}]}]}, "session.input[0].content[0].x"),
        ({"delegation": {"type": "client", "client": 1}}, "session.delegation.client"),
        ({"delegation": {**RESPONSES, "decisions": {}}}, "session.delegation.decisions"),
        (responses(temperature=1), "session.delegation.responses.temperature"),
        (responses(reasoning={"budget": 1}), "session.delegation.responses.reasoning.budget"),
        (
            responses(tools=[{"type": "function", "name": "a", "nam": 1}]),
            "session.delegation.responses.tools[0].nam",
        ),
        ({"client": {"data_channel": {"x": 1}}}, "session.client.data_channel.x"),
    ],
)
def test_an_unknown_field_is_named(fields: dict[str, Any], param: str) -> None:
    assert refusal({"model": "voiced", **fields}) == ("unknown_parameter", param)


def test_an_unknown_field_is_named_before_other_mistakes() -> None:
    assert refusal({"voice": "marin"}) == ("unknown_parameter", "session.voice")


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({}, "session.model"),
        ({"model": "voiced", "audio": {"format": {"rate": 24000}}}, "session.audio.format.type"),
        ({"model": "voiced", "audio": {"format": {"type": "audio/pcm"}}}, "session.audio.format.rate"),
        ({"model": "voiced", "audio": {"output": {"voice": {}}}}, "session.audio.output.voice.id"),
        ({"model": "voiced", "delegation": {}}, "session.delegation.type"),
        ({"model": "voiced", "delegation": {"type": "responses"}}, "session.delegation.responses"),
        (
            {"model": "voiced", "delegation": {"type": "responses", "responses": {}}},
            "session.delegation.responses.model",
        ),
        (responses(tools=[{"name": "look"}]), "session.delegation.responses.tools[0].type"),
        (responses(tools=[{"type": "function"}]), "session.delegation.responses.tools[0].name"),
        ({"model": "voiced", "input": [{"content": []}]}, "session.input[0].role"),
        ({"model": "voiced", "input": [{"role": "user"}]}, "session.input[0].content"),
        (
            {"model": "voiced", "input": [{"role": "user", "content": [{}]}]},
            "session.input[0].content[0].text",
        ),
        ({"model": "voiced", "triggers": [{"type": "decisions"}]}, "session.triggers[0].event_type"),
        ({"model": "voiced", "client": {}}, "session.client.data_channel"),
    ],
)
def test_a_missing_field_is_named(session: Any, param: str) -> None:
    assert refusal(session) == ("missing_required_parameter", param)


def voiced(**fields: Any) -> dict[str, Any]:
    return {"model": "voiced", **fields}


@pytest.mark.parametrize(
    ("session", "param"),
    [
        *[(whole, "session") for whole in (None, 1, "voiced", [], True)],
        *[({"model": model}, "session.model") for model in (None, 1, ["voiced"])],
        (voiced(instructions=5), "session.instructions"),
        (voiced(instructions="x" * (MAX_INSTRUCTIONS_BYTES + 1)), "session.instructions"),
        (voiced(audio=None), "session.audio"),
        (voiced(audio="pcm"), "session.audio"),
        (voiced(audio={"format": "audio/pcm"}), "session.audio.format"),
        (voiced(audio={"format": None}), "session.audio.format"),
        (voiced(audio={"format": {"type": "audio/opus", "rate": 48000}}), "session.audio.format.type"),
        (voiced(audio={"format": {"type": 5, "rate": 48000}}), "session.audio.format.type"),
        (voiced(audio={"format": {"type": "audio/pcm", "rate": 44100}}), "session.audio.format.rate"),
        (voiced(audio={"format": {"type": "audio/pcm", "rate": "24000"}}), "session.audio.format.rate"),
        (voiced(audio={"format": {"type": "audio/pcmu", "rate": 24000}}), "session.audio.format.rate"),
        (voiced(audio={"format": {"type": "audio/pcm", "rate": 8000}}), "session.audio.format.rate"),
        (voiced(audio={"format": {"type": "audio/pcma", "rate": 16000}}), "session.audio.format.rate"),
        (voiced(audio={"output": {"voice": 5}}), "session.audio.output.voice"),
        (voiced(audio={"output": {"voice": ["wren"]}}), "session.audio.output.voice"),
        (voiced(audio={"output": {"voice": "boomer"}}), "session.audio.output.voice"),
        (voiced(audio={"output": {"voice": {"id": "marin"}}}), "session.audio.output.voice"),
        (voiced(audio={"output": {"voice": {"id": 5}}}), "session.audio.output.voice.id"),
        (voiced(input={}), "session.input"),
        (voiced(input=None), "session.input"),
        (voiced(input=["hello"]), "session.input[0]"),
        (voiced(input=[message()] * 129), "session.input"),
        (voiced(input=[message("system")]), "session.input[0].role"),
        (voiced(input=[message(content="hello")]), "session.input[0].content"),
        (voiced(input=[message(content=[])]), "session.input[0].content"),
        (voiced(input=[message(content=[{"text": "a"}, {"text": "b"}])]), "session.input[0].content"),
        (voiced(input=[message(content=[{"text": 5}])]), "session.input[0].content[0].text"),
        (
            voiced(input=[message(content=[{"text": "a", "type": "output_text"}])]),
            "session.input[0].content[0].type",
        ),
        (
            voiced(input=[message("assistant", content=[{"text": "a", "type": "input_text"}])]),
            "session.input[0].content[0].type",
        ),
        (voiced(input=[message(status="done")]), "session.input[0].status"),
        (voiced(input=[message(type="item")]), "session.input[0].type"),
        (voiced(delegation="client"), "session.delegation"),
        (voiced(delegation={"type": "agents"}), "session.delegation.type"),
        (voiced(delegation={"type": None}), "session.delegation.type"),
        (
            voiced(delegation={"type": "client", "acknowledgement_delay_ms": "1"}),
            "session.delegation.acknowledgement_delay_ms",
        ),
        (voiced(delegation={"type": "responses", "responses": 5}), "session.delegation.responses"),
        (responses(max_output_tokens=15), "session.delegation.responses.max_output_tokens"),
        (responses(tools={}), "session.delegation.responses.tools"),
        (responses(tools=[{"type": "teleport"}]), "session.delegation.responses.tools[0].type"),
        (responses(tool_choice="maybe"), "session.delegation.responses.tool_choice"),
        (responses(text={"verbosity": "extreme"}), "session.delegation.responses.text.verbosity"),
        (voiced(store=None), "session.store"),
        (voiced(store="yes"), "session.store"),
        (voiced(store=1), "session.store"),
        (
            voiced(
                triggers=[
                    {
                        "type": "decisions",
                        "event_type": "session.input_transcript.delta",
                        "decisions": {"questions": []},
                    }
                ]
                * 2
            ),
            "session.triggers",
        ),
        (voiced(safety_identifier=5), "session.safety_identifier"),
        (
            voiced(client={"data_channel": {"allowed_client_events": "some"}}),
            "session.client.data_channel.allowed_client_events",
        ),
    ],
)
def test_a_wrong_value_is_named(session: Any, param: str) -> None:
    assert refusal(session) == ("invalid_value", param)


def test_an_unknown_model_is_answered_with_those_there_are() -> None:
    with pytest.raises(Refused, match="voiced, plain") as refused:
        check({"model": "other"}, MODELS)
    assert (refused.value.code, refused.value.param) == ("model_not_found", "session.model")


@pytest.mark.parametrize("name", ["gpt-live-1", "gpt-live-1-mini", "gpt-live-2-2026-10-01"])
def test_openais_own_model_stands_for_the_first(name: str) -> None:
    config = check({"model": name}, MODELS)
    assert (config.model, codes(config)) == ("voiced", ["model_mapped"])
    assert config.resource("live_1", 1).model == "voiced"
    there = ModelStatus(name, "Is called so", True, (), 1.0)
    assert check({"model": name}, (*MODELS, there)).model == name
    with pytest.raises(Refused, match="none"):
        check({"model": name}, ())


@pytest.mark.parametrize(
    "name",
    ["gpt-live-transcribe", "gpt-live-", "gpt-live", "gpt-realtime-2", "x-gpt-live-1", "gpt-live-1\n", ""],
)
def test_no_other_name_stands_for_a_model(name: str) -> None:
    assert refusal({"model": name}) == ("model_not_found", "session.model")


def test_what_is_long_is_not_quoted_back() -> None:
    assert refusal({"model": "x" * 100_000}) == ("model_not_found", "session.model")
    code, param = refusal({"model": "voiced", "y" * 100_000: 1})
    assert code == "unknown_parameter"
    assert param is not None
    assert len(param) < 100


@pytest.mark.parametrize(
    "session",
    [
        {"model": "voiced", **{f"x{number}": 1 for number in range(20_000)}},
        {"model": "voiced", "triggers": [1] * 100_000},
        responses(tools=[1] * 100_000),
    ],
)
def test_many_mistakes_are_one_refusal(session: Any) -> None:
    code, param = refusal(session)
    assert code == "invalid_value"
    assert param is not None


FIELDS = (
    "model audio format type rate output voice id input role content text delegation responses decisions questions "
    "tools triggers client <x>"
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
WORDS = st.sampled_from(["voiced", "audio/pcm", "responses", "user", "marin", "function", 24000])
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS.split()), inner | WORDS, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_is_said_is_resolved_or_refused(session: Any) -> None:
    match outcome(session):
        case Refused(code=code, param=str(param)):
            assert code in TABLE
            assert param.startswith("session")
        case SessionConfig(model=model):
            assert model in ("voiced", "plain")
        case other:
            pytest.fail(str(other))


def outcome(session: Any) -> SessionConfig | Refused:
    try:
        return check(session, MODELS)
    except Refused as refused:
        return refused


# ---------------------------------------------------------------- what is accepted


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_all_formats_are_served(form: Format) -> None:
    config = resolve(audio={"format": {"type": form.type, "rate": form.rate}})
    assert (config.format.type, config.format.rate) == (form.type, form.rate)
    assert config.notices == ()


@pytest.mark.parametrize(
    ("asked", "voice", "shown", "mapped"),
    [
        (None, "robin", "robin", False),
        ("wren", "wren", "wren", False),
        ({"id": "wren"}, "wren", VoiceId(id="wren"), False),
        ("marin", "robin", "robin", True),
        ("willow", "robin", "robin", True),
    ],
)
def test_voices(asked: Any, voice: str, shown: str | VoiceId, mapped: bool) -> None:
    config = resolve(audio={"output": {"voice": asked}})
    assert (config.voice, config.spoken_as) == (voice, shown)
    assert codes(config) == ["voice_mapped"] * mapped


def test_a_voice_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(Refused, match="robin, wren"):
        resolve(audio={"output": {"voice": "boomer"}})


def test_a_model_without_named_voices_takes_any_built_in_name() -> None:
    config = check({"model": "plain", "audio": {"output": {"voice": "cedar"}}}, MODELS)
    assert (config.voice, config.spoken_as) == ("", "cedar")
    assert codes(config) == ["voice_mapped"]


def test_the_whole_history_of_a_reconnecting_client_is_accepted() -> None:
    history = [message(role, "hi") for role in ("developer", "user", "assistant", "user")] * 32
    assert resolve(input=history).input == history


def test_a_history_too_long_loses_its_oldest_messages() -> None:
    history = [message(text=f"{number}" + "é" * (MAX_INPUT_BYTES // 8)) for number in range(10)]
    config = resolve(input=history)
    assert config.input == history[-3:]
    [notice] = config.notices
    assert notice.code == "input_trimmed"
    assert " 7 " in notice.message


@pytest.mark.parametrize(
    ("session", "code"),
    [
        ({"delegation": RESPONSES}, "unsupported_delegation"),
        (
            {
                "delegation": {
                    "type": "decisions",
                    "decisions": {
                        "model": "m",
                        "questions": [
                            {"type": "predicate", "instructions": [{"type": "input_text", "text": "?"}]},
                            {"type": "choice", "instructions": "?", "choices": [{"value": "a"}]},
                            {"type": "score", "instructions": "?", "levels": [{"label": "a"}], "name": "n"},
                        ],
                    },
                }
            },
            "unsupported_delegation",
        ),
        (
            {
                "triggers": [
                    {
                        "type": "decisions",
                        "event_type": f"session.{side}_transcript.delta",
                        "decisions": questions(
                            type="predicate", instructions=[{"type": "input_json", "data": {}}]
                        ),
                    }
                    for side in ("input", "output")
                ]
            },
            "unsupported_triggers",
        ),
        ({"client": {"data_channel": {"allowed_server_events": [{"type": "info"}]}}}, "unsupported_client"),
    ],
)
def test_what_has_no_effect_is_accepted_and_said(session: dict[str, Any], code: str) -> None:
    assert codes(resolve(**session)) == [code]


def test_delegation_to_the_client_needs_no_word() -> None:
    config = resolve(delegation={"type": "client", "acknowledgement_delay_ms": 400})
    assert config.notices == ()
    assert config.delegation["acknowledgement_delay_ms"] == 400


def test_an_mcp_tools_authorization_is_kept_but_not_echoed() -> None:
    tools = [{"type": "mcp", "server_label": "x", "authorization": "hidden"}, {"type": "web_search"}]
    config = check(responses(tools=tools), MODELS)
    assert config.delegation["responses"]["tools"] == tools
    echoed = config.resource("live_x", 1).delegation["responses"]
    assert echoed == {"model": "m", "tools": [{"type": "mcp", "server_label": "x"}, {"type": "web_search"}]}
    assert "hidden" not in json.dumps(echoed)


# ---------------------------------------------------------------- updates


def trigger(side: str) -> dict[str, Any]:
    return {
        "type": "decisions",
        "event_type": f"session.{side}_transcript.delta",
        "decisions": questions(type="predicate", instructions="?"),
    }


BEFORE = resolve(
    delegation={
        "type": "responses",
        "acknowledgement_delay_ms": 400,
        "responses": {
            "model": "m",
            "instructions": "i",
            "tools": [{"type": "web_search"}],
            "reasoning": {"effort": "low"},
        },
    },
    triggers=[trigger("input")],
)


@pytest.mark.parametrize(
    ("delegation", "expected"),
    [
        (None, {}),
        ({}, {}),
        ({"type": "responses"}, {}),
        ({"acknowledgement_delay_ms": 0}, {"acknowledgement_delay_ms": 0}),
        ({"responses": {}}, {}),
        ({"responses": {"model": "n"}}, {"responses": {"model": "n"}}),
        ({"responses": {"instructions": None}}, {"responses": {"instructions": None}}),
        ({"responses": {"tools": []}}, {"responses": {"tools": []}}),
        (
            {"responses": {"tools": [{"type": "function", "name": "f"}]}},
            {"responses": {"tools": [{"type": "function", "name": "f"}]}},
        ),
    ],
)
def test_an_update_merges_delegation_and_replaces_lists(delegation: Any, expected: dict[str, Any]) -> None:
    after = update(BEFORE, {"delegation": delegation})
    settings = {**BEFORE.delegation["responses"], **expected.get("responses", {})}
    assert after.delegation == {**BEFORE.delegation, **expected, "responses": settings}
    assert after.triggers == BEFORE.triggers
    assert codes(after) == ["unsupported_delegation"] * (delegation is not None)
    assert BEFORE.delegation["responses"]["model"] == "m", "what was before is as it was"


def test_an_update_merges_decisions_too() -> None:
    asked = {"type": "predicate", "instructions": "?"}
    before = resolve(
        delegation={"type": "decisions", "decisions": {"model": "m", "questions": [asked, asked]}}
    )
    after = update(before, {"delegation": {"type": "decisions", "decisions": {"questions": [asked]}}})
    assert after.delegation["decisions"] == {"model": "m", "questions": [asked]}


@pytest.mark.parametrize("triggers", [[], [trigger("output")], [trigger("output"), trigger("input")]])
def test_an_update_replaces_triggers(triggers: list[Any]) -> None:
    after = update(BEFORE, {"triggers": triggers})
    assert (after.triggers, after.delegation) == (triggers, BEFORE.delegation)
    assert codes(after) == ["unsupported_triggers"] * bool(triggers)


def test_an_update_of_nothing_changes_nothing() -> None:
    after = update(BEFORE, {})
    assert (after.delegation, after.triggers, after.notices) == (BEFORE.delegation, BEFORE.triggers, ())
    assert after.model == BEFORE.model


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        (None, "invalid_value", "session"),
        ([], "invalid_value", "session"),
        ({"voice": "marin"}, "unknown_parameter", "session.voice"),
        ({"model": "voiced", "voice": "marin"}, "unknown_parameter", "session.voice"),
        *[
            ({name: None}, "immutable_field_update", f"session.{name}")
            for name in ("model", "instructions", "audio", "input", "store", "safety_identifier", "client")
        ],
        (
            {"delegation": {"type": "client"}},
            "immutable_field_update",
            "session.delegation.type",
        ),
        ({"delegation": {"type": None}}, "immutable_field_update", "session.delegation.type"),
        ({"delegation": "responses"}, "invalid_value", "session.delegation"),
        ({"delegation": {"decisions": {}}}, "unknown_parameter", "session.delegation.decisions"),
        ({"delegation": {"responses": 5}}, "invalid_value", "session.delegation.responses"),
        (
            {"delegation": {"responses": {"temperature": 1}}},
            "unknown_parameter",
            "session.delegation.responses.temperature",
        ),
        (
            {"delegation": {"responses": {"model": None}}},
            "invalid_value",
            "session.delegation.responses.model",
        ),
        (
            {"delegation": {"responses": {"tools": [{"type": "function"}]}}},
            "missing_required_parameter",
            "session.delegation.responses.tools[0].name",
        ),
        (
            {"delegation": {"responses": {"instructions": "x" * (1 << 20)}}},
            "invalid_value",
            "session.delegation",
        ),
        ({"triggers": None}, "invalid_value", "session.triggers"),
        ({"triggers": [trigger("input")] * 2}, "invalid_value", "session.triggers"),
    ],
)
def test_an_update_that_is_refused(session: Any, code: str, param: str) -> None:
    with pytest.raises(Refused) as refused:
        update(BEFORE, session)
    assert (refused.value.code, refused.value.param) == (code, param)
    assert len(refused.value.message) < 400


@given(JSON)
def test_whatever_an_update_says_is_taken_or_refused(session: Any) -> None:
    try:
        found: SessionConfig | Refused = update(BEFORE, session)
    except Refused as refused:
        found = refused
    match found:
        case Refused(code=code, param=str(param)):
            assert code in TABLE
            assert param.startswith("session")
        case SessionConfig() as after:
            assert update(after, {}).delegation == after.delegation
        case other:
            pytest.fail(str(other))
