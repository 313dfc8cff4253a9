"""Settings: which source counts, what is refused and in which words, and that nothing secret is shown."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from duologue import lifeline
from duologue.cli import main
from duologue.models import pocket
from duologue.settings import (
    DEFAULT,
    SETTINGS,
    BadSetting,
    Settings,
    for_services,
    load,
    nearest,
    of_model,
    shown,
    without_credentials,
)
from duologue.settings.page import page

pytestmark = pytest.mark.unit

REPO = Path(__file__).resolve().parents[2]
TOKEN = "s3cret"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DUO_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "duo.toml"


# ---------------------------------------------------------------- which source counts


def test_flags_before_variables_before_the_file_before_defaults(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("places = 1\nport = 1\nrounds = 1\n")
    monkeypatch.setenv("DUO_PLACES", "2")
    monkeypatch.setenv("DUO_PORT", "2")
    found = load({"config": file, "places": 3})
    assert (found.places, found.port, found.rounds, found.api_pods) == (3, 2, 1, 1)
    assert found.origins == {
        "config": "--config",
        "places": "--places",
        "port": "DUO_PORT",
        "rounds": f"{file}: rounds",
    }


def test_the_file_is_named_by_a_variable_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("places = 7\n")
    monkeypatch.setenv("DUO_CONFIG", str(file))
    assert load().places == 7
    other = file.with_name("other.toml")
    other.write_text("places = 8\n")
    assert load({"config": other}).places == 8


def test_values_are_read_alike_from_everywhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, Any, str, str]] = [
        ("option", ["a=1", "b=2"], "a=1 b=2", 'option = ["a=1", "b=2"]'),
        ("json", True, "1", "json = true"),
        ("no_auth", False, "false", "no_auth = false"),
        ("keys_file", Path("k"), "k", 'keys_file = "k"'),
        ("takeover_reserve", 3, "3", "takeover_reserve = 3"),
        ("trace_ratio", 0.5, "0.5", "trace_ratio = 0.5"),
        ("input_backlog_policy", "close", "close", 'input_backlog_policy = "close"'),
    ]
    file.write_text("\n".join(line for *_, line in given))
    from_file = load({"config": file})
    for key, value, text, _ in given:
        monkeypatch.setenv(SETTINGS[key].env, text)
        name = SETTINGS[key].name
        for found in (from_file, load(), load({key: value})):
            assert getattr(found, name) == value, key
        monkeypatch.delenv(SETTINGS[key].env)


def test_an_empty_variable_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUO_PLACES", "")
    monkeypatch.setenv("DUO_KEY", "")
    found = load()
    assert (found.places, found.key, found.origins) == (64, [], {})


def test_defaults() -> None:
    """Those that other parts build on."""
    found = Settings()
    assert (found.takeover_reserve, found.input_backlog_policy) == ("auto", "drop_oldest")
    assert (found.input_backlog_s, found.output_backlog_s, found.output_backlog_close_s) == (5, 5, 30)
    assert (found.lifetime_s, found.otlp_endpoint, found.trace_ratio) == (3600, "", 0.01)
    assert (found.models, found.ring_bytes, found.gather_ms) == ([], 16 << 20, None)
    assert (found.places, found.memory_bytes, found.tap) == (64, None, None)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("DUO_PROT", "DUO_PORT"),
        ("DUO_TRACES_RATIO", "DUO_TRACE_RATIO"),
        ("DUO_INPUT_BACKLOG", "DUO_INPUT_BACKLOG_S"),
        ("DUO_LIFETIME_MS", "DUO_LIFETIME_S"),
        ("duo_places", "DUO_PLACES"),
        ("DUO_", "DUO_"),
    ],
)
def test_an_unknown_variable_is_an_error_that_names_the_nearest(
    name: str, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, TOKEN)
    with pytest.raises(BadSetting, match=f"no setting {name}; the nearest is {known}") as raised:
        load()
    assert TOKEN not in str(raised.value)


def test_an_unknown_key_is_an_error_that_names_the_nearest(file: Path) -> None:
    file.write_text("place = 3\n")
    with pytest.raises(BadSetting, match=re.escape(f"{file}: no setting 'place'; the nearest is 'places'")):
        load({"config": file})


def test_something_is_always_nearest() -> None:
    assert nearest("xyzzy", ["port", "keys"]) in ("port", "keys")


def test_variables_that_are_no_settings_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Incident to be avoided: in a namespace with a service `duo-nats`, Kubernetes gives every pod these."""
    monkeypatch.setenv(lifeline.ENV, "1")
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_CLIENT", "PORT", "PORT_4222_TCP_ADDR"):
        monkeypatch.setenv(f"DUO_NATS_{name}", "10.0.0.1")
    assert load().nats is None
    monkeypatch.setenv("DUO_OTHER_PORT", "10.0.0.1")
    with pytest.raises(BadSetting, match="no setting DUO_OTHER_PORT"):
        load()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("places = 0", "duo.toml: places = 0: input should be greater than or equal to 1"),
        ('places = "many"', "duo.toml: places = 'many': input should be a valid integer"),
        ("trace_ratio = 1.5", "less than or equal to 1"),
        ('input_backlog_policy = "wait"', "drop_oldest|close is wanted"),
        ("takeover_reserve = -1", "N|auto is wanted"),
        ("[api]\nport = 1", r"duo.toml: [api] is a table; the file is flat"),
        ('config = "other.toml"', "can't name another one"),
        ("port = ", "duo.toml: no TOML"),
    ],
)
def test_a_wrong_file_is_one_line(line: str, says: str, file: Path) -> None:
    file.write_text(line)
    with pytest.raises(BadSetting, match=re.escape(says)) as raised:
        load({"config": file})
    assert "\n" not in str(raised.value)


