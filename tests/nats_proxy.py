"""A proxy before a nats-server that cuts the connections of chosen clients, known by the names they connect with."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")


class NatsProxy:
    """Runs in a thread of its own, so that a test may use any loop."""

    def __init__(self, server_url: str) -> None:
        self._server = urlsplit(server_url)
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._listener: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[Any], str] = {}
        self._refused: list[str] = []

    @property
    def url(self) -> str:
        """The server's, by way of this proxy."""
        login = self._server.netloc.rpartition("@")[0]
        return urlunsplit(self._server._replace(netloc=f"{login}@127.0.0.1:{self._port}"))

    def start(self) -> None:
        self._thread.start()
        self._run(self._listen()).result(10)

    def stop(self) -> None:
        self._run(self._close()).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def cut(self, seconds: float, name: str = "") -> int:
        """Cuts the connections of the clients whose name begins so, and lets none of them in again for so long.
        Returns how many were cut."""
        return await asyncio.wrap_future(self._run(self._cut(seconds, name)))

    def _run(self, work: Coroutine[Any, Any, T]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # ---------------------------------------------------------------- in the proxy's loop

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        await self._drop("")

    async def _cut(self, seconds: float, name: str) -> int:
        self._refused.append(name)
        count = await self._drop(name)
        await asyncio.sleep(seconds)
        self._refused.remove(name)
        return count

    async def _drop(self, name: str) -> int:
        found = [task for task, client in self._clients.items() if client.startswith(name)]
        for task in found:
            task.cancel()
        await asyncio.gather(*found, return_exceptions=True)
        return len(found)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients[task] = ""
        server: asyncio.StreamWriter | None = None
        try:
            to_client, server = await asyncio.open_connection(self._server.hostname, self._server.port)
            writer.write(await to_client.readline())  # INFO
            hello = await reader.readline()
            name = str(json.loads(hello.removeprefix(b"CONNECT "))["name"]) if hello else ""
            if any(name.startswith(refused) for refused in self._refused):
                return
            self._clients[task] = name
            server.write(hello)
            pumps = {
                asyncio.create_task(_pump(reader, server)),
                asyncio.create_task(_pump(to_client, writer)),
            }
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            del self._clients[task]
            for end in (writer, server):
                if end is not None:
                    end.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()


@contextmanager
def nats_proxy(server_url: str) -> Iterator[NatsProxy]:
    proxy = NatsProxy(server_url)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
