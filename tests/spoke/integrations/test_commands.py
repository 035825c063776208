"""Allowed programs: real ones, with arguments that a shell would read otherwise."""

import asyncio
import sys
from collections.abc import Callable

import psutil
import pytest

from contracts.errors import CallError

PYTHON = [sys.executable, "-I", "-c"]
HOSTILE = ["{} $(id); `id` && rm -rf / > x", "*"]
COMMANDS = {
    "Say": [*PYTHON, "import sys; print(sys.argv[1:])", *HOSTILE],
    "fail": [*PYTHON, "import sys; print('disk full', file=sys.stderr); sys.exit(3)"],
    "much": [*PYTHON, "print('x' * 10_000_000 + 'end')"],
    "environment": [*PYTHON, "import os; print(sorted(os.environ))"],
    "gone": ["/no/such/program"],
}


async def test_only_what_is_allowed_runs_and_only_after_a_question(opened):
    async with opened("commands", commands=COMMANDS) as device:
        with pytest.raises(CallError, match="confirmation"):
            await device.call("run", command="fail")
        with pytest.raises(CallError, match="not allowed"):
            await device.call("run", confirmed=True, command="rm")
        assert await device.call("run", confirmed=True, command="fail") == {"code": 3, "output": "disk full"}
        with pytest.raises(CallError, match="cannot be run"):
            await device.call("run", confirmed=True, command="gone")
        assert list(await device.call("list_commands")) == list(COMMANDS)


async def test_words_are_no_shell(opened):
    async with opened("commands", commands=COMMANDS) as device:
        said = await device.call("run", confirmed=True, command="say")
        assert said["output"] == str(HOSTILE)


async def test_a_program_gets_no_keys_and_its_output_is_bounded(opened, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    async with opened("commands", commands=COMMANDS) as device:
        told = await device.call("run", confirmed=True, command="environment")
        assert "PATH" in told["output"]
        assert "KEY" not in told["output"]
        much = await device.call("run", confirmed=True, command="much")
        assert (len(much["output"]), much["output"][-4:]) == (8_000 - 1, "xend")


@pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX's")
async def test_what_is_cancelled_ends_with_all_that_it_started(opened, tmp_path):
    code = (
        "import subprocess, sys, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\nchild.wait()"
    )
    file = tmp_path / "pid"
    async with opened("commands", commands={"wait": [*PYTHON, code, str(file)]}) as device:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(device.call("run", confirmed=True, command="wait"))
            await _until(lambda: file.exists() and file.read_text() != "")
            running.cancel()
        child = psutil.Process(int(file.read_text())) if psutil.pid_exists(int(file.read_text())) else None
        await _until(
            lambda: child is None or not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
        )


async def _until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not look():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.01)
