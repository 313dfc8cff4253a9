"""What the talk page is made of, and how it is served."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from duologue_api import page
from duologue_api.app import create_app
from duologue_api.page.routes import assets
from duologue_api.port import ModelStatus

pytestmark = pytest.mark.unit

FOLDER = Path(page.__file__).parent / "assets"
FOUND = assets()
SCRIPTS = sorted(name for name in FOUND if name.endswith(".js"))


class Host:
    """With a model, and no sessions."""

    def models(self) -> list[ModelStatus]:
        return [ModelStatus("m", "Says so", True, ("robin",), 0.08, (), 16_000, 24_000)]


def get(path: str, method: str = "GET", keys: Any = (), **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    raw = [
        (name.replace("_", "-").encode(), value.encode())
        for name, value in {"host": "localhost", **headers}.items()
    ]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": raw}
    asyncio.run(create_app(Host(), keys=keys)(scope, receive, send))  # type: ignore[arg-type]
    [start, *bodies] = sent
    got = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], got, b"".join(each.get("body", b"") for each in bodies)


@pytest.mark.parametrize("keys", [(), ("k",)], ids=["open", "keyed"])
@pytest.mark.parametrize(
    ("path", "name", "media_type"),
    [
        ("/", "index.html", "text/html; charset=utf-8"),
        ("/page/page.js", "page.js", "text/javascript; charset=utf-8"),
        ("/page/playback.worklet.js", "playback.worklet.js", "text/javascript; charset=utf-8"),
        ("/page/style.css", "style.css", "text/css; charset=utf-8"),
        ("/page/icon.svg", "icon.svg", "image/svg+xml"),
    ],
)
def test_the_page_and_its_assets_need_no_key(path: str, name: str, media_type: str, keys: Any) -> None:
    status, headers, body = get(path, keys=keys)
    assert (status, headers["content-type"]) == (200, media_type)
    assert body == (FOLDER / name).read_bytes()
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["permissions-policy"].startswith("microphone=(self)")
    assert headers["referrer-policy"] == "no-referrer"


def test_what_a_browser_has_is_not_sent_again() -> None:
    _, headers, body = get("/page/page.js")
    assert headers["cache-control"] == "no-cache"
    etag = headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}'):
        status, again, nothing = get("/page/page.js", if_none_match=known)
        assert (status, nothing, again["etag"]) == (304, b"", etag)
    assert get("/page/page.js", if_none_match='"other"')[2] == body
    assert get("/page/live.js")[1]["etag"] != etag


def test_head_and_what_is_not_there() -> None:
    status, headers, _ = get("/", "HEAD")
    assert status == 200
    assert int(headers["content-length"]) == len(FOUND["index.html"].body)
    for path in (
        "/page/",
        "/page/index.html",
        "/page/../app.py",
        "/page/routes.py",
        "/page/nothing.js",
        "/index.html",
    ):
        assert get(path)[0] == 404, path
    assert get("/", "POST")[0] == 405


def test_a_page_of_another_origin_gets_none_of_it() -> None:
    assert get("/", sec_fetch_site="none", sec_fetch_mode="navigate")[0] == 200
    assert get("/page/page.js", sec_fetch_site="same-origin", sec_fetch_mode="cors")[0] == 200
    assert get("/page/page.js", sec_fetch_site="cross-site", sec_fetch_mode="no-cors")[0] == 403
    assert get("/", host="rebound.example")[0] == 403


def test_models_tell_what_the_pickers_need() -> None:
    status, _, body = get("/v1/models")
    assert status == 200
    assert b'"voices":["robin"]' in body
    assert b'"input_rate":16000,"output_rate":24000' in body


def test_everything_that_is_named_is_there() -> None:
    index = FOUND["index.html"].body.decode()
    named = set(re.findall(r'(?:src|href)="(?!#)([^"]+)"', index))
    assert {"page/page.js", "page/style.css", "page/icon.svg"} <= named
    imported = {"page/page.js"}
    for name in SCRIPTS:
        source = FOUND[name].body.decode()
        imported |= {f"page/{module}" for module in re.findall(r'from "\./([^"]+)"', source)}
        imported |= {f"page/{module}" for module in re.findall(r'"(\w+\.worklet\.js)"', source)}
    there = {f"page/{name}" for name in FOUND} - {"page/index.html"}
    assert named | imported == there, "nothing is missing, and nothing is left over"
    ids = set(re.findall(r'id="([^"]+)"', index))
    asked = set(re.findall(r'\$\("([^"]+)"\)', FOUND["page.js"].body.decode()))
    assert asked <= ids


def test_the_page_is_small_and_asks_nobody_else() -> None:
    assert sum(len(asset.body) for asset in FOUND.values()) < 150_000
    for name, asset in FOUND.items():
        source = asset.body.decode().replace("http://www.w3.org/", "").replace("http://localhost", "")
        assert not re.search(r"(?:https?|wss?)://(?!127\.0\.0\.1)\w", source), name
        assert " style=" not in source, f"{name}: the policy refuses inline styles"
