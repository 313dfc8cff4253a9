"""The table of the protocol against the SDK, the parser and the page that is made of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from openai.types.live import ClientEvent, ServerEvent
from pydantic import BaseModel

from duologue.errors import TABLE
from duologue.models import HISTORY, INSTRUCTIONS
from duologue_api.live import events, schema
from duologue_api.live.commands import Append, Close, Mute, Start, Update, parse
from duologue_api.live.config import check, update
from duologue_api.live.refused import Refused
from duologue_api.live.table import CLIENT, FIELDS, INFOS, MEANINGS, SERVER, Row, Support, page
from duologue_api.port import ModelStatus

pytestmark = pytest.mark.unit

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
MODELS = (
    ModelStatus("m", "", True, ("robin",), 0.08),
    ModelStatus("bare", "", True, (), 0.08, (INSTRUCTIONS, HISTORY)),
)
DTMF = "transport.dtmf.send"
"""Of telephone transports, not in the SDK's union of client events."""


def types_of(union: Any) -> set[str]:
    members: tuple[type[BaseModel], ...] = get_args(get_args(union)[0])
    return {tag for member in members for tag in get_args(member.model_fields["type"].annotation)}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "python -m duologue_api.live.table > docs/protocol.md"


def test_the_page_is_what_the_module_prints() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "duologue_api.live.table"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (page(), "")


def test_every_event_of_the_sdk_has_one_row() -> None:
    assert sorted(row.event for row in CLIENT) == sorted(types_of(ClientEvent) | {DTMF})
    assert sorted(row.event for row in SERVER) == sorted(types_of(ServerEvent))


@pytest.mark.parametrize("row", CLIENT, ids=lambda row: row.event)
def test_the_parser_takes_what_the_table_says(row: Row) -> None:
    frame = {"type": row.event, "event_id": "e", "audio": "AAA=", "session": {}}
    if row.support is Support.REFUSED:
        with pytest.raises(Refused) as refused:
            parse(json.dumps(frame))
        assert (refused.value.code, refused.value.event_id) == ("unsupported_event", "e")
    else:
        assert isinstance(parse(json.dumps(frame)), Start | Append | Mute | Update | Close)


def test_events_that_the_server_has_are_those_that_it_is_said_to_send() -> None:
    ours = {member.__struct_config__.tag for member in events.ServerEvent.__args__}
    sent = {row.event for row in SERVER if row.support is Support.SERVED}
    assert ours == sent


def test_every_field_of_a_session_has_a_row() -> None:
    told = {row.event.partition(":")[0].partition(".")[0] for row in FIELDS}
    assert told == {*schema.SessionShape.model_fields, "any other"}


TRIGGER = {
    "type": "decisions",
    "event_type": "session.input_transcript.delta",
    "decisions": {"questions": []},
}
RESPONSES = {"type": "responses", "responses": {"model": "m"}}
NOTED: list[tuple[str, dict[str, Any]]] = [
    ("model_mapped", {"model": "gpt-live-1"}),
    ("voice_mapped", {"audio": {"output": {"voice": "marin"}}}),
    ("input_trimmed", {"input": [{"role": "user", "content": [{"text": "x" * 70_000}]}]}),
    ("unsupported_delegation", {"delegation": RESPONSES}),
    ("unsupported_triggers", {"triggers": [TRIGGER]}),
    ("unsupported_instructions", {"model": "bare", "instructions": "Be brief."}),
    ("unsupported_input", {"model": "bare", "input": [{"role": "user", "content": [{"text": "x"}]}]}),
    ("unsupported_client", {"client": {"data_channel": {}}}),
]


@pytest.mark.parametrize(("code", "session"), NOTED, ids=lambda each: each if isinstance(each, str) else "")
def test_what_is_accepted_with_info_is_told_by_the_code_of_the_table(
    code: str, session: dict[str, Any]
) -> None:
    [notice] = check({"model": "m", **session}, MODELS).notices
    assert notice.code == code
    [row] = [row for row in FIELDS if f"`{code}`" in row.notes]
    assert row.support is Support.INFO or code == "input_trimmed"


def test_every_code_is_explained() -> None:
    assert {code for code, _ in NOTED} | {"session_expiring"} == set(INFOS)
    assert set(MEANINGS) == set(TABLE)
    assert all(MEANINGS.values())


def test_an_update_is_told_by_the_same_codes() -> None:
    config = check({"model": "m", "delegation": RESPONSES}, MODELS)
    change = {"delegation": {"responses": {"model": "n"}}, "triggers": [TRIGGER]}
    codes = [notice.code for notice in update(config, change).notices]
    assert codes == ["unsupported_delegation", "unsupported_triggers"]
