"""Which requests an open server takes: none that a page of another origin made a browser send.

Any web page can reach a server on the loopback of whoever looks at it.  A browser says where a page is from; and it
asks for the name that the page used, so that a page whose own name was turned to this machine (DNS rebinding) gives
itself away by `Host`.  Clients that are no browsers send neither `Origin` nor `Sec-Fetch-Site`.
"""

import re
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from starlette.datastructures import Headers

from duologue_api.live.refused import shown

_AUTHORITY = re.compile(
    r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?", re.ASCII | re.IGNORECASE
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_OTHER_ORIGIN = "This open server takes no requests from pages of other origins."


class Authority(NamedTuple):
    """The name or address of a server, in one spelling, and its port where that is told."""

    name: str
    port: int | None


def authority(text: str) -> Authority | None:
    """`text` as it stands in `Host` and `Origin`; `None` where it is none."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    name = match["name"].lower().removesuffix(".")
    return Authority(str(_address(name) or name), int(match["port"]) if match["port"] else None)


def objection(headers: Headers) -> str | None:
    """Why an open server does not take a request with these headers; `None`: it does."""
    host = authority(headers.get("host", ""))
    if host is None or not _safe(host.name):
        asked = shown(headers.get("host", ""))
        return f"This open server answers to localhost and to IP addresses, not to {asked} (the Host header)."
    if (origin := headers.get("origin")) is not None and not _same(origin, host):
        return _OTHER_ORIGIN
    # A GET that a page makes blindly, as for an image, has no Origin.  Following a link is no business of the page's.
    elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    if elsewhere and headers.get("sec-fetch-mode") != "navigate":
        return _OTHER_ORIGIN
    return None


def _safe(name: str) -> bool:
    """No name server has a say in where that is."""
    return name == "localhost" or name.endswith(".localhost") or _address(name) is not None


def _same(origin: str, host: Authority) -> bool:
    """Whether `host` is where a page of that origin is from.  The scheme counts by its port only: TLS may have ended
    at a proxy."""
    scheme, _, rest = origin.partition("://")
    default, page = _DEFAULT_PORTS.get(scheme), authority(rest)
    if default is None or page is None or page.name != host.name:
        return False
    port = default if page.port is None else page.port
    return port in _DEFAULT_PORTS.values() if host.port is None else port == host.port


def _address(name: str) -> IPv4Address | IPv6Address | None:
    with suppress(ValueError):
        return ip_address(name.strip("[]"))
    return None