def test_a_wrong_variable_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUO_DRAIN_S", "soon")
    with pytest.raises(BadSetting, match="DUO_DRAIN_S = 'soon': input should be a valid number"):
        load()


def test_a_file_that_is_not_there(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--settings", "--config", str(file)]) == 2
    assert capsys.readouterr() == ("", f"duologue: settings file {file}: No such file or directory\n")


# ---------------------------------------------------------------- what is shown


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_doctor_shows_settings_and_no_secrets(
    form: list[str], file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(f'key = ["{TOKEN}1", "{TOKEN}2"]\notlp_endpoint = "http://u:{TOKEN}@here:1"\n')
    monkeypatch.setenv("DUO_NATS", f"nats://user:{TOKEN}@there:4222")
    monkeypatch.setenv("DUO_PLACES", "9")
    monkeypatch.setenv("DUO_POCKET_CHAT_KEY", TOKEN)
    assert main(["doctor", "--settings", "--config", str(file), *form]) == 0
    out = capsys.readouterr().out
    assert TOKEN not in out
    if form:
        found = json.loads(out)
        assert found.keys() == SETTINGS.keys()
        assert found["places"] == {"value": 9, "from": "DUO_PLACES"}
        assert found["key"] == {"value": ["***", "***"], "from": f"{file}: key"}
        assert found["nats"] == {"value": "nats://***@there:4222", "from": "DUO_NATS"}
        assert found["otlp_endpoint"] == {"value": "http://***@here:1", "from": f"{file}: otlp_endpoint"}
        assert found["port"] == {"value": 8700, "from": DEFAULT}
        assert found["pocket_chat_key"] == {"value": "***", "from": "DUO_POCKET_CHAT_KEY"}
    else:
        lines = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
        assert lines.keys() == SETTINGS.keys()
        assert lines["places"] == ["9", "DUO_PLACES"]
        assert lines["nats"] == ["nats://***@there:4222", "DUO_NATS"]
        assert lines["port"] == ["8700", DEFAULT]


@pytest.mark.parametrize(
    ("url", "shows"),
    [
        ("nats://here:4222", "nats://here:4222"),
        ("nats://u:p@here:4222", "nats://***@here:4222"),
        (f"nats://{TOKEN}@here", "nats://***@here"),
        (f"u:{TOKEN}@here:4222", "***@here:4222"),
        (f"nats://u:a/{TOKEN}@here", "nats://***@here"),
        (f"nats://u:{TOKEN}@one,nats://u:{TOKEN}@two", "nats://***@two"),
    ],
)
def test_credentials_in_urls_are_hidden(url: str, shows: str) -> None:
    assert without_credentials(url) == shows


def test_secrets_are_in_no_text_and_in_no_error(file: Path) -> None:
    found = load({"key": [TOKEN]})
    assert TOKEN not in repr(found) + str(found)
    assert TOKEN not in str(shown(found))
    for line in (f"key = [[{json.dumps(TOKEN)}]]", f"nats = [{json.dumps(TOKEN)}]"):
        file.write_text(line)
        with pytest.raises(BadSetting) as raised:
            load({"config": file})
        assert TOKEN not in str(raised.value)


def test_every_setting_says_what_it_is() -> None:
    assert len({row.env for row in SETTINGS.values()}) == len(SETTINGS)
    for key, row in SETTINGS.items():
        assert row.description.endswith((".", ")")), key
        assert 5 < len(row.description) < 110, key
        assert row.commands, key
        assert set(row.use.required.split()) <= set(row.commands), key


def test_the_page_is_up_to_date() -> None:
    assert (REPO / "docs/settings.md").read_text() == page(), "run `make docs`"


def test_the_page_has_every_setting_once() -> None:
    names = re.findall(r"^\| `(\w+)`", page(), re.MULTILINE)
    assert sorted(names) == sorted(SETTINGS)


# ---------------------------------------------------------------- options of a model that are settings


def test_settings_named_after_a_model_are_options_of_its_workers(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('pocket_chat_model = "tiny"\n')
    monkeypatch.setenv("DUO_POCKET_CHAT_URL", "http://127.0.0.1:11434/v1")
    settings = load({"config": file})
    options = of_model(settings, "pocket")
    assert options == {"chat_url": "http://127.0.0.1:11434/v1", "chat_model": "tiny"}
    assert pocket.worker_options(options)["chat_model"] == "tiny"
    assert of_model(settings, "parrot") == {}
    assert for_services(settings) == {"DUO_POCKET_CHAT_MODEL": "tiny"}


def test_every_setting_named_after_a_model_is_an_option_that_it_knows() -> None:
    named = {name for name in Settings.model_fields if name.startswith("pocket_")}
    assert len(named) == 4
    pocket.worker_options({name.removeprefix("pocket_"): "http://x" for name in named})


# ---------------------------------------------------------------- what `up` hands on


def test_up_hands_on_what_the_file_has_for_the_services(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(
        'places = 3\nno_auth = true\nannounce = false\nlifetime_s = 60\nport = 1\nkey = ["k"]\nrate = 16000\n'
    )
    monkeypatch.setenv("DUO_LIFETIME_S", "70")
    found = for_services(load({"config": file}))
    assert found == {"DUO_PLACES": "3", "DUO_NO_AUTH": "1", "DUO_ANNOUNCE": "0"}, (
        "not: what is meant for `up`, and what the services inherit as a variable"
    )
    for name, text in found.items():
        monkeypatch.setenv(name, text)
    again = load()
    assert (again.places, again.no_auth, again.announce) == (3, True, False)
