"""Child processes end with their block, and with this process."""

import asyncio
import subprocess
import sys

import psutil
import pytest

from bus.processes import open_process
from tests.hub_registry.spokes import eventually

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
async def test_a_child_ends_also_with_a_parent_that_is_killed() -> None:
    program = (
        "import subprocess, time; from bus.processes import tied; "
        "print(subprocess.Popen(tied(['sleep', '600'])).pid, flush=True); time.sleep(600)"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = psutil.Process(int(await parent.stdout.readline()))
    parent.kill()
    await parent.wait()
    await eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


async def test_a_child_that_does_not_end_by_itself_is_killed_although_its_owner_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    up = asyncio.get_running_loop().create_future()

    async def run() -> None:
        command = [sys.executable, "-u", "-c", DEAF]
        async with open_process(command, name="the child", stop_s=0.1, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert await process.stdout.readline()
            up.set_result(process.pid)
            await asyncio.sleep(600)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run(), name="owner")
        pid = await up
        running.cancel()
        await asyncio.sleep(0.05)
        running.cancel()
    assert not psutil.pid_exists(pid)
    assert "the child did not stop in 0 s and is killed" in caplog.text


async def test_a_program_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(FileNotFoundError):
        async with open_process(["/no/such/program"]):
            pass
