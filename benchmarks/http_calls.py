"""``POST /api/skills/call`` beside a bare FastAPI echo: what the hub adds to an HTTP request."""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.measure import Effort
from benchmarks.table import Reach, Row
from bus.ports import listen
from contracts.wire import Json
from tests.e2e.house import House

_ONE_BY_ONE: Final = 400
_IN_FLIGHT: Final = 32
_TOGETHER: Final = 1_600
_WARM_UP: Final = 100
_ROUNDS: Final = 3
"""Echo and calls take turns, so that a noisy neighbour hits both; the medians are compared."""
SKILL: Final = '''
from spoke import Skill


class EchoSkill(Skill):
    """Does next to nothing."""

    async def echo(self, text: str) -> str:
        """Return the text."""
        return text
'''
_BODY: Final = {
    "device": "bench_pc",
    "skill": "EchoSkill",
    "method": "echo",
    "args": [],
    "kwargs": {"text": "x" * 20},
}


class _Call(BaseModel):
    """The body of a call, as FastAPI checks it for the reference."""

    device: str
    skill: str
    method: str
    args: list[Json] = []
    kwargs: dict[str, Json] = {}


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; all processes keep their files in the directory."""
    with House(directory / "house", debug=False) as house:
        # One token makes all of them.
        (house.home / "strawberry.toml").write_text("[http]\nrequests_per_minute = 1_000_000\n")
        await asyncio.to_thread(house.start_up, "--no-spoke")
        await asyncio.to_thread(house.add_spoke, "Bench PC", {"echo.py": SKILL})
        token = (house.home / "hub" / "cli.token").read_text()
        async with _echo() as echo_url:
            echoes: dict[int, list[float]] = {1: [], _IN_FLIGHT: []}
            calls: dict[int, list[float]] = {1: [], _IN_FLIGHT: []}
            counts = ((1, effort.repeats(_ONE_BY_ONE)), (_IN_FLIGHT, effort.repeats(_TOGETHER)))
            targets = ((echoes, f"{echo_url}/echo"), (calls, f"{house.url}/api/skills/call"))
            for _ in range(_ROUNDS):
                for in_flight, count in counts:
                    for measured, url in targets:
                        measured[in_flight].append(await load(url, token, in_flight, count))
    name = "POST /api/skills/call over the embedded broker"
    middle = statistics.median
    return [
        Row(f"{name}, one at a time, p50", middle(calls[1]), "ms", Reach(ratio_most=3), middle(echoes[1])),
        Row(
            f"{name}, {_IN_FLIGHT} in flight",
            middle(calls[_IN_FLIGHT]),
            "/s",
            Reach(ratio_least=0.33),
            middle(echoes[_IN_FLIGHT]),
        ),
    ]


@asynccontextmanager
async def _echo() -> AsyncIterator[str]:
    """Run the reference in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.http_calls", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


async def load(url: str, token: str, in_flight: int, count: int) -> float:
    """Send requests; return the median of their times in ms, or with several in flight how many a second."""
    times: list[float] = []
    left = iter(range(_WARM_UP + count))
    begun = 0.0

    async def work() -> None:
        nonlocal begun
        headers = {"authorization": f"Bearer {token}"}
        # A client for each: one that they share looks through all its connections for each request.
        async with httpx.AsyncClient(headers=headers, verify=False, timeout=60) as client:
            for number in left:
                start = time.perf_counter()
                if number == _WARM_UP:
                    begun = start
                answer = await client.post(url, json=_BODY)
                assert answer.status_code == 200, answer.text
                times.append(time.perf_counter() - start)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(work())
    if in_flight > 1:
        return count / (time.perf_counter() - begun)
    return statistics.median(times[_WARM_UP:]) * 1000


def main() -> None:
    """Serve the reference: FastAPI and uvicorn as they come."""
    app = FastAPI()

    @app.post("/echo")
    async def echo(call: _Call) -> dict[str, Any]:
        return {"result": call.kwargs["text"]}

    with listen("127.0.0.1", 0, purpose="the echo") as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        asyncio.run(server.serve(sockets=[listener]))


if __name__ == "__main__":
    main()
