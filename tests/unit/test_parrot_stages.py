"""The parrot's four model halves and its manifest, rule by rule, on examples worked out by hand."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import duologue_codec.parrot as codec
import duologue_encoder.parrot as encoder
import duologue_llm.parrot as llm
import duologue_talker.parrot as talker
from duologue.bus.messages import (
    AnyBody,
    Audio,
    Codes,
    Condition,
    Features,
    Speech,
    Start,
    Tensor,
    decode,
    encode,
)
from duologue.draws import draw
from duologue.models import ROOT, BadOption, manifest
from duologue.models.parrot import (
    INTERRUPT,
    LISTEN,
    MANIFEST,
    SPEAK,
    feedback,
    one_pole,
    parity,
    rms,
    session_options,
    trim,
    worker_options,
)
from duologue.stage.model import History, Result, SessionError, StageModel, Unit

pytestmark = pytest.mark.unit

N = 1920
Record = list[int]
ODD, EVEN = 3 * 2.0**-53, 2 * 2.0**-53


def opened(model: StageModel[Any], start: Start | None = None, history: Sequence[Unit] = ()) -> Any:
    *pauses, state = model.open(start or Start(seed=1), History(history))
    assert pauses == [None] * len(pauses)
    return state


def stepped(model: StageModel[Any], state: Any, unit: Unit) -> Result:
    (result,) = model.step([(state, unit)])
    assert isinstance(result, Result), result
    return result


def tone(amplitude: float, seed: int = 0) -> npt.NDArray[np.int16]:
    """1 kHz, whole periods, with a little noise so that units differ; RMS is amplitude / sqrt(2)."""
    noise = np.random.default_rng(seed).integers(-3, 4, N)
    return (np.rint(32767 * amplitude * np.sin(2 * np.pi * np.arange(N) / 24)) + noise).astype(np.int16)


def heard(number: int, pcm: npt.NDArray[np.int16] | None) -> Unit:
    return Unit(number, {ROOT: Audio() if pcm is None else Audio.of({"pcm": pcm})})


# ---------------------------------------------------------------- pure functions


def test_the_scan_is_the_recursion() -> None:
    rng = np.random.default_rng(5)
    for pole, samples in ((0.995, N), (0.7, N), (0.5, 7), (0.9, 1)):
        drive, carry = rng.standard_normal((2, samples)), np.array([0.7, -3.0])
        y = one_pole(drive, pole, carry)
        for row in range(2):
            before = carry[row]
            for n in range(samples):
                before = drive[row, n] + pole * before
                assert y[row, n] == pytest.approx(before, rel=1e-11, abs=1e-12)


def test_rms_of_any_length() -> None:
    for samples in (1, 2, 3, 15, N):
        y = np.random.default_rng(samples).standard_normal((3, samples))
        assert rms(y) == pytest.approx(np.sqrt((y**2).mean(axis=1)), rel=1e-13)


def test_a_full_context_loses_its_older_half() -> None:
    assert [trim(0, unit, 12) for unit in (0, 11, 12, 13)] == [0, 0, 6, 7]
    assert trim(6, 17, 12) == 6
    assert trim(6, 18, 12) == 12
    assert trim(100, 113, 13) == 107


# ---------------------------------------------------------------- encoder


def test_the_encoder_blocks_dc_through_all_units() -> None:
    model = encoder.load({})
    state = opened(model)
    units = [tone(0.3, 1), None, tone(0.2, 2), np.full(N, 9000, np.int16), None, tone(0.1)]
    x_before = y_before = 0.0
    for number, pcm in enumerate(units):
        body = stepped(model, state, heard(number, pcm)).out["llm"]
        expected = np.empty(N)
        for n in range(N):
            x = 0.0 if pcm is None else int(pcm[n]) / 32768
            y_before = expected[n] = x - x_before + 0.995 * y_before
            x_before = x
        assert isinstance(body, Features)
        assert body.arrays()["feature"].dtype == np.float64
        np.testing.assert_allclose(body.arrays()["feature"], expected, rtol=0, atol=1e-13)


def test_loud_units_stay_active_for_two_more() -> None:
    model = encoder.load({})
    state = opened(model)
    above, below = tone(0.0101 * 2**0.5), tone(0.0099 * 2**0.5)
    given = [below, above, below, None, below, None, above, above, None, None, None]
    active = [not stepped(model, state, heard(u, pcm)).out["llm"].marker for u, pcm in enumerate(given)]
    assert active == [False, True, True, True, False, False, True, True, True, True, False]


def test_silence_is_silence() -> None:
    model = encoder.load({})
    state = opened(model)
    assert all(stepped(model, state, heard(u, None)).out["llm"] == Features() for u in range(5))
    assert (state.x, state.y) == (0.0, 0.0)


# ---------------------------------------------------------------- llm


def feature(number: int) -> Tensor:
    return Tensor.of(np.full(N, number + 0.5))


def features(number: int, active: bool) -> Features:
    return Features(tensors={"feature": feature(number)}) if active else Features()


class Listener:
    """An llm with one session, told who is active by a text: `A` is an active unit, `.` an inactive one."""

    def __init__(self, **options: Any) -> None:
        self.model = llm.load({})
        self.options = options
        self.state: llm.State = opened(self.model, Start(seed=1, options=options))
        self.units: list[Unit] = []
        self.results: list[Result] = []

    def hear(self, activity: str, d: float | None = None) -> list[Record]:
        """Records of the units, whose loop input is the talker's draw `d`."""
        begin = len(self.units)
        for number, sound in enumerate(activity, start=begin):
            inputs: dict[str, AnyBody] = {"encoder": features(number, sound == "A")}
            if self.options.get("loop") and number > 0:
                inputs["talker"] = feedback(d if self.results[-1].text else None)
            self.units.append(Unit(number, inputs))
            self.results.append(stepped(self.model, self.state, self.units[-1]))
        return [result.record for result in self.results[begin:]]

    def said(self) -> list[tuple[int, int, int]]:
        """(unit, unit repeated, k) of every spoken unit; text, record and body must tell the same."""
        found, k = [], 0
        for number, result in enumerate(self.results):
            body, (kind, m, _) = result.out["talker"], result.record
            assert isinstance(body, Condition)
            assert body.marker == (kind != SPEAK)
            assert result.text == (f" u{m}" if kind == SPEAK else "")
            if not body.marker:
                assert body.tensors["feature"] == feature(m)
                first = body.arrays()["first"]
                assert (first.dtype.str, first.shape) == ("|b1", ())
                k = 1 if first else k + 1
                found.append((number, m, k))
        return found


