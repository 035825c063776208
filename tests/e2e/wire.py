"""A wire between a spoke and its hub that is held at a named moment: this side of the hub, or beyond it."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, Self
from urllib.parse import urlsplit

from tests.e2e.house import wait_for
from tests.proxied import read_request

CHAT: Final = "/v1/chat/completions"
CANCEL: Final = "/cancel"
_PIECE: Final = 65_536


@dataclass(eq=False)
class Hold:
    """A moment at which requests stand still.

    Attributes:
        side: ``request``: the hub has nothing of it, and never will where the spoke gives up. ``answer``: the
            hub has answered, and neither learns anything of the other any more; where the hub dies
            meanwhile, its answer is lost with it.
        held: How many stand still.
    """

    path: str
    side: Literal["request", "answer"]
    held: int = 0
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def stand_still(self) -> None:
        """Have a request wait until it may go on."""
        self.held += 1
        await self.opened.wait()

    def wait(self, count: int = 1) -> None:
        """Wait until so many requests stand still."""
        wait_for(lambda: self.held >= count, what=f"{count} times the {self.side} of {self.path}")


class Wire:
    """The wire; a context manager that carries each connection in a thread of its own."""

    def __init__(self, hub_url: str) -> None:
        self._hub = urlsplit(hub_url)
        self._holds: list[Hold] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire")
        self._port = 0
        self._open: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    @property
    def url(self) -> str:
        """Where the spoke finds the hub."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self, path: str, side: Literal["request", "answer"]) -> Hold:
        """Hold the requests for a path that still come."""
        hold = Hold(path, side)
        self._holds.append(hold)
        return hold

    def let_go(self, hold: Hold | None = None) -> None:
        """Let everything through again, or only what this one holds."""
        for each in [hold] if hold is not None else list(self._holds):
            self._holds.remove(each)
            self._loop.call_soon_threadsafe(each.opened.set)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for hold in self._holds:
            hold.opened.set()
        while self._open:
            for writer in (each for writers in self._open.values() for each in writers):
                writer.transport.abort()
            await asyncio.wait(self._open)
        # A connection that was aborted is closed in the next round of the loop.
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = self._open[task] = [writer]
        try:
            await self._carry(reader, writers)
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            del self._open[task]
            for each in writers:
                each.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter]) -> None:
        request, to_hub = await read_request(reader, writers[0], self._hub)
        if to_hub is not None:
            writers.append(to_hub[1])
        hold = self._hold_of(request.split(b" ", 2)[1].decode())
        answer_hold = hold if hold is not None and hold.side == "answer" else None
        async with asyncio.TaskGroup() as tasks:
            leaving = tasks.create_task(_leave(reader, answer_hold))
            if hold is not None and hold.side == "request":
                await hold.stand_still()
            if to_hub is None:
                to_hub = await asyncio.open_connection(self._hub.hostname, self._hub.port)
                writers.append(to_hub[1])
            hub_reader, hub_writer = to_hub
            # One request a connection, so that the path of each is seen.
            hub_writer.write(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            await _hand_back(hub_reader, writers[0], answer_hold)
            leaving.cancel()

    def _hold_of(self, path: str) -> Hold | None:
        return next((hold for hold in self._holds if path.endswith(hold.path)), None)


async def _leave(reader: asyncio.StreamReader, hold: Hold | None) -> None:
    if hold is not None:
        await hold.opened.wait()
    await reader.read(1)
    raise ConnectionResetError("the spoke has left")


async def _hand_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hold: Hold | None) -> None:
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    begun = asyncio.Event()

    async def listen() -> None:
        while piece := await reader.read(_PIECE):
            begun.set()
            pieces.put_nowait(piece)
        if hold is not None and not hold.opened.is_set():
            raise ConnectionResetError("the hub died with its answer")
        pieces.put_nowait(b"")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listen())
        if hold is not None:
            await begun.wait()
            await hold.stand_still()
        while piece := await pieces.get():
            writer.write(piece)
            with suppress(ConnectionError):
                await writer.drain()
