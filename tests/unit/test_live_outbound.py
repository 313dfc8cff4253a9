"""What waits for a reader: its order, its bounds, and what a slow one is told.  No sockets; time is a number."""

import asyncio
import base64
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duologue_api.live import events
from duologue_api.live.config import check
from duologue_api.live.outbound import Outbound
from duologue_api.live.settings import EdgeSettings
from duologue_api.port import ModelStatus

pytestmark = pytest.mark.unit

SETTINGS = EdgeSettings(
    output_backlog_s=2.0, behind_limit_s=30.0, max_queued_events=100, max_queued_bytes=50_000
)
MODEL = ModelStatus("m", "", True, (), 0.08)
CLOSED = events.SessionClosed(
    reason="close_requested",
    session=check({"model": "m"}, [MODEL]).resource("live_1", 1),
    usage=events.Usage(seconds=1.0),
)


@dataclass
class Bench:
    """An outbound queue at 1000 bytes a second, so that a byte is a millisecond."""

    settings: EdgeSettings = SETTINGS
    now: float = 0.0
    out: Outbound = field(init=False)

    def __post_init__(self) -> None:
        self.out = Outbound(self.settings, lambda: self.now, bytes_per_s=1000)

    def audio(self, ms: int, mark: int = 0) -> None:
        self.out.send(events.OutputAudioDelta(delta=bytes([mark]) * ms))

    def text(self, delta: str) -> None:
        self.out.send(events.OutputTranscriptDelta(delta=delta, start_ms=0, end_ms=0))

    def read(self, most: int = 10_000) -> list[dict[str, Any]]:
        frames = []
        while len(frames) < most and (text := self.out.take()) is not None:
            frames.append(json.loads(text))
        return frames


def names(frames: list[dict[str, Any]]) -> list[str]:
    """`a<mark>` for audio, the text of a transcript, the code of an error."""
    found = []
    for frame in frames:
        match frame:
            case {"type": "session.output_audio.delta"}:
                found.append(f"a{frame_mark(frame)}")
            case {"delta": delta}:
                found.append(delta)
            case {"error": error}:
                found.append(error["code"])
            case _:
                found.append(frame["type"])
    return found


def frame_mark(frame: dict[str, Any]) -> int:
    return base64.b64decode(frame["delta"])[0]


def test_a_reader_that_keeps_up_gets_everything_in_order() -> None:
    bench = Bench()
    bench.text("x")
    bench.audio(500, 1)
    bench.text("y")
    bench.audio(1500, 2)
    assert bench.out.backlog_s == 2.0
    assert names(bench.read()) == ["x", "a1", "y", "a2"]
    assert bench.out.backlog_s == 0.0


def test_the_oldest_audio_goes_first_and_one_error_says_how_much() -> None:
    bench = Bench()
    for mark in range(1, 8):
        bench.audio(500, mark)
        bench.text(f"t{mark}")
    assert bench.out.backlog_s == 2.0
    frames = bench.read()
    assert names(frames) == [
        "t1",
        "t2",
        "t3",
        "a4",
        "t4",
        "a5",
        "t5",
        "a6",
        "t6",
        "a7",
        "t7",
        "output_backlog",
    ]
    assert " 1500 ms " in frames[-1]["error"]["message"]
    assert bench.out.ending is None
    assert bench.read() == []


def test_an_episode_lasts_until_the_reader_has_caught_up() -> None:
    bench = Bench()
    for mark in range(1, 6):
        bench.audio(500, mark)
    assert names(bench.read(most=3)) == ["a2", "a3", "a4"]
    for mark in range(6, 11):
        bench.audio(500, mark)
    frames = bench.read()
    assert names(frames) == ["a7", "a8", "a9", "a10", "output_backlog"]
    assert " 1500 ms " in frames[-1]["error"]["message"]
    bench.audio(500, 11)
    assert names(bench.read()) == ["a11"]


def test_the_next_episode_is_told_anew() -> None:
    bench = Bench()
    for count in (5, 6):
        for _ in range(count):
            bench.audio(500)
        message = bench.read()[-1]["error"]["message"]
        assert f" {(count - 4) * 500} ms " in message


def test_a_unit_longer_than_the_backlog_still_comes_through() -> None:
    bench = Bench()
    bench.audio(5000, 1)
    assert names(bench.read()) == ["a1"]


def test_many_small_pieces_of_audio_are_bounded_too() -> None:
    bench = Bench()
    for mark in range(150):
        bench.audio(1, mark)
    assert names(bench.read()) == [f"a{mark}" for mark in range(50, 150)] + ["output_backlog"]


def test_empty_audio_is_nothing() -> None:
    bench = Bench()
    bench.audio(0)
    assert bench.read() == []


# ---------------------------------------------------------------- giving up


