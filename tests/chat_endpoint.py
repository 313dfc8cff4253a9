"""A chat endpoint over real HTTP, that streams as Ollama and vLLM do, and that can be slow, hang, or fail."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "the-password-is-swordfish"
"""What its errors say."""


class Endpoint:
    """Answers `POST /v1/chat/completions` with `deltas`, those in bytes as they are; `between` is called before each with its
    number."""

    def __init__(
        self, *deltas: str | bytes, status: int = 200, between: Callable[[int], object] = lambda number: None
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.listed = 0
        self.asked, self.hung_up = threading.Event(), threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.listed += 1
                self._send(json.dumps({"object": "list", "data": [{"id": "tiny", "object": "model"}]}))

            def do_POST(self) -> None:
                endpoint.keys.append(self.headers["Authorization"])
                endpoint.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                endpoint.asked.set()
                if status != 200:
                    self._send(json.dumps({"error": {"message": SECRET}}), status)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                try:
                    for number, delta in enumerate(deltas):
                        between(number)
                        if isinstance(delta, bytes):
                            self.wfile.write(delta)
                        else:
                            self._event({"delta": {"content": delta}})
                    self._event({"delta": {}, "finish_reason": "stop"})
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    endpoint.hung_up.set()

            def _event(self, choice: dict[str, Any]) -> None:
                chunk = {
                    "id": "c",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": "tiny",
                    "choices": [{"index": 0, "finish_reason": None, **choice}],
                }
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()

            def _send(self, body: str, code: int = 200) -> None:
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> "Endpoint":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
