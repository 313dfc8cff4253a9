"""The pocket model's answers from a chat endpoint: the real openai SDK against a small HTTP server that streams as Ollama and
vLLM do, and that can be slow, hang, or fail."""

import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from chat_endpoint import SECRET, Endpoint
from duologue.bus.messages import Features, Start
from duologue.stage.model import History, Unit
from duologue_llm import pocket
from duologue_llm.answers import Answering, Question
from duologue_llm.answers.call import SORRY, SORRY_AMID
from duologue_llm.answers.chat import CUT_OFF, INSTRUCTIONS, SPEAK_FIRST, SPOKEN, Chat, chat_messages

pytestmark = pytest.mark.contract

NOW = datetime(2026, 12, 1, 15, 4, tzinfo=UTC)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def chat(endpoint: Endpoint, **options: Any) -> Chat:
    return Chat(endpoint.url, clock=lambda: NOW, **options)


def question(text: str = "Why?", **fields: Any) -> Question:
    return Question((("user", text),), **fields)


def whole(answering: Answering, limit_s: float = 20.0) -> list[str]:
    """The pieces, until the last."""
    pieces, until = [], time.monotonic() + limit_s
    while time.monotonic() < until:
        part = answering.poll()
        pieces += [part.text] if part.text else []
        if part.last:
            return pieces
        time.sleep(0.005)
    raise AssertionError(f"no end after {pieces}")


def test_an_answer_comes_clause_by_clause(logs: list[Any]) -> None:
    first = threading.Event()
    deltas = ["It is ", "so. ", "And **that", "** is", " all 😀."]
    with Endpoint(*deltas, between=lambda number: number == 2 and first.wait(10)) as endpoint:
        answering = chat(endpoint, key="k1").ask(question(instructions="Be brief."))
        until = time.monotonic() + 10
        while (piece := answering.poll()).text == "" and time.monotonic() < until:
            time.sleep(0.005)
        assert piece == ("It is so. ", False)
        first.set()
        assert whole(answering) == ["And that is all ."]
    assert endpoint.keys == ["Bearer k1"]
    assert endpoint.listed == 1
    [request] = endpoint.requests
    assert (request["model"], request["stream"]) == ("tiny", True)
    assert request["messages"] == chat_messages(question(instructions="Be brief."), NOW)
    assert logs == []


def test_the_model_may_be_named() -> None:
    with Endpoint("Yes.") as endpoint:
        answerer = chat(endpoint, model="big")
        assert whole(answerer.ask(question())) == ["Yes."]
        assert whole(answerer.ask(question())) == ["Yes."]
    assert [request["model"] for request in endpoint.requests] == ["big", "big"]
    assert endpoint.listed == 0


def test_inline_an_answer_is_there_at_once() -> None:
    with Endpoint("One. ", "Two.") as endpoint:
        assert chat(endpoint, inline=True).ask(question()).poll() == ("One. Two.", True)


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_an_endpoint_that_fails_is_apologised_for(status: int, logs: list[Any]) -> None:
    with Endpoint(status=status) as endpoint:
        assert whole(chat(endpoint).ask(question(SECRET))) == [SORRY]
    assert len(endpoint.requests) <= 2
    [line] = logs
    assert line["event"] == "no answer"
    assert line["why"].endswith(f"answered with status {status}")
    assert SECRET not in str(logs)


