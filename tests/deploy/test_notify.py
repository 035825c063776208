"""What a service tells its manager, over a real socket."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.service.notify import ServiceManager
from tests.deploy.manager import Heard
from tests.spoke.home import wait_for


@pytest.fixture(params=["path", "abstract"])
def heard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Heard]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@strawberry-test-{os.getpid()}"
    with Heard.listening(address) as manager:
        yield manager


def test_a_manager_hears_that_it_is_ready_how_it_is_and_that_it_ends(heard: Heard) -> None:
    manager = ServiceManager(heard.address)
    manager.ready("hub at http://127.0.0.1:8321")
    manager.status("no broker\nanswers")
    manager.stopping()
    assert heard.all() == [
        {"READY": "1", "STATUS": "hub at http://127.0.0.1:8321"},
        {"STATUS": "no broker answers"},
        {"STOPPING": "1", "STATUS": "ending what runs"},
    ]


async def test_the_watchdog_hears_of_a_loop_that_turns_and_a_start_gets_more_time(heard: Heard) -> None:
    manager = ServiceManager(heard.address, watchdog_s=0.03)
    async with manager.kept_informed():
        await wait_for(lambda: len(heard.said("WATCHDOG")) >= 3, "the watchdog")
        assert set(heard.said("EXTEND_TIMEOUT_USEC")) == {"60000000"}
        manager.ready("ready")
        heard.forget()
        await wait_for(lambda: len(heard.said("WATCHDOG")) >= 3, "the watchdog")
        assert heard.said("EXTEND_TIMEOUT_USEC") == []
        heard.forget()
        time.sleep(0.3)  # noqa: ASYNC251  the loop hangs
        assert heard.all() == []
    heard.forget()
    await asyncio.sleep(0.1)
    assert heard.all() == []


async def test_an_error_of_the_service_stays_that_error(heard: Heard) -> None:
    with pytest.raises(LookupError, match="no broker"):
        async with ServiceManager(heard.address, watchdog_s=1).kept_informed():
            raise LookupError("no broker")


@pytest.mark.parametrize("process", ["", str(os.getpid())], ids=["any", "this"])
def test_the_manager_is_taken_out_of_the_environment(process: str) -> None:
    environment = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": process, "A": "b"}
    manager = ServiceManager.take(environment)
    assert (manager.address, manager.watchdog_s) == ("/run/x", 30)
    assert environment == {"A": "b"}, "no child may speak in its name"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"},
    ],
)
def test_without_a_watchdog_for_this_process_there_is_none(environment: dict[str, str]) -> None:
    assert ServiceManager.take(environment).watchdog_s is None


async def test_without_a_manager_nothing_is_told() -> None:
    manager = ServiceManager.take({})
    async with manager.kept_informed():
        manager.ready("ready")
        manager.stopping()
    assert manager.watchdog_s is None


def test_a_manager_that_is_gone_or_does_not_read_disturbs_nobody(tmp_path: Path) -> None:
    ServiceManager(str(tmp_path / "nobody")).ready("ready")
    with Heard.listening(str(tmp_path / "full")) as heard:
        manager = ServiceManager(heard.address)
        for _ in range(5_000):
            manager.status("x" * 500)
        assert heard.said("STATUS")