def test_an_utterance_is_repeated_after_five_inactive_units() -> None:
    it = Listener()
    records = it.hear("AA.A" + "....." + "...")
    assert records[:8] == [[LISTEN, 0, 0]] * 8
    assert records[8:] == [[SPEAK, 0, 0], [SPEAK, 1, 0], [SPEAK, 3, 0], [LISTEN, 0, 0]]
    assert it.said() == [(8, 0, 1), (9, 1, 2), (10, 3, 3)]


def test_four_inactive_units_end_nothing() -> None:
    it = Listener()
    it.hear("A....A....A.....")
    assert it.said() == [(15, 0, 1)]
    it.hear("..")
    assert it.said()[1:] == [(16, 5, 2), (17, 10, 3)]


def test_three_active_units_in_a_row_interrupt() -> None:
    it = Listener()
    records = it.hear("AAAA....." + "AAA" + ".....")
    assert records[8:12] == [[SPEAK, 0, 0], [SPEAK, 1, 0], [SPEAK, 2, 0], [INTERRUPT, 0, 0]]
    assert records[12:16] == [[LISTEN, 0, 0]] * 4
    it.hear("...")
    assert it.said()[3:] == [(16, 9, 1), (17, 10, 2), (18, 11, 3)]


def test_two_active_units_in_a_row_do_not_interrupt() -> None:
    it = Listener()
    it.hear("AAAAAA....." + "AA.AA")
    assert it.said() == [(10, 0, 1), (11, 1, 2), (12, 2, 3), (13, 3, 4), (14, 4, 5), (15, 5, 6)]


def test_the_third_active_unit_after_the_end_interrupts_nothing() -> None:
    it = Listener()
    assert it.hear("AA.....AAA")[-1] == [LISTEN, 0, 0]


def test_an_utterance_waits_for_the_one_being_spoken() -> None:
    it = Listener()
    it.hear("AAAAAAAA....." + "A" + "........")
    assert it.said() == [*((12 + m, m, m + 1) for m in range(8)), (20, 13, 1)]


def test_a_trim_drops_what_has_left_the_context() -> None:
    it = Listener(context_units=12)
    records = it.hear("AAAAAAA.......")
    assert records[11:] == [[SPEAK, 0, 0], [SPEAK, 6, 6], [LISTEN, 0, 6]]
    assert it.said() == [(11, 0, 1), (12, 6, 2)]
    used = [result.context_used for result in it.results]
    assert used == [(u + 1) / 12 for u in range(12)] + [7 / 12, 8 / 12]


