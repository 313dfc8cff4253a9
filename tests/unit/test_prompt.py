"""The way of instructions, earlier messages and voice from `session.start` to the stages."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from duologue.bus import messages as m
from duologue.inprocess import InProcess
from duologue.models import Message, parrot, pocket
from duologue.virtual import run_virtual
from duologue_api.live.config import MAX_INPUT_BYTES, MAX_INSTRUCTIONS_BYTES, SessionConfig, check
from duologue_api.live.schema import MAX_INPUT_MESSAGES
from duologue_api.port import ModelStatus
from recorder import Recorder, config

pytestmark = pytest.mark.unit


def message(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def start_options(**fields: Any) -> list[dict[str, Any]]:
    """The options with which each stage was opened."""
    found: list[dict[str, Any]] = []

    async def main() -> None:
        async with InProcess("parrot") as deployment:
            client = Recorder()
            root = deployment.pod.connect(client)
            root.start(config(deployment.pod, **fields), None)
            await client.until(lambda: client.started)
            found.extend(
                owner.start.options for shell in deployment.shells for owner in shell.owners.values()
            )

    run_virtual(main())
    return found


def test_a_model_that_wants_it_gets_it_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def prompt(instructions: str | None, messages: Sequence[Message], voice: str) -> dict[str, Any]:
        told.append((instructions, list(messages), voice))
        return {"context_units": 100 + len(messages)}

    monkeypatch.setattr(parrot, "MANIFEST", replace(parrot.MANIFEST, prompt=prompt))
    options = start_options(
        instructions="Be kind.", input=[message("developer", "Hm"), message("assistant", "Hi")]
    )
    assert options == [{"loop": False, "context_units": 102}] * 4
    assert told == [("Be kind.", [("developer", "Hm"), ("assistant", "Hi")], "parrot")]


def test_a_model_that_does_not_want_it_is_told_nothing() -> None:
    assert (
        start_options(instructions="Be kind.", input=[message("user", "Hi")])
        == [{"loop": False, "context_units": 4096}] * 4
    )


def checked(**fields: Any) -> SessionConfig:
    status = ModelStatus("pocket", "", True, pocket.MANIFEST.voices, 0.08)
    return check({"model": "pocket", **fields}, [status])


def test_what_the_pocket_model_is_told() -> None:
    asked = checked(instructions="Be kind.", input=[message("user", "Hi")])
    assert pocket.prompt(asked.instructions, asked.messages, asked.voice) == {
        "instructions": "Be kind.",
        "messages": [["user", "Hi"]],
        "voice": "heart",
    }
    assert pocket.prompt(None, [], "") == {}


def test_the_longest_of_all_fits_a_message() -> None:
    text = "é" * (MAX_INPUT_BYTES // MAX_INPUT_MESSAGES // 2)
    asked = checked(
        instructions="é" * (MAX_INSTRUCTIONS_BYTES // 2),
        input=[message("assistant", text)] * MAX_INPUT_MESSAGES,
    )
    assert len(asked.messages) == MAX_INPUT_MESSAGES
    options = pocket.prompt(asked.instructions, asked.messages, asked.voice)
    assert len(m.encode(m.Start(1, options))) < 0.5 * m.MAX_MESSAGE_BYTES
