"""What a hop over the bus costs, against raw nats-py with the same bytes in the same run.

A process with 16 sessions' endpoints sends parrot's features (15 KiB a unit, 12.5 units a second and session, phases
spread over the unit) to another process; then raw nats-py sends messages of the same sizes at the same times.  A hop
runs from the sending of a unit's bundle until the unit is accepted at the other end; the wait of a unit for its bundle
to be gathered is told apart.  CPU is that of both processes, the acknowledgements included.
"""

import asyncio
import json
import random
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import nats
import numpy as np
import uvloop

from duologue.bench import Figure, Figures, interleaved
from duologue.bus import messages as m
from duologue.bus.delivery import Emission
from duologue.bus.endpoint import Endpoint, window_units
from duologue.bus.exchange import Exchange
from duologue.bus.nats import NatsTransport
from duologue.bus.server import EmbeddedServer

SESSIONS, UNIT_S, SECONDS, WARM_S = 16, 0.080, 5.0, 1.0
SENDER, RECEIVER = "encoder.bench", "llm.bench"
STAMP = struct.Struct("<d")
RAW = "bench.raw"


def run(rounds: int) -> Figures:
    """Interleaved rounds of 5 s each, after 1 s to warm up."""
    results = asyncio.run(_run(rounds))
    ours, raw = results["ours"], results["raw"]

    def of(cases: Sequence[dict[str, float]], key: str, unit: str, target: float | None = None) -> Figure:
        return Figure.of([case[key] for case in cases], unit, target)

    def ratio(key: str, target: float | None = None) -> Figure:
        return Figure.of([a[key] / b[key] for a, b in zip(ours, raw, strict=True)], "x", target)

    return {
        "hop_p50": of(ours, "p50_ms", "ms"),
        "hop_p99": of(ours, "p99_ms", "ms"),
        "raw_p50": of(raw, "p50_ms", "ms"),
        "raw_p99": of(raw, "p99_ms", "ms"),
        "hop_p50_to_raw": ratio("p50_ms", 2.0),
        "hop_p99_to_raw": ratio("p99_ms", 4.0),
        "gather_p50": of(ours, "gather_p50_ms", "ms"),
        "units_per_message": of(ours, "units_per_message", "units"),
        "acks_per_unit": of(ours, "acks_per_unit", "acks"),
        "resent_per_unit": of(ours, "resent_per_unit", "units"),
        "cpu_per_message": of(ours, "cpu_us_per_message", "us"),
        "raw_cpu_per_message": of(raw, "cpu_us_per_message", "us"),
        "cpu_per_message_to_raw": ratio("cpu_us_per_message"),
        "cpu_per_unit": of(ours, "cpu_us_per_unit", "us"),
        "units_lost": of(ours, "units_lost", "units", 0.0),
    }


async def _run(rounds: int) -> dict[str, list[dict[str, float]]]:
    server = EmbeddedServer()
    await server.start()
    try:
        return await asyncio.to_thread(_rounds, rounds, server.url)
    finally:
        await server.stop()


def _rounds(rounds: int, url: str) -> dict[str, list[dict[str, float]]]:
    plan: list[tuple[float, int]] = []

    def ours() -> dict[str, float]:
        found = _pair("ours", url, [])
        plan[:] = [tuple(each) for each in found.pop("messages")]
        return found

    def raw() -> dict[str, float]:
        if not plan:
            ours()
        return _pair("raw", url, plan)

    return interleaved(rounds, {"ours": ours, "raw": raw})


def _pair(case: str, url: str, plan: list[tuple[float, int]]) -> Any:
    """Runs a sender and a receiver; returns the figures of one round."""
    children = [
        subprocess.Popen(
            [sys.executable, __file__, case, end], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for end in ("receiver", "sender")
    ]
    receiver, sender = children
    try:
        for child in children:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps({"url": url, "plan": plan}) + "\n")
            child.stdin.flush()
            child.stdout.readline()  # it listens
        sent = json.loads(sender.communicate("go\n", timeout=60)[0].splitlines()[-1])
        got = json.loads(receiver.communicate("stop\n", timeout=60)[0].splitlines()[-1])
    finally:
        for child in children:
            child.kill()
            child.wait()
    hops = sorted(got["hops"])
    cpu_us = 1e6 * (sent["cpu_s"] + got["cpu_s"])
    figures = {
        "p50_ms": 1e3 * statistics.median(hops),
        "p99_ms": 1e3 * hops[int(0.99 * len(hops))],
        "cpu_us_per_message": cpu_us / sent["count"],
    }
    if case == "ours":
        units = sent["units"]
        figures |= {
            "gather_p50_ms": 1e3 * statistics.median(got["gathers"]),
            "units_per_message": units / sent["count"],
            "acks_per_unit": sent["acks"] / units,
            "resent_per_unit": sent["resent"] / units,
            "cpu_us_per_unit": cpu_us / units,
            "units_lost": sent["made"] - got["accepted"],
            "messages": sent["messages"],
        }
    return figures


class Counting(NatsTransport):
    """Notes when which messages of units leave."""

    messages: list[tuple[float, int]]
    began: float

    def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        if reply:
            self.messages.append((time.monotonic() - self.began, len(data)))
        super().publish(subject, data, reply)


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


def _wiring(sends: bool) -> m.Wiring:
    if sends:
        return m.Wiring((1, 1), True, {}, {"llm": [m.Outflow(RECEIVER, (1, 2))]})
    return m.Wiring((1, 1), True, {"encoder": m.Inflow([((1, 1), 0)])}, {})


