"""The talk page's modules, each by itself in a real browser: audio, turns, measurements."""

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from browser import browser
from contract.fake_host import EchoHost, serving
from duologue.audio.formats import FORMATS, Format
from talking_browser import chromium

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

EVERY_FORMAT = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(EchoHost()) as address:
        yield f"http://{address}"


def run(url: str, script: str, *given: Any) -> Any:
    """What the body of an asynchronous function returns; `given` are its arguments, in `given`."""

    async def look() -> Any:
        async with browser(chromium()) as running:
            tab = await running.page()
            await tab.goto(f"{url}/")
            return await tab.evaluate(f"(async given => {{ {script} }})({json.dumps(given)})")

    return asyncio.run(look())


@EVERY_FORMAT
def test_formats_are_those_of_the_server(url: str, form: Format) -> None:
    every = np.arange(-32768, 32768).astype(np.int16)
    said = run(
        url,
        """
        const {FORMATS, fromBase64, toBase64} = await import("/page/formats.js");
        const format = FORMATS.find(each => each.name === given[0]);
        const samples = Float32Array.from({length: 65536}, (_, i) => (i - 32768) / 32768);
        const bytes = format.encode(samples);
        const again = format.decode(fromBase64(toBase64(bytes)));
        return [format.type, format.rate, format.bytesPerSample, toBase64(bytes),
            [...again].map(sample => sample * 32768), [...format.encode(Float32Array.of(-2, 2))]];
        """,
        form.name,
    )
    assert (said[0], said[1], said[2]) == (form.type, form.rate, form.sample_bytes)
    encoded = base64.b64decode(said[3])
    assert encoded == form.encode(every)
    assert said[4] == form.decode(encoded).tolist()
    assert bytes(said[5]) == form.encode(np.array([-32768, 32767], np.int16)), "what is too loud is clipped"


