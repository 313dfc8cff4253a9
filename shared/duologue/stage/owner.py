"""One session's state at a stage, with its end of the bus."""

import math
from collections import deque
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, NamedTuple

from duologue.bus.delivery import Emission
from duologue.bus.endpoint import RING_BYTES, Endpoint, Post
from duologue.bus.messages import AnyBody, Claim, Envelope, Standing
from duologue.models import ROOT, Edge, Manifest
from duologue.session.known import Known
from duologue.stage.model import History, Result, StageModel, Unit
from duologue.tracing import REMEMBERED_S

KNOWN_S = 30.0
"""So long an owner remembers what was decided, its own and what came with its inputs: stages are at most 16 s ahead of the
session's output, since each makes no more than 4 s that the next has not accepted."""


class Phase(Enum):
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


class Times(NamedTuple):
    """When what happened to a unit here, by the shell's clock; `sent` by its sender's wall clock."""

    unit: int
    sent: float
    arrived: float
    ready: float
    began: float
    ended: float
    rows: int


class Owner:
    """`arrived` is called when a unit came in, so that the shell may look whether it can step."""

    def __init__(
        self,
        claim: Claim,
        manifest: Manifest,
        *,
        post: Post,
        clock: Callable[[], float],
        arrived: Callable[["Owner"], None],
        window: int,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        self.sid, self.epoch, self.stage = claim.sid, claim.epoch, claim.stage
        self.root, self.resumable, self.start = claim.root, claim.resumable, claim.start
        self.phase = Phase.OPENING
        self.state: Any = None
        self.unit = claim.start.begin
        self.go = claim.wiring.go
        self.stepping = False
        self.stepped_at = -math.inf
        self._clock = clock
        self.heard = clock()
        self.orphan_since: float | None = None
        self.gone_since: float | None = None
        self.reply_to = ""
        edges = manifest.edges(claim.start.options)
        self.inputs = tuple(edge for edge in edges if edge.dst == claim.stage)
        self.outputs = tuple(edge for edge in edges if edge.src == claim.stage)
        self.main = next(edge.src for edge in self.inputs if edge.main)
        self.times: deque[Times] = deque(maxlen=max(2, round(REMEMBERED_S / manifest.unit_s)))
        """Of the last units, for those that turn out late; empty where nothing is traced."""
        self._came: dict[int, float] = {}
        self._manifest, self._decided = manifest, claim.start.decided
        self.known = Known()
        self._remembered = round(KNOWN_S / manifest.unit_s)
        for unit, records in claim.start.records.items():
            self.known.learn(unit, records, {})
        self.endpoint = Endpoint(
            claim.sid,
            claim.stage,
            claim.epoch,
            begin=claim.start.begin,
            window=window,
            post=post,
            clock=clock,
            arrived=lambda envelope: self._on_unit(envelope, arrived),
            ring_bytes=ring_bytes,
        )
        self.endpoint.apply(claim.wiring)

    def _on_unit(self, envelope: Envelope, arrived: Callable[["Owner"], None]) -> None:
        if envelope.src == ROOT:
            self.hear()
        if envelope.src == self.main:
            self._came[envelope.unit] = self._clock()
        self.known.learn(envelope.unit, envelope.records, envelope.horizons)
        arrived(self)

    def hear(self) -> None:
        """The root gave a sign of life."""
        self.heard, self.orphan_since, self.gone_since = self._clock(), None, None

    def opening(self, model: StageModel[Any]) -> Generator[Any, None, None]:
        """The model's `open`: all of it, its clean-up too, runs where this is advanced and closed."""
        yield from model.open(self.start, History())

    def due(self) -> Unit | None:
        """The next unit with its inputs, if all of them are there and its outputs have an addressee and room."""
        if self.phase is not Phase.OPEN or not self.go or self.stepping:
            return None
        if any(edge.dst not in self.endpoint.rings for edge in self.outputs):
            return None
        inputs = {}
        for edge in self.inputs:
            if self.unit < edge.lag:
                continue
            body = self._recalled(edge)
            if body is None:
                envelope = self._arrived(edge)
                if envelope is None:
                    return None
                body = envelope.body
            inputs[edge.src] = body
        if not self.endpoint.room():
            return None
        return Unit(self.unit, inputs, self.start.records.get(self.unit, {}).get(self.stage))

    def _recalled(self, edge: Edge) -> AnyBody | None:
        """What the edge brought in a unit that is known from records; `None` where it has to come again."""
        unit = self.unit - edge.lag
        if not edge.record_like or unit >= self._decided.get(edge.src, 0):
            return None
        return self._manifest.recall(edge.src, edge.dst, self.start.records.get(unit, {}).get(edge.src))

    def _arrived(self, edge: Edge) -> Envelope | None:
        inlet = self.endpoint.inlets.get(edge.src)
        return inlet.peek(self.unit - edge.lag) if inlet is not None else None

    def stepped(self, result: Result, horizon: int) -> tuple[Envelope, float]:
        """Uses the inputs of the unit that was stepped, and sends its outputs.  Returns its main input, and when that
        arrived.  Raises `KeyError` if the model gave no body for a destination."""
        main: Envelope | None = None
        for edge in self.inputs:
            if self.unit >= edge.lag and self._recalled(edge) is None:
                envelope = self.endpoint.take(edge.src)
                main = envelope if edge.src == self.main else main
        assert main is not None  # every stage has a main input, without lag
        own = {} if result.record is None else {self.stage: result.record}
        records = {**main.records, **own}
        used = main.context_used if result.context_used is None else result.context_used
        self.stepped_at = self._clock()
        horizons = {**main.horizons, self.stage: horizon}
        self.known.learn(self.unit, records, horizons)
        self.known.forget(self.unit - self._remembered)
        self.endpoint.horizon = max(self.endpoint.horizon, self.known.begin(self.stage, self._wanted()))
        text, heard = main.text + result.text, (*main.heard, *result.heard)
        unit, self.unit = self.unit, self.unit + 1
        for edge in self.outputs:
            body = result.out[edge.dst]
            emission = (
                Emission(unit, body, records, text, main.flags, main.trace, used, heard, horizons)
                if edge.main
                else Emission(unit, body, own, horizons={self.stage: horizon})
            )
            self.endpoint.emit(edge.dst, emission)
        return main, self._came.pop(unit, self._clock())

    def _wanted(self) -> int:
        """The oldest unit that a destination, or who replaces it, may still ask for; what it has accepted over a
        record-like edge it need not."""
        record_like = {edge.dst for edge in self.outputs if edge.record_like}
        return min(
            (
                outlet.acked if dst in record_like else min(outlet.acked, outlet.horizon)
                for dst, outlets in self.endpoint.outlets.items()
                for outlet in outlets
            ),
            default=self.start.begin,
        )

    def standing(self, since: int) -> Standing:
        """How the owner stands, for its root."""
        return Standing(
            self.stage,
            self.epoch,
            self.unit,
            {src: inlet.next for src, inlet in self.endpoint.inlets.items()},
            {dst: ring.start for dst, ring in self.endpoint.rings.items()},
            self.known.since(since),
        )
