"""A stage worker whose model is scripted, on a bus in memory, and a pod that is played by the test."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from duologue.bus import messages as m
from duologue.bus import subjects
from duologue.bus.memory import MemoryBus, MemoryTransport
from duologue.bus.transport import Message
from duologue.models import manifest
from duologue.stage.engine import InlineEngine
from duologue.stage.shell import Shell, ShellSettings
from duologue.virtual import run_virtual
from scripted import Scripted

POD = "api.pod-1"
ROOT_EPOCH: m.Epoch = (1, 0)


class Worker:
    """The shell of an encoder.  `told` has the control messages that the pod got, `beats` (time, heartbeat)."""

    def __init__(self, model: Scripted | None = None, **settings: Any) -> None:
        self.model = model or Scripted("encoder")
        self.settings = ShellSettings(**settings)
        self.bus = MemoryBus()
        self.told: list[m.AnyControl] = []
        self.beats: list[tuple[float, m.Heartbeat]] = []
        self.fatal: list[str] = []
        self.answer: Callable[[m.Mine], m.Struct | bytes | None] = lambda asked: m.Yours(m.WIRE, [])
        """What the pod says to `mine?`; `None`: nothing."""

    async def __aenter__(self) -> "Worker":
        loop = asyncio.get_running_loop()
        self.pod, self.transport = MemoryTransport(self.bus, "pod"), MemoryTransport(self.bus, "worker")
        await self.pod.connect()
        await self.transport.connect()
        await self.pod.subscribe(subjects.control(POD), self._on_control)
        await self.pod.subscribe(subjects.heartbeats(), self._on_heartbeat)
        engine = InlineEngine(loop)
        self.model.sleep = engine.sleep
        self.shell = Shell(
            "encoder",
            manifest("parrot"),
            self.model,
            self.transport,
            engine,
            clock=loop.time,
            settings=self.settings,
            fatal=self.fatal.append,
        )
        await self.shell.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shell.stop()
        await self.transport.close()

    def _on_control(self, message: Message) -> None:
        control = m.decode_control(message.data)
        self.told.append(control)
        if isinstance(control, m.Mine) and (answer := self.answer(control)) is not None:
            data = answer if isinstance(answer, bytes) else m.encode(answer)
            self.pod.publish(message.reply, data)

    def _on_heartbeat(self, message: Message) -> None:
        self.beats.append((asyncio.get_running_loop().time(), m.decode(message.data, m.Heartbeat)))

    def heard(self, kind: type[Any]) -> list[Any]:
        return [control for control in self.told if isinstance(control, kind)]

    @property
    def owners(self) -> list[tuple[str, m.Epoch]]:
        return sorted(self.shell.owners)

    # -- as a root does it

    async def claim(self, sid: str = "live_a", epoch: m.Epoch = (1, 1), **fields: Any) -> m.Claimed:
        data = await self.pod.request(
            subjects.claims(self.shell.address), self.claiming(sid, epoch, **fields), 1.0
        )
        return m.decode(data, m.Claimed)

    def claiming(
        self,
        sid: str = "live_a",
        epoch: m.Epoch = (1, 1),
        *,
        v: int = m.WIRE,
        ledger: int = m.LEDGER,
        stage: str = "encoder",
        model: str = "parrot",
        root: str = POD,
        name: int = 0,
        options: dict[str, Any] | None = None,
        go: bool = True,
        to: str = "llm.llm-1",
        resumable: bool = False,
    ) -> bytes:
        start = m.Start(name, options or {})
        wiring = self.wiring(1, go=go, to=to)
        return m.encode(m.Claim(v, ledger, sid, stage, model, epoch, root, start, wiring, resumable))

    def wiring(self, version: int, *, go: bool = True, to: str = "llm.llm-1") -> m.Wiring:
        inflows = {"root": m.Inflow([(ROOT_EPOCH, 0)], 0)}
        return m.Wiring((1, version), go, inflows, {"llm": [m.Outflow(to, (1, 9))]})

    async def route(self, wiring: m.Wiring, sid: str = "live_a", epoch: m.Epoch = (1, 1)) -> m.Routed:
        route = m.Route(m.WIRE, sid, epoch, wiring)
        data = await self.pod.request(subjects.control(self.shell.address), m.encode(route), 1.0)
        routed = m.decode_control(data)
        assert isinstance(routed, m.Routed)
        return routed

    def send(self, *units: int, sid: str = "live_a", epoch: m.Epoch = (1, 1), src: str = "root") -> None:
        envelopes = [
            m.Envelope(m.WIRE, sid, src, "encoder", unit, ROOT_EPOCH, epoch, m.Audio()) for unit in units
        ]
        self.pod.publish(subjects.inbox(self.shell.address), m.encode(m.Bundle(m.WIRE, POD, envelopes)))

    def close(self, *epochs: m.Epoch, sid: str = "live_a") -> None:
        close = m.Close(m.WIRE, sid, list(epochs or [(1, 1)]))
        self.pod.publish(subjects.control(self.shell.address), m.encode(close))


def play(
    script: Callable[[Worker], Awaitable[None]], model: Scripted | None = None, **settings: Any
) -> Worker:
    """Runs the script in virtual time, and returns the worker with what was seen of it."""
    worker = Worker(model, **settings)

    async def main() -> None:
        async with worker:
            await script(worker)

    run_virtual(main())
    return worker
