"""Server events against the SDK's own types, more strictly than the SDK: nothing missing, nothing unknown."""

import json
from typing import Any, get_args

from openai.types.live import ServerEvent
from pydantic import BaseModel

MEMBERS = get_args(get_args(ServerEvent)[0])
BY_TYPE: dict[str, type[BaseModel]] = {
    tag: member for member in MEMBERS for tag in get_args(member.model_fields["type"].annotation)
}


def strict_event(frame: str | bytes | dict[str, Any]) -> dict[str, Any]:
    """The event in `frame`, decoded.  Raises `AssertionError` or `ValidationError` where the SDK's type for it does
    not hold, at any depth."""
    event: dict[str, Any] = frame if isinstance(frame, dict) else json.loads(frame)
    model = BY_TYPE[event["type"]].model_validate(event, strict=True)
    unknown = list(_unknown(model, event["type"]))
    assert not unknown, unknown
    return event


def _unknown(value: Any, place: str) -> Any:
    if isinstance(value, BaseModel):
        for name in value.model_extra or {}:
            yield f"{place}.{name}"
        for name in value.model_fields_set:
            yield from _unknown(getattr(value, name), f"{place}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from _unknown(item, f"{place}[]")
