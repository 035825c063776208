"""``strawberry up``: from the start of its process to "Ready", to its end, and to the report of a mistake."""

import asyncio
import signal
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.measure import Effort, milliseconds, run_nothing, sandbox_directory
from benchmarks.table import Reach, Row, not_measured
from contracts.errors import SandboxError
from sandbox_host import install

_UPS: Final = 8
_FIRST_UPS: Final = 4
_MISTAKES: Final = 20
_SETTLE_S: Final = 1.0
_PATIENCE_S: Final = 120
_UP: Final = (sys.executable, "-m", "deploy.cli.main", "up")
_READY: Final = "strawberry up, sandbox in place: process start to Ready, beside python -c pass"
_FIRST: Final = "strawberry up, the very first start: process start to Ready, beside python -c pass"


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; the homes lie in the directory."""
    used, wrong = await asyncio.to_thread(_make_homes, directory)
    mistakes = await _mistakes(used, wrong, effort)
    try:
        await install(sandbox_directory())
    except SandboxError as error:
        return [
            *mistakes,
            *(not_measured(each, f"{error.message} {error.hint}") for each in (_READY, _FIRST)),
        ]
    return [*mistakes, *await _starts(used, effort), await _first_start(directory, effort)]


async def _first_start(directory: Path, effort: Effort) -> Row:
    """Start ``strawberry up`` where there is no home yet: it makes keys and databases."""
    ready, nothing = [], []
    for number in range(effort.repeats(_FIRST_UPS)):
        home = directory / f"new{number}"
        home.mkdir()
        # Ready waits for the sandbox, and so for a download that depends on the network.
        (home / "sandbox").symlink_to(sandbox_directory())
        nothing.append(await milliseconds(run_nothing))
        begun, ready_at, *_ = await _up(home)
        ready.append((ready_at - begun) * 1000)
    return Row(_FIRST, statistics.median(ready), "ms", reference=statistics.median(nothing))


def _make_homes(directory: Path) -> tuple[Path, Path]:
    """Make a home to start, and one with a mistake in its settings."""
    used, wrong = directory / "used", directory / "wrong"
    for home in (used, wrong):
        home.mkdir()
    (used / "sandbox").symlink_to(sandbox_directory())
    (wrong / "strawberry.toml").write_text("[household]\nlangage = 'de'\n")
    return used, wrong


async def _starts(home: Path, effort: Effort) -> list[Row]:
    """Start ``strawberry up`` with a home that was used before, and end it by Ctrl-C."""
    await _up(home)
    ready, ended, nothing = [], [], []
    for _ in range(effort.repeats(_UPS)):
        nothing.append(await milliseconds(run_nothing))
        begun, ready_at, asked, end = await _up(home)
        ready.append((ready_at - begun) * 1000)
        ended.append((end - asked) * 1000)
    reference = statistics.median(nothing)
    return [
        Row(_READY, statistics.median(ready), "ms", Reach(ratio_most=60), reference=reference),
        Row("strawberry up: Ctrl-C to its end", statistics.median(ended), "ms", Reach(most=1000)),
    ]


async def _up(home: Path) -> tuple[float, float, float, float]:
    """Return when it was started, was ready, was asked to end, and had ended."""
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(*_UP, "--http-port", "0", "--mqtt-port", "0"),
        env={"STRAWBERRY_HOME": str(home), "STRAWBERRY_LOCAL_MODELS_ONLY": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while not (line := await process.stdout.readline()).startswith(b"Ready"):
                if not line:
                    raise RuntimeError("strawberry up ended before it was ready")
            ready = time.perf_counter()
            # As a person does it: not in the moment of the start, whose last work still goes on.
            await asyncio.sleep(_SETTLE_S)
            asked = time.perf_counter()
            process.send_signal(signal.SIGINT)
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return begun, ready, asked, time.perf_counter()


async def _mistakes(used: Path, wrong: Path, effort: Effort) -> list[Row]:
    """Start ``strawberry up`` with a port that is taken, and with a mistake in its settings."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        busy = await _beside_nothing(partial(_fail, used, "--http-port", port), effort)
    mistake = await _beside_nothing(partial(_fail, wrong), effort)
    return [
        Row(
            f"strawberry up: process start to {what} reported",
            value,
            "ms",
            Reach(ratio_most=15),
            reference=beside,
        )
        for what, (value, beside) in {"a wrong setting": mistake, "a busy port": busy}.items()
    ]


async def _fail(home: Path, *words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(*_UP, *words),
        env={"STRAWBERRY_HOME": str(home)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    if await process.wait() != 1:
        raise RuntimeError("strawberry up did not notice the mistake")


async def _beside_nothing(work: Callable[[], Awaitable[object]], effort: Effort) -> tuple[float, float]:
    """Return the medians of some work and of ``python -c pass``, which take turns."""
    taken, nothing = [], []
    await work()
    for _ in range(effort.repeats(_MISTAKES)):
        taken.append(await milliseconds(work))
        nothing.append(await milliseconds(run_nothing))
    return statistics.median(taken), statistics.median(nothing)
