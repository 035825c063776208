"""Many clients of one hub: chats at once, sockets that say nothing, and a client that reads a byte a second.

The clients run in the hub's own event loop, so that what blocks it is seen by a clock in it; their work
counts against the hub.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import psutil
from websockets.asyncio.client import connect

from benchmarks.measure import Effort, sandbox_directory
from benchmarks.table import Reach, Row
from hub_agent.settings import HttpSettings, QuotaSettings
from sandbox_host import install
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import LampSkill

_CHATS: Final = 50
_MODEL_S: Final = 0.1
_SOCKETS: Final = 1_000
_OF_TOKEN: Final = 8
_PROCESSES: Final = 2
"""Of the sandbox, in the homes of tests."""
_SANDBOXES: Final = Reach(most=_PROCESSES + 1, least=1)
"""One that was killed to make room may still be ending while the next one starts."""
_PATIENCE_S: Final = 200
_TICK_S: Final = 0.005
_TWICE: Final = Reach(ratio_most=2)
"""Beside the same sentence alone."""
_SENTENCE: Final = {"message": "turn on the lamp"}


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; the hub keeps its files in the directory."""
    await install(sandbox_directory())
    settings: dict[str, Any] = {
        "quotas": QuotaSettings(open_turns=_CHATS, per_minute=6_000, burst=1_000),
        "http": HttpSettings(port=0, connections=2 * _SOCKETS),
    }
    async with (
        _model(directory) as model_url,
        open_home(directory / "home", model_url=model_url, sandbox=sandbox_directory(), **settings) as home,
        home.client() as client,
    ):
        await home.device("Bedroom PC", LampSkill())
        for _ in range(2):
            await _chat(client, "hello")  # what is loaded with the first message and the first program
        async with _blocked() as blocked, _sandboxes() as sandboxes:
            began = time.perf_counter()
            answers = await asyncio.gather(*(_chat(client, "hello") for _ in range(_CHATS)))
            seconds = time.perf_counter() - began
        programs = sum(each["kind"] == "tool_result" for answer in answers for each in answer["events"])
        alone_ms = await _sentence_ms(client)
        slow_ms = await _beside_a_slow_reader(home, client)
        held, megabytes, beside_ms = await _idle_sockets(home, client, effort)
    chats = f"{_CHATS} chats at once with a program each, model 0.1 s"
    return [
        Row(f"{chats}: longest block", max(blocked), "ms", Reach(most=50)),
        Row(f"{chats}: all answered", seconds * 1_000, "ms", Reach()),
        Row(f"{chats}: programs that ran", programs, "", Reach(least=_CHATS)),
        Row(f"{chats}: most sandboxes at once", max(sandboxes), "", _SANDBOXES),
        Row("a sentence while a client reads one byte a second", slow_ms, "ms", _TWICE, alone_ms),
        Row(
            f"{_SOCKETS:,} sockets opened: those that stay",
            held,
            "",
            Reach(least=effort.repeats(_SOCKETS) // _OF_TOKEN * _OF_TOKEN),
        ),
        Row("each of them", megabytes * 1_024 / max(1, held), "kB", Reach()),
        Row("a sentence beside them", beside_ms, "ms", _TWICE, alone_ms),
    ]


async def _chat(client: httpx.AsyncClient, message: str) -> Any:
    answer = await client.post("/api/chat", json={"message": message}, timeout=_PATIENCE_S)
    answer.raise_for_status()
    return answer.json()


async def _sentence_ms(client: httpx.AsyncClient) -> float:
    took: list[float] = []
    for _ in range(10):
        began = time.perf_counter()
        (await client.post("/api/chat", json=_SENTENCE)).raise_for_status()
        took.append((time.perf_counter() - began) * 1_000)
    return sorted(took)[len(took) // 2]


@asynccontextmanager
async def _blocked() -> AsyncIterator[list[float]]:
    """Note how long a clock in this event loop waits for its turn, in ms of processor time.

    What other programs take of the processor meanwhile is not the hub's doing.
    """
    used: list[float] = []

    async def watch() -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(_TICK_S)
            used.append((time.thread_time() - began) * 1_000)

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        yield used
        watching.cancel()


@asynccontextmanager
async def _sandboxes() -> AsyncIterator[list[int]]:
    """Count the processes of the sandbox again and again."""
    counts: list[int] = []

    def count() -> int:
        running = 0
        for each in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                running += "deno" in each.name() and each.status() != psutil.STATUS_ZOMBIE
        return running

    async def watch() -> None:
        while True:
            counts.append(await asyncio.to_thread(count))
            await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        yield counts
        watching.cancel()


@asynccontextmanager
async def _model(directory: Path) -> AsyncIterator[str]:
    """Run a model that takes its time, in a process of its own."""
    script = directory / "script.json"
    says = {"kind": "says", "text": "Well, done.", "gap_s": _MODEL_S / 4}
    code = {"name": "python_exec", "arguments": {"code": "print(sum(range(1000)))"}}
    calls = {"kind": "says", "calls": [code], "gap_s": _MODEL_S / 4}
    # A chat whose second request overtakes the first one of another runs two programs, and that one none.
    script.write_text(json.dumps([calls, says, says, *[calls] * _CHATS, *[says] * (_CHATS + 10)]))
    command = (sys.executable, "-m", "tests.model_server", str(script))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


async def _beside_a_slow_reader(home: Home, client: httpx.AsyncClient) -> float:
    """Return how long a sentence takes while a client asks for much and reads one byte a second."""
    place = urlsplit(home.hub.url)
    slow = socket.create_connection((place.hostname or "", place.port or 0))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
    slow.setblocking(False)
    request = "GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n"
    slow.sendall(f"{request}Authorization: Bearer {home.admin_token}\r\n\r\n".encode() * 20)

    async def read() -> None:
        loop = asyncio.get_running_loop()
        while await loop.sock_recv(slow, 1):  # noqa: ASYNC110  this is how slow it is
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        await asyncio.sleep(1)
        took = await _sentence_ms(client)
        reading.cancel()
    slow.close()
    return took


async def _idle_sockets(home: Home, client: httpx.AsyncClient, effort: Effort) -> tuple[int, float, float]:
    """Open sockets; return how many stay, their memory in MB with the clients', and a sentence's time."""
    url = home.hub.url.replace("http", "ws", 1) + "/api/chat/stream"
    before = psutil.Process().memory_info().rss
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(effort.repeats(_SOCKETS) // _OF_TOKEN):
            headers = {"Authorization": f"Bearer {await home.token(scopes=('chat',))}"}
            for _ in range(_OF_TOKEN):
                asked = connect(url, additional_headers=headers, proxy=None)
                opened.append(await stack.enter_async_context(asked))
        held = sum(each.close_code is None for each in opened)
        megabytes = (psutil.Process().memory_info().rss - before) / 1_024**2
        took = await _sentence_ms(client)
    return held, megabytes, took
