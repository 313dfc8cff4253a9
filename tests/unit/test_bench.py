"""Benchmark figures, and `duologue bench` on a checkout of its own."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duologue.bench import Figure, interleaved, machine, report
from duologue.cli import main
from duologue.cli.bench import find
from duologue.cli.failure import Failure

pytestmark = pytest.mark.unit

BENCHMARK = """
from duologue.bench import Figure

def run(rounds):
    return {"latency": Figure.of([float(n) for n in range(rounds)], "ms", 2.5)}
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "benchmarks").mkdir()
    for name in ("bus", "audio"):
        (tmp_path / "benchmarks" / f"{name}.py").write_text(BENCHMARK)
    (tmp_path / "benchmarks" / "_shared.py").write_text("raise AssertionError")
    monkeypatch.setattr("duologue.__file__", str(tmp_path / "shared" / "duologue" / "__init__.py"))
    return tmp_path


def test_a_figure_is_of_its_rounds() -> None:
    assert Figure.of([3.0, 1.0, 2.0, 10.0], "ms", 4.0) == Figure(2.5, 1.0, 10.0, "ms", 4.0)
    with pytest.raises(ValueError, match="without a round"):
        Figure.of([], "ms")


def test_rounds_are_interleaved_and_begin_with_another_case_each() -> None:
    order: list[str] = []

    def case(name: str) -> int:
        order.append(name)
        return len(order)

    results = interleaved(3, {"a": lambda: case("a"), "b": lambda: case("b")})
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert results == {"a": [1, 4, 5], "b": [2, 3, 6]}


def test_the_report() -> None:
    found = report("bus", {"rate": Figure.of([5.0], "1/s")}, 1, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert found == {
        "name": "bus",
        "date": "2026-01-02T03:04:05+00:00",
        "machine": machine(),
        "rounds": 1,
        "figures": {"rate": {"median": 5.0, "min": 5.0, "max": 5.0, "unit": "1/s", "target": None}},
    }
    assert "cores" in machine()
    assert "\n" not in machine()


def test_bench_prints_one_line_of_json_a_benchmark(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "all", "--json", "--rounds", "3"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == ["audio", "bus"]
    assert lines[0]["figures"]["latency"] == {
        "median": 1.0,
        "min": 0.0,
        "max": 2.0,
        "unit": "ms",
        "target": 2.5,
    }
    assert lines[0]["rounds"] == 3


def test_bench_prints_a_table(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "bus", "--rounds", "2"]) == 0
    out = capsys.readouterr().out
    assert "latency" in out
    assert "2.5" in out


def test_bench_says_what_there_is(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "absent"]) == 1
    assert capsys.readouterr().err == "duologue: no benchmark 'absent'; there is audio, bus, or all\n"


def test_bench_needs_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="checkout"):
        find(tmp_path)
