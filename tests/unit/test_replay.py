"""A recorded session, run again under other workers and in other batches, is the same byte by byte."""

import asyncio
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duologue import replay
from duologue.audio.formats import FORMATS, Format
from duologue.audio.resample import to_rate
from duologue.models import manifest
from duologue.session.recording import Incomplete, NoRecording, Recording, complete, load, save
from duologue.session.retention import Retention
from duologue.session.segments import Back, Input, Said
from duologue.testing.parrot_reference import reference
from kept_sessions import SEED, Call, Keeping, play, speech

pytestmark = pytest.mark.unit

OTHERS = {"encoder": 2, "llm": 3, "talker": 1, "codec": 2}


def recorded(talk: Any, *, fields: dict[str, Any] | None = None, **options: Any) -> tuple[Recording, Call]:
    """What `talk` does with a session, as the store has it afterwards."""
    found: list[Any] = []

    async def script(it: Keeping) -> None:
        call = await it.session(**{"store": True, **(fields or {})})
        await talk(call)
        await call.close()
        there = await it.read(call.sid)
        found.extend((complete(there.record, there.back), call))

    play(script, **options)
    return found[0], found[1]


def assert_equal(recording: Recording, **how: Any) -> None:
    replayed = replay.run(recording, **how)
    assert [each.differs(recording) for each in replayed] == [[]] * len(replayed)
    assert all(len(each.said) == recording.units for each in replayed)


@pytest.mark.parametrize("loop", [False, True])
def test_a_replay_equals_what_was_put_out(loop: bool) -> None:
    pcm16 = speech(75)

    async def talk(call: Call) -> None:
        await call.say(pcm16.tobytes())

    recording, call = recorded(talk, session_options={"loop": loop})
    assert recording.units == 75
    assert np.array_equal(recording.input16, pcm16)
    put_out = [recording.said[unit].pcm or bytes(3840) for unit in range(75)]
    assert put_out == call.client.units
    assert any(said.pcm for said in recording.said.values())
    assert b"".join(put_out) == reference(pcm16, SEED, loop=loop).pcm16.tobytes()
    assert_equal(recording, workers=OTHERS, alongside=4)
    assert_equal(recording)


def test_what_differs_is_told() -> None:
    async def talk(call: Call) -> None:
        await call.say(speech(40).tobytes())

    recording, _ = recorded(talk)
    spoken = min(unit for unit, said in recording.said.items() if said.pcm)
    wrong = dict(recording.said)
    flipped = bytes([wrong[spoken].pcm[0] ^ 1]) + wrong[spoken].pcm[1:]
    wrong[spoken] = Said(flipped, wrong[spoken].text + "?", wrong[spoken].heard)
    wrong[spoken + 1] = Said(b"", wrong[spoken + 1].text)
    other = Recording(recording.record, recording.input16, recording.decided, wrong)
    [differs] = [each.differs(other) for each in replay.run(other)]
    assert differs == [f"audio of 2 units, the first {spoken}", f"text of 1 units, the first {spoken}"]
    unheard = Recording(recording.record, recording.input16 * 0, recording.decided, recording.said)
    assert any(told.startswith("record of") for told in replay.run(unheard)[0].differs(unheard))