def test_a_trim_can_end_speaking() -> None:
    assert Listener(context_units=12).hear("AAAAA........")[9:] == [
        [SPEAK, 0, 0],
        [SPEAK, 1, 0],
        [SPEAK, 2, 0],
        [LISTEN, 0, 6],
    ]


def test_a_trim_can_make_way_for_the_next_utterance_in_the_same_unit() -> None:
    it = Listener(context_units=20)
    records = it.hear("AAAAAAAAA....." + "A......")
    assert records[19:] == [[SPEAK, 6, 0], [SPEAK, 14, 10]]
    assert it.said()[-1] == (20, 14, 1)


def test_a_trim_drops_what_waits() -> None:
    it = Listener(context_units=12)
    assert it.hear("AAA....A....")[-1] == [LISTEN, 0, 0]
    assert it.hear(".") == [[SPEAK, 7, 6]]


def test_in_the_loop_an_odd_draw_repeats() -> None:
    it = Listener(loop=True)
    it.hear("AAA.....")
    it.hear("..", d=ODD)
    it.hear(".", d=EVEN)
    it.hear(".", d=ODD)
    it.hear("..", d=EVEN)
    assert it.said() == [(7, 0, 1), (8, 0, 2), (9, 0, 3), (10, 1, 4), (11, 1, 5), (12, 2, 6)]


def test_in_the_loop_an_utterance_begins_without_a_draw() -> None:
    it = Listener(loop=True)
    it.hear("A.....", d=ODD)
    assert it.hear("A.....", d=ODD)[-1] == [SPEAK, 6, 0]
    assert it.said() == [(5, 0, 1), (11, 6, 1)]


def test_in_the_loop_a_repeat_ends_where_its_unit_is_trimmed() -> None:
    it = Listener(loop=True, context_units=12)
    assert it.hear("AAAAAAA......", d=ODD)[11:] == [[SPEAK, 0, 0], [SPEAK, 6, 6]]


def test_in_the_loop_an_interrupt_comes_first() -> None:
    it = Listener(loop=True)
    assert it.hear("AAAA.....AAA", d=ODD)[8:] == [[SPEAK, 0, 0]] * 3 + [[INTERRUPT, 0, 0]]


def test_in_the_loop_the_talkers_word_is_needed() -> None:
    for talks in ({}, {"talker": Codes()}):
        it = Listener(loop=True)
        it.hear("AA.....")
        (result,) = it.model.step([(it.state, Unit(7, {"encoder": Features(), **talks}))])
        assert isinstance(result, SessionError)


# ---------------------------------------------------------------- llm: records


def random_run(seed: int, units: int, **options: Any) -> Listener:
    """Bursts of sound, some long enough to interrupt, with draws of both parities."""
    rng = np.random.default_rng(seed)
    it = Listener(**options)
    while len(it.units) < units:
        for sound in rng.choice(["A", "AA", "AAAA", "AAAAAAAA", ".", "..", ".....", "........"], 3):
            for one in str(sound):
                it.hear(one, d=draw(seed, len(it.units), "talker"))
    return it


def recorded(it: Listener, begin: int, end: int) -> list[Unit]:
    return [Unit(u, it.units[u].inputs, it.results[u].record) for u in range(begin, end)]


RUNS = [
    {},
    {"loop": True},
    {"context_units": 12},
    {"loop": True, "context_units": 13},
    {"loop": True, "context_units": 40},
]


@pytest.mark.parametrize("options", RUNS)
@pytest.mark.parametrize("seed", range(4))
def test_records_and_inputs_from_the_horizon_on_give_the_state(seed: int, options: dict[str, Any]) -> None:
    whole = random_run(seed, 160, **options)
    kinds = {result.record[0] for result in whole.results}
    assert kinds >= ({LISTEN, SPEAK} if options.get("context_units", 99) < 20 else {LISTEN, SPEAK, INTERRUPT})
    again = Listener(**options)
    least = 0
    for cut, unit in enumerate(whole.units):
        horizon, context_start = again.model.horizon(again.state), again.state.context_start
        assert least <= horizon <= context_start
        least = horizon
        start = Start(seed=1, options=options, begin=cut, context_start=context_start)
        heir = opened(again.model, start, recorded(whole, horizon, cut))
        assert heir == again.state
        assert again.model.horizon(heir) == horizon
        assert stepped(again.model, heir, unit) == stepped(again.model, again.state, unit)
        assert heir == again.state


