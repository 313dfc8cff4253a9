"""Sessions written down: as `duologue offline` has them, within bounds, and whatever way they end."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duologue import offline
from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.tape import Copy
from duologue.inprocess import InProcess
from duologue.tap import writing
from duologue.tap.writing import IDLE_S, LOOK_S, SETTLE_S, Writer
from duologue.testing.signals import speechlike
from duologue.virtual import run_virtual
from recorder import Recorder, config

pytestmark = pytest.mark.unit

UNIT = 1920
SID = "live_1"


def loop_time() -> float:
    return asyncio.get_running_loop().time()


def writer(folder: Path, **options: Any) -> Writer:
    made = Writer(folder, clock=loop_time, **options)
    made.start()
    return made


def copy(subject: str, message: m.Struct) -> Copy:
    return Copy(m.WIRE, subject, "", m.encode(message))


def claim(sid: str = SID, model: str = "parrot") -> Copy:
    wiring = m.Wiring((0, 1), False, {}, {})
    made = m.Claim(m.WIRE, m.LEDGER, sid, "llm", model, (1, 1), "api.a", m.Start(0), wiring)
    return copy(subjects.claims("llm.l"), made)


def units(*numbers: int, sid: str = SID) -> Copy:
    made = [
        m.Envelope(
            m.WIRE,
            sid,
            "root",
            "encoder",
            number,
            (1, 0),
            (1, 1),
            m.Audio.of({"pcm": np.full(UNIT, number, np.int16)}),
        )
        for number in numbers
    ]
    return copy(subjects.inbox("encoder.e"), m.Bundle(m.WIRE, "api.a", made))


def closed(sid: str = SID) -> Copy:
    return copy(subjects.event("closed", sid), m.Event(m.WIRE, "closed", sid))


def read(folder: Path, name: str = SID) -> tuple[list[int], list[dict[str, Any]]]:
    """The first sample of each unit, and the records."""
    with np.load(folder / f"{name}.npz") as archive:
        samples = archive["input_pcm16"][::UNIT].tolist()
    return samples, json.loads((folder / f"{name}.json").read_text())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_session_is_written_as_offline_has_it(tmp_path: Path) -> None:
    pcm = speechlike(60 * UNIT / 24000, seed=3)
    expected = offline.run("parrot", pcm, {"loop": True}, seed=7)

    async def main() -> None:
        made = writer(tmp_path)
        async with InProcess("parrot", session_options={"loop": True}, seed=7) as deployment:
            deployment.bus.observe(
                lambda message: made.see(Copy(m.WIRE, message.subject, message.reply, message.data))
            )
            client = Recorder()
            root = deployment.pod.connect(client)
            root.start(config(deployment.pod), None)
            await client.until(lambda: client.started)
            for at in range(0, len(pcm), UNIT):
                root.append(pcm[at : at + UNIT].astype("<i2").tobytes(), None)
                await asyncio.sleep(0.08)
            root.request_close(None)
            await client.until(lambda: client.ended is not None)
            await asyncio.sleep(2 * SETTLE_S)
        name = root.sid
        assert names(tmp_path) == [f"{name}.json", f"{name}.npz"]
        with np.load(tmp_path / f"{name}.npz") as archive:
            assert set(archive.files) == set(expected["arrays"])
            for key, array in expected["arrays"].items():
                assert archive[key].dtype == array.dtype
                assert np.array_equal(archive[key], array), key
        assert json.loads((tmp_path / f"{name}.json").read_text()) == expected["records"]

    run_virtual(main(), limit_s=60)


def test_what_comes_right_after_the_end_is_in_and_what_comes_late_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        made = writer(tmp_path)
        for each in (claim(), units(0, 1), closed(), units(2)):
            made.see(each)
        assert names(tmp_path) == []
        await asyncio.sleep(2 * SETTLE_S)
        made.see(units(3))
        await made.stop()
        assert names(tmp_path) == [f"{SID}.json", f"{SID}.npz"]
        assert read(tmp_path) == ([0, 1, 2], [{"unit": 0}, {"unit": 1}, {"unit": 2}])

    run_virtual(main(), limit_s=60)


def test_whoever_stops_it_gets_what_there_is(tmp_path: Path) -> None:
    async def main() -> None:
        made = writer(tmp_path)
        for sid in ("live_1", "live_2", "live_3"):
            made.see(claim(sid))
        made.see(units(0, sid="live_1"))
        made.see(units(0, 1, sid="live_2"))
        await made.stop()
        assert names(tmp_path) == ["live_1.json", "live_1.npz", "live_2.json", "live_2.npz"]
        assert read(tmp_path, "live_2")[0] == [0, 1]

    run_virtual(main(), limit_s=60)


def test_a_session_whose_pod_died_is_written_after_a_while(tmp_path: Path) -> None:
    async def main() -> None:
        made = writer(tmp_path)
        made.see(claim())
        made.see(units(0))
        await asyncio.sleep(IDLE_S - 1)
        assert names(tmp_path) == []
        await asyncio.sleep(LOOK_S + 2)
        assert read(tmp_path)[0] == [0]
        await asyncio.sleep(IDLE_S + 2 * LOOK_S)
        made.see(claim())
        made.see(units(5))
        await made.stop()
        assert read(tmp_path)[0] == [0], "nothing is written over"
        assert read(tmp_path, f"{SID}-2")[0] == [5]

    run_virtual(main(), limit_s=1000)


def test_beyond_its_memory_it_cuts_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        made = writer(tmp_path, most_bytes=1 << 20)
        for sid in ("live_1", "live_2"):
            made.see(claim(sid))
        for number in range(300):
            made.see(units(number, sid="live_1"))
        made.see(units(0, sid="live_2"))
        made.see(closed("live_1"))
        await asyncio.sleep(2 * SETTLE_S)
        made.see(claim("live_3"))
        made.see(units(0, 1, sid="live_3"))
        await made.stop()
        samples, records = read(tmp_path, "live_1")
        kept = len(samples)
        assert 200 < kept < 300
        assert len(records) == 300
        assert records[kept - 1] == {"unit": kept - 1}
        why = "the 1 MiB for all sessions were used up"
        assert records[kept:] == [
            {"unit": unit, "missing": ["input_pcm16"], "why": why} for unit in range(kept, 300)
        ]
        assert json.loads((tmp_path / "live_2.json").read_text()) == [{"unit": 0, "missing": [], "why": why}]
        assert read(tmp_path, "live_3")[0] == [0, 1], "there was room again"

    run_virtual(main(), limit_s=60)


def test_a_session_whose_start_was_not_seen(tmp_path: Path) -> None:
    async def main() -> None:
        for model, expected in ((None, []), ("parrot", [f"{SID}.json", f"{SID}.npz"])):
            made = writer(tmp_path, model=model)
            made.see(units(1))
            await made.stop()
            assert names(tmp_path) == expected
        assert read(tmp_path) == ([1], [{"unit": 0, "missing": ["input_pcm16"]}, {"unit": 1}])

    run_virtual(main(), limit_s=60)


@pytest.mark.parametrize(
    "odd",
    [
        Copy(m.WIRE, subjects.inbox("llm.l"), "", b"garbage"),
        Copy(m.WIRE, subjects.inbox("llm.l"), no_responders=True),
        Copy(m.WIRE, subjects.heartbeat("llm.l"), "", b"garbage"),
        claim("../live_0"),
        claim("live_0", "nobody's"),
        closed("live_0"),
        copy(
            subjects.inbox("llm.l"),
            m.Bundle(
                m.WIRE,
                "api.a",
                [
                    m.Envelope(
                        m.WIRE,
                        SID,
                        "root",
                        "encoder",
                        0,
                        (1, 0),
                        (1, 1),
                        m.Audio(m.WIRE, {"pcm": m.Tensor("x", (), b"")}),
                    )
                ],
            ),
        ),
    ],
)
def test_odd_messages_do_no_harm(odd: Copy, tmp_path: Path) -> None:
    async def main() -> None:
        made = writer(tmp_path)
        made.see(claim())
        made.see(odd)
        made.see(units(0, sid="live_0"))
        made.see(units(0))
        await made.stop()
        assert names(tmp_path) == [f"{SID}.json", f"{SID}.npz"]
        assert read(tmp_path) == ([0], [{"unit": 0}])

    run_virtual(main(), limit_s=60)


def test_a_disk_that_takes_nothing_ends_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def full(folder: Path, sid: str, kept: object) -> None:
        tries.append(sid)
        if sid == SID:
            raise OSError("No space left on device")
        write(folder, sid, kept)

    async def main() -> None:
        made = writer(tmp_path)
        for sid in (SID, "live_2"):
            made.see(claim(sid))
            made.see(units(0, sid=sid))
        await made.stop()

    write: Any = writing.write
    monkeypatch.setattr(writing, "write", full)
    run_virtual(main(), limit_s=60)
    assert tries == [SID, "live_2"]
    assert names(tmp_path) == ["live_2.json", "live_2.npz"]
