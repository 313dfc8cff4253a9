"""HTTP answers in OpenAI's shape."""

from collections.abc import Mapping

from starlette.responses import JSONResponse

from duologue.errors import kind


def refusal(
    code: str, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The error of `code`; type and status come from the table."""
    row = kind(code)
    body = {"error": {"message": message, "type": row.type, "param": param, "code": code}}
    return JSONResponse(body, status_code=row.status, headers=headers)
