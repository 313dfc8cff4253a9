"""One edge without I/O under any schedule of loss, repetition, delay and reordering: two sources, the second from the
switch unit on, and one or two addressees.  Each addressee uses each unit once, in order, of the source in force; nothing
exceeds its bound; and once the network is good again everything arrives and falls quiet."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duologue.bus.messages import Ack, Envelope, Epoch
from edge import SENT_BY, WINDOW, Clock, Receiver, Sender, outflow

pytestmark = pytest.mark.unit

UNITS = 40
HEIR: Epoch = (1, 7)
TICK_S = 0.04


@dataclass(frozen=True)
class Weather:
    seed: int
    loss: float
    repeat: float
    delay: float
    pace: float
    """Chance that an addressee uses a unit in a tick."""
    switch: int
    told_late: int
    """Ticks from the heir's first unit until the addressees are told of it."""
    addressees: int


weathers = st.builds(
    Weather,
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.1, 0.5]),
    repeat=st.sampled_from([0.0, 0.3]),
    delay=st.sampled_from([0.0, 0.5]),
    pace=st.sampled_from([0.2, 0.6, 1.0]),
    switch=st.integers(1, UNITS - 1),
    told_late=st.integers(0, 30),
    addressees=st.integers(1, 2),
)


class Edge:
    def __init__(self, weather: Weather) -> None:
        self.weather, self.rng = weather, random.Random(weather.seed)
        self.clock = Clock()
        self.epochs: list[Epoch] = [(1, 10 + n) for n in range(weather.addressees)]
        self.receivers = {
            f"llm.llm-{n}": Receiver(clock=self.clock, epoch=to) for n, to in enumerate(self.epochs)
        }
        self.used: dict[str, list[int]] = {address: [] for address in self.receivers}
        flows = list(zip(self.receivers, self.epochs, strict=True))
        switch = weather.switch
        self.senders = {
            "encoder.enc-1": Sender(
                *(outflow(to, epoch, 0, switch) for to, epoch in flows), clock=self.clock, ring_bytes=0
            ),
            "encoder.enc-2": Sender(
                *(outflow(to, epoch, switch) for to, epoch in flows),
                clock=self.clock,
                begin=switch,
                epoch=HEIR,
                ring_bytes=0,
            ),
        }
        self.flying: list[tuple[float, int, Callable[[], None]]] = []
        self.sent = 0

    def made(self) -> int:
        old, heir = self.senders.values()
        return heir.end.rings["llm"].end if old.end.rings["llm"].end >= self.weather.switch else 0

    def make(self) -> None:
        """The next unit, by the source in force."""
        old, heir = self.senders.values()
        sender = old if old.end.rings["llm"].end < self.weather.switch else heir
        if sender.end.room() and self.made() < UNITS:
            sender.emit(1)

    def fly(self, arrive: Callable[[], None], calm: bool) -> None:
        w, draw = self.weather, self.rng.random
        self.sent += 1
        if not calm and draw() < w.loss:
            return
        for _ in range(2 if not calm and draw() < w.repeat else 1):
            late = self.rng.uniform(0.0, 0.5) if not calm and draw() < w.delay else 0.0002
            self.flying.append((self.clock.now + late, self.sent, arrive))

    def tick(self, calm: bool) -> None:
        for address, sender in self.senders.items():
            sender.end.check()
            for to, envelope in sender.post.units:
                self.fly(self.offering(address, to, envelope), calm)
            sender.post.units.clear()
        for address, receiver in self.receivers.items():
            inlet = receiver.end.inlets["encoder"]
            assert 0 <= inlet.credit <= WINDOW
            assert len(inlet) <= WINDOW
            if len(inlet) and (calm or self.rng.random() < self.weather.pace):
                self.used[address].append(receiver.end.take("encoder").unit)
            for to, ack in receiver.end.acks():
                self.fly(self.acknowledging(to, ack), calm)
        self.clock.now += TICK_S
        due = sorted(item for item in self.flying if item[0] <= self.clock.now)
        self.flying = [item for item in self.flying if item[0] > self.clock.now]
        for _, _, arrive in due:
            arrive()

    def offering(self, sender: str, to: str, envelope: Envelope) -> Callable[[], None]:
        return lambda: void(self.receivers[to].end.offer(sender, envelope))

    def acknowledging(self, to: str, ack: Ack) -> Callable[[], None]:
        return lambda: self.senders[to].end.on_ack(ack)

    def tell(self) -> None:
        for receiver in self.receivers.values():
            receiver.wire((SENT_BY, 0), (HEIR, self.weather.switch))

    def quiet(self) -> bool:
        senders = self.senders.values()
        return (
            all(used == list(range(UNITS)) for used in self.used.values())
            and not self.flying
            and all(
                outlet.lacks(it.end.rings["llm"].end) == 0
                for it in senders
                for outlet in it.end.outlets["llm"]
            )
        )


def void(_: object) -> None:
    """For a callback whose result nobody wants."""


@pytest.mark.slow
@given(weather=weathers)
@settings(max_examples=150, deadline=None)
def test_every_unit_is_used_once_and_in_order(weather: Weather) -> None:
    edge = Edge(weather)
    tell_at: int | None = None
    for tick in range(60):
        edge.make()
        edge.make()
        if tell_at is None and edge.made() > weather.switch:
            tell_at = tick + weather.told_late
        if tick == tell_at:
            edge.tell()
        edge.tick(calm=False)
        for address, used in edge.used.items():
            assert used == list(range(len(used))), address
    edge.tell()
    for _ in range(200):
        edge.make()
        edge.tick(calm=True)
        if edge.quiet():
            break
    assert edge.used == {address: list(range(UNITS)) for address in edge.receivers}
    assert edge.quiet(), "something is never acknowledged"
    edge.tick(calm=True)
    before = edge.sent
    for _ in range(50):
        edge.tick(calm=True)
    assert edge.sent == before, "nothing goes on when there is nothing to say"
