"""The models that a server offers: `GET /v1/models`."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from duologue.client.address import Address
from duologue.client.live import BadServer, SessionRefused, Unreachable


@dataclass(frozen=True, slots=True)
class Model:
    """A served model.  `unit_s` is its time step in seconds, `None` where the server does not say; `details` is
    what the server says beyond the standard fields."""

    id: str
    unit_s: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def models(url: str, *, api_key: str | None = None, timeout_s: float = 10) -> tuple[Model, ...]:
    """The models, in the server's order.  Blocks.  Raises `BadUrl`, `Unreachable`, `SessionRefused` (the key),
    `BadServer`."""
    address = Address.of(url)
    request = urllib.request.Request(f"{address.api}/models", headers={"Accept": "application/json"})
    if api_key:
        request.add_header("Authorization", f"Bearer {api_key}")
    # A proxy of the environment does not reach this machine's loopback.
    proxies = [urllib.request.ProxyHandler({})] if address.loopback else []
    try:
        with urllib.request.build_opener(*proxies).open(request, timeout=timeout_s) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise SessionRefused.of_http(error.code, error.read()) from None
    except urllib.error.URLError as error:
        raise Unreachable(address.live, error.reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(address.live, error) from None
    return _parse(body)


def _parse(body: bytes) -> tuple[Model, ...]:
    try:
        found = []
        for entry in orjson.loads(body)["data"]:
            details = entry.get("duologue") or {}
            unit_s = details.get("unit_s")
            found.append(Model(str(entry["id"]), float(unit_s) if unit_s else None, details))
        return tuple(found)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        raise BadServer("the server's list of models is no such list") from None
