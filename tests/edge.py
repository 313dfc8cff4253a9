"""Both ends of an edge without a bus: a clock to set, and a post that keeps what it is given."""

from duologue.bus.delivery import Emission
from duologue.bus.endpoint import Endpoint
from duologue.bus.messages import WIRE, Ack, Envelope, Epoch, Features, Heard, Inflow, Outflow, Tensor, Wiring

WINDOW = 8
SENDER, RECEIVER = "encoder.enc-1", "llm.llm-1"
SENT_BY: Epoch = (1, 1)
TO: Epoch = (1, 2)


class Clock:
    """Seconds, set by the test."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Post:
    """What an endpoint sent and owes, in order."""

    def __init__(self) -> None:
        self.units: list[tuple[str, Envelope]] = []
        self.urgent: list[bool] = []

    def unit(self, address: str, envelope: Envelope) -> None:
        self.units.append((address, envelope))

    def owes(self, endpoint: Endpoint, urgent: bool) -> None:
        self.urgent.append(urgent)

    def numbers(self, address: str | None = None) -> list[int]:
        """Numbers of the units sent since the last call."""
        sent = [envelope.unit for to, envelope in self.units if address in (None, to)]
        self.units.clear()
        return sent


def emission(unit: int, size: int = 0) -> Emission:
    """Unit `unit` with a body of `size` bytes; without one it is a marker."""
    tensors = {"x": Tensor("|u1", (size,), bytes(size))} if size else {}
    heard = (Heard(f" h{unit}", unit, unit + 1),)
    return Emission(unit, Features(WIRE, tensors), {"encoder": unit}, f" u{unit}", heard=heard)


def envelope(
    unit: int, epoch: Epoch = SENT_BY, to: Epoch = TO, src: str = "encoder", dst: str = "llm"
) -> Envelope:
    return Envelope(WIRE, "live_x", src, dst, unit, epoch, to, Features())


def ack(
    next_unit: int, credit: int = WINDOW, *, to: Epoch = TO, horizon: int = 0, repair: bool = False
) -> Ack:
    return Ack("live_x", "encoder", "llm", to, next_unit, next_unit, horizon, credit, repair)


def outflow(address: str = RECEIVER, epoch: Epoch = TO, start: int = 0, until: int = -1) -> Outflow:
    return Outflow(address, epoch, start, until)


class Sender:
    """The encoder's end of the edge from encoder to llm."""

    def __init__(
        self,
        *flows: Outflow,
        clock: Clock | None = None,
        epoch: Epoch = SENT_BY,
        begin: int = 0,
        ring_bytes: int = 1 << 20,
    ) -> None:
        self.clock, self.post = clock or Clock(), Post()
        self.end = Endpoint(
            "live_x",
            "encoder",
            epoch,
            begin=begin,
            window=WINDOW,
            post=self.post,
            clock=self.clock,
            arrived=lambda _: None,
            ring_bytes=ring_bytes,
        )
        self.wire(*(flows or (outflow(),)))

    def wire(self, *flows: Outflow) -> None:
        self.end.apply(Wiring((1, self.end.version[1] + 1), True, {}, {"llm": list(flows)}))

    def emit(self, count: int, size: int = 0) -> None:
        for _ in range(count):
            self.end.emit("llm", emission(self.end.rings["llm"].end, size))

    def after(self, seconds: float) -> list[int]:
        """What `check` sends, called then."""
        self.clock.now += seconds
        self.end.check()
        return self.post.numbers()


class Receiver:
    """The llm's end of the edge from encoder to llm."""

    def __init__(
        self,
        entries: list[tuple[Epoch, int]] | None = None,
        *,
        clock: Clock | None = None,
        epoch: Epoch = TO,
        begin: int = 0,
    ) -> None:
        self.clock, self.post = clock or Clock(), Post()
        self.arrived: list[int] = []
        self.end = Endpoint(
            "live_x",
            "llm",
            epoch,
            begin=begin,
            window=WINDOW,
            post=self.post,
            clock=self.clock,
            arrived=lambda taken: self.arrived.append(taken.unit),
        )
        self.begin = begin
        if entries is None or entries:
            self.wire(*(entries or [(SENT_BY, 0)]))

    def wire(self, *entries: tuple[Epoch, int]) -> None:
        inflow = Inflow(list(entries), self.begin)
        self.end.apply(Wiring((1, self.end.version[1] + 1), True, {"encoder": inflow}, {}))

    def acks(self) -> list[Ack]:
        return [owed for _, owed in self.end.acks()]
