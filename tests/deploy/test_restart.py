"""Processes that ``strawberry`` starts of itself: they take nothing of their directory, and end cleanly."""

import asyncio
import os
import platform
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deploy.directory import Home
from deploy.home.child import start_child
from deploy.home.running import Restart, forever, run_until_stopped
from deploy.service.notify import ServiceManager


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which there happens to be code of the same name as ours."""
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "__init__.py").write_text("raise SystemExit('foreign code was run')")
    # By another name of it, a command gets an interpreter of its own, see `tests.forkserver`.
    python = Path(sys.executable)
    monkeypatch.setattr(sys, "executable", f"{python.parent}/./{python.name}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_child_runs_no_code_of_the_directory_it_is_started_in(foreign: Path) -> None:
    async with start_child(Home(foreign / "home"), "broker", "run", what="the broker", stop_s=5) as child:
        assert child._process.stdin is not None
        child._process.stdin.close()
        assert await child.wait() == 0


def test_a_server_that_follows_itself_runs_no_code_of_its_directory(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, words: followed.append(words))
    monkeypatch.setattr(sys, "argv", ["strawberry", "--version"])
    restart = Restart(ServiceManager())
    restart.request()
    restart.follow()
    assert subprocess.run(followed[0], cwd=foreign, check=True, capture_output=True).stdout


_HEAPS = """
import ctypes, sys, threading
from deploy.home.running import run_until_stopped

async def main():
    together = threading.Barrier(8)
    def allocate():
        together.wait()
        held = [bytes(1_000) for _ in range(100)]
        together.wait()
    threads = [threading.Thread(target=allocate) for _ in range(8)]
    [each.start() for each in threads]
    [each.join() for each in threads]
    large = bytes(8_000_000)
    large = None
    large = bytes(4_000_000)
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fdopen(1, b"w"))
    libc.malloc_info(0, stream)
    libc.fflush(stream)

run_until_stopped(main())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="heaps of glibc are counted")
def test_threads_of_a_server_share_two_heaps_without_large_blocks() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _HEAPS],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.count("<heap nr=") == 2
    apart = re.search(r'<total type="mmap" count="\d+" size="(\d+)"', told.stdout)
    assert apart is not None
    assert int(apart[1]) > 4_000_000


def test_a_second_cancellation_as_the_last_thing_ends_is_a_clean_end() -> None:
    async def serve() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await forever()
        finally:
            task.cancel()

    run_until_stopped(serve())


@pytest.mark.parametrize(
    ("how", "expected"),
    [("undisturbed", ["again", 0]), ("no program", [1]), ("stopped meanwhile", [0])],
)
def test_a_server_that_is_to_start_again_does_so_although_a_task_does_not_end(
    monkeypatch: pytest.MonkeyPatch, how: str, expected: list[str | int]
) -> None:
    ended: list[str | int] = []

    async def deaf() -> None:
        while not ended:
            try:
                await forever()
            except asyncio.CancelledError:
                if how == "stopped meanwhile":
                    signal.raise_signal(signal.SIGTERM)

    async def serve() -> None:
        tasks.append(asyncio.get_running_loop().create_task(deaf()))
        await asyncio.sleep(0)
        restart.request()

    def execute(*_: object) -> None:
        if how == "no program":
            raise FileNotFoundError(sys.executable)
        ended.append("again")

    tasks: list[asyncio.Task[None]] = []
    restart = Restart(ServiceManager())
    # The signal ends the wait.
    monkeypatch.setattr("deploy.limits.STUCK_TASKS_S", 60 if how == "stopped meanwhile" else 0.01)
    monkeypatch.setattr(os, "execv", execute)
    monkeypatch.setattr(os, "_exit", ended.append)
    run_until_stopped(serve(), restart=restart)
    assert ended == expected


def test_a_server_that_is_stopped_while_its_loop_hangs_does_not_start_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str | int] = []
    ended = threading.Event()

    def end(code: int) -> None:
        done.append(code)
        ended.set()

    async def serve() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        ended.wait()
        await forever()

    monkeypatch.setattr("deploy.limits.WATCH_TICK_S", 0.01)
    monkeypatch.setattr(os, "execv", lambda *_: done.append("again"))
    monkeypatch.setattr(os, "_exit", end)
    run_until_stopped(serve(), restart=Restart(ServiceManager(is_starting=False)))
    assert done[0] == 1


_HANGS = """
import asyncio, ctypes, os, sys
from deploy import limits
from deploy.home.running import Restart, run_until_stopped
from deploy.service.notify import ServiceManager

def hang():
    libc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    libc.pthread_mutex_lock(lock)
    print("hangs", flush=True)
    libc.pthread_mutex_lock(lock)

async def serve():
    hang() if sys.argv[1] == "loop" else await asyncio.to_thread(hang)

os.execv = lambda *_: print("again", flush=True)
limits.WATCH_TICK_S = limits.STUCK_THREADS_S = 0.1
run_until_stopped(serve(), restart=Restart(ServiceManager(is_starting=False)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="its signals interrupt nothing")
@pytest.mark.parametrize(
    ("where", "stopped", "said", "code"),
    [("loop", True, "", 1), ("loop", False, "again\n", 1), ("thread", True, "", 0)],
)
def test_a_server_that_hangs_in_a_library_for_ever_ends_and_heeds_a_stop(
    where: str, *, stopped: bool, said: str, code: int
) -> None:
    command = [sys.executable, "-c", _HANGS, where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "hangs\n"
        if stopped:
            server.terminate()
        assert server.communicate(timeout=60)[0] == said
        assert server.returncode == code