@pytest.mark.parametrize(
    ("source", "target"), [(48000, 24000), (44100, 16000), (8000, 48000), (24000, 44100)]
)
def test_resampling_keeps_what_both_rates_have(url: str, source: int, target: int) -> None:
    said = run(
        url,
        """
        const {Resampler} = await import("/page/resampler.js");
        const [from, to] = given;
        const tone = hz => Float32Array.from({length: from}, (_, i) => 0.5 * Math.sin(2 * Math.PI * hz * i / from));
        const inPieces = (samples, sizes) => {
            const resampler = new Resampler(from, to), out = [];
            for (let at = 0, n = 0; at < samples.length; n++) {
                const size = sizes[n % sizes.length];
                out.push(...resampler.push(samples.slice(at, at + size)));
                at += size;
            }
            return out;
        };
        const high = 0.46 * from;
        return [inPieces(tone(1000), [960, 1, 127]), inPieces(tone(1000), [from]), inPieces(tone(high), [960]),
            inPieces(new Float32Array(from), [960])];
        """,
        source,
        target,
    )
    pieces, whole, high, silence = (np.array(each) for each in said)
    assert np.array_equal(pieces, whole), "however it is fed"
    assert abs(len(whole) - target) < 0.01 * target
    # The tone as it would have been sampled at the target's rate, whatever the delay.
    steady = whole[target // 10 : -target // 10]
    angle = 2 * np.pi * 1000 * np.arange(len(steady)) / target
    base = np.stack([np.sin(angle), np.cos(angle)], 1)
    fit, *_ = np.linalg.lstsq(base, steady, rcond=None)
    assert np.hypot(*fit) == pytest.approx(0.5, rel=1e-3)
    assert np.sqrt(np.mean((steady - base @ fit) ** 2)) < 1e-4
    if target < 0.9 * source:
        assert np.abs(high[target // 10 : -target // 10]).max() < 1e-3, (
            "no alias of what the target can't have"
        )
    assert not silence.any()


def test_pieces_become_turns_by_the_sessions_clock(url: str) -> None:
    said = run(
        url,
        """
        const {Turns} = await import("/page/turns.js");
        const turns = new Turns(), told = [];
        const add = (side, delta, start_ms, end_ms) => {
            const {at} = turns.add(side, {delta, start_ms, end_ms});
            told.push(at);
        };
        add("assistant", " Hello", 0, 400);
        add("assistant", " there.", 400, 800);
        add("assistant", " Again.", 2000, 2400);      // after a pause
        add("user", "What is it", 900, 1800);         // recognised late
        add("user", " now?", 2450, 2500);             // the model spoke in between
        add("assistant", " It is", 2600, 3000);       // the user spoke in between
        add("user", " Aha.", 2900, 3000);             // while the model speaks
        add("assistant", " ten.", 3000, 3300);        // which goes on
        const first = turns.all.map(({side, text, startMs, endMs}) => [side, text, startMs, endMs]);
        for (let i = 0; i < 300; i++) add("user", "x", 10_000 + 2000 * i, 10_100 + 2000 * i);
        return [first, told.slice(0, 8), turns.all.length, turns.all[0].startMs];
        """,
    )
    assert said[0] == [
        ["assistant", "Hello there.", 0, 800],
        ["user", "What is it", 900, 1800],
        ["assistant", "Again.", 2000, 2400],
        ["user", "now?", 2450, 2500],
        ["assistant", "It is ten.", 2600, 3300],
        ["user", "Aha.", 2900, 3000],
    ]
    assert said[1] == [0, None, 1, 1, 3, 4, 5, None]
    assert said[2:] == [200, 10_000 + 2000 * 100]


def test_what_is_measured(url: str) -> None:
    said = run(
        url,
        """
        const {TurnTaking} = await import("/page/turntaking.js");
        const told = [], states = [];
        const make = () => new TurnTaking({
            onFirstAudio: seconds => told.push(["first audio", Math.round(1000 * seconds)]),
            onInterruption: seconds => told.push(["interruption", Math.round(1000 * seconds)]),
        });
        let turns = make();
        // Both sides in blocks of 20 ms; each letter is 100 ms: loud, quiet, background.
        const play = (user, model) => {
            const level = {"#": 0.1, ".": 0.0005, " ": 0};
            for (let i = 0; i < 5 * user.length; i++) {
                const letter = Math.floor(i / 5), time = 0.02 * (play.blocks = (play.blocks ?? 0) + 1);
                turns.hearUser({rms: level[user[letter]], time});
                turns.hearModel({rms: level[model[letter]] === 0.0005 ? 0 : level[model[letter]], time});
                if (states.at(-1) !== turns.state) states.push(turns.state);
            }
        };
        play(".....######............................",
             "                 ##########            ");
        const answer = [...told], first = [...states];
        told.length = states.length = 0;
        play("......######..........................................",
             "####################                                  ");  // goes on for 1.4 s all the same
        const overTalk = [...told];
        told.length = 0;
        turns = make();
        play("....#.......................................",            // a click is no speech
             "    ######                                  ");
        return [answer, first, overTalk, told];
        """,
    )
    answer, first, over_talk, click = said
    # The user's last sound at 1.1 s, the answer's first at 1.7 s.
    assert answer == [["first audio", 600]]
    assert first == ["listening", "hearing", "listening", "speaking", "listening"]
    # Began to cut in at 0.6 s, and the model's last sound was at 2.0 s.
    assert over_talk == [["interruption", 1400]]
    assert click == []


def test_the_playback_ring(url: str) -> None:
    """The audio thread's own code, in a thread of the page's."""
    said = run(
        url,
        """
        let Playback;
        Object.assign(globalThis, {
            sampleRate: 1000, currentTime: 0,
            AudioWorkletProcessor: class { port = {postMessage: report => globalThis.reports.push(report)}; },
            registerProcessor: (_, made) => { Playback = made; },
            reports: [],
        });
        await import("/page/playback.worklet.js");
        const make = () => new Playback({processorOptions: {delay: 60, capacity: 1000}});
        const pull = (player, blocks) => {
            const out = [];
            for (let i = 0; i < blocks; i++) {
                const block = new Float32Array(20);
                player.process([], [[block]]);
                out.push(...block);
            }
            return out;
        };
        const ramp = (from, count) => Float32Array.from({length: count}, (_, i) => from + i);

        const player = make();
        player.add(ramp(1, 80));
        const early = pull(player, 3), then = pull(player, 4);      // waits for 60 samples, then plays all 80
        pull(player, 1);                                            // and has nothing more
        player.add(ramp(1, 80));
        const later = pull(player, 5);                              // now it waits for 80

        const full = make();
        full.add(ramp(1, 900));
        full.add(ramp(901, 300));                                   // the oldest 200 go
        pull(full, 3);
        const newest = pull(full, 1);

        const slow = make();
        slow.add(new Float32Array(600));
        for (let i = 0; i < 130; i++) { slow.add(new Float32Array(20)); pull(slow, 1); }
        const left = slow.queued, skipped = slow.skipped;
        const loud = make();
        loud.add(new Float32Array(600).fill(0.5));
        for (let i = 0; i < 130; i++) { loud.add(new Float32Array(20).fill(0.5)); pull(loud, 1); }
        const unanswered = make();
        reports.length = 0;
        pull(unanswered, 500);
        return [early.every(x => x === 0), then, player.underruns, later.slice(0, 80).every(x => x === 0), later[80],
            newest[0], full.dropped, left, skipped > 300, loud.skipped, reports.length];
        """,
    )
    waited, then, underruns, waits_longer, first, newest, dropped, left, skipped, loud_skipped, reports = said
    assert waited
    assert then == list(range(1, 81))
    assert underruns == 1
    assert waits_longer
    assert first == 1
    assert (newest, dropped) == (201, 200)
    assert left <= 160, "what a stall had left behind is gone"
    assert skipped
    assert loud_skipped == 0, "speech is never skipped"
    assert reports == 100, "a page that hangs is told no more"


def test_plain_words_for_every_ending(url: str) -> None:
    said = run(
        url,
        """
        const {ofEnding, ofMicrophone, ofStatus} = await import("/page/problems.js");
        const {keyCanBeSent} = await import("/page/live.js");
        const ending = (how, code, error, reason = "") => ofEnding({how, code, error, reason})?.title ?? null;
        return {
            asked: ending("closed", 1000, null, "close_requested"),
            expired: ending("closed", 1000, null, "expired"),
            lost: ending("closed", 1000, null, "connection_lost"),
            full: ending("refused", 1013, {code: "session_limit_reached", message: "m"}),
            unsaid: ending("refused", 1013, null),
            other: ofEnding({how: "refused", code: 1008, error: {code: "invalid_value", message: "m"}}).text,
            gone: ending("unreachable", 1006, null),
            cut: ending("lost", 1006, null),
            busy: ofMicrophone({name: "NotReadableError"}).title,
            forbidden: ofStatus(403, "why", false).text,
            keys: ["abc-DEF_1.2~3", "", "a b", "a/b", "ä"].map(keyCanBeSent),
        };
        """,
    )
    assert said == {
        "asked": None,
        "expired": "The session has ended",
        "lost": "The session was lost",
        "full": "The server is full",
        "unsaid": "The server is full",
        "other": "m",
        "gone": "The server can't be reached",
        "cut": "The connection was lost",
        "busy": "The microphone can't be used",
        "forbidden": "why",
        "keys": [True, False, False, False, False],
    }