@pytest.mark.parametrize("options", RUNS)
def test_a_step_follows_a_record(options: dict[str, Any]) -> None:
    """A record stands although the heir would decide otherwise; its later units follow from it."""
    whole = random_run(9, 120, **options)
    heir = Listener(**options)
    for unit in recorded(whole, 0, len(whole.units)):
        assert stepped(heir.model, heir.state, unit) == whole.results[unit.number]
    assert heir.state == whole.state

    it = Listener()
    it.hear("AAAA.....")
    result = stepped(it.model, it.state, Unit(9, {"encoder": Features()}, [SPEAK, 2, 0]))
    assert (result.text, result.record) == (" u2", [SPEAK, 2, 0])
    result = stepped(it.model, it.state, Unit(10, {"encoder": Features()}, [SPEAK, 2, 0]))
    assert not result.out["talker"].arrays()["first"]
    assert stepped(it.model, it.state, Unit(11, {"encoder": Features()})).record == [SPEAK, 3, 0]


def test_a_record_without_inputs_is_followed_with_zeros() -> None:
    model = llm.load({})
    kinds = [[LISTEN, 0, 0], [SPEAK, 3, 0], [SPEAK, 4, 0]]
    state = opened(
        model, Start(seed=1, begin=23), [Unit(20 + i, {}, record) for i, record in enumerate(kinds)]
    )
    result = stepped(model, state, Unit(23, {"encoder": Features()}, [SPEAK, 5, 0]))
    assert result.text == " u5"
    arrays = result.out["talker"].arrays()
    assert not arrays["first"]
    assert not arrays["feature"].any()
    assert stepped(model, state, Unit(24, {"encoder": Features()})).record == [LISTEN, 0, 0]


def test_recorded_listening_and_interrupts_end_the_queue() -> None:
    for kind in (LISTEN, INTERRUPT):
        it = Listener()
        it.hear("AAAA.....")
        result = stepped(it.model, it.state, Unit(9, {"encoder": Features()}, [kind, 0, 0]))
        assert result == Result({"talker": Condition()}, [kind, 0, 0], "", 10 / 4096)
        assert stepped(it.model, it.state, Unit(10, {"encoder": Features()})).record == [LISTEN, 0, 0]


def test_a_newer_context_start_applies_after_the_history() -> None:
    """A planned trim: the heir is opened under a start that no record names yet."""
    it = Listener()
    it.hear("AAAAAAA.....")
    start = Start(seed=1, begin=12, context_start=5)
    state = opened(it.model, start, recorded(it, 0, 12))
    assert [stepped(it.model, state, Unit(u, {"encoder": Features()})).record for u in (12, 13, 14)] == [
        [SPEAK, 5, 5],
        [SPEAK, 6, 5],
        [LISTEN, 0, 5],
    ]
    state = opened(it.model, start, recorded(it, 0, 12))
    stepped(it.model, state, Unit(12, {"encoder": Features()}, [SPEAK, 1, 0]))
    assert state.context_start == 5


# ---------------------------------------------------------------- talker


def condition(number: int, first: bool, record: Any = None) -> Unit:
    arrays = {"feature": np.full(N, 0.25), "first": np.array(first)}
    return Unit(number, {"llm": Condition.of(arrays)}, record)


def test_the_gain_rises_and_a_draw_varies_it() -> None:
    model = talker.load({})
    state = opened(model, Start(seed=77))
    rises = (0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0)
    # The second utterance follows the first at once; before the third there is a pause.
    units = [(40 + n, n % 7 == 0, rise) for n, rise in enumerate(rises * 2)]
    for number, first, rise in [*units, (60, True, 0.6), (61, False, 0.7)]:
        if number == 60:
            stepped(model, state, Unit(59, {"llm": Condition()}))
        result = stepped(model, state, condition(number, first))
        d = draw(77, number, "talker", 0)
        assert result.record == d
        assert set(result.out) == {"codec"}
        samples = result.out["codec"].arrays()["samples"]
        np.testing.assert_allclose(samples, np.full(N, 0.25 * rise * (0.95 + 0.1 * d)), rtol=1e-14)


