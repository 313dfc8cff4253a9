"""The picture of a deployment, from its heartbeats and events, and that it fits on a screen."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.transport import Message
from duologue.inprocess import InProcess
from duologue.top.table import MOST_ROWS, render
from duologue.top.watch import CLOSED_S, FORGET_S, MISSING_S, MOST_SESSIONS, Watch
from duologue.virtual import run_virtual
from recorder import Recorder, config

pytestmark = pytest.mark.unit

LLM = "llm.llm-0123456789ab"
POD = "api.api-0123456789ab"


class Scene:
    """A watch whose time is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.settled_s = 50.0
        self.watch = Watch(clock=lambda: self.now, settled_s=lambda: self.settled_s)

    def beat(self, address: str, state: str = m.READY, free: int = 3, **fields: Any) -> None:
        models = fields.pop("models", {"parrot": m.Places(free, 2)})
        beat = m.Heartbeat(m.WIRE, m.LEDGER, address, state, models, **fields)
        self.watch.on_heartbeat(Message(subjects.heartbeat(address), m.encode(beat)))

    def event(self, kind: str, sid: str, **detail: Any) -> None:
        event = m.Event(m.WIRE, kind, sid, detail)
        self.watch.on_event(Message(subjects.event(kind, sid), m.encode(event)))

    def picture(self) -> dict[str, Any]:
        picture = self.watch.picture()
        assert json.loads(json.dumps(picture)) == picture
        return picture

    def states(self) -> dict[str, str]:
        picture = self.picture()
        return {row["id"]: row["state"] for row in [*picture["pods"], *picture["workers"]]}

    def text(self, width: int = 80) -> list[str]:
        console = Console(width=width, color_system=None)
        with console.capture() as capture:
            console.print(render(self.picture(), width))
        lines = capture.get().splitlines()
        assert all(len(line) <= width for line in lines)
        return [line.rstrip() for line in lines]


def test_workers_and_pods() -> None:
    scene = Scene()
    scene.beat("codec.cod-2")
    scene.beat(
        "codec.cod-1", due_age=0.1, step_age=0.04, step_ms=12.5, queue_ms=3.0, unit_ms=80.0, sessions=2
    )
    scene.beat("encoder.enc-1")
    scene.beat("api.api-1", sessions=7, models={"parrot": m.Places(0, 0)})
    scene.now += 0.25
    picture = scene.picture()
    assert [row["id"] for row in picture["workers"]] == ["enc-1", "cod-1", "cod-2"]
    assert picture["workers"][1] == {
        "stage": "codec",
        "id": "cod-1",
        "state": "ready",
        "models": {"parrot": {"free": 3, "sessions": 2}},
        "sessions": 2,
        "queue_ms": 3.0,
        "step_ms": 12.5,
        "unit_ms": 80.0,
        "due_age_s": 0.1,
        "step_age_s": 0.04,
        "heartbeat_age_s": 0.25,
        "wire": m.WIRE,
        "ledger": m.LEDGER,
    }
    [pod] = picture["pods"]
    assert (pod["stage"], pod["sessions"]) == ("api", 7)
    assert (picture["connected"], picture["unreadable"]) == (True, 0)


def test_three_missing_heartbeats_make_a_worker_silent() -> None:
    scene = Scene()
    scene.beat(LLM)
    scene.now += MISSING_S
    scene.beat("llm.llm-2", m.DRAINING)
    assert scene.states() == {"llm-0123456789ab": "ready", "llm-2": "draining"}
    scene.now += 0.01
    assert scene.states() == {"llm-0123456789ab": "silent", "llm-2": "draining"}
    scene.beat(LLM)
    assert scene.states()["llm-0123456789ab"] == "ready"
    scene.now += FORGET_S
    scene.beat("llm.llm-2", m.DRAINING)
    scene.now += 1
    assert scene.states() == {"llm-2": "silent"}, "the other is long gone"


def test_nobody_is_called_silent_by_who_has_no_connection() -> None:
    scene = Scene()
    scene.beat(LLM)
    scene.now += 2
    scene.settled_s = 0.0
    assert scene.states() == {"llm-0123456789ab": "ready"}
    assert scene.text()[0] == "no connection to NATS: this is what was known before"
    scene.settled_s = 0.99
    assert scene.states() == {"llm-0123456789ab": "ready"}
    scene.settled_s = 1.0
    assert scene.states() == {"llm-0123456789ab": "silent"}


def test_sessions_by_their_events() -> None:
    scene = Scene()
    scene.event("opened", "live_1", model="parrot")
    scene.now += 2
    scene.event("opened", "live_2", model="parrot")
    scene.event("moved", "live_1", stage="llm")
    scene.event("closed", "live_0", model="parrot", reason="close_requested", units_in=3)
    scene.now += 1
    assert scene.picture()["sessions"] == [
        {
            "sid": "live_0",
            "model": "parrot",
            "state": "closed",
            "age_s": None,
            "changed_s": 1.0,
            "detail": {"reason": "close_requested", "units_in": 3},
        },
        {
            "sid": "live_1",
            "model": "parrot",
            "state": "moved",
            "age_s": 3.0,
            "changed_s": 1.0,
            "detail": {"stage": "llm"},
        },
        {"sid": "live_2", "model": "parrot", "state": "opened", "age_s": 1.0, "changed_s": 1.0, "detail": {}},
    ]
    scene.now += CLOSED_S
    assert [row["sid"] for row in scene.picture()["sessions"]] == ["live_1", "live_2"]


def test_it_does_not_grow_without_end() -> None:
    scene = Scene()
    for number in range(MOST_SESSIONS + 5):
        scene.event("opened", f"live_{number}")
    sessions = scene.picture()["sessions"]
    assert len(sessions) == MOST_SESSIONS
    assert sessions[0]["sid"] == f"live_{MOST_SESSIONS + 4}"


