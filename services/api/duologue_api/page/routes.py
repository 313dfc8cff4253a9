"""The routes of the talk page.  Its assets are plain files of this package; there is no build."""

import hashlib
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

INDEX = "index.html"
ASSETS = "page"
"""Path under which they are served.  The page names them relative to itself, so that a proxy may put a prefix before."""
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    # Asked for anew each time, and answered with 304: after an update no page is put together of two versions.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Asset(NamedTuple):
    """A file as it is served."""

    body: bytes
    media_type: str
    etag: str


def assets() -> dict[str, Asset]:
    """All files of the page by name."""
    found = {}
    for file in resources.files(__package__).joinpath("assets").iterdir():
        media_type = MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            body = file.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[file.name] = Asset(body, media_type, etag)
    return found


def page_routes() -> list[BaseRoute]:
    """`/`, and every asset by its name: there is nothing else to be asked for, whatever the path."""
    found = assets()
    paths = {"/": found[INDEX], **{f"/{ASSETS}/{name}": found[name] for name in found if name != INDEX}}
    return [Route(path, _endpoint(asset), methods=["GET"]) for path, asset in sorted(paths.items())]


def _endpoint(asset: Asset) -> Callable[[Request], Awaitable[Response]]:
    headers = {**HEADERS, "ETag": asset.etag}

    async def answer(request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        if asset.etag in (each.strip().removeprefix("W/") for each in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(asset.body, media_type=asset.media_type, headers=headers)

    return answer
