"""A person talks with the pocket model on the talk page: a synthetic one, at a real browser's microphone."""

import asyncio
from pathlib import Path

import pytest

from deployment import deployment
from duologue.testing.words import words
from talking_browser import asking, listener, start, stop, text

pytest.importorskip("hibari", reason="the extra `pocket` is not installed")
pytest.importorskip("onnxruntime", reason="the extra `pocket` is not installed")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

TURNS = "[...document.querySelectorAll('.turn')].map(li => [li.classList[1], li.querySelector('.words').textContent])"
QUESTIONS = asking(("What is seven plus five?", 6.0), ("Please repeat: the train leaves at nine.", 60.0))


def test_questions_are_shown_answered_and_heard(tmp_path: Path) -> None:
    async def scenario(url: str) -> None:
        async with listener(QUESTIONS, tmp_path) as running:
            tab = await running.page()
            await start(tab, url)
            assert (await text(tab, "#session-line")).startswith("pocket")
            await tab.until("document.body.dataset.state === 'speaking'", 30)
            await tab.until("document.querySelectorAll('.turn.assistant').length === 2", 30)
            await tab.until("document.querySelectorAll('#spoken p').length === 4", 30)
            turns = await tab.evaluate(TURNS)
            # Whole turns, in the order in which they were spoken, though some are recognised late.
            assert [side for side, _ in turns] == ["user", "assistant", "user", "assistant"], turns
            asked, answered, wanted, repeated = (set(words(said)) for _, said in turns)
            assert {"seven", "plus", "five"} <= asked
            assert {"twelve", "12"} & answered, turns
            assert {"train", "leaves", "nine"} <= wanted
            assert {"train", "leaves", "nine"} <= repeated
            assert (await text(tab, "#first-audio")).endswith("ms")
            assert "of 2" in await text(tab, "#first-audio-more")
            await stop(tab)
            assert tab.complaints == []

    with deployment(model="pocket") as served:
        asyncio.run(scenario(served.url))
