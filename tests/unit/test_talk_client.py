"""The client without sockets: addresses, events, and the streaming of a recording in virtual time."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from duologue.audio.formats import FORMATS, PCM_24K, PCMA, PCMU, Format
from duologue.client.address import Address, BadUrl
from duologue.client.catalogue import Model, _parse
from duologue.client.events import (
    AudioDelta,
    BadEvent,
    Closed,
    ErrorEvent,
    Event,
    Info,
    Other,
    TranscriptDelta,
    UsageUpdated,
    decode,
)
from duologue.client.live import BadServer, ConnectionLost, SessionRefused
from duologue.client.talk import SETTLE_S, Stalled, TalkResult, stream
from duologue.virtual import run_virtual

pytestmark = pytest.mark.unit

RATE, UNIT = 24000, 1920


@pytest.mark.parametrize(
    ("url", "live", "api"),
    [
        ("ws://h:1", "ws://h:1/v1/live/sessions", "http://h:1/v1"),
        ("http://h:1/", "ws://h:1/v1/live/sessions", "http://h:1/v1"),
        ("https://h/v1", "wss://h/v1/live/sessions", "https://h/v1"),
        ("wss://h/v1/live/sessions/", "wss://h/v1/live/sessions", "https://h/v1"),
        ("https://h/gateway/v1?a=b", "wss://h/gateway/v1/live/sessions?a=b", "https://h/gateway/v1"),
        ("ws://[::1]:8700", "ws://[::1]:8700/v1/live/sessions", "http://[::1]:8700/v1"),
    ],
)
def test_addresses(url: str, live: str, api: str) -> None:
    assert Address.of(url) == Address(live, api)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8700", "localhost", "ftp://h", "ws://", "http://h:port", "http://[h"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(BadUrl):
        Address.of(url)


def test_loopback() -> None:
    here = ["ws://127.0.0.1:1", "http://localhost", "ws://[::1]"]
    assert [Address.of(url).loopback for url in [*here, "ws://10.0.0.1", "https://example.org"]] == [
        True
    ] * 3 + [False] * 2


def test_events() -> None:
    def of(**fields: Any) -> Event:
        return decode(json.dumps(fields))

    audio = of(type="session.output_audio.delta", delta=base64.b64encode(b"\1\2").decode())
    assert audio == AudioDelta({"type": "session.output_audio.delta"}, b"\1\2")
    said = of(type="session.output_transcript.delta", delta=" u1", start_ms=0, end_ms=80)
    assert isinstance(said, TranscriptDelta)
    assert (said.text, said.start_ms, said.end_ms, said.heard) == (" u1", 0, 80, False)
    heard = of(type="session.input_transcript.delta", delta="x", start_ms=1, end_ms=2)
    assert isinstance(heard, TranscriptDelta)
    assert heard.heard
    usage = of(type="session.usage.updated", usage={"seconds": 3})
    assert isinstance(usage, UsageUpdated)
    assert usage.seconds == 3.0
    closed = of(type="session.closed", reason="expired", usage={"seconds": 2.5}, client_event_id="e1")
    assert isinstance(closed, Closed)
    assert (closed.reason, closed.seconds, closed.client_event_id) == ("expired", 2.5, "e1")
    error = of(type="error", error={"type": "server_error", "code": None, "message": "no"})
    assert isinstance(error, ErrorEvent)
    assert (error.code, error.message, error.client_event_id) == ("server_error", "no", None)
    info = of(type="info", code="c", message="m")
    assert isinstance(info, Info)
    assert (info.code, info.message) == ("c", "m")
    assert of(type="session.updated", session={}) == Other({"type": "session.updated", "session": {}})


@pytest.mark.parametrize(
    "frame",
    [
        "no json",
        "[]",
        "{}",
        '{"type": 1}',
        '{"type": "session.output_audio.delta"}',
        '{"type": "session.output_audio.delta", "delta": "%%"}',
        '{"type": "session.output_audio.delta", "delta": 1}',
        '{"type": "session.output_transcript.delta", "delta": "a"}',
        '{"type": "session.usage.updated", "usage": null}',
        '{"type": "error", "error": "text"}',
    ],
)
def test_what_is_no_event(frame: str) -> None:
    with pytest.raises(BadEvent):
        decode(frame)


def test_the_list_of_models() -> None:
    body = b'{"data": [{"id": "parrot", "duologue": {"unit_s": 0.08, "ready": true}}, {"id": "other"}]}'
    assert _parse(body) == (Model("parrot", 0.08, {"unit_s": 0.08, "ready": True}), Model("other"))
    for bad in (b"<html>", b"{}", b'{"data": [1]}', b'{"data": [{"object": "model"}]}'):
        with pytest.raises(BadServer):
            _parse(bad)


def test_refusals_by_http() -> None:
    known = SessionRefused.of_http(401, b'{"error": {"code": "invalid_api_key", "message": "wrong key"}}')
    assert (known.code, known.status, known.close_code, str(known)) == (
        "invalid_api_key",
        401,
        None,
        "wrong key (invalid_api_key)",
    )
    assert SessionRefused.of_http(502, b"<html>").code == "http_502"


class Echo:
    """A session that answers every whole unit of input with the same audio, `delay_s` later, and notes when what
    came.  From unit `stuck_at` on it does not answer; with `never_ends` it does not close; with `holds_back` it answers
    so many units by the end, at the latest."""

    session_id, model = "live_1", "echo"

    def __init__(
        self,
        *,
        form: Format = PCM_24K,
        delay_s: float = 0.0,
        stuck_at: int | None = None,
        never_ends: bool = False,
        lost_at: int | None = None,
        holds_back: int = 0,
    ) -> None:
        self.format = form
        self._unit = UNIT * form.rate // RATE
        self._unit_bytes = self._unit * form.sample_bytes
        self.appends: list[tuple[float, bytes]] = []
        self.answered = 0
        self.most_ahead = 0
        self._delay_s = delay_s
        self._stuck_at, self._never_ends, self._lost_at = stuck_at, never_ends, lost_at
        self._holds_back = holds_back
        self._input = bytearray()
        self._events: asyncio.Queue[Event | Exception] = asyncio.Queue(100_000)
        self.finished = False

    async def append(self, audio: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.appends.append((loop.time(), audio))
        before = len(self._input) // self._unit_bytes
        self._input += audio
        sent = len(self._input) // self.format.sample_bytes
        self.most_ahead = max(self.most_ahead, sent - self.answered)
        for unit in range(before, len(self._input) // self._unit_bytes):
            if unit == self._lost_at:
                self._events.put_nowait(ConnectionLost(1011, "gone"))
                raise ConnectionLost(1011, "gone")
            if self._stuck_at is None or unit < self._stuck_at:
                loop.call_later(self._delay_s, self._answer)

    def _answer(self) -> None:
        unit = self.answered // self._unit
        at = unit * self._unit_bytes
        audio = bytes(self._input[at : at + self._unit_bytes])
        self.answered += self._unit
        self.emit(AudioDelta({"type": "session.output_audio.delta"}, audio))
        self.emit(TranscriptDelta({"type": "t"}, f" u{unit}", unit * 80, unit * 80 + 80, unit % 2 == 1))

    def emit(self, event: Event | Exception) -> None:
        self._events.put_nowait(event)

    async def finish(self) -> None:
        self.finished = True
        while self._holds_back and self.answered < self._holds_back * self._unit:
            self._answer()
        if not self._never_ends:
            self.emit(Closed({"type": "session.closed"}, "close_requested", 7.0))

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            yield event
            if isinstance(event, Closed):
                return


def tone(units: int, silent: int = 0) -> np.ndarray[Any, np.dtype[np.int16]]:
    pcm = (np.arange(units * UNIT) % 1000 + 1).astype(np.int16)
    pcm[: silent * UNIT] = 0
    return pcm


def talk(echo: Echo, units: int, silent: int = 0, **options: Any) -> TalkResult:
    return run_virtual(stream(tone(units, silent), echo, unit_samples=UNIT, **options))


def test_a_recording_at_real_time() -> None:
    echo = Echo(delay_s=0.03)
    sent: list[int] = []
    result = talk(echo, 10, silent=3, chunk_bytes=962, on_sent=sent.append)

    assert b"".join(chunk for _, chunk in echo.appends) == tone(10, 3).tobytes()
    assert {len(chunk) for _, chunk in echo.appends[:-1]} == {962}
    for number, (at, _) in enumerate(echo.appends):
        assert at == pytest.approx(number * 481 / RATE), (
            "an append leaves when its first sample is due, without drift"
        )
    assert sent[-1] == 10 * UNIT
    assert result.pcm16.tolist() == tone(10, 3).tolist()
    assert (result.input_samples, result.units_in, result.units_out) == (10 * UNIT, 10, 10)
    # Unit 3 is complete with the append that holds its last sample, and answered 30 ms later.
    done = ((4 * UNIT - 1) * 2 // 962) * 481 / RATE
    assert result.first_audio_s == pytest.approx(done + 0.03)
    assert result.first_audio_lag_s == pytest.approx(done + 0.03 - 3 * 0.08)
    assert [part.text for part in result.transcript] == [" u0", " u2", " u4", " u6", " u8"]
    assert [part.start_ms for part in result.heard] == [80, 240, 400, 560, 720]
    assert result.text == " u0 u2 u4 u6 u8"
    assert (result.session, result.model, result.rate) == ("live_1", "echo", RATE)
    assert (result.close_reason, result.usage_seconds) == ("close_requested", 7.0)
    assert result.seconds == pytest.approx(echo.appends[-1][0] + 0.03)


@pytest.mark.parametrize("pace", [0.5, 4.0])
def test_a_pace_is_a_multiple_of_real_time(pace: float) -> None:
    echo = Echo()
    talk(echo, 5, pace=pace, chunk_bytes=960)
    assert echo.appends[-1][0] == pytest.approx((5 * UNIT - 480) / RATE / pace)


def test_without_a_pace_the_input_is_never_further_ahead_than_the_window() -> None:
    for window_s in (0.2, 2.0):
        echo = Echo(delay_s=1.0)
        result = talk(echo, 100, pace=None, window_s=window_s, chunk_bytes=960)
        assert result.pcm16.tolist() == tone(100).tolist()
        assert echo.most_ahead == window_s * RATE


def test_an_answer_of_zeros_has_no_first_audio() -> None:
    result = talk(Echo(), 3, silent=3)
    assert result.first_audio_s is None
    assert result.first_audio_lag_s is None


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_any_format(form: Format) -> None:
    pcm = tone(10)[: 10 * UNIT * form.rate // RATE]
    unit = UNIT * form.rate // RATE
    for pace in (1.0, None):
        echo = Echo(form=form, delay_s=0.03)
        chunk = 21 * form.sample_bytes
        result = run_virtual(stream(pcm, echo, unit_samples=unit, chunk_bytes=chunk, pace=pace))
        assert b"".join(data for _, data in echo.appends) == form.encode(pcm)
        assert result.pcm16.tolist() == form.decode(form.encode(pcm)).tolist()
        assert (result.rate, result.input_samples) == (form.rate, len(pcm))
        assert (result.units_in, result.units_out) == (10, 10)
        if pace:
            assert echo.appends[-1][0] == pytest.approx((len(echo.appends) - 1) * 21 / form.rate)


def test_silence_of_a_law_is_silence() -> None:
    pcm = np.zeros(4 * 640, np.int16)
    result = run_virtual(stream(pcm, Echo(form=PCMA), unit_samples=640))
    assert (result.units_out, result.first_audio_s) == (4, None)
    pcm[2 * 640 + 5] = 100
    result = run_virtual(stream(pcm, Echo(form=PCMA), unit_samples=640, chunk_bytes=80))
    assert result.first_audio_lag_s == pytest.approx(3 * 0.08 - (2 * 640 + 5) / 8000, abs=0.02)


def test_what_a_server_that_resamples_holds_back_comes_with_the_end() -> None:
    echo = Echo(form=PCMU, stuck_at=22, holds_back=25)
    result = run_virtual(stream(np.full(25 * 640, 900, np.int16), echo, unit_samples=640))
    assert (result.units_in, result.units_out) == (25, 25)
    assert result.seconds < 25 * 0.08 + 0.4, "nobody waited long for it"


def test_a_part_of_a_unit_does_not_keep_the_session_open() -> None:
    echo = Echo()
    result = run_virtual(stream(tone(2)[:-1], echo, unit_samples=UNIT))
    assert (result.units_in, result.units_out) == (2, 1)  # this server does not answer a part of a unit
    assert result.seconds < 0.2
    result = run_virtual(stream(tone(2)[:-1], Echo()))
    assert (result.units_in, result.units_out) == (None, None)
    assert result.seconds == pytest.approx(0.14 + SETTLE_S, abs=0.02), (
        "without a unit only silence tells the end"
    )


def test_a_server_that_stops_answering() -> None:
    with pytest.raises(Stalled, match=r"no output for 9 s after 3\.2 s"):
        talk(Echo(stuck_at=40), 100, pace=None, window_s=0.08, stall_s=9, chunk_bytes=2 * UNIT)
    with pytest.raises(Stalled, match=r"no session\.closed within 9 s"):
        talk(Echo(never_ends=True), 3, stall_s=9)


def test_the_server_ends_the_session() -> None:
    async def scenario(
        after_s: float, event: Event | Exception, pace: float | None
    ) -> tuple[Echo, TalkResult]:
        echo = Echo(stuck_at=20)
        asyncio.get_running_loop().call_later(after_s, echo.emit, event)
        return echo, await stream(tone(100), echo, unit_samples=UNIT, pace=pace)

    for pace in (1.0, None):
        expired = Closed({"type": "session.closed"}, "expired", 1.0)
        echo, result = run_virtual(scenario(2.0, expired, pace))
        assert result.close_reason == "expired"
        assert result.input_samples < 100 * UNIT
        assert not echo.finished
    with pytest.raises(ConnectionLost):
        run_virtual(scenario(2.0, ConnectionLost(1006, ""), 1.0))


def test_a_lost_connection_is_told_by_the_receiver() -> None:
    with pytest.raises(ConnectionLost, match="close code 1011, gone"):
        talk(Echo(lost_at=4), 10)


def test_notices_are_kept_and_events_shown() -> None:
    async def scenario(seen: Callable[[Event], None]) -> TalkResult:
        echo = Echo()
        echo.emit(Info({"type": "info"}, "voice", "mapped"))
        echo.emit(ErrorEvent({"type": "error"}, "input_backlog", "dropped"))
        echo.emit(UsageUpdated({"type": "u"}, 1.0))
        return await stream(tone(1), echo, on_event=seen, unit_samples=UNIT)

    events: list[Event] = []
    result = run_virtual(scenario(events.append))
    assert [notice.code for notice in result.notices] == ["voice", "input_backlog"]
    assert [type(event).__name__ for event in events] == [
        "Info",
        "ErrorEvent",
        "UsageUpdated",
        "AudioDelta",
        "TranscriptDelta",
        "Closed",
    ]


def test_odd_audio_of_a_server() -> None:
    async def scenario() -> None:
        echo = Echo()
        echo.emit(AudioDelta({"type": "session.output_audio.delta"}, b"\1\2\3"))
        await stream(tone(1), echo)

    with pytest.raises(BadServer, match="3 bytes"):
        run_virtual(scenario())


@pytest.mark.parametrize("options", [{"chunk_bytes": 3}, {"chunk_bytes": 0}, {"pace": 0}, {"window_s": 0}])
def test_settings_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"chunks|pace|window"):
        talk(Echo(), 1, **options)