def behind() -> Bench:
    """First drop at 10 s."""
    bench = Bench(now=10.0)
    for _ in range(5):
        bench.audio(500)
    return bench


def test_a_reader_long_behind_is_given_up() -> None:
    bench = behind()
    bench.text("kept")
    bench.now = 39.9
    bench.audio(500)
    assert bench.out.ending is None
    bench.now = 40.0
    bench.audio(500)
    assert bench.out.ending == (1013, "output_backlog")
    frames = bench.read()
    assert names(frames) == ["kept", "output_backlog"]
    assert " 3500 ms " in frames[-1]["error"]["message"]
    bench.text("late")
    bench.audio(500)
    assert bench.read() == []


def test_a_reader_that_catches_up_in_time_is_not() -> None:
    bench = behind()
    bench.now = 39.0
    bench.read()
    for _ in range(5):
        bench.audio(500)
    bench.now = 68.9
    bench.audio(500)
    assert bench.out.ending is None
    bench.now = 69.0
    bench.audio(500)
    assert bench.out.ending == (1013, "output_backlog")


def test_events_are_never_dropped_but_bounded_in_number() -> None:
    bench = Bench()
    bench.audio(500)
    for number in range(100):
        bench.text(str(number))
    assert bench.out.ending is None
    bench.text("100")
    assert bench.out.ending == (1013, "output_backlog")
    assert names(bench.read()) == [*map(str, range(101)), "output_backlog"]


def test_events_are_bounded_in_bytes() -> None:
    bench = Bench()
    bench.text("x" * 40_000)
    assert bench.out.ending is None
    bench.text("x" * 10_000)
    assert bench.out.ending == (1013, "output_backlog")
    assert len(bench.read()) == 3


# ---------------------------------------------------------------- the end


def test_everything_queued_comes_before_the_end() -> None:
    bench = Bench()
    bench.audio(500, 1)
    bench.out.send(CLOSED)
    bench.out.end(1000, "close_requested")
    bench.out.end(1011, "too late")
    bench.audio(500, 2)
    assert names(bench.read()) == ["a1", "session.closed"]
    assert bench.out.ending == (1000, "close_requested")


@pytest.mark.parametrize("last", [[], [CLOSED]])
def test_what_was_dropped_is_said_before_the_end(last: list[events.ServerEvent]) -> None:
    bench = behind()
    for event in last:
        bench.out.send(event)
    bench.out.end(1000, "close_requested")
    assert names(bench.read())[4:] == ["output_backlog", *["session.closed" for _ in last]]


def test_a_reason_fits_a_control_frame() -> None:
    bench = Bench()
    bench.out.end(1008, "é" * 100)
    assert bench.out.ending == (1008, "é" * 61)


def test_the_writer_waits_for_events_and_for_the_end() -> None:
    async def write() -> list[str]:
        bench = Bench()
        frames: list[str] = []

        async def writer() -> None:
            while (text := await bench.out.next()) is not None:
                frames.append(json.loads(text)["delta"])

        task = asyncio.create_task(writer())
        for delta in "abc":
            await asyncio.sleep(0)
            bench.text(delta)
        await asyncio.sleep(0)
        assert not task.done()
        bench.text("d")
        bench.out.end(1000, "")
        await bench.out.ended()
        await task
        return frames

    assert asyncio.run(write()) == ["a", "b", "c", "d"]


ACTIONS = st.lists(
    st.tuples(st.just("audio"), st.integers(1, 2500))
    | st.tuples(st.just("text"), st.integers(0, 200))
    | st.tuples(st.just("read"), st.integers(1, 20))
    | st.tuples(st.just("wait"), st.integers(1, 20)),
    max_size=200,
)


@given(ACTIONS)
def test_nothing_is_lost_unsaid_and_nothing_grows(actions: list[tuple[str, int]]) -> None:
    bench = Bench()
    sent_ms = sent_texts = longest = 0
    frames: list[dict[str, Any]] = []
    for action, size in actions:
        if bench.out.ending is not None:
            break
        match action:
            case "audio":
                bench.audio(size)
                sent_ms += size
                longest = max(longest, size)
            case "text":
                bench.text("x" * size)
                sent_texts += 1
            case "read":
                frames += bench.read(size)
            case _:
                bench.now += size
        assert round(bench.out.backlog_s * 1000) <= max(2000, longest)
    frames += bench.read()
    heard_ms = dropped_ms = texts = 0
    for frame in frames:
        match frame:
            case {"error": {"message": message}}:
                dropped_ms += int(message.split(" ms ")[0].split()[-1])
            case {"type": "session.output_audio.delta", "delta": delta}:
                heard_ms += len(delta) // 4 * 3 - delta.count("=")
            case _:
                texts += 1
    assert heard_ms + dropped_ms == sent_ms
    assert texts == sent_texts
