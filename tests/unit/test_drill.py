"""What a drill understands, and what it finds: in made-up answers each kind of wrong, and none where there is none."""

import io
import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from duologue.bus.subjects import API
from duologue.cli import main
from duologue.draws import seed_of
from duologue.drill.caller import Call
from duologue.drill.drill import DrillSettings
from duologue.drill.fault import Act, BadFault, Fault, parse
from duologue.drill.report import COUNTS, report, table
from duologue.drill.rounds import Answers, Stretch, judge
from duologue.drill.verdict import Finding, Wrong, compare, compare_texts
from duologue.models import STAGES
from duologue.processes import UpSettings
from duologue.testing.parrot_reference import reference
from duologue.testing.signals import speechlike

pytestmark = pytest.mark.unit

UNIT, UNIT_S = 1920, 0.08


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("text", "act", "roles", "seconds"),
    [
        ("kill:llm", Act.KILL, ("llm",), 0.0),
        ("kill:talker+codec", Act.KILL, ("talker", "codec"), 0.0),
        ("kill:all", Act.KILL, STAGES, 0.0),
        ("kill:any", Act.KILL, (), 0.0),
        ("kill:api", Act.KILL, (API,), 0.0),
        ("term:codec", Act.TERM, ("codec",), 0.0),
        ("hang:encoder", Act.HANG, ("encoder",), 0.0),
        ("stop:talker", Act.STOP, ("talker",), 2.0),
        ("stop:talker+llm:1.5s", Act.STOP, ("talker", "llm"), 1.5),
        ("nats:restart", Act.RESTART, (), 0.0),
        ("nats:blip", Act.BLIP, (), 0.3),
        ("nats:blip:80ms", Act.BLIP, (), 0.08),
        ("slow-client", Act.SLOW, (), 10.0),
        ("fast-client:120s", Act.FAST, (), 120.0),
        ("wait", Act.WAIT, (), 30.0),
        ("wait:5s", Act.WAIT, (), 5.0),
    ],
)
def test_a_fault_is_read(text: str, act: Act, roles: tuple[str, ...], seconds: float) -> None:
    assert parse(text) == Fault(text, act, roles, seconds)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no fault"),
        ("kil:llm", "is no fault"),
        ("killer", "is no fault"),
        ("kill", "is none of"),
        ("kill:", "is none of"),
        ("kill:mouth", "'mouth' is none of"),
        ("kill:llm+", "'' is none of"),
        ("kill:llm+llm", "names one twice"),
        ("kill:llm:2s", "nothing was expected from '2s'"),
        ("hang:api", "runs no model"),
        ("stop:llm:2", "is no time"),
        ("stop:llm:0s", "is no time"),
        ("stop:llm:1000s", "is no time"),
        ("stop:llm:2s:3s", "nothing was expected"),
        ("nats:restart:1s", "nothing was expected"),
        ("nats:stop", "is no fault"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadFault, match=says):
        parse(text)


def test_a_wrong_command_line_is_told_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "--fault", "kill:mouth"]) == 2
    assert "'mouth' is none of encoder, llm, talker, codec, api, all, any" in capsys.readouterr().err
    assert main(["drill", "--nats", "nats://there"]) == 2
    assert "--url" in capsys.readouterr().err
    assert main(["drill", "--url", "http://127.0.0.1:1", "--fault", "kill:llm"]) == 2
    assert (
        "kill:llm: the processes of a deployment that runs already are out of reach"
        in capsys.readouterr().err
    )


