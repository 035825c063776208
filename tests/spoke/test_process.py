"""A spoke in a process of its own, and what becomes of its calls when that is stopped or killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bus.rpc import CallRequest
from contracts.errors import CallError, ErrorCode
from tests.forkserver import COMMAND
from tests.spoke.home import ANNA, DEVICE, BusSide, Place, StandInHub, wait_for

ROOT = Path(__file__).parents[2]

Start = Callable[[], "subprocess.Popen[bytes]"]


@contextmanager
def spoke_process(place: Place, hub: StandInHub, token: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run ``strawberry spoke run``; its output goes to ``spoke.log``."""
    place.directory.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STRAWBERRY", "HUB_"))}
    with (place.directory / "spoke.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *COMMAND,
                "spoke",
                "run",
                "--hub",
                hub.url,
                *("--hub-key", hub.key.kid, "--skills", str(place.skills), "--debug"),
            ],
            env=kept
            | {"STRAWBERRY_HOME": str(place.home), "HUB_DEVICE_TOKEN": token, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@pytest.fixture
def token(hub: StandInHub) -> str:
    return hub.invite().get_secret_value()


@pytest.fixture
async def process(
    hub: StandInHub, bus: BusSide, place: Place, token: str
) -> AsyncIterator["subprocess.Popen[bytes]"]:
    """A spoke's process that the hub knows to be there."""
    with spoke_process(place, hub, token) as process:
        await wait_for(lambda: bus.statuses or process.poll() is not None, "the spoke")
        assert process.poll() is None, (place.directory / "spoke.log").read_text()
        yield process


async def test_sigterm_lets_the_running_call_end_and_says_goodbye(
    process: "subprocess.Popen[bytes]", bus: BusSide, place: Place, token: str
) -> None:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(bus.call("slowly", "long", 1.0))
        await wait_for(lambda: place.journal, "the call to begin")
        process.terminate()
        assert await running == "wrote long"
    assert await asyncio.to_thread(process.wait) == 0
    await wait_for(lambda: bus.statuses[-1].state == "offline", "the goodbye")
    assert place.journal == ["long begun", "long done"]
    log = (place.directory / "spoke.log").read_text()
    device_token = json.loads((place.home / "spoke" / "enrolment.json").read_text())["token"]
    assert "Traceback" not in log
    assert token not in log
    assert device_token not in log


async def test_a_killed_spoke_is_offline_by_its_will_and_runs_nothing_twice(
    process: "subprocess.Popen[bytes]", hub: StandInHub, bus: BusSide, place: Place, token: str
) -> None:
    first = bus.statuses[-1]
    async with asyncio.TaskGroup() as tasks:

        async def call() -> ErrorCode:
            with pytest.raises(CallError) as error:
                await bus.call("slowly", "doomed", 60.0)
            return error.value.code

        running = tasks.create_task(call())
        await wait_for(lambda: place.journal, "the call to begin")
        process.kill()
        await wait_for(lambda: bus.statuses[-1].state == "offline", "the will")
        assert bus.statuses[-1].connection == first.connection
        with spoke_process(place, hub, token):
            second = await bus.online(2)
            assert second.epoch > first.epoch
            # The new epoch ends what was open: nobody knows how far it got, and nobody runs it again.
            assert await running is ErrorCode.OUTCOME_UNKNOWN
            assert await bus.call("write", "after") == "wrote after"
    assert place.journal == ["doomed begun", "after"]


@pytest.mark.slow
async def test_a_stopped_spoke_accepts_too_late_and_does_not_run(
    process: "subprocess.Popen[bytes]", bus: BusSide, place: Place
) -> None:
    process.send_signal(signal.SIGSTOP)
    request = CallRequest(device=DEVICE, skill="JournalSkill", method="write", actor=ANNA, args=["late"])
    with pytest.raises(CallError) as error:
        await bus.caller.reserve(request)
    assert error.value.code in (ErrorCode.TIMEOUT, ErrorCode.OFFLINE)
    process.send_signal(signal.SIGCONT)
    assert await bus.call("write", "awake") == "wrote awake"
    assert place.journal == ["awake"]


async def test_a_refused_token_ends_the_process_with_one_line_and_a_hint(
    hub: StandInHub, place: Place
) -> None:
    with spoke_process(place, hub, "wrong-token") as process:
        assert await asyncio.to_thread(process.wait) == 1
    lines = (place.directory / "spoke.log").read_text().splitlines()
    problem = lines.index("strawberry: the hub refused this device: the enrolment token was used already")
    assert "strawberry devices add" in lines[problem + 1]
    assert "wrong-token" not in "\n".join(lines)


HEAVY = {
    *("alembic", "amqtt", "deno", "fastapi", "hassil", "httpx", "hub_agent", "hub_registry", "numpy"),
    *("ollama", "PySide6", "sandbox_host", "sounddevice", "sqlalchemy", "sqlmodel", "tensorzero", "uvicorn"),
    "zeroconf",
}


async def test_a_spoke_loads_nothing_heavy() -> None:
    loaded = await asyncio.to_thread(
        subprocess.check_output,
        [sys.executable, "-c", "import sys, spoke.app; print(*sys.modules)"],
        cwd=ROOT,
        text=True,
    )
    assert set(loaded.split()).isdisjoint(HEAVY)


async def test_talking_to_a_spoke_without_a_model_loads_nothing_heavy() -> None:
    chat = ("server", "agent", "hub_turn", "hub_health", "record", "sync")
    talking = ", ".join(f"spoke.chat.{module}" for module in chat)
    loaded = await asyncio.to_thread(
        subprocess.check_output,
        [sys.executable, "-c", f"import sys, {talking}; print(*sys.modules)"],
        cwd=ROOT,
        text=True,
    )
    assert set(loaded.split()) & HEAVY == {"hassil", "uvicorn"}
