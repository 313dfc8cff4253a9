"""The command line: flags and their environment variables, what reaches the services, and one line an error."""

import asyncio
import errno
import io
import json
import os
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from rich.console import Console

from duologue import __main__ as entry
from duologue import allinone
from duologue.audio.formats import PCM_16K, PCM_24K, PCMA, PCMU
from duologue.audio.wav import read_wav, write_wav
from duologue.bus import subjects
from duologue.cli import browser, main, talk
from duologue.cli.app import app
from duologue.cli.failure import Failure
from duologue.cli.options import parse_options, parse_workers, read_keys
from duologue.client import (
    Closed,
    ErrorEvent,
    Model,
    SessionRefused,
    TalkResult,
    TranscriptDelta,
    Unreachable,
)
from duologue.models import BadOption, manifest
from duologue.processes import Deployment, UpSettings, specs, split_options
from duologue.session.retention import Retention
from duologue.settings import EVERY, SETTINGS, settings_of
from duologue.stage.worker import WorkerSettings
from duologue.supervisor import Child, Guard, StartFailed
from duologue.tap.watching import TapSettings
from duologue.top.live import TopSettings
from duologue_api.service import ApiSettings

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DUO_")]:
        monkeypatch.delenv(name)


@dataclass
class Service:
    """Stands in for a module with a settings class and `run`."""

    code: int = 0
    error: Exception | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def take(self, **settings: Any) -> dict[str, Any]:
        self.settings = settings
        return settings

    async def run(self, _: Any) -> int:
        if self.error is not None:
            raise self.error
        return self.code


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Service:
    service = Service()
    module = SimpleNamespace(WorkerSettings=service.take, run=service.run)
    monkeypatch.setitem(sys.modules, "duologue.stage.worker", module)
    return service


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Service:
    service = Service()
    module = SimpleNamespace(ApiSettings=service.take, run=service.run)
    monkeypatch.setitem(sys.modules, "duologue_api.service", module)
    return service


# ---------------------------------------------------------------- the whole


def test_every_flag_is_a_setting() -> None:
    group: Any = typer.main.get_command(app)
    assert sorted(group.commands) == [
        "api",
        "bench",
        "doctor",
        "drill",
        "offline",
        "sessions",
        "talk",
        "tap",
        "top",
        "up",
        "worker",
    ]
    for name, command in [("", group), *group.commands.items()]:
        rows = {row.name: row for row in [*settings_of(EVERY), *settings_of(name)]}
        flags = {each.name: each for each in command.params if each.name not in ("help", "version")}
        assert flags.keys() == rows.keys(), name
        for key, row in rows.items():
            assert flags[key].envvar == row.env, f"{name}: {key}"
            assert row.positional or row.flag in flags[key].opts, f"{name}: {key}"
            assert flags[key].help.startswith(row.description), f"{name}: {key}"


def test_the_names_of_flags_are_a_contract() -> None:
    """DESIGN §10: tools outside the repository call them."""
    group: Any = typer.main.get_command(app)
    flags = {
        name: {
            opt.removeprefix("--") for each in command.params for opt in (*each.opts, *each.secondary_opts)
        }
        for name, command in group.commands.items()
    }
    contract = {
        "up": "model port workers api-pods seed json option key keys-file data-dir nats start-timeout-s tap tap-mib",
        "api": "host port nats model key keys-file no-auth option seed start-timeout-s lifetime-s input-backlog-s "
        "drain-s gather-ms announce no-announce",
        "worker": "model nats option places memory-bytes metrics-port metrics-host drain-s gather-ms announce "
        "no-announce",
        "talk": "url out json key model instructions voice rate chunk-ms chunk-bytes tail pace no-pace",
        "offline": "model input out options seed",
        "bench": "json rounds",
        "doctor": "nats json settings",
        "tap": "nats kind session json count bytes write model tap-mib announce no-announce",
        "top": "nats once json",
    }
    for name, names in contract.items():
        assert set(names.split()) <= flags[name], name