def test_flags_reach_the_drill(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[DrillSettings, UpSettings]] = []

    async def on_own(settings: DrillSettings, up: UpSettings, *_: Any) -> dict[str, Any]:
        asked.append((settings, up))
        return {"ok": len(asked) == 1}

    monkeypatch.setattr("duologue.drill.drill.on_own", on_own)
    flags = ["--sessions", "3", "--every", "1.5", "--rounds", "2", "--seed", "9", "--option", "loop=true"]
    assert main(["drill", "--json", *flags, "--fault", "kill:llm", "--fault", "nats:blip"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True}
    settings, up = asked[0]
    assert settings == DrillSettings(
        faults=[parse("kill:llm"), parse("nats:blip")],
        sessions=3,
        every_s=1.5,
        rounds=2,
        seed=9,
        options={"loop": True},
    )
    assert (up.models, up.port, up.seed, up.options) == (("parrot",), 0, 9, {"loop": True})
    assert (up.workers, up.keys) == (dict.fromkeys(STAGES, 2), ())
    assert main(["drill", "--json", "--workers", "llm=3"]) == 1, "what is not in order is no success"
    settings, up = asked[1]
    assert [fault.text for fault in settings.faults] == [*(f"kill:{stage}" for stage in STAGES), "kill:all"]
    assert (settings.sessions, settings.rounds, settings.seed) == (12, 1, None)
    assert up.workers["llm"] == 3


# ---------------------------------------------------------------- units

SILENCE = bytes(2 * UNIT)


def spoken(number: int) -> bytes:
    return np.full(UNIT, number + 1, np.int16).tobytes()


DUE = [SILENCE, *map(spoken, range(8)), SILENCE, SILENCE, *map(spoken, range(8, 12)), SILENCE]


def counted(due: Sequence[bytes], came: Sequence[bytes]) -> list[tuple[Wrong, int]]:
    return [(finding.wrong, finding.unit) for finding in compare(due, came)]


def without(unit: int) -> list[bytes]:
    return DUE[:unit] + DUE[unit + 1 :]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert compare(DUE, list(DUE)) == []
    assert compare([], []) == []


@pytest.mark.parametrize("unit", [1, 5, 11])
def test_a_lost_unit(unit: int) -> None:
    assert counted(DUE, without(unit)) == [(Wrong.LOST, unit)]


@pytest.mark.parametrize("unit", [0, 9, 15])
def test_a_lost_unit_of_silence(unit: int) -> None:
    [(wrong, found)] = counted(DUE, without(unit))
    assert wrong is Wrong.LOST
    assert abs(found - unit) <= 1, "which one of a silence can't be told"


def test_all_that_an_ended_session_lacks_is_lost() -> None:
    assert counted(DUE, DUE[:10]) == [(Wrong.LOST, unit) for unit in range(10, len(DUE))]


@pytest.mark.parametrize("unit", [1, 5, 11])
def test_a_repeated_unit(unit: int) -> None:
    assert [wrong for wrong, _ in counted(DUE, [*DUE[: unit + 1], *DUE[unit:]])] == [Wrong.REPEATED]


def test_a_unit_repeated_much_later() -> None:
    assert counted(DUE, [*DUE[:12], DUE[3], *DUE[12:]]) == [(Wrong.REPEATED, 12)]


def test_a_silence_too_many() -> None:
    assert [wrong for wrong, _ in counted(DUE, [*DUE[:6], SILENCE, *DUE[6:]])] == [Wrong.REPEATED]


@pytest.mark.parametrize(("one", "other"), [(2, 3), (3, 7)])
def test_reordered_units(one: int, other: int) -> None:
    came = list(DUE)
    came.insert(other, came.pop(one))
    assert {wrong for wrong, _ in counted(DUE, came)} == {Wrong.REORDERED}


def test_a_wrong_sample() -> None:
    came = list(DUE)
    samples = np.frombuffer(came[5], np.int16).copy()
    samples[[0, 700]] += 1
    came[5] = samples.tobytes()
    assert compare(DUE, came) == [Finding(Wrong.SAMPLES, 5, 2)]


def test_silence_instead_of_a_unit_is_wrong_and_not_lost() -> None:
    """What was shed keeps its number."""
    came = [*DUE[:5], SILENCE, *DUE[6:]]
    assert compare(DUE, came) == [Finding(Wrong.SAMPLES, 5, UNIT)]


def test_wrong_units_among_silence_are_at_their_places() -> None:
    noise = b"\1\0" * UNIT
    due = [SILENCE] * 5
    assert counted(due, [SILENCE, noise, SILENCE, noise, SILENCE]) == [(Wrong.SAMPLES, 1), (Wrong.SAMPLES, 3)]


def test_a_unit_of_another_length_is_wrong() -> None:
    assert compare(DUE, [*DUE[:5], DUE[5][:-2], *DUE[6:]]) == [Finding(Wrong.SAMPLES, 5, UNIT)]


@pytest.mark.parametrize("seed", range(50))
def test_whatever_is_done_to_units_is_found_and_no_more(seed: int) -> None:
    """Every unit lost or wrong is told at its number, however many there are."""
    rng = random.Random(seed)
    due = [spoken(number) if rng.random() < 0.7 else SILENCE for number in range(120)]
    voiced = [number for number, unit in enumerate(due) if any(unit)]
    hit = rng.sample(voiced, 6)
    lost, wrong = set(hit[:3]), set(hit[3:])
    came = [
        np.full(UNIT, -5 - number, np.int16).tobytes() if number in wrong else unit
        for number, unit in enumerate(due)
        if number not in lost
    ]
    counts = Counter(finding.wrong for finding in compare(due, came))
    assert counts[Wrong.LOST] + counts[Wrong.SAMPLES] == 6
    assert counts[Wrong.REPEATED] + counts[Wrong.REORDERED] == 0
    assert counts[Wrong.SAMPLES] == 3


# ---------------------------------------------------------------- transcript

TEXTS = [(" u3", 400), (" u4", 480), (" u5", 560)]


def test_the_transcript() -> None:
    assert compare_texts(TEXTS, list(TEXTS), 80) == []
    assert compare_texts(TEXTS, TEXTS[:2], 80) == [Finding(Wrong.TEXT, 7)]
    assert compare_texts(TEXTS, [*TEXTS, TEXTS[1]], 80) != []
    assert compare_texts(TEXTS, [TEXTS[0], (" u9", 480), TEXTS[2]], 80) == [Finding(Wrong.TEXT, 6)] * 2
    assert compare_texts(TEXTS, [TEXTS[1], TEXTS[0], TEXTS[2]], 80) == [Finding(Wrong.TEXT, 5)]


# ---------------------------------------------------------------- a round


def answered(answers: Answers, number: int, units: int = 100, lag_s: float = 0.03) -> Call:
    """A call as it is without any fault."""
    talk = Call(speechlike(50 * UNIT / 24_000, number), UNIT, began=10.0, sid=f"live_{number}", sent=units)
    seed = answers.seed if answers.seed is not None else seed_of(talk.sid)
    due = reference(talk.said, seed, loop=answers.loop, context_units=answers.context_units)
    talk.came = [due.pcm16[at : at + UNIT].tobytes() for at in range(0, units * UNIT, UNIT)]
    talk.came_at = [talk.began + (unit + 1) * UNIT_S + lag_s for unit in range(units)]
    talk.texts = [(text, 80 * unit) for unit, text in enumerate(due.texts) if text]
    return talk


@pytest.mark.parametrize(
    "answers", [Answers(), Answers(seed=7), Answers(seed=7, loop=True, context_units=24)]
)
def test_an_undisturbed_round_is_without_findings(answers: Answers) -> None:
    calls = [answered(answers, number) for number in range(3)]
    said = report([judge(calls, [Stretch("undisturbed", 10.0)], answers, UNIT_S)], {})
    assert said["ok"] is True
    assert said["total"] == {
        "sessions": 3,
        "units": 300,
        "notices": {},
        **dict.fromkeys((*COUNTS, "samples", "ended"), 0),
    }
    assert said["faults"][0]["gap_ms"]["max"] == pytest.approx(0.0, abs=0.1)


def test_another_answer_than_that_of_the_seed_is_wrong() -> None:
    calls = [answered(Answers(seed=8), 1)]
    said = report([judge(calls, [Stretch("undisturbed", 10.0)], Answers(seed=7), UNIT_S)], {})
    assert said["ok"] is False
    assert said["total"]["wrong"] > 10
    assert said["total"]["samples"] > 10 * UNIT / 2
    assert said["total"]["lost"] == 0


def test_what_follows_dropped_input_is_told_apart() -> None:
    """It is no loss in silence: the caller was told."""
    answers = Answers(seed=7)
    shed, other = answered(answers, 1), answered(answers, 2)
    shed.shed_from = 40
    for talk in (shed, other):
        talk.came[39] = talk.came[41] = b"\1\0" * UNIT
    said = report([judge([shed, other], [Stretch("undisturbed", 10.0)], answers, UNIT_S)], {})
    assert (said["total"]["wrong"], said["total"]["shed"], said["ok"]) == (3, 1, False)


def test_the_table_tells_what_went_wrong() -> None:
    answers = Answers(seed=7)
    rounds = []
    for number in range(2):
        talk = answered(answers, number)
        del talk.came[90], talk.came_at[90]
        stretches = [Stretch("undisturbed", 10.0), Stretch("kill:llm", 10.0 + 50 * UNIT_S, ["llm-1"])]
        rounds.append(judge([talk], stretches, answers, UNIT_S))
    shown = io.StringIO()
    Console(file=shown, width=80).print(table(report(rounds, {})))
    lines = [line.split() for line in shown.getvalue().splitlines()]
    struck = next(line for line in lines if "kill:llm" in line)
    assert struck[:11] == ["2", "x", "kill:llm", "-", "2", *["0"] * 6]
    assert "2 sessions, 200 units; not all went well" in shown.getvalue()


def test_what_is_wrong_and_late_is_told_of_the_fault_that_it_followed() -> None:
    answers = Answers(seed=7)
    hurt, ended, whole = (answered(answers, number) for number in range(3))
    # The second fault strikes at unit 70, is noticed from unit 71 on, and 5 units come late.
    hurt.came_at[71:76] = [10.0 + 76 * UNIT_S + 0.03] * 5
    del hurt.came[72], hurt.came_at[72]
    del ended.came[90:], ended.came_at[90:]
    ended.texts = [text for text in ended.texts if text[1] < 90 * 80]
    ended.ended, ended.ended_at = "why", 10.0 + 91 * UNIT_S
    stretches = [
        Stretch("undisturbed", 10.0, moved=set()),
        Stretch("kill:llm", 10.0 + 30 * UNIT_S, ["llm-1"], moved=set()),
        Stretch("kill:all", 10.0 + 71 * UNIT_S, ["llm-2"], moved={hurt.sid}),
    ]
    said = report([judge([hurt, ended, whole], stretches, answers, UNIT_S)], {"about": 1})
    assert said["about"] == 1
    first, second, third = said["faults"]
    for row in (first, second):
        assert sum(row[name] for name in ("lost", "repeated", "reordered", "wrong", "ended")) == 0
        assert row["gap_ms"]["max"] == pytest.approx(0.0, abs=0.1)
    assert (third["lost"], third["ended"], third["why_ended"]) == (11, 1, {"why": 1})
    assert third["moved"] == 1
    assert third["struck"] == {"llm-2": 1}
    # Of the moved session alone: unit 71 was due four units before it came.
    assert third["gap_ms"]["p50"] == pytest.approx(4 * UNIT_S * 1000, abs=1)
    assert said["ok"] is False