def test_a_known_draw_is_used() -> None:
    model = talker.load({})
    result = stepped(model, opened(model), condition(3, True, 0.5))
    assert result.record == 0.5
    assert (result.out["codec"].arrays()["samples"] == 0.25 * 0.6).all()
    assert stepped(model, opened(model), condition(3, True, 0.0)).record == 0.0


def test_a_listening_talker_draws_nothing() -> None:
    model = talker.load({})
    for options, out in (({}, {"codec": Codes()}), ({"loop": True}, {"codec": Codes(), "llm": Codes()})):
        state = opened(model, Start(seed=1, options=options))
        assert stepped(model, state, Unit(0, {"llm": Condition()})) == Result(out)


def test_in_the_loop_the_draw_goes_to_the_llm() -> None:
    model = talker.load({})
    result = stepped(model, opened(model, Start(seed=1, options={"loop": "true"})), condition(3, True))
    d = result.out["llm"].arrays()["d"]
    assert (d.dtype.str, d.shape, float(d)) == ("<f8", (), result.record)
    assert parity(0.5 + 2.0**-53) == 1
    assert parity(0.5 + 2.0**-52) == 0


# ---------------------------------------------------------------- codec


def codes(number: int, samples: npt.NDArray[np.float64] | None) -> Unit:
    return Unit(number, {"talker": Codes() if samples is None else Codes.of({"samples": samples})})


def test_the_codec_smooths_and_rings_out() -> None:
    model = codec.load({})
    state = opened(model)
    rng = np.random.default_rng(3)
    given = [None, rng.uniform(-2, 2, N), np.full(N, 0.5), None, None, rng.uniform(-1, 1, N), None]
    z = 0.0
    for number, samples in enumerate(given):
        body = stepped(model, state, codes(number, samples)).out[ROOT]
        assert isinstance(body, Speech)
        if samples is None and abs(z) < 1 / 32768:
            assert (number, body) in [(0, Speech()), (4, Speech())]
            z = 0.0
            continue
        expected = []
        for n in range(N):
            z = 0.7 * z + 0.3 * (0.0 if samples is None else samples[n])
            expected.append(max(-32768, min(32767, round(z * 32768))))
        pcm = body.arrays()["pcm"]
        assert pcm.dtype == np.int16
        assert pcm.tolist() == expected
    assert state.z != 0.0


def test_a_tail_begins_at_one_lsb() -> None:
    model = codec.load({})
    for z, silent in ((1 / 32768, False), (-1 / 32768, False), (0.999 / 32768, True), (-0.999 / 32768, True)):
        state = opened(model)
        state.z = z
        assert stepped(model, state, codes(0, None)).out[ROOT].marker is silent
        assert not silent or state.z == 0.0


def test_speech_is_clipped() -> None:
    model = codec.load({})
    for level, limit in ((3.0, 32767), (-3.0, -32768)):
        pcm = stepped(model, opened(model), codes(0, np.full(N, level))).out[ROOT].arrays()["pcm"]
        assert pcm[-1] == limit


# ---------------------------------------------------------------- batches


Make = Callable[[int, np.random.Generator], Unit]


def random_audio(number: int, rng: np.random.Generator) -> Unit:
    loud = rng.choice([0, 200, 20000])
    return heard(number, rng.integers(-loud, loud + 1, N).astype(np.int16) if loud else None)


def random_codes(number: int, rng: np.random.Generator) -> Unit:
    return codes(number, rng.standard_normal(N) * 10.0 ** rng.integers(-6, 1) if rng.random() < 0.6 else None)


def random_condition(number: int, rng: np.random.Generator) -> Unit:
    arrays = {"feature": rng.standard_normal(N), "first": np.array(rng.random() < 0.2)}
    return Unit(number, {"llm": Condition.of(arrays) if rng.random() < 0.6 else Condition()})


def random_features(number: int, rng: np.random.Generator) -> Unit:
    return Unit(number, {"encoder": features(number, bool(rng.random() < 0.4))})


STAGES = [
    pytest.param(encoder.load({}), random_audio, id="encoder"),
    pytest.param(llm.load({}), random_features, id="llm"),
    pytest.param(talker.load({}), random_condition, id="talker"),
    pytest.param(codec.load({}), random_codes, id="codec"),
]