async def ours_sender(url: str, _: list[tuple[float, int]]) -> dict[str, Any]:
    """Emits each session's unit when it is due; the exchange gathers as an API pod's does."""
    loop = asyncio.get_running_loop()
    transport = Counting(url, name="sender")
    transport.messages, transport.began = [], time.monotonic()
    await transport.connect()
    exchange = Exchange(transport, SENDER, gather_s=UNIT_S / 4, wall=time.monotonic)
    await exchange.start()
    endpoints = []
    for number in range(SESSIONS):
        endpoint = Endpoint(
            f"s{number}", "encoder", (1, 1), begin=0, window=window_units(UNIT_S), post=exchange, clock=loop.time,
            arrived=lambda _: None, ring_bytes=0,
        )  # fmt: skip
        endpoint.apply(_wiring(True))
        exchange.add(endpoint)
        endpoints.append(endpoint)
    print("ready", flush=True)
    await _line()
    samples = np.random.default_rng(1).standard_normal(1920)
    rng = random.Random(2)
    phases = [rng.uniform(0, UNIT_S) for _ in endpoints]
    began = loop.time() + 0.1

    async def session(endpoint: Endpoint, phase: float) -> None:
        for unit in range(round((WARM_S + SECONDS) / UNIT_S)):
            await asyncio.sleep(began + phase + unit * UNIT_S - loop.time())
            endpoint.emit(
                "llm", Emission(unit, m.Features.of({"feature": samples}), {"made": time.monotonic()})
            )

    sessions = [asyncio.create_task(session(*each)) for each in zip(endpoints, phases, strict=True)]
    await asyncio.sleep(WARM_S)
    cpu, at, delivered = time.process_time(), time.monotonic() - transport.began, transport.stats.delivered
    made = sum(endpoint.rings["llm"].end for endpoint in endpoints)
    await asyncio.gather(*sessions)
    cpu = time.process_time() - cpu
    while any(e.outlets["llm"][0].acked < e.rings["llm"].end for e in endpoints):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    messages = [(when - at, size) for when, size in transport.messages if when >= at]
    return {
        "cpu_s": cpu,
        "count": len(messages),
        "units": sum(endpoint.rings["llm"].end for endpoint in endpoints) - made,
        "made": sum(endpoint.rings["llm"].end for endpoint in endpoints),
        "resent": sum(endpoint.resent for endpoint in endpoints),
        "acks": transport.stats.delivered - delivered,
        "messages": messages,
    }


async def ours_receiver(url: str, _: list[tuple[float, int]]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    transport = NatsTransport(url, name="receiver")
    await transport.connect()
    exchange = Exchange(transport, RECEIVER, wall=time.monotonic)
    await exchange.start()
    hops: list[float] = []
    gathers: list[float] = []
    endpoints: dict[str, Endpoint] = {}
    warm = round(WARM_S / UNIT_S)
    cpu = 0.0

    def arrived(envelope: m.Envelope) -> None:
        nonlocal cpu
        endpoints[envelope.sid].take("encoder")
        if envelope.unit >= warm:
            cpu = cpu or time.process_time()
            hops.append(time.monotonic() - envelope.sent)
            gathers.append(envelope.sent - envelope.records["made"])

    for number in range(SESSIONS):
        endpoint = Endpoint(
            f"s{number}", "llm", (1, 2), begin=0, window=window_units(UNIT_S), post=exchange, clock=loop.time,
            arrived=arrived,
        )  # fmt: skip
        endpoint.apply(_wiring(False))
        exchange.add(endpoint)
        endpoints[endpoint.sid] = endpoint
    print("ready", flush=True)
    await _line()
    accepted = sum(endpoint.inlets["encoder"].next for endpoint in endpoints.values())
    return {"cpu_s": time.process_time() - cpu, "hops": hops, "gathers": gathers, "accepted": accepted}


async def raw_sender(url: str, plan: list[tuple[float, int]]) -> dict[str, Any]:
    client = await nats.connect(url)
    print("ready", flush=True)
    await _line()
    for _ in range(100):
        await client.publish(RAW, STAMP.pack(0.0))
    await asyncio.sleep(0.2)
    payload = bytes(1 << 20)
    began, cpu = time.monotonic(), time.process_time()
    for when, size in plan:
        await asyncio.sleep(max(0.0, began + when - time.monotonic()))
        await client.publish(RAW, STAMP.pack(time.monotonic()) + payload[: size - STAMP.size])
    cpu = time.process_time() - cpu
    await client.flush()
    return {"cpu_s": cpu, "count": len(plan)}


async def raw_receiver(url: str, _: list[tuple[float, int]]) -> dict[str, Any]:
    client = await nats.connect(url)
    hops: list[float] = []
    cpu = 0.0

    async def arrived(message: Any) -> None:
        nonlocal cpu
        (sent,) = STAMP.unpack_from(message.data)
        if sent:
            cpu = cpu or time.process_time()
            hops.append(time.monotonic() - sent)

    await client.subscribe(RAW, cb=arrived)
    await client.flush()
    print("ready", flush=True)
    await _line()
    return {"cpu_s": time.process_time() - cpu, "hops": hops}


async def child(case: str, end: str) -> None:
    given = json.loads(await _line())
    work = {
        ("ours", "sender"): ours_sender,
        ("ours", "receiver"): ours_receiver,
        ("raw", "sender"): raw_sender,
        ("raw", "receiver"): raw_receiver,
    }[case, end]
    print(json.dumps(await work(given["url"], given["plan"])), flush=True)


if __name__ == "__main__":
    uvloop.run(child(sys.argv[1], sys.argv[2]))