@pytest.mark.parametrize(
    "command", ["", "api", "bench", "doctor", "offline", "talk", "tap", "top", "up", "worker"]
)
def test_help_needs_no_settings_in_order(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DUO_NO_SUCH", "1")
    assert main([*filter(None, [command]), "--help"]) == 0
    assert "DUO_CONFIG" in capsys.readouterr().out


def test_ctrl_c_while_the_program_is_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Incident: Ctrl-C within the first second of any command ended it with a page of where the import was."""

    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "duologue.cli":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "duologue.cli")
    monkeypatch.delattr("duologue.cli")
    assert entry.main() == 130


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("duologue 0.")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["up", "--nonsense"], "No such option"),
        (["worker", "llm"], "Missing option '--model' (see duologue worker --help)"),
        (["worker", "--model", "parrot"], "Missing argument 'STAGE'"),
        (["api", "--takeover-reserve", "many"], "--takeover-reserve = 'many': N|auto is wanted"),
        (["worker", "nose", "--model", "parrot"], "'nose' is none of encoder, llm, talker, codec"),
        (["up", "--port", "70000"], "--port"),
        (["up", "--port", "65535", "--api-pods", "2"], "2 pods from port 65535 on"),
        (["up", "--workers", "encoder=x"], "'encoder=x' is not STAGE=N"),
        (["up", "--workers", "encoder=0,codec=0"], "no encoder, codec worker, and no --nats"),
        (["up", "--option", "loop"], "'loop' is not K=V"),
        (["--log-level", "loud", "up"], "'loud' is none of debug"),
        (["api", "--key", "k", "--no-auth"], "either they or --no-auth"),
        (["talk", "a.wav", "--chunk-bytes", "3"], "3 is odd"),
        (["talk", "a.wav", "--rate", "8000"], "neither 24000 nor 16000"),
        (["talk", "a.wav", "--format", "opus"], "--format = 'opus': pcm24k|pcm16k|pcmu|pcma is wanted"),
        (["talk", "a.wav", "--format", "pcmu", "--rate", "16000"], "pcmu is not at 16000 Hz"),
        (["talk", "a.wav", "--pace", "0"], "0 is no pace"),
        (["talk", "a.wav", "--tail", "1e12"], "--tail"),
        (["api", "--no-auth", "--input-backlog-policy", "hope"], "'hope': drop_oldest|close is wanted"),
        (["tap", "duo.v1.nonsense.>"], "'duo.v1.nonsense.>' matches nothing on the bus"),
        (["tap", "duo.v1.in.>", "--kind", "hb"], "'duo.v1.in.>' is of another kind"),
        (["tap", "--kind", "nonsense"], "--kind"),
        (["tap", "--count", "0"], "--count"),
        (["tap", "--write", "d", "--json"], "--write"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    assert line.startswith("duologue: ")
    assert says in line


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Failure("it is broken"), "it is broken"),
        (FileNotFoundError(2, "No such file or directory", "x.wav"), "x.wav: No such file or directory"),
        (OSError(98, "Address already in use"), "[Errno 98] Address already in use"),
        (BadOption("no option 'x'"), "no option 'x'"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero (--debug shows where)"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(
    error: Exception, says: str, worker: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.error = error
    assert main(["worker", "llm", "--model", "parrot"]) == 1
    assert capsys.readouterr().err == f"duologue: {says}\n"


def test_debug_shows_where(worker: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.error = ZeroDivisionError("division by zero")
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "worker", "llm", "--model", "parrot"])
    monkeypatch.setenv("DUO_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["worker", "llm", "--model", "parrot"])


# ---------------------------------------------------------------- values


def test_workers() -> None:
    assert parse_workers("") == {"encoder": 1, "llm": 1, "talker": 1, "codec": 1}
    assert parse_workers("llm=2, codec=0") == {"encoder": 1, "llm": 2, "talker": 1, "codec": 0}
    for bad in ("llm", "llm=", "llm=-1", "nose=1", "llm=100000"):
        with pytest.raises(typer.BadParameter):
            parse_workers(bad)


def test_options() -> None:
    assert parse_options(["a=1", "b=0.5", "c=true", "d=text", "e=", "f=x=y", "g=null", 'h="q"', "i=[1]"]) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": "text",
        "e": "",
        "f": "x=y",
        "g": None,
        "h": '"q"',
        "i": "[1]",
    }
    assert parse_options(None) == {}
    for bad in ("a", "=1"):
        with pytest.raises(typer.BadParameter):
            parse_options([bad])


def test_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\none\n\n  two  \none\n")
    assert read_keys(["zero"], file) == ("zero", "one", "two")
    assert read_keys(None, None) == ()
    for key in ("", " ", "a b", "ä", "a\x00"):
        with pytest.raises(Failure, match="printable ASCII"):
            read_keys([key], None)
    file.write_text("# none\n")
    with pytest.raises(Failure, match="no key in the file"):
        read_keys(None, file)


# ---------------------------------------------------------------- worker and api


def test_worker_settings(worker: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.code = 70
    monkeypatch.setenv("DUO_NATS", "nats://there:1")
    monkeypatch.setenv("DUO_OPTION", "row_ms=2 batch_ms=3")
    assert main(["worker", "llm", "--model", "parrot", "--gather-ms", "5", "--metrics-port", "0"]) == 70
    assert worker.settings == {
        "stage": "llm",
        "model": "parrot",
        "nats_url": "nats://there:1",
        "options": {"row_ms": 2, "batch_ms": 3},
        "places": 64,
        "memory_bytes": None,
        "utilisation": 0.85,
        "metrics_port": 0,
        "metrics_host": "127.0.0.1",
        "drain_s": 10.0,
        "gather_s": 0.005,
        "ring_bytes": 16 << 20,
        "otlp_endpoint": "",
        "trace_ratio": 0.01,
        "announce": True,
    }
    assert main(["worker", "llm", "--model", "m", "--no-announce", "--places", "3", "--drain-s", "0"]) == 70
    assert (worker.settings["announce"], worker.settings["places"], worker.settings["drain_s"]) == (
        False,
        3,
        0,
    )
    assert worker.settings["metrics_port"] is None


def test_settings_of_a_model_are_options_of_its_workers(
    worker: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUO_POCKET_CHAT_URL", "http://there:1/v1")
    monkeypatch.setenv("DUO_POCKET_CHAT_KEY", "k")
    given = ["--option", "chat_key=other", "--option", "inline=true"]
    assert main(["worker", "llm", "--model", "pocket", *given]) == 0
    assert worker.settings["options"] == {
        "chat_url": "http://there:1/v1",
        "chat_key": "other",
        "inline": True,
    }
    assert main(["worker", "llm", "--model", "parrot"]) == 0
    assert worker.settings["options"] == {}


def test_the_real_settings_take_what_the_command_line_gives(worker: Service, api: Service) -> None:
    assert main(["worker", "llm", "--model", "parrot"]) == main(["api", "--no-auth"]) == 0
    for taken, real in ((worker.settings, WorkerSettings), (api.settings, ApiSettings)):
        fields: dict[str, Any] = real.__dataclass_fields__
        assert taken.keys() <= fields.keys()
        for name, each in fields.items():
            if each.default is not MISSING and name != "announce":
                assert taken[name] == each.default, f"two defaults of {name}"


def test_api_settings(api: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text("secret\n")
    arguments = ["--host", "0.0.0.0", "--port", "0", "--seed", "7", "--keys-file", str(tmp_path / "keys")]
    assert main(["api", *arguments, "--model", "parrot", "--option", "loop=true"]) == 0
    assert api.settings == {
        "host": "0.0.0.0",
        "port": 0,
        "nats_url": "nats://127.0.0.1:4222",
        "models": ("parrot",),
        "keys": ("secret",),
        "options": {"loop": True},
        "seed": 7,
        "start_timeout_s": 60.0,
        "lifetime_s": 3600.0,
        "input_backlog_s": 5.0,
        "input_backlog_policy": "drop_oldest",
        "output_backlog_s": 5.0,
        "output_backlog_close_s": 30.0,
        "ledger_bytes": 64 << 20,
        "takeover_reserve": "auto",
        "deadline_units": 1.0,
        "retention": Retention(),
        "drain_s": 10.0,
        "gather_s": None,
        "otlp_endpoint": "",
        "trace_ratio": 0.01,
        "announce": True,
    }
    bounds = ["--input-backlog-policy", "close", "--output-backlog-s", "2", "--output-backlog-close-s", "9"]
    assert main(["api", "--no-auth", *bounds]) == 0
    assert (api.settings["host"], api.settings["keys"]) == ("127.0.0.1", ())
    names = ("input_backlog_policy", "output_backlog_s", "output_backlog_close_s")
    assert [api.settings[name] for name in names] == ["close", 2.0, 9.0]
    assert "parrot" in api.settings["models"]
    kept = [
        "--keep-ledger",
        "--ledger-age-s",
        "60",
        "--ledger-mib",
        "2",
        "--store-age-s",
        "90",
        "--store-mib",
        "3",
    ]
    assert main(["api", "--no-auth", *kept]) == 0
    assert api.settings["retention"] == Retention(True, 60.0, 2 << 20, 90.0, 3 << 20)


def test_which_models_the_api_serves(api: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duologue.cli.api.manifest", lambda model: model)
    monkeypatch.setenv("DUO_MODEL", "one")
    assert main(["api", "--no-auth"]) == 0
    assert api.settings["models"] == ("one",)
    monkeypatch.setenv("DUO_MODELS", "two three two")
    assert main(["api", "--no-auth"]) == 0
    assert api.settings["models"] == ("two", "three")
    assert main(["api", "--no-auth", "--model", "four", "--model", "five"]) == 0
    assert api.settings["models"] == ("four", "five")


def test_a_settings_file_serves_all_commands(
    worker: Service, api: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "duo.toml"
    file.write_text('stage = "codec"\nmodel = "parrot"\nno_auth = true\ndrain_s = 2\nplaces = 5\nport = 9\n')
    assert main(["worker", "--config", str(file), "--places", "6"]) == 0
    assert [worker.settings[name] for name in ("stage", "model", "drain_s", "places")] == [
        "codec",
        "parrot",
        2,
        6,
    ]
    monkeypatch.setenv("DUO_PORT", "10")
    assert main(["--config", str(file), "api"]) == 0
    assert [api.settings[name] for name in ("port", "drain_s", "models")] == [10, 2, ("parrot",)]
    other = tmp_path / "other.toml"
    other.write_text("drain_s = 3\nno_auth = true\n")
    assert main(["--config", str(file), "api", "--config", str(other)]) == 0
    assert api.settings["drain_s"] == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no keys: give --key or --keys-file, or --no-auth"),
        (["--no-auth", "--host", "0.0.0.0"], "this machine only, not on 0.0.0.0"),
        (["--no-auth", "--host", "example.org"], "this machine only"),
        (["--no-auth", "--model", "nobody"], "no model 'nobody' here; there is parrot"),
    ],
)
def test_api_refuses_to_start(
    arguments: list[str], says: str, api: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["api", *arguments]) == 1
    assert says in capsys.readouterr().err
    assert not api.settings


def test_a_port_that_is_taken(api: Service, capsys: pytest.CaptureFixture[str]) -> None:
    api.error = OSError(errno.EADDRINUSE, "Address already in use")
    assert main(["api", "--no-auth", "--port", "8701"]) == 1
    assert capsys.readouterr().err == "duologue: port 8701 of 127.0.0.1 is taken: choose another --port\n"


# ---------------------------------------------------------------- up


def test_up_records_every_session_where_it_is_told_to() -> None:
    commands = [
        next(spec for spec in specs(settings, "nats://here") if spec.name == "api-1").command(None)
        for settings in (UpSettings(("parrot",)), UpSettings(("parrot",), keep_ledger=True))
    ]
    assert ["--keep-ledger" in command for command in commands] == [False, True]


def test_up_starts_what_was_asked_for() -> None:
    workers = {"encoder": 1, "llm": 2, "talker": 0, "codec": 1}
    settings = UpSettings(("parrot",), 8700, workers, 2, 5, 1, {"row_ms": 2, "loop": True}, keys=("k1", "k2"))
    found = {spec.name: spec for spec in specs(settings, "nats://secret@here")}
    assert list(found) == ["encoder-1", "llm-1", "llm-2", "codec-1", "api-1", "api-2"]
    llm = " ".join(found["llm-2"].command(None)[1:])
    assert llm == (
        "-m duologue worker llm --model parrot --announce --metrics-port 0 --drain-s 5 --option row_ms=2"
    )
    api = " ".join(found["api-2"].command(None)[1:])
    assert api == (
        "-m duologue api --model parrot --announce --host 127.0.0.1 --drain-s 0.5 --option loop=true "
        "--takeover-reserve 1 --seed 5 --port 8701"
    )
    assert found["api-1"].rank < found["llm-1"].rank, "the APIs end first"
    assert found["api-1"].env["DUO_KEY"] == "k1 k2"
    assert found["llm-1"].env["DUO_KEY"] == ""
    assert found["llm-1"].env["DUO_NATS"] == "nats://secret@here"
    assert found["llm-1"].env["DUO_CONFIG"] == "", "what is meant for `up` is not meant for them"


def test_up_without_keys_or_port() -> None:
    [*_, api] = specs(UpSettings(("parrot",), 0, {"llm": 1}), "nats://here")
    assert list(api.command(None))[-3:] == ["--no-auth", "--port", "0"]
    assert list(api.command({"url": "http://127.0.0.1:4711"}))[-2:] == ["--port", "4711"]


def test_up_with_a_tap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = UpSettings(("parrot",), 0, {"llm": 1}, tap_dir=tmp_path, tap_mib=7)
    [tap, llm, api] = specs(settings, "nats://here")
    command = list(tap.command(None)[3:])
    assert " ".join(command) == f"tap --write {tmp_path} --tap-mib 7 --announce"
    assert tap.before
    assert tap.rank > llm.rank > api.rank, "it sees the end of all the others"
    assert (llm.before, api.before) == (False, False)
    known = {row.env for row in SETTINGS.values()}
    assert {name for name in tap.env if name.startswith("DUO_")} <= known, "else tap would refuse to start"

    # What whoever runs `up` has set for taps that print is nothing to it.
    for variable in ("DUO_JSON", "DUO_KIND", "DUO_SESSION", "DUO_WHOLE", "DUO_COUNT", "DUO_SUBJECT"):
        monkeypatch.setenv(variable, "1")
    for variable, value in tap.env.items():
        monkeypatch.setenv(variable, value)
    asked: list[Any] = []

    async def run(nats_url: str, folder: Path, **options: Any) -> None:
        asked.append((nats_url, folder, options["most_bytes"], options["model"]))

    monkeypatch.setattr("duologue.tap.writing.run", run)
    assert main(command) == 0
    assert asked == [("nats://here", tmp_path, 7 << 20, None)]  # it sees every start


def test_options_go_to_where_the_model_knows_them() -> None:
    found = manifest("parrot")
    assert split_options(found, {"row_ms": 1, "loop": True}) == ({"row_ms": 1}, {"loop": True})
    with pytest.raises(BadOption, match="nonsense"):
        split_options(found, {"nonsense": 1})


def test_up_tells_what_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[UpSettings] = []

    async def run(settings: UpSettings, report: Any, on_ready: Any) -> int:
        asked.append(settings)
        guard = Guard()
        children = [Child(spec, guard, report) for spec in specs(settings, "nats://here")]
        for child in children:
            stage = child.spec.name.partition("-")[0]
            said = {
                "ready": True,
                "address": f"{stage}.{stage[:3]}-1",
                "model": "m",
                "metrics_url": "http://m",
            }
            child.ready = {**said, "url": "http://127.0.0.1:8701"} if stage == "api" else said
        on_ready(Deployment("nats://here", SimpleNamespace(pid=11), children))
        report("llm-1", "a line")
        return 0

    monkeypatch.setattr(allinone, "run", run)
    assert main(["up", "--json", "--workers", "llm=2", "--port", "0", "--seed", "3", "--data-dir", "d"]) == 0
    captured = capsys.readouterr()
    [line] = captured.out.splitlines()
    found = json.loads(line)
    assert [worker["stage"] for worker in found["workers"]] == ["encoder", "llm", "llm", "talker", "codec"]
    assert found["workers"][1] == {
        "stage": "llm",
        "worker": "llm-1",
        "pid": None,
        "model": "m",
        "metrics_url": "http://m",
    }
    live = "ws://127.0.0.1:8701/v1/live/sessions"
    assert (found["url"], found["live_url"], found["live_urls"]) == ("http://127.0.0.1:8701", live, [live])
    assert (found["nats_url"], found["nats_pid"], found["api_pids"]) == ("nats://here", 11, [None])
    assert captured.err == "[llm-1] a line\n"
    assert (asked[0].seed, asked[0].data_dir) == (3, Path("d"))
    assert asked[0].env == {"DUO_LOG_LEVEL": "info", "DUO_LOG_FORMAT": "auto"}

    assert main(["--log-level", "debug", "up"]) == 0
    shown = capsys.readouterr().out
    assert "Talk     http://127.0.0.1:8701/ in a browser" in shown
    assert "DUO_NATS=nats://here duologue top" in shown
    assert asked[1].env == {"DUO_LOG_LEVEL": "debug", "DUO_LOG_FORMAT": "text"}


@pytest.mark.parametrize(
    ("platform", "environ", "terminal", "opens"),
    [
        ("linux", {"DISPLAY": ":0"}, True, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True, True),
        ("darwin", {}, True, True),
        ("linux", {}, True, False),
        ("linux", {"DISPLAY": ""}, True, False),
        ("linux", {"DISPLAY": ":0"}, False, False),
        ("darwin", {"CI": "true"}, True, False),
        ("linux", {"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "a 1 b 22"}, True, False),
    ],
)
def test_where_a_browser_would_be_seen(
    platform: str, environ: dict[str, str], terminal: bool, opens: bool
) -> None:
    assert browser.desktop(platform, environ, terminal=terminal) is opens


@pytest.mark.parametrize(
    ("arguments", "opens"), [([], True), (["--no-browser"], False), (["--json"], False)], ids=str
)
def test_up_opens_the_page(arguments: list[str], opens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(settings: UpSettings, report: Any, on_ready: Any) -> int:
        [child] = [Child(spec, Guard(), report) for spec in specs(settings, "nats://here") if spec.rank == 0]
        child.ready = {"ready": True, "address": "api.x", "url": "http://127.0.0.1:8701"}
        on_ready(Deployment("nats://here", SimpleNamespace(pid=11), [child]))
        return 0

    shown: list[str] = []
    monkeypatch.setattr(allinone, "run", run)
    monkeypatch.setattr("duologue.cli.up.desktop", lambda *_, **__: True)
    monkeypatch.setattr("duologue.cli.up.show", shown.append)
    assert main(["up", *arguments]) == 0
    assert shown == (["http://127.0.0.1:8701/"] if opens else [])


def test_a_browser_that_draws_into_the_terminal_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Window(webbrowser.BackgroundBrowser):
        def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
            opened.append(url)
            return True

    def text(url: str) -> bool:
        raise AssertionError(url)

    monkeypatch.setattr(webbrowser, "get", lambda: Window("firefox"))
    browser._show("http://here/")
    lynx = webbrowser.GenericBrowser("lynx")
    monkeypatch.setattr(lynx, "open", text)
    monkeypatch.setattr(webbrowser, "get", lambda: lynx)
    browser._show("http://here/")

    def none() -> webbrowser.BaseBrowser:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", none)
    browser._show("http://here/")
    assert opened == ["http://here/"]


def test_up_fails_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def run(*_: Any) -> int:
        raise StartFailed("api-1: port 8700 is taken")

    monkeypatch.setattr(allinone, "run", run)
    assert main(["up", "--json"]) == 1
    assert capsys.readouterr() == ("", "duologue: api-1: port 8700 is taken\n")
    monkeypatch.undo()
    assert main(["up", "--json", "--model", "nobody"]) == 1
    assert "no model 'nobody'" in capsys.readouterr().err
    assert main(["up", "--nats", "nats://x", "--data-dir", "d"]) == 1


# ---------------------------------------------------------------- tap and top


def test_tap_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    async def run(*settings: Any, **options: Any) -> None:
        asked.append((*settings, *options.values()))
        if "ready" in options:
            options["ready"]()

    monkeypatch.setattr("duologue.tap.watching.run", run)
    monkeypatch.setattr("duologue.tap.writing.run", run)
    assert main(["tap"]) == 0
    assert main(["tap", "duo.v1.*.llm.>", "--kind", "in", "--kind", "ev", "--session", "live_1"]) == 0
    assert main(["tap", "--json", "--bytes", "--count", "3", "--nats", "nats://there"]) == 0
    assert [found for (found,) in asked] == [
        TapSettings("nats://127.0.0.1:4222", subjects.KINDS),
        TapSettings("nats://127.0.0.1:4222", ("in", "ev"), "duo.v1.*.llm.>", "live_1"),
        TapSettings("nats://there", subjects.KINDS, as_json=True, whole=True, count=3),
    ]


def test_tap_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    async def run(nats_url: str, folder: Path, *, most_bytes: int, model: str | None, ready: Any) -> None:
        asked.append((nats_url, folder, most_bytes, model))
        ready()

    monkeypatch.setattr("duologue.tap.writing.run", run)
    folder = tmp_path / "new" / "folder"
    assert main(["tap", "--write", str(folder), "--model", "m", "--tap-mib", "2", "--nats", "nats://x"]) == 0
    assert asked == [("nats://x", folder, 2 << 20, "m")]
    assert json.loads(capsys.readouterr().out) == {"ready": True, "role": "tap", "writes": str(folder)}
    assert folder.stat().st_mode & 0o077 == 0, "audio is nobody else's"
    assert main(["tap", "--write", str(folder), "--no-announce"]) == 0
    assert capsys.readouterr().out == ""
    (tmp_path / "file").touch()
    assert main(["tap", "--write", str(tmp_path / "file")]) == 1
    assert "file: File exists" in capsys.readouterr().err


def test_top_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TopSettings] = []

    async def run(settings: TopSettings, console: Any, write: Any) -> None:
        asked.append(settings)

    monkeypatch.setattr("duologue.top.live.run", run)
    assert main(["top"]) == 0
    assert main(["top", "--once", "--json", "--nats", "nats://there"]) == 0
    assert asked == [TopSettings("nats://127.0.0.1:4222"), TopSettings("nats://there", True, True)]


# ---------------------------------------------------------------- offline


def test_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[tuple[str, list[int], dict[str, Any], int | None]] = []

    def run(model: str, pcm16: Any, options: dict[str, Any], seed: int | None) -> dict[str, Any]:
        calls.append((model, pcm16.tolist(), options, seed))
        return {"arrays": {"pcm16": pcm16 * 2}, "records": [{"unit": 0, "llm": np.int64(3)}]}

    monkeypatch.setitem(sys.modules, "duologue.offline", SimpleNamespace(run=run))
    wav, npz, scenario, out = (tmp_path / name for name in ("in.wav", "in.npz", "scenario.json", "out.npz"))
    pcm16 = np.array([1, 2, 3], np.int16)
    write_wav(wav, pcm16, 24000)
    np.savez(npz, pcm16=pcm16)
    scenario.write_text('{"loop": true}')

    common = ["offline", "--model", "parrot", "--out", str(out)]
    assert main([*common, "--input", str(wav), "--options", str(scenario), "--seed", "7"]) == 0
    assert main([*common, "--input", str(npz)]) == 0
    assert calls == [("parrot", [1, 2, 3], {"loop": True}, 7), ("parrot", [1, 2, 3], {}, None)]
    with np.load(out) as archive:
        assert archive["pcm16"].tolist() == [2, 4, 6]
    assert json.loads((tmp_path / "out.json").read_text()) == [{"unit": 0, "llm": 3}]
    capsys.readouterr()

    np.savez(npz, other=pcm16)
    scenario.write_text("[]")
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    wrong = [
        (["--input", str(npz)], "no array `pcm16`"),
        (["--input", str(tmp_path / "bad.npz")], "bad.npz"),
        (["--input", str(wav), "--options", str(scenario)], "not a JSON object"),
        (["--input", str(scenario)], "not a WAV file"),
        (["--input", str(tmp_path / "absent.wav")], "No such file"),
    ]
    for arguments, says in wrong:
        assert main([*common, *arguments]) == 1
        assert says in capsys.readouterr().err


# ---------------------------------------------------------------- talk

RESULT = TalkResult(
    session="live_1",
    model="parrot",
    rate=24000,
    input_samples=3840,
    pcm16=np.arange(3840, dtype=np.int16),
    transcript=(
        TranscriptDelta({"type": "t"}, " u0", 0, 80, False),
        TranscriptDelta({"type": "t"}, " u1", 80, 160, False),
    ),
    heard=(TranscriptDelta({"type": "t"}, " hi", 0, 80, True),),
    first_audio_s=0.12345,
    first_audio_lag_s=0.05,
    units_in=2,
    units_out=2,
    seconds=0.2,
    usage_seconds=0.0,
    close_reason="close_requested",
    notices=(ErrorEvent({"type": "error"}, "input_backlog", "dropped"),),
)


class Server:
    """What `talk` sees of a server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, result: TalkResult = RESULT) -> None:
        self.connected: list[dict[str, Any]] = []
        self.streamed: list[tuple[Any, dict[str, Any]]] = []
        self.models: tuple[Model, ...] | Exception = (Model("parrot", 0.08), Model("slow", 1.0))
        self.result = result
        monkeypatch.setattr(talk, "models", self._models)
        monkeypatch.setattr(talk, "LiveClient", SimpleNamespace(connect=self._connect))
        monkeypatch.setattr(talk, "stream", self._stream)

    def _models(self, url: str, *, api_key: str | None) -> tuple[Model, ...]:
        if isinstance(self.models, Exception):
            raise self.models
        return self.models

    @asynccontextmanager
    async def _connect(self, url: str, **options: Any) -> AsyncIterator[None]:
        self.connected.append({"url": url, **options})
        yield

    async def _stream(self, pcm16: Any, _: None, **options: Any) -> TalkResult:
        self.streamed.append((pcm16, options))
        for part in self.result.transcript:
            options["on_event"](part)
        options["on_event"](Closed({"type": "session.closed"}, "close_requested", 0))
        options["on_sent"](len(pcm16))
        return self.result


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    write_wav(tmp_path / "talk.wav", np.arange(3840, dtype=np.int16), 24000)
    return tmp_path / "talk.wav"