@pytest.mark.parametrize(("model", "make"), STAGES)
def test_a_row_is_the_same_in_any_batch(model: StageModel[Any], make: Make) -> None:
    rng = np.random.default_rng(8)
    sessions = [[make(u, rng) for u in range(12)] for _ in range(7)]
    alone = []
    for units in sessions:
        state = opened(model)
        alone.append([stepped(model, state, unit) for unit in units])

    states = [opened(model) for _ in sessions]
    for u in range(12):
        assert model.step([(states[i], sessions[i][u]) for i in range(7)]) == [row[u] for row in alone]

    states, at = [opened(model) for _ in sessions], [0] * 7
    while min(at) < 12:
        chosen = [int(i) for i in rng.permutation(7)[: rng.integers(1, 8)] if at[i] < 12]
        results = model.step([(states[i], sessions[i][at[i]]) for i in chosen])
        assert results == [alone[i][at[i]] for i in chosen]
        for i in chosen:
            at[i] += 1


BAD: dict[str, list[Mapping[str, AnyBody]]] = {
    "encoder": [
        {},
        {ROOT: Audio.of({"pcm": np.zeros(N - 1, np.int16)})},
        {ROOT: Audio.of({"pcm": np.zeros(N)})},
        {ROOT: Audio.of({"sound": np.zeros(N, np.int16)})},
        {ROOT: Audio(tensors={"pcm": Tensor("<i2", (N,), b"short")})},
    ],
    "llm": [
        {},
        {"encoder": Features.of({"feature": np.zeros(N, np.float32)})},
        {"encoder": Features.of({"feature": np.zeros((1, N))})},
    ],
    "talker": [
        {},
        {"llm": Condition.of({"feature": np.zeros(N)})},
        {"llm": Condition.of({"feature": np.zeros(N), "first": np.zeros(1, bool)})},
        {"llm": Condition.of({"feature": np.full(N, np.nan), "first": np.array(True)})},
    ],
    "codec": [
        {},
        {"talker": Codes.of({"samples": np.zeros(N, ">f4")})},
        {"talker": Codes.of({"samples": np.full(N, np.inf)})},
    ],
}


@pytest.mark.parametrize(("model", "make"), STAGES)
def test_a_bad_input_ends_one_session_only(
    model: StageModel[Any], make: Make, request: pytest.FixtureRequest
) -> None:
    rng = np.random.default_rng(4)
    for inputs in BAD[request.node.callspec.id]:
        good = [make(0, rng), make(0, rng)]
        bad = Unit(0, inputs)
        results = model.step([(opened(model), unit) for unit in (bad, good[0], bad, good[1], bad)])
        assert [isinstance(result, SessionError) for result in results] == [True, False, True, False, True]
        assert [results[1], results[3]] == [stepped(model, opened(model), unit) for unit in good]
        (result,) = model.step([(opened(model), bad)])
        assert isinstance(result, SessionError)


@pytest.mark.parametrize("record", [[SPEAK, 1], [7, 0, 0], "speak", [SPEAK, "1", 0], {}])
def test_a_bad_record_of_the_llm(record: Any) -> None:
    model = llm.load({})
    unit = Unit(0, {"encoder": Features()}, record)
    assert isinstance(model.step([(opened(model), unit)])[0], SessionError)
    with pytest.raises(SessionError):
        opened(model, Start(seed=1, begin=1), [unit])


@pytest.mark.parametrize("record", [1.0, -0.1, float("nan"), "0.5", [0.5], 1])
def test_a_bad_record_of_the_talker(record: Any) -> None:
    model = talker.load({})
    assert isinstance(model.step([(opened(model), condition(0, True, record))])[0], SessionError)


def test_bad_options_of_a_session() -> None:
    for model in (llm.load({}), talker.load({})):
        with pytest.raises(SessionError, match="loop"):
            opened(model, Start(seed=1, options={"lop": True}))


# ---------------------------------------------------------------- the chain, and folding it


def spoken_input(units: int) -> list[npt.NDArray[np.int16] | None]:
    """Half a second of tone, a second of silence, and so on."""
    return [tone(0.3, u) if u % 18 < 6 else None for u in range(units)]


def chain(
    given: Sequence[npt.NDArray[np.int16] | None], seed: int, loop: bool = False
) -> dict[str, list[Unit]]:
    """The stages one after the other, messages encoded as on the bus; inputs and records of every stage."""
    models: dict[str, StageModel[Any]] = {
        "encoder": encoder.load({}),
        "llm": llm.load({}),
        "talker": talker.load({}),
        "codec": codec.load({}),
    }
    start = Start(seed=seed, options={"loop": loop})
    states = {stage: opened(model, start) for stage, model in models.items()}
    units: dict[str, list[Unit]] = {stage: [] for stage in (*models, ROOT)}
    fed: AnyBody | None = None
    for number, pcm in enumerate(given):
        src, body = ROOT, heard(number, pcm).inputs[ROOT]
        for stage, model in models.items():
            inputs: dict[str, AnyBody] = {src: decode(encode(body), type(body))}
            if stage == "llm" and fed is not None:
                inputs["talker"] = fed
            result = stepped(model, states[stage], Unit(number, inputs))
            units[stage].append(Unit(number, inputs, result.record))
            fed = result.out.get("llm") if stage == "talker" else fed
            src, body = stage, next(iter(result.out.values()))
        units[ROOT].append(Unit(number, {src: body}))
    return units


