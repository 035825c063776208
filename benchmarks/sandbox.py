"""The sandbox: a first result, the next ones, calls out of it, and what a kill costs."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from deno import find_deno_bin

from benchmarks.table import Row
from sandbox_host import Deadline, Installed, PoolSettings, Session, install, open_pool

_PLAIN_START = """
import { loadPyodide } from "./pyodide/pyodide.mjs";
const pyodide = await loadPyodide();
if (pyodide.runPython("1 + 1") !== 2) throw new Error("1 + 1");
Deno.exit(0);
"""
_REPEATS = 5
_WARM_REPEATS = 200
_SETTLE_SECONDS = 2.0
"""How long a spare gets to start; far more than it needs."""


async def rows(directory: Path) -> list[Row]:
    """Measure the sandbox.

    Args:
        directory: Where it is, or will be, installed.

    Returns:
        The rows of ``python_exec`` and of the sandbox's processes.
    """
    installed = await install(directory)
    return [
        await _cold(directory, await _plain_start(installed)),
        await _prewarmed(directory),
        *await _warm(directory),
        await _recovery(directory, spares=1),
        await _recovery(directory, spares=0),
        await _memory(directory),
    ]


async def _plain_start(installed: Installed) -> float:
    """Give the milliseconds that Pyodide takes to its first result in Deno, without any of our doing."""
    with tempfile.TemporaryDirectory() as cache:
        program = installed.home / "plain-start.mjs"
        program.write_text(_PLAIN_START)
        try:
            command = [
                "run",
                "--quiet",
                "--no-config",
                "--no-npm",
                f"--allow-read={installed.home}",
                str(program),
            ]

            async def start() -> None:
                process = await asyncio.create_subprocess_exec(
                    find_deno_bin(), *command, env={**os.environ, "DENO_DIR": cache}
                )
                if await process.wait() != 0:
                    raise RuntimeError("the plain start of Pyodide failed")

            await start()  # as for the sandbox, the compiled JavaScript is there before it is measured
            return await _median(start, repeats=3)
        finally:
            program.unlink()


async def _cold(directory: Path, reference: float) -> Row:
    times = []
    for _ in range(_REPEATS):
        async with open_pool(PoolSettings(directory, spares=0)) as pool:
            session = await pool.session("cold")
            times.append(await _milliseconds(partial(_add, session)))
    project = statistics.median(times)
    ratio = project / reference
    return Row("sandbox cold to first result", project, reference, ratio, "ms", "≤ 0.15 ×")


async def _prewarmed(directory: Path) -> Row:
    times = []
    for _ in range(_REPEATS):
        async with open_pool(PoolSettings(directory, spares=1)) as pool:
            await asyncio.sleep(_SETTLE_SECONDS)
            session = await pool.session("prewarmed")
            times.append(await _milliseconds(partial(_add, session)))
    return Row("first exec on a prewarmed one", statistics.median(times), None, None, "ms", "≤ 40 ms")


async def _warm(directory: Path) -> list[Row]:
    async with open_pool(PoolSettings(directory, spares=0)) as pool:
        session = await pool.session("warm")
        await _add(session)
        one = await _median(lambda: _add(session), repeats=_WARM_REPEATS)
        sequence = "for n in range(100): devices.pc.EchoSkill.echo(n)"
        parallel = "len(await asyncio.gather(*[devices.pc.EchoSkill.echo.aio(n) for n in range(100)]))"
        calls = await _median(lambda: _run(session, sequence), repeats=20)
        gathered = await _median(lambda: _run(session, parallel), repeats=20)
    return [
        Row("python_exec of 1+1 in a warm session", one, None, None, "ms", "≤ 2 ms"),
        Row("100 calls in sequence, answered in this process", calls, None, None, "ms", ""),
        Row("100 calls under gather, answered in this process", gathered, None, None, "ms", ""),
    ]


async def _recovery(directory: Path, *, spares: int) -> Row:
    times = []
    async with open_pool(PoolSettings(directory, spares=spares)) as pool:
        session = await pool.session("killed")
        for _ in range(_REPEATS):
            await _run(session, "1", deadline=Deadline(10))
            await asyncio.sleep(_SETTLE_SECONDS if spares else 0)
            await session.run("while True: pass", _echo, deadline=Deadline(0.05))
            times.append(await _milliseconds(lambda: _add(session)))
    work = "recovery after a kill" if spares else "recovery after a kill, no spare at hand"
    return Row(work, statistics.median(times), None, None, "ms", "≤ 400 ms")


async def _memory(directory: Path) -> Row:
    async with open_pool(PoolSettings(directory, spares=0)) as pool:
        await _add(await pool.session("memory"))
        resident = sum(child.memory_info().rss for child in psutil.Process().children())
    return Row("resident memory of a sandbox process", resident / 2**20, None, None, "MB", "")


async def _add(session: Session) -> None:
    await _run(session, "1+1")


async def _run(session: Session, program: str, deadline: Deadline | None = None) -> None:
    result = await session.run(program, _echo, deadline=deadline)
    if not result.ok:
        raise RuntimeError(f"{program!r} failed: {result}")


async def _echo(path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return args


async def _milliseconds(work: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await work()
    return (time.perf_counter() - begun) * 1000


async def _median(work: Callable[[], Awaitable[None]], *, repeats: int) -> float:
    return statistics.median([await _milliseconds(work) for _ in range(repeats)])
