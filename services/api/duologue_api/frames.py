"""The WebSocket below the commands: what a client can make it do before there is a command to be refused.

A command is bounded by its bytes, but the parts of a message may be of one byte or none, and pings and pongs belong to no
message.  Each costs the loop that all sessions share some microseconds, and the parts of an unfinished message memory.
"""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

PIECE_BYTES = 16 * 1024
"""Read at once.  The transport may hand over megabytes, which are a million of the smallest frames."""
BURST, PER_S = 4096, 1000.0
"""Frames that are no message by themselves.  The largest command in parts of a kilobyte has as many."""

BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class BoundedFrames(WebSocketsSansIOProtocol):
    """uvicorn's, which ends a connection whose frames say too little (1008)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._allowance, self._allowed_at = float(BURST), self.loop.time()

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[at : at + PIECE_BYTES])
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # uvicorn 0.54 forgets those whose upgrade can't even be read: a header of 8 KiB is enough.
            self.transport.write(b"".join(self.conn.data_to_send()) or BAD_REQUEST)
            self.transport.close()

    def handle_cont(self, event: Frame) -> None:
        if self._allowed():
            super().handle_cont(event)

    def handle_ping(self) -> None:
        if not self._allowed():
            return
        if self.writable.is_set():
            super().handle_ping()
        else:
            # Who does not read gets no pongs, which nothing would bound (RFC 6455 §5.5.3 leaves that open).
            self.conn.data_to_send()

    def handle_pong(self, event: Frame) -> None:
        if self._allowed():
            super().handle_pong(event)

    def _allowed(self) -> bool:
        """Whether one more is; if not, the connection has ended."""
        if self.transport.is_closing():
            return False
        now = self.loop.time()
        earned = (now - self._allowed_at) * PER_S
        self._allowance, self._allowed_at = min(BURST, self._allowance + earned) - 1, now
        if self._allowance >= 0:
            return True
        self.frames = []
        self.conn.fail(CloseCode.POLICY_VIOLATION, "too many frames")
        if self.conn.close_sent is None:  # not even accepted
            self.transport.close()
        else:
            self.handle_parser_exception()
        return False
