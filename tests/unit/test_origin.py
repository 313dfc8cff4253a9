"""What an open server takes from browsers, and from whom else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from duologue_api.origin import authority, objection

pytestmark = pytest.mark.unit

HERE = "127.0.0.1:8700"


def objected(host: str | None, **headers: str | None) -> bool:
    """Names of `headers` with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
    return objection(Headers({**named, "host": host} if host is not None else named)) is not None


# ---------------------------------------------------------------- Host: no name that a name server turns here


@pytest.mark.parametrize(
    "host",
    [
        HERE,
        "127.0.0.1",
        "localhost",
        "localhost:8700",
        "LocalHost:8700",
        "localhost.:8700",
        "talk.localhost:8700",
        "[::1]:8700",
        "[0:0:0:0:0:0:0:1]:8700",
        "[::ffff:127.0.0.1]:8700",
        "127.8.8.8:8700",
        "10.1.2.3:8700",
    ],
)
def test_a_host_that_cannot_be_turned_here(host: str) -> None:
    assert not objected(host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        " ",
        ":8700",
        "rebound.example",
        "rebound.example:8700",
        "localhost.rebound.example:8700",
        "127.0.0.1.rebound.example:8700",
        "notlocalhost:8700",
        "localhost..:8700",
        "rebound.example.:8700",
        "127.0.0.1:8700, rebound.example",
        "rebound.example@127.0.0.1:8700",
        "127.0.0.1:8700@rebound.example",
        "127.0.0.1:8700/rebound.example",
        "127.0.0.1:port",
        "127.0.0.1:",
        "127.0.0.1:870000",
        "127.0.0.1:8700\n",
        "[::1",
        "::1",
        "[rebound]:8700",
        "[::1%25lo]:8700",
    ],
)
def test_a_host_that_may_be_anywhere(host: str | None) -> None:
    """DNS rebinding: a page of rebound.example, a name that by now means 127.0.0.1, is from this very server as far
    as its browser can tell.  Reading by GET, it doesn't even send an Origin."""
    assert objected(host)
    assert objected(host, origin=f"http://{host}")


# ---------------------------------------------------------------- Origin: this one


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, HERE),
        ("http://127.0.0.1:8700", HERE),
        ("https://127.0.0.1:8700", HERE),
        ("http://localhost:8700", "localhost:8700"),
        ("http://LOCALHOST:8700", "localhost:8700"),
        ("http://localhost.:8700", "localhost.:8700"),
        ("http://[::1]:8700", "[::1]:8700"),
        ("http://[::1]:8700", "[0:0::1]:8700"),
        ("http://localhost", "localhost"),
        ("http://localhost", "localhost:80"),
        ("https://localhost", "localhost"),
        ("https://localhost", "localhost:443"),
        ("http://10.1.2.3:8700", "10.1.2.3:8700"),
    ],
)
def test_a_page_from_here(origin: str | None, host: str) -> None:
    assert not objected(host, origin=origin)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("null", HERE),
        ("", HERE),
        ("https://elsewhere.example", HERE),
        ("https://elsewhere.example:8700", HERE),
        ("http://127.0.0.1.elsewhere.example:8700", HERE),
        ("http://127.0.0.1", HERE),
        ("http://127.0.0.1:3000", HERE),
        ("http://127.0.0.1:87000", HERE),
        ("http://127.0.0.2:8700", HERE),
        ("http://localhost:8700", HERE),
        ("http://[::1]:8700", "localhost:8700"),
        ("http://talk.localhost:8700", "localhost:8700"),
        ("http://localhost:3000", "localhost"),
        ("http://localhost", "localhost:443"),
        ("https://localhost", "localhost:80"),
        ("http://10.1.2.3:8700", HERE),
        ("file://", HERE),
        ("file://127.0.0.1:8700", HERE),
        ("chrome-extension://127.0.0.1:8700", HERE),
        ("ws://127.0.0.1:8700", HERE),
        ("127.0.0.1:8700", HERE),
        ("//127.0.0.1:8700", HERE),
        ("http:127.0.0.1:8700", HERE),
        ("http://127.0.0.1:8700/", HERE),
        ("http://127.0.0.1:8700 http://elsewhere.example", HERE),
        ("http://elsewhere.example@127.0.0.1:8700", HERE),
        ("http://127.0.0.1:8700@elsewhere.example", HERE),
        ("http://127.0.0.1:8700#@elsewhere.example", HERE),
        ("http://127.0.0.1:port", HERE),
        ("http://[::1", "[::1]:8700"),
    ],
)
def test_a_page_from_elsewhere(origin: str, host: str) -> None:
    assert objected(host, origin=origin)


# ---------------------------------------------------------------- without Origin


@pytest.mark.parametrize(
    ("site", "mode", "expected"),
    [
        ("same-origin", "cors", False),
        ("none", "navigate", False),
        ("cross-site", "navigate", False),
        ("same-site", "navigate", False),
        ("cross-site", "no-cors", True),
        ("same-site", "no-cors", True),
        ("cross-site", "cors", True),
        ("cross-site", None, True),
        ("anything", "no-cors", True),
    ],
)
def test_what_a_page_asks_for_blindly(site: str, mode: str | None, expected: bool) -> None:
    assert objected(HERE, sec_fetch_site=site, sec_fetch_mode=mode) is expected


def test_a_page_that_navigates_elsewhere_still_tells_its_origin() -> None:
    form = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert objected(HERE, origin="https://elsewhere.example", **form)


# ---------------------------------------------------------------- any text

anything = st.text(st.characters(max_codepoint=255), max_size=40) | st.sampled_from(
    ["127.0.0.1", "localhost", "[::1]", "rebound.example"]
).flatmap(lambda name: st.text("0123456789:.@/[]-", max_size=8).map(lambda rest: name + rest))


@given(anything, anything)
def test_only_what_names_one_server_passes(host: str, page: str) -> None:
    if not objected(host, origin=f"http://{page}"):
        here, there = authority(host), authority(page)
        assert here is not None
        assert there is not None
        assert here.name == there.name
        assert "example" not in here.name