def test_talk_does_not_talk_for_nothing(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A conversation was held to its end before it turned out that the answer could not be saved."""
    monkeypatch.setattr("duologue.cli.talk._choose", lambda *_: pytest.fail("it went on"))
    assert main(["talk", str(recording), "--out", str(recording.parent / "missing" / "reply.wav")]) == 1
    assert "no such directory" in capsys.readouterr().err


def test_talk_prints_one_json_object(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(monkeypatch)
    out = recording.with_name("reply.wav")
    assert main(["talk", str(recording), "--json", "--out", str(out), "--key", "k"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out) == {
        "session": "live_1",
        "model": "parrot",
        "input_samples": 3840,
        "units_in": 2,
        "units_out": 2,
        "output_samples": 3840,
        "first_audio_ms": 123.5,
        "transcript": " u0 u1",
        "fragments": [
            {"text": " u0", "start_ms": 0, "end_ms": 80},
            {"text": " u1", "start_ms": 80, "end_ms": 160},
        ],
        "heard": [{"text": " hi", "start_ms": 0, "end_ms": 80}],
        "notices": [{"type": "error", "code": "input_backlog", "message": "dropped"}],
        "seconds": 0.2,
        "usage_seconds": 0.0,
        "close_reason": "close_requested",
        "out": str(out),
        "format": "pcm24k",
    }
    assert (read_wav(out).samples * 32768).tolist() == list(range(3840))
    [connected] = server.connected
    assert connected == {
        "url": "ws://127.0.0.1:8700",
        "model": "parrot",
        "api_key": "k",
        "instructions": None,
        "voice": None,
        "form": PCM_24K,
    }
    [(pcm16, options)] = server.streamed
    assert pcm16.tolist() == list(range(3840))
    assert (options["chunk_bytes"], options["pace"], options["unit_samples"]) == (960, 1.0, 1920)


def test_talk_settings(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    arguments = ["--tail", "0.5", "--rate", "16000", "--chunk-ms", "100", "--no-pace", "--model", "slow"]
    assert main(["talk", str(recording), *arguments]) == 0
    [(pcm16, options)] = server.streamed
    assert len(pcm16) == 3840 * 16 // 24 + 8000
    assert not pcm16[-8000:].any()
    assert (options["chunk_bytes"], options["pace"], options["unit_samples"]) == (3200, None, 16000)
    assert options["window_s"] == 2.0
    assert server.connected[0]["model"] == "slow"
    assert server.connected[0]["form"] == PCM_16K


def test_talk_in_telephones_formats(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    for name, form in (("pcmu", PCMU), ("pcma", PCMA), ("pcm16k", PCM_16K)):
        assert main(["talk", str(recording), "--format", name, "--chunk-ms", "20"]) == 0
        assert server.connected[-1]["form"] == form
        pcm16, options = server.streamed[-1]
        assert len(pcm16) == 3840 * form.rate // 24000
        assert options["chunk_bytes"] == form.bytes_per_s // 50
        assert options["unit_samples"] == form.rate * 8 // 100
    assert main(["talk", str(recording), "--format", "pcmu", "--chunk-bytes", "1"]) == 0


def test_talk_shows_the_conversation(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch)
    assert main(["talk", str(recording)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "< " in captured.err
    assert "u0 u1" in captured.err
    assert "dropped" in captured.err
    assert "2 of 2 units" in captured.err


@pytest.mark.parametrize(
    ("found", "arguments", "says"),
    [
        (Unreachable("ws://127.0.0.1:8700", "refused"), [], "`duologue up` starts a server"),
        (
            SessionRefused("invalid_api_key", "No valid API key", status=401),
            ["--model", "m"],
            "No valid API key",
        ),
        (SessionRefused("http_404", "no such page", status=404), [], "no such page"),
        ((), [], "the server offers no model"),
    ],
)
def test_talk_without_a_server_or_a_model(
    found: Any, arguments: list[str], says: str, recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    server = Server(monkeypatch)
    server.models = found
    assert main(["talk", str(recording), *arguments]) == 1
    assert says in capsys.readouterr().err
    assert not server.connected


def test_talk_to_a_server_without_a_list_of_models(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    server.models = SessionRefused("http_404", "no such page", status=404)
    assert main(["talk", str(recording), "--model", "gpt"]) == 0
    assert server.connected[0]["model"] == "gpt"
    assert server.streamed[0][1]["unit_samples"] is None


def test_talk_fails_when_the_server_ends_the_session(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Server(monkeypatch, replace(RESULT, close_reason="expired", first_audio_s=None))
    assert main(["talk", str(recording), "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["first_audio_ms"] is None
    assert captured.err == "duologue: the server ended the session: expired\n"


def test_an_empty_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_wav(tmp_path / "none.wav", np.zeros(0, np.int16), 8000)
    assert main(["talk", str(tmp_path / "none.wav")]) == 1
    assert "the recording is empty" in capsys.readouterr().err


def test_transcript_lines() -> None:
    lines = talk.Lines()

    def add(text: str, start_ms: int) -> str | None:
        return lines.add(TranscriptDelta({"type": "t"}, text, start_ms, start_ms + 80, False))

    assert add(" Hel", 1000) is None
    assert add("lo", 1080) is None
    assert add(" again", 2000) == "   1.00 s  Hello"
    assert add("x" * 80, 2080) is None
    assert add("yz", 2160) is None, "a word is not split"
    assert add(" next", 2240) == f"   2.00 s  again{'x' * 80}yz"
    assert lines.rest() == "   2.24 s  next"
    assert lines.rest() is None


def test_who_begins_to_speak_ends_the_line_of_the_other() -> None:
    shown = io.StringIO()
    screen = talk._Screen(100, 24_000, Console(file=shown, width=100))
    with screen.running():
        for text, start_ms, heard in ((" What", 0, True), (" day?", 80, True), (" Tues", 900, False)):
            screen.event(TranscriptDelta({"type": "t"}, text, start_ms, start_ms + 80, heard))
        screen.event(TranscriptDelta({"type": "t"}, "day.", 980, 1060, False))
        screen.event(TranscriptDelta({"type": "t"}, " Thanks.", 1500, 1580, True))
    assert shown.getvalue().splitlines()[:3] == [
        ">    0.00 s  What day?",
        "<    0.90 s  Tuesday.",
        ">    1.50 s  Thanks.",
    ]


def test_uvloop_or_not() -> None:
    from duologue.cli import loop

    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert loop.run(main()).split(".")[0] in ("uvloop", "asyncio")