def test_two_seeds_give_two_voices_of_the_same_words() -> None:
    given = spoken_input(40)
    one, same, other = chain(given, 1), chain(given, 1), chain(given, 2)
    assert one == same
    assert [u.record for u in one["llm"]] == [u.record for u in other["llm"]]
    assert one["talker"] != other["talker"]
    assert one[ROOT] != other[ROOT]


def test_the_loop_takes_longer() -> None:
    given = [*spoken_input(6), *[None] * 40]
    plain, looped = chain(given, 1), chain(given, 1, loop=True)
    said = [[u.record[1] for u in units["llm"] if u.record[0] == SPEAK] for units in (plain, looped)]
    assert said[0] == sorted(set(said[1]))
    assert len(said[1]) > len(said[0])


@pytest.mark.parametrize("cut", [1, 7, 19, 20, 25, 37])
def test_a_filter_folded_from_its_horizon_goes_on_alike(cut: int) -> None:
    units = chain(spoken_input(44), 1)
    folded = ((encoder, "encoder", "llm"), (talker, "talker", "codec"), (codec, "codec", ROOT))
    for model, stage, after in ((module.load({}), stage, after) for module, stage, after in folded):
        live = opened(model)
        for unit in units[stage][:cut]:
            stepped(model, live, unit)
        horizon = model.horizon(live)
        assert 0 <= horizon < cut
        known = [Unit(u, {}) for u in range(horizon)] + units[stage][horizon:cut]
        heir = opened(model, Start(seed=1, begin=cut), known)
        for unit in units[stage][cut:]:
            expected = units[after][unit.number].inputs[stage]
            assert stepped(model, heir, Unit(unit.number, unit.inputs)).out[after] == expected


def test_a_hole_within_the_horizon_is_refused() -> None:
    made = ((encoder, heard), (talker, lambda u, _: condition(u, False)), (codec, codes))
    for model, make in ((module.load({}), make) for module, make in made):
        history = [make(u, None) for u in range(19)] + [Unit(19, {})]
        with pytest.raises(SessionError, match="unit 19"):
            opened(model, Start(seed=1, begin=20), history)


# ---------------------------------------------------------------- options, cost, manifest


def test_options_of_a_session() -> None:
    assert session_options({}) == {"loop": False, "context_units": 4096}
    assert session_options({"loop": "True", "context_units": "12"}) == {"loop": True, "context_units": 12}
    wrong: list[dict[str, Any]] = [
        {"loop": 1},
        {"loop": "yes"},
        {"context_units": 11},
        {"context_units": "many"},
    ]
    for bad in wrong:
        with pytest.raises(BadOption, match=next(iter(bad))):
            session_options(bad)
    for units in (True, 12.5, 10**9):
        with pytest.raises(BadOption, match="whole number"):
            session_options({"context_units": units})
    with pytest.raises(BadOption, match=r"'context_unit'.*'context_units'"):
        session_options({"context_unit": 20})
    with pytest.raises(BadOption, match="'loop'"):
        session_options({"loops": True})


def test_options_of_a_worker() -> None:
    none = {"batch_ms": 0.0, "row_ms": 0.0, "open_ms": 0.0, "session_bytes": 0, "fixed_bytes": 0}
    none |= {"hang_dir": None}
    assert worker_options({}) == none
    given = {"batch_ms": "2.5", "row_ms": 1, "session_bytes": "1000", "fixed_bytes": 7}
    assert worker_options(given) == none | {
        "batch_ms": 2.5,
        "row_ms": 1.0,
        "session_bytes": 1000,
        "fixed_bytes": 7,
    }
    for bad in (-1, "nan", "inf", None, True, "x", [1], 10**400):
        with pytest.raises(BadOption, match="row_ms"):
            worker_options({"row_ms": bad})
    with pytest.raises(BadOption, match="session_bytes"):
        worker_options({"session_bytes": -1})
    with pytest.raises(BadOption, match="'batch_ms'"):
        worker_options({"batchms": 1})
    assert worker_options({"hang_dir": "/some/where"})["hang_dir"] == "/some/where"
    for bad in ("here", 1, None):
        with pytest.raises(BadOption, match="hang_dir must be an absolute path"):
            worker_options({"hang_dir": bad})


