"""No sandbox process outlives the program that started it, however that one ends."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sandbox_host import PoolSettings

pytestmark = pytest.mark.slow

PARENT = """
import asyncio, signal, sys
from pathlib import Path
from sandbox_host import Deadline, PoolSettings, open_pool

async def started():
    print("the guest is busy", flush=True)

async def handler(path, args, kwargs):
    await started()

async def main():
    async with open_pool(PoolSettings(Path(sys.argv[1]))) as pool:
        session = await pool.session("one")
        await session.run("device.A.started()\\n" + sys.argv[2], handler, deadline=Deadline(600))

# A shell starts what runs in its background with interrupts ignored, and so all that is started from there.
signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.run(main())
"""
ROOT = Path(__file__).parents[2]


def start(settings: PoolSettings, program: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start a program that runs something in a sandbox; give it and its sandbox processes."""
    command = [sys.executable, "-c", PARENT, str(settings.directory), program]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "the guest is busy\n"
    return parent, psutil.Process(parent.pid).children(recursive=True)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a busy process to its parent")
@pytest.mark.parametrize("program", ["while True: pass", "await asyncio.sleep(600)"], ids=["busy", "waiting"])
def test_no_process_is_left_when_the_parent_is_killed(settings: PoolSettings, program: str) -> None:
    parent, children = start(settings, program)
    assert children
    with parent:
        parent.kill()
    _, alive = psutil.wait_procs(children, timeout=120)
    assert alive == []


def test_no_process_is_left_when_the_parent_is_interrupted(settings: PoolSettings) -> None:
    parent, children = start(settings, "while True: pass")
    with parent:
        parent.send_signal(signal.SIGINT)
        try:
            parent.wait(120)
        finally:
            parent.kill()
    _, alive = psutil.wait_procs(children, timeout=120)
    assert alive == []


def test_what_a_killed_parent_left_on_disk_is_swept_up(settings: PoolSettings) -> None:
    left = settings.directory / "processes"
    parent, _ = start(settings, "while True: pass")
    owner = f"{parent.pid}-"
    with parent:
        parent.kill()
    assert any(cache.name.startswith(owner) for cache in left.iterdir())
    parent, _ = start(settings, "await asyncio.sleep(600)")
    with parent:
        parent.kill()
    assert not any(cache.name.startswith(owner) for cache in left.iterdir())
