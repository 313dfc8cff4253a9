"""What a model heard, on its way to the client: through real owners and the root, in virtual time."""

import asyncio
from pathlib import Path

import pytest

import hearing_model
from duologue.audio.formats import PCM_24K
from duologue.bus import messages as m
from duologue.inprocess import InProcess
from duologue.models import manifest
from duologue.testing.parrot_reference import reference
from duologue.testing.signals import bursts
from duologue.virtual import run_virtual
from duologue_api.live import events
from duologue_api.live.config import check
from duologue_api.port import ModelStatus
from duologue_api.teller import Teller
from recorder import Recorder

pytestmark = pytest.mark.unit

UNIT = 1920
SAID = bursts([(0.4, False), (0.5, True), (1.6, False), (0.6, True), (1.7, False)], 5)
"""60 units; the answers keep to the pauses."""


@pytest.fixture
def lyrebird(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(hearing_model.install(tmp_path))
    return hearing_model.ID


def test_what_was_heard_comes_with_the_times_at_which_it_was_said(lyrebird: str) -> None:
    async def main() -> Recorder:
        async with InProcess(lyrebird, seed=3) as deployment:
            await asyncio.sleep(1.1)
            client = Recorder()
            root = deployment.pod.connect(client)
            root.start(check({"model": lyrebird}, deployment.pod.models()), None)
            await client.until(lambda: client.started)
            for at in range(0, len(SAID), UNIT):
                root.append(SAID[at : at + UNIT].tobytes(), None)
                await asyncio.sleep(0.08)
            root.request_close(None)
            await client.until(lambda: client.ended is not None)
            root.disconnected()
            assert not deployment.fatal
            return client

    client = run_virtual(main(), limit_s=60)
    expected = list(hearing_model.heard([bool(each) for each in reference(SAID, 3).active]))
    assert len(expected) == 4
    told = [event for event in client.events if isinstance(event, events.InputTranscriptDelta)]
    assert [(e.delta, e.start_ms, e.end_ms) for e in told] == [
        (text, 80 * first, 80 * end) for text, first, end in expected
    ]
    said = [event for event in client.events if isinstance(event, events.OutputTranscriptDelta)]
    assert said != []
    # The parrot begins to answer five silent units after what it heard.
    assert client.events.index(told[0]) < client.events.index(said[0])
    starts = [
        event.start_ms
        for event in client.events
        if isinstance(event, events.InputTranscriptDelta | events.OutputTranscriptDelta)
    ]
    assert starts == sorted(starts)


def test_starts_never_go_back() -> None:
    """openai's grouper takes a start before an earlier one for a clock that was set back, and ends the turn."""
    client = Recorder()
    config = check({"model": "parrot"}, [ModelStatus("parrot", "", True, (), 0.08)])
    teller = Teller("live_1", client, config, manifest("parrot"), PCM_24K)
    teller.unit(20, " said", (), None)
    teller.unit(21, " on", (m.Heard(" stop", 15, 19), m.Heard(" it", 19, 22)), None)
    kinds = events.InputTranscriptDelta | events.OutputTranscriptDelta
    told = [(e.delta, e.start_ms, e.end_ms) for e in client.events if isinstance(e, kinds)]
    assert told == [
        (" said", 1600, 1680),
        (" stop", 1600, 1600),
        (" it", 1600, 1760),
        (" on", 1680, 1760),
    ]
    assert len({event.event_id for event in client.events if isinstance(event, kinds)}) == 4