def test_nobody_there_is_apologised_for(logs: list[Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and listens not
        answerer = Chat(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", "tiny", clock=lambda: NOW)
        assert whole(answerer.ask(question(SECRET))) == [SORRY]
        at = f"127.0.0.1:{taken.getsockname()[1]}"
    [line] = logs
    assert line["why"] == f"{at} can't be reached: ConnectionRefusedError"
    assert "where" not in line  # four kilobytes of places in other libraries
    assert SECRET not in str(logs)


def test_one_that_says_nothing_is_apologised_for() -> None:
    with Endpoint("", " ") as endpoint:
        assert whole(chat(endpoint).ask(question())) == [SORRY]


@pytest.mark.parametrize(
    ("deltas", "expected"), [((), [SORRY]), (("So it is. ", "But"), ["So it is. ", SORRY_AMID])]
)
def test_one_that_hangs_is_given_up(deltas: tuple[str, ...], expected: list[str], logs: list[Any]) -> None:
    never = threading.Event()
    hangs_at = max(len(deltas) - 1, 0)
    with Endpoint(*deltas, "…", between=lambda number: number == hangs_at and never.wait(30)) as endpoint:
        began = time.monotonic()
        assert whole(chat(endpoint, gap_s=0.5).ask(question(SECRET))) == expected
        assert time.monotonic() - began < 10
        never.set()
    assert [line["event"] for line in logs][:1] == ["no answer"]
    assert SECRET not in str(logs)


def test_one_that_is_not_wanted_any_more_is_hung_up_on() -> None:
    go = threading.Event()
    with Endpoint(*["word, and another word. "] * 3000, between=lambda n: n == 1 and go.wait(10)) as endpoint:
        answering = chat(endpoint).ask(question())
        until = time.monotonic() + 10
        while not answering.poll().text and time.monotonic() < until:
            time.sleep(0.005)
        answering.cancel()
        go.set()
        assert endpoint.hung_up.wait(10)


def test_a_line_without_an_end_is_hung_up_on(logs: list[Any]) -> None:
    with Endpoint(b"data: ", *[bytes(1 << 20)] * 64) as endpoint:
        assert whole(chat(endpoint).ask(question())) == [SORRY]
        assert endpoint.hung_up.wait(10)
    assert [line["why"] for line in logs] == ["the endpoint sent more than 16 MiB"]


def test_signs_of_life_without_an_answer_are_hung_up_on() -> None:
    with Endpoint(*[b": still here\n\n"] * 1000, between=lambda _: time.sleep(0.01)) as endpoint:
        assert whole(chat(endpoint, most_s=0.3).ask(question())) == [SORRY]
        assert endpoint.hung_up.wait(5)


def test_a_hanging_endpoint_delays_no_other_session() -> None:
    """Sessions of one worker: the first one's answer hangs, and so do ten more; the others are stepped and answered."""
    never = threading.Event()
    asked = threading.Lock()
    count = 0

    def between(number: int) -> None:
        nonlocal count
        with asked:
            count += 1
            mine = count
        if mine <= 11:
            never.wait(30)

    with Endpoint("Yes.", between=between) as endpoint:
        model = pocket.Llm(chat(endpoint))
        states = [list(model.open(Start(seed), History()))[-1] for seed in range(14)]
        turn = Features.of({"text": pocket.np.frombuffer(b"Why?", pocket.np.uint8)})
        ended: set[int] = set()
        longest = 0.0
        for unit in range(500):
            rows = [(state, Unit(unit, {"encoder": turn if unit == min(n, 11) else Features()}))
                    for n, state in enumerate(states)]  # fmt: skip
            began = time.perf_counter()
            results = model.step([row for row in rows if row[0] is not None])  # type: ignore[misc]
            longest = max(longest, time.perf_counter() - began)
            ended |= {n for n, result in enumerate(results) if "end" in result.out["talker"].arrays()}  # type: ignore[union-attr]
            if len(ended) >= 3:
                break
            time.sleep(0.02)
        assert len(ended) == 3
        assert longest < 1.0  # a hanging one takes 8 s and more
        for state in states:
            assert state is not None
            model.close(state)
        never.set()


def test_messages_are_what_every_chat_template_takes() -> None:
    asked = Question(
        (
            ("developer", "Speak slowly."),
            ("user", "Hi"),
            ("user", "Are you there?"),
            ("assistant", "Yes —"),
            ("user", "Good."),
        ),
        begun="So",
    )
    system, *rest = chat_messages(asked, NOW)
    assert system["role"] == "system"
    assert system["content"].split("\n\n") == [
        INSTRUCTIONS,
        "Speak slowly.",
        SPOKEN,
        "It is Tuesday, December 1, 2026, 15:04.",
    ]
    assert rest == [
        {"role": "user", "content": "Hi\nAre you there?"},
        {"role": "assistant", "content": "Yes —"},
        {"role": "user", "content": "Good."},
        {"role": "assistant", "content": "So"},
        {"role": "user", "content": CUT_OFF},
    ]
    assert chat_messages(question("", instructions="Ada"), NOW)[1:] == [
        {"role": "user", "content": SPEAK_FIRST}
    ]