def test_what_is_of_another_version_is_counted() -> None:
    scene = Scene()
    scene.watch.on_heartbeat(Message("x", b"garbage"))
    scene.watch.on_event(Message("x", b"garbage"))
    assert scene.picture()["unreadable"] == 2
    assert scene.text()[-1] == "2 messages are of another version"


def test_a_screen_of_80_columns() -> None:
    scene = Scene()
    fields = {"due_age": 0.2, "step_age": 12.0, "step_ms": 123.4, "queue_ms": 99.9, "unit_ms": 80.0}
    for number, stage in enumerate(("encoder", "llm", "talker", "codec")):
        address = f"{stage}.{stage[:3]}-0123456789ab"
        scene.beat(address, models={"parrot": m.Places(number, 10)}, **fields)
    scene.beat("llm.llm-ffffffffffff", m.DRAINING, 9)
    scene.beat(POD, models={"parrot": m.Places(0, 0)}, sessions=1)
    scene.event("opened", "live_" + 26 * "x", model="parrot")
    scene.now += 0.5
    assert scene.text() == [
        "stage   id               model  state    free sess queue step  due  run beat v",
        "api     api-0123456789ab parrot ready            1                      0.5s 1",
        "encoder enc-0123456789ab parrot ready       0   10  99.9  123 0.2s  12s 0.5s 1",
        "llm     llm-0123456789ab parrot ready       1   10  99.9  123 0.2s  12s 0.5s 1",
        "llm     llm-ffffffffffff parrot draining    9    2   0.0  0.0 0.0s 0.0s 0.5s 1",
        "talker  tal-0123456789ab parrot ready       2   10  99.9  123 0.2s  12s 0.5s 1",
        "codec   cod-0123456789ab parrot ready       3   10  99.9  123 0.2s  12s 0.5s 1",
        "1 live session; free places: encoder 0, llm 1, talker 2, codec 3",
        "",
        "session                         model  state   age",
        "live_xxxxxxxxxxxxxxxxxxxxxxxxxx parrot opened 0.5s",
    ]


def test_many_models_and_sessions_fit_too() -> None:
    scene = Scene()
    many = {"personaplex": m.Places(100, 100), "minicpmo": m.Places(2, 3)}
    scene.beat(LLM, m.DRAINING, models=many, due_age=1234.0, step_age=99.0, step_ms=4000.0, queue_ms=4000.0)
    scene.beat("llm.other-than-ours", models={})
    for number in range(MOST_ROWS + 3):
        scene.event(
            "closed", f"live_{number:026}", model="personaplex", reason="connection_lost", units_in=45000
        )
    lines = scene.text()
    assert lines[:4] == [
        "stage id               model    state    free sess queue step  due  run beat v",
        "llm   llm-0123456789ab persona… draining  100  100  4000 4000  21m  99s 0.0s 1",
        "                       minicpmo             2    3",
        "llm   other-than-ours           ready            0   0.0  0.0 0.0s 0.0s 0.0s 1",
    ]
    assert "live_00000000000000000000000014 personaplex closed     reason=connection_lost …" in lines
    assert sum("live_" in line for line in lines) == MOST_ROWS
    assert lines[-1] == "and 3 more"
    assert "personaplex" in scene.text(100)[1]


def test_a_terminal_is_not_at_the_buss_mercy() -> None:
    scene = Scene()
    scene.beat(LLM, "\x1b", models={"[red]x[/red]\x1b[2J": m.Places(1, 1)})
    scene.event("opened", "live_\x1b", model="[bold]")
    text = "\n".join(scene.text(120))
    assert "\x1b" not in text
    assert "[red]x" in text
    assert "[bold]" in text


def test_nobody_there() -> None:
    assert Scene().text() == [
        "no heartbeat yet: nothing runs on this NATS server, or nothing of this version"
    ]


def test_what_heartbeats_tell_of_a_deployment_at_work() -> None:
    """Steps of 20 ms take 20 ms, the pod counts its sessions, and the owners are where they are."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        watch = Watch(clock=loop.time, settled_s=loop.time)
        async with InProcess("parrot", worker_options={"batch_ms": 20}) as deployment:

            def see(message: Message) -> None:
                if subjects.kind_of(message.subject) == "hb":
                    watch.on_heartbeat(message)
                elif subjects.kind_of(message.subject) == "ev":
                    watch.on_event(message)

            deployment.bus.observe(see)
            clients = [Recorder() for _ in range(3)]
            roots = [deployment.pod.connect(client) for client in clients]
            for root, client in zip(roots[:2], clients, strict=False):
                root.start(config(deployment.pod), None)
                await client.until(lambda client=client: client.started)  # type: ignore[misc]
            for _ in range(25):
                for root in roots[:2]:
                    root.append(np.full(1920, 5000, "<i2").tobytes(), None)
                await asyncio.sleep(0.08)
            picture = watch.picture()
            [pod] = picture["pods"]
            assert pod["sessions"] == 2, "the third has not begun"
            assert [row["stage"] for row in picture["workers"]] == ["encoder", "llm", "talker", "codec"]
            for row in picture["workers"]:
                assert row["step_ms"] == pytest.approx(20)
                assert 0 <= row["queue_ms"] <= 20
                assert (row["unit_ms"], row["sessions"]) == (80, 2)
                [places] = row["models"].values()
            assert places["sessions"] == 2
            assert 0 < places["free"] <= 62
            assert [session["sid"] for session in picture["sessions"]] == [roots[1].sid, roots[0].sid]
            assert {session["state"] for session in picture["sessions"]} == {"opened"}

    run_virtual(main(), limit_s=60)