@pytest.mark.parametrize("loop", [False, True])
def test_a_session_that_trimmed_its_context_and_lost_workers_is_replayed_without(loop: bool) -> None:
    async def talk(call: Call) -> None:
        talking = asyncio.create_task(call.say(speech(150).tobytes()))
        for stage in ("llm", "codec"):
            await asyncio.sleep(3.5)
            it = call.keeping.deployment
            owner = next(shell for shell in it.shells if shell.stage == stage and shell.owners)
            owner._transport.blink(math.inf)
            await owner.stop()
        await talking
        await call.client.until(lambda: len(call.client.units) >= 150)

    options = {"loop": loop, "context_units": 24}
    recording, call = recorded(talk, session_options=options, workers={"llm": 2, "codec": 2})
    expected = reference(speech(150), SEED, loop=loop, context_units=24)
    assert b"".join(call.client.units) == expected.pcm16.tobytes()
    moved = {decided.records["llm"][2] for decided in recording.decided}
    assert len(moved) > 3, "trims"
    numbers = {stage: epoch[1] for stage, [(_, epoch, _)] in recording.record.route.items()}
    assert min(numbers["llm"], numbers["codec"]) > max(numbers["encoder"], numbers["talker"]), "heirs"
    assert_equal(recording, alongside=2)
    assert_equal(recording, workers=OTHERS)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_every_format_and_a_client_that_just_leaves(form: Format) -> None:
    """What a resampler held back at the end was never answered; the units before depend on it all the same."""
    data = form.encode(to_rate(speech(60), 24_000, form.rate))
    rng = random.Random(form.name)

    async def talk(call: Call) -> None:
        at = 0
        while at < len(data):
            size = form.sample_bytes * rng.randint(1, form.rate // 20)
            call.root.append(data[at : at + size], None)
            at += size
            await asyncio.sleep(size / form.bytes_per_s)
        call.leave()
        await asyncio.sleep(2)

    recording, _ = recorded(talk, fields={"audio": {"format": {"type": form.type, "rate": form.rate}}})
    assert 50 <= recording.units <= 60
    assert np.array_equal(recording.input16, form.decode(data))
    assert_equal(recording, workers=OTHERS, alongside=1)


def test_what_was_muted_and_what_was_shed_is_silence_again() -> None:
    async def talk(call: Call) -> None:
        data = speech(90).tobytes()
        await call.say(data[: 20 * 3840 + 1000])
        call.root.mute(True, "m1")
        await call.say(data[20 * 3840 + 1000 : 30 * 3840 + 500])
        call.root.mute(False, "m2")
        await call.say(data[30 * 3840 + 500 : 50 * 3840])
        for at in range(50, 90):  # more than may wait
            call.root.append(data[3840 * at : 3840 * (at + 1)], None)
        await call.client.until(lambda: len(call.client.units) >= 90)

    recording, _ = recorded(talk, limits={"input_backlog_s": 0.5})
    shed = [unit for unit, decided in enumerate(recording.decided) if decided.records.get("root") == "shed"]
    controls = [decided.records["controls"] for decided in recording.decided if "controls" in decided.records]
    assert shed
    assert [kind for of_unit in controls for kind, *_ in of_unit] == ["muted", "unmuted"]
    silent = recording.input16[20 * 1920 + 500 : 30 * 1920 + 250]
    assert not silent.any(), "what was muted is not kept"
    assert any(recording.input16[unit * 1920 : (unit + 1) * 1920].any() for unit in shed), "what was shed is"
    assert_equal(recording, workers=OTHERS, alongside=2)


def test_everything_is_recorded_where_the_operator_says_so() -> None:
    async def talk(call: Call) -> None:
        await call.say(speech(30).tobytes())

    recording, _ = recorded(talk, fields={"store": False}, limits={"retention": Retention(everything=True)})
    assert recording.record.kept
    assert_equal(recording)


def test_a_recording_as_a_file_is_the_same(tmp_path: Path) -> None:
    async def talk(call: Call) -> None:
        await call.say(speech(40).tobytes())

    recording, _ = recorded(talk)
    beside = save(recording, tmp_path / "a.npz", manifest("parrot"))
    again = load(tmp_path / "a.npz")
    assert (again.record, again.decided, again.said) == (recording.record, recording.decided, recording.said)
    assert np.array_equal(again.input16, recording.input16)
    assert beside.read_text().count('"horizons"') == 40
    with np.load(tmp_path / "a.npz") as archive:
        assert archive["output16"].shape == (40 * 1920,)
        assert archive["rates"].tolist() == [24_000, 24_000]
    assert_equal(again)


@pytest.mark.parametrize("data", [b"", b"PK\3\4", b"\x93NUMPY"])
def test_what_is_no_recording_is_told(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(NoRecording, match="sessions export"):
        load(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", pcm16=np.zeros(3, np.int16))
    with pytest.raises(NoRecording, match="input16"):
        load(tmp_path / "b.npz")


def test_a_ledger_with_a_hole_is_no_recording() -> None:
    async def talk(call: Call) -> None:
        await call.say(speech(20).tobytes())

    recording, _ = recorded(talk)
    decided = {unit: each for unit, each in enumerate(recording.decided) if unit not in (3, 4, 9)}
    heard = {unit: Input(recording.record.form, unit * 1920, [1920]) for unit in range(20)}
    with pytest.raises(Incomplete, match="no record of units 3 to 4, 9 to 9 of live_"):
        complete(recording.record, Back(decided, heard, {}))
