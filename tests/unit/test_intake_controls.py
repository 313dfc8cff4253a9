"""Controls of a session's input: their units, what a shed one keeps; and when a unit was heard."""

from typing import Any

import numpy as np
import pytest

from duologue.audio.formats import PCM_24K, PCMU, Format
from duologue.bus.endpoint import Endpoint, window_units
from duologue.bus.messages import SHED, Envelope, Outflow, Wiring
from duologue.models import ROOT, manifest
from duologue_api.intake import CONTROLS, MAX_CONTROLS, SHED_RECORD, Intake
from duologue_api.live.refused import Refused

pytestmark = pytest.mark.unit

PARROT = manifest("parrot")
LOUD = np.full(1920, 5000, np.int16)
BACKLOG_S = 0.8
BACKLOG = 10


class Rig:
    """An intake whose units go nowhere until `go`."""

    def __init__(self, form: Format = PCM_24K, **options: Any) -> None:
        self.now = 0.0
        self.sent: list[Envelope] = []
        self.shedding: list[bool] = []
        self.endpoint = Endpoint(
            "live_1",
            ROOT,
            (1, 0),
            begin=0,
            window=window_units(PARROT.unit_s),
            post=self,
            clock=lambda: self.now,
            arrived=lambda _: None,
        )
        self.endpoint.apply(Wiring((0, 1), False, {}, {"encoder": []}))
        self.intake = Intake(
            PARROT,
            self.endpoint,
            clock=lambda: self.now,
            backlog_s=BACKLOG_S,
            shedding=self.shedding.append,
            form=form,
            **options,
        )

    def unit(self, address: str, envelope: Envelope) -> None:
        self.sent.append(envelope)

    def owes(self, endpoint: Endpoint, urgent: bool) -> None:
        pass

    def say(self, units: float) -> None:
        samples = np.tile(LOUD, 100)[: round(units * 1920)]
        self.intake.append(samples.tobytes())

    def go(self) -> None:
        self.endpoint.apply(Wiring((0, 2), True, {}, {"encoder": [Outflow("encoder.x", (1, 1))]}))


def test_a_control_goes_with_the_unit_of_its_first_sample() -> None:
    rig = Rig()
    rig.say(1.5)
    assert rig.intake.mute(True, "a") == ("muted", 2880, "a")
    rig.say(0.5)
    assert rig.intake.mute(False, None) == ("unmuted", 3840, None)
    assert rig.intake.mute(False, "again") is None
    rig.say(2)
    rig.go()
    assert [envelope.records for envelope in rig.sent] == [
        {},
        {CONTROLS: [("muted", 2880, "a")]},
        {CONTROLS: [("unmuted", 3840, None)]},
        {},
    ]
    heard = rig.sent[1].body.arrays()["pcm"]
    assert heard.tolist() == [5000] * 960 + [0] * 960


def test_a_muted_unit_is_a_marker() -> None:
    rig = Rig()
    rig.intake.mute(True, None)
    rig.say(2)
    rig.go()
    assert [envelope.body.marker for envelope in rig.sent] == [True, True]
    assert rig.intake.samples == 2 * 1920


def test_what_is_shed_keeps_its_controls() -> None:
    rig = Rig()
    rig.say(0.5)
    rig.intake.mute(True, "a")
    rig.say(0.2)
    rig.intake.mute(False, "b")
    rig.say(BACKLOG + 1.3)
    rig.go()
    assert (rig.intake.shed, rig.shedding) == (2, [True])
    first, second, third, *_ = rig.sent
    assert [envelope.flags for envelope in (first, second, third)] == [SHED, SHED, 0]
    assert first.records == {
        **SHED_RECORD,
        CONTROLS: [("muted", 960, "a"), ("unmuted", 1344, "b")],
    }
    assert second.records == SHED_RECORD


def test_the_last_unit_can_be_shed_for_too() -> None:
    rig = Rig()
    rig.say(BACKLOG + 0.5)
    assert (rig.intake.shed, rig.intake.flush()) == (0, 1)
    assert rig.intake.shed == 1


def test_where_nothing_may_be_shed_nothing_more_is_taken() -> None:
    calls: list[int] = []
    rig = Rig(overflow=lambda: calls.append(rig.intake.units))
    rig.say(BACKLOG)
    assert calls == []
    rig.say(50)
    assert calls == [BACKLOG + 1]
    rig.say(1)
    assert (rig.intake.units, rig.intake.shed, calls) == (BACKLOG + 1, 0, [BACKLOG + 1])


def test_too_many_controls_change_nothing() -> None:
    rig = Rig()
    for number in range(MAX_CONTROLS):
        rig.intake.mute(number % 2 == 0, None)
    with pytest.raises(Refused):
        rig.intake.mute(True, None)
    assert rig.intake.muted is False
    rig.say(1)
    assert rig.intake.mute(True, None)


def test_a_unit_is_heard_when_its_last_sample_came_even_if_it_is_complete_later() -> None:
    rig = Rig(PCMU)
    for number in range(97):
        rig.now = number / 100
        rig.intake.append(bytes(80))
    assert rig.intake.units < 12, "the resampler holds some back"
    rig.now = 2.0
    rig.intake.flush()
    assert rig.intake.units == 13
    # The last sample of unit u came with append 8 u + 7, that of the incomplete one is the flush's.
    ages = [rig.intake.answered(unit) for unit in range(13)]
    assert ages == pytest.approx([2 - (8 * unit + 7) / 100 for unit in range(12)] + [0.0])


def test_the_session_clock_is_in_seconds_of_the_clients_samples() -> None:
    rig = Rig(PCMU)
    rig.intake.append(bytes(7999))
    assert rig.intake.seconds == 0.0
    rig.intake.append(bytes(1))
    assert rig.intake.seconds == 1.0