@pytest.mark.parametrize("stage", [encoder, llm, talker, codec])
def test_a_step_hangs_while_it_is_told_to(stage: Any, tmp_path: Path) -> None:
    file = tmp_path / str(os.getpid())
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            file.unlink()

    model: StageModel[Any] = stage.load({"sleep": sleep, "hang_dir": str(tmp_path)})
    [*_, state] = model.open(Start(1), History([]))
    body = {encoder: Audio, llm: Features, talker: Condition, codec: Codes}[stage]()
    source = {encoder: ROOT, llm: "encoder", talker: "llm", codec: "talker"}[stage]
    unit = Unit(0, {source: body})
    (tmp_path / "1").touch()
    model.step([(state, unit)])
    assert waited == [], "another process is meant"
    file.touch()
    model.step([(state, Unit(1, {source: body}))])
    assert len(waited) == 3


@pytest.mark.parametrize("stage", [encoder, llm, talker, codec])
def test_the_cost_model(stage: Any) -> None:
    slept: list[float] = []
    options = worker_options(
        {"batch_ms": 10, "row_ms": 2, "open_ms": 5, "session_bytes": 3, "fixed_bytes": 4}
    )
    model: StageModel[Any] = stage.load({**options, "sleep": slept.append})
    assert (model.footprint().fixed_bytes, model.footprint().session_bytes) == (4, 3)
    body: dict[str, AnyBody] = {
        ROOT: Audio(),
        "encoder": Features(),
        "llm": Condition(),
        "talker": Codes(),
    }
    history = History([Unit(u, body) for u in range(40)])
    opening = list(model.open(Start(seed=1, begin=40), history))
    assert opening[:-1] == [None, None]
    assert slept == [0.005] * 3
    slept.clear()
    state = opening[-1]
    model.step([(state, Unit(40, body)), (opened(model), Unit(0, body))])
    assert slept == pytest.approx([0.005, 0.014])
    slept.clear()
    assert model.step([]) == []
    assert slept == []
    model.close(state)


def test_a_step_takes_its_time_on_the_thread_that_calls() -> None:
    model = encoder.load(worker_options({"batch_ms": 20}))
    state = opened(model)
    begun = time.perf_counter()
    stepped(model, state, heard(0, None))
    assert time.perf_counter() - begun >= 0.02


def test_the_manifest() -> None:
    assert manifest("parrot") is MANIFEST
    assert (MANIFEST.unit_s, MANIFEST.output_samples) == (0.08, N)
    assert MANIFEST.voices == ("parrot",)
    plain, looped = MANIFEST.edges({}), MANIFEST.edges({"loop": True})
    assert looped[:-1] == plain
    edge = looped[-1]
    assert (edge.src, edge.dst, edge.main, edge.lag, edge.record_like) == ("talker", "llm", False, 1, True)


def test_boundaries_have_one_shape_for_speech_and_markers() -> None:
    x = np.arange(N) / N
    first = np.array(True)
    cases: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
        (ROOT, "encoder", {"pcm": x.astype(np.int16)}, {"input_pcm16": x.astype(np.int16)}),
        ("encoder", "llm", {"feature": x}, {"features": x, "active": np.array(True)}),
        ("llm", "talker", {"feature": x, "first": first}, {"condition": x, "first": first}),
        ("talker", "codec", {"samples": x}, {"codes": x}),
        ("codec", ROOT, {"pcm": x.astype(np.int16)}, {"pcm16": x.astype(np.int16)}),
    ]
    for src, dst, arrays, expected in cases:
        full, empty = MANIFEST.boundaries(src, dst, arrays), MANIFEST.boundaries(src, dst, {})
        assert full.keys() == empty.keys() == expected.keys()
        for name, array in expected.items():
            assert np.array_equal(full[name], array)
            assert (full[name].dtype, full[name].shape) == (array.dtype, array.shape)
            assert (empty[name].dtype, empty[name].shape) == (array.dtype, array.shape)
            assert not empty[name].any()
    assert MANIFEST.boundaries("talker", "llm", {"d": np.array(0.5)}) == {}
