"""The routes of the API."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response, WebSocket
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from duologue_api.answers import refusal
from duologue_api.auth import Guard, Keys
from duologue_api.live.settings import EdgeSettings
from duologue_api.live.socket import serve
from duologue_api.page.routes import page_routes
from duologue_api.port import Host, ModelStatus

LIVE = "/v1/live/sessions"
CODES = {404: "not_found", 405: "method_not_allowed"}


def create_app(
    host: Host,
    *,
    keys: Sequence[str],
    start_timeout_s: float = 60.0,
    output_backlog_s: float = 5.0,
    output_backlog_close_s: float = 30.0,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], float] = time.time,
) -> FastAPI:
    """The edge of `host`.  No `keys` make an open server, which the caller must have been asked for.

    `clock`: monotonic seconds; `now`: Unix seconds.
    """
    settings = EdgeSettings(
        start_timeout_s=start_timeout_s,
        output_backlog_s=output_backlog_s,
        behind_limit_s=output_backlog_close_s,
    )
    app = FastAPI(title="Duologue", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, keys=Keys(keys))
    _live(app, host, settings, clock)
    _models(app, host, int(now()))
    _health(app, host)
    app.router.routes += page_routes()
    _errors(app)
    return app


def _live(app: FastAPI, host: Host, settings: EdgeSettings, clock: Callable[[], float]) -> None:
    @app.websocket(LIVE)
    async def live(websocket: WebSocket) -> None:
        await serve(websocket, host, settings, clock)

    @app.post(LIVE)
    async def webrtc() -> Response:
        return refusal("not_implemented", "Sessions over WebRTC are not implemented; open a WebSocket here.")

    @app.get(LIVE)
    async def no_upgrade() -> Response:
        headers = {"upgrade": "websocket", "connection": "upgrade"}
        return refusal("upgrade_required", "This is a WebSocket endpoint.", headers=headers)

    @app.websocket(LIVE + "/{_rest:path}")
    async def sideband(websocket: WebSocket, _rest: str) -> None:
        await websocket.send_denial_response(
            refusal("session_id_not_found", "No such session here, or it has no such socket.")
        )

    @app.websocket("/{_path:path}")
    async def nowhere(websocket: WebSocket, _path: str) -> None:
        await websocket.send_denial_response(refusal("not_found", f"WebSockets are served at {LIVE}."))


def _models(app: FastAPI, host: Host, created: int) -> None:
    def shown(model: ModelStatus) -> dict[str, Any]:
        ours = {
            "description": model.description,
            "ready": model.ready,
            "voices": list(model.voices),
            "unit_s": model.unit_s,
            "unsupported": list(model.unsupported),
            "input_rate": model.input_rate,
            "output_rate": model.output_rate,
        }
        return {
            "id": model.id,
            "object": "model",
            "created": created,
            "owned_by": "duologue",
            "duologue": ours,
        }

    @app.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [shown(model) for model in host.models()]})

    @app.get("/v1/models/{model_id}")
    async def model(model_id: str) -> Response:
        for each in host.models():
            if each.id == model_id:
                return JSONResponse(shown(each))
        return refusal("model_not_found", f"There is no model {model_id!r} here.", param="model")


def _health(app: FastAPI, host: Host) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        ready, why = host.ready()
        said: dict[str, Any] = {"status": "ready" if ready else "not ready"}
        if why:
            said["reason"] = why
        said["models"] = {model.id: model.ready for model in host.models()}
        return JSONResponse(said, status_code=200 if ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _errors(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        code = CODES.get(error.status_code, "internal_error")
        answer = refusal(code, f"{request.method} {request.url.path}: {error.detail}.", headers=error.headers)
        answer.status_code = error.status_code
        return answer

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        del request, error  # the server logs it
        return refusal("internal_error", "The server made a mistake.")
