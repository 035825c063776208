"""The sandbox: a first result, the next ones, calls out of it, and what a kill costs."""

import asyncio
import os
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from deno import find_deno_bin

from benchmarks.measure import Effort, median_ms, milliseconds, sandbox_directory
from benchmarks.table import Reach, Row
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


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure the sandbox, which is installed first where it is not.

    Returns:
        The rows of ``python_exec`` and of the sandbox's processes.
    """
    place = sandbox_directory()
    installed = await install(place)
    repeats = effort.repeats(_REPEATS)
    return [
        await _cold(place, await _plain_start(installed), repeats),
        await _prewarmed(place, repeats),
        *await _warm(place, effort),
        await _recovery(place, repeats, spares=1),
        await _recovery(place, repeats, spares=0),
        await _memory(place),
    ]


async def _plain_start(installed: Installed) -> float:
    """Return the milliseconds that Pyodide takes to its first result in Deno, without any of our doing."""
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
            return await median_ms(start, repeats=3)
        finally:
            program.unlink()


async def _cold(directory: Path, reference: float, repeats: int) -> Row:
    times = []
    for _ in range(repeats):
        async with open_pool(PoolSettings(directory, spares=0)) as pool:
            session = await pool.session("cold")
            times.append(await milliseconds(partial(_add, session)))
    reach = Reach(ratio_most=0.15)
    return Row("sandbox cold to first result", statistics.median(times), "ms", reach, reference=reference)


async def _prewarmed(directory: Path, repeats: int) -> Row:
    times = []
    for _ in range(repeats):
        async with open_pool(PoolSettings(directory, spares=1)) as pool:
            await asyncio.sleep(_SETTLE_SECONDS)
            session = await pool.session("prewarmed")
            times.append(await milliseconds(partial(_add, session)))
    return Row("first exec on a prewarmed one", statistics.median(times), "ms", Reach(most=40))


async def _warm(directory: Path, effort: Effort) -> list[Row]:
    async with open_pool(PoolSettings(directory, spares=0)) as pool:
        session = await pool.session("warm")
        await _add(session)
        one = await median_ms(lambda: _add(session), repeats=effort.repeats(_WARM_REPEATS))
        sequence = "for n in range(100): devices.pc.EchoSkill.echo(n)"
        parallel = "len(await asyncio.gather(*[devices.pc.EchoSkill.echo.aio(n) for n in range(100)]))"
        calls = await median_ms(lambda: _run(session, sequence), repeats=effort.repeats(20))
        gathered = await median_ms(lambda: _run(session, parallel), repeats=effort.repeats(20))
    return [
        Row("python_exec of 1+1 in a warm session", one, "ms", Reach(most=2)),
        Row("100 calls in sequence, answered in the caller's process", calls, "ms"),
        Row("100 calls under gather, answered in the caller's process", gathered, "ms"),
    ]


async def _recovery(directory: Path, repeats: int, *, spares: int) -> Row:
    times = []
    async with open_pool(PoolSettings(directory, spares=spares)) as pool:
        session = await pool.session("killed")
        for _ in range(repeats):
            await _run(session, "1", deadline=Deadline(10))
            await asyncio.sleep(_SETTLE_SECONDS if spares else 0)
            await session.run("while True: pass", _echo, deadline=Deadline(0.05))
            times.append(await milliseconds(lambda: _add(session)))
    work = "recovery after a kill" if spares else "recovery after a kill, no spare at hand"
    return Row(work, statistics.median(times), "ms", Reach(most=400))


async def _memory(directory: Path) -> Row:
    async with open_pool(PoolSettings(directory, spares=0)) as pool:
        await _add(await pool.session("memory"))
        resident = sum(child.memory_info().rss for child in psutil.Process().children())
    return Row("resident memory of a sandbox process", resident / 1_000_000, "MB")


async def _add(session: Session) -> None:
    await _run(session, "1+1")


async def _run(session: Session, program: str, deadline: Deadline | None = None) -> None:
    result = await session.run(program, _echo, deadline=deadline)
    if not result.ok:
        raise RuntimeError(f"{program!r} failed: {result}")


async def _echo(path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return args
