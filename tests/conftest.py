"""Fixtures that tests of several packages share."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

from deploy.logs.logs import _PACKAGES
from sandbox_host import install
from tests import forkserver, postgresql, reused
from tests.brokers import KINDS, Bus, open_bus
from tests.model_server import ScriptedModel
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.requirements import require

# The same examples in every run, and none of them against the clock: what failed can be seen again, and a
# machine that stands still for a moment fails nothing. HYPOTHESIS_PROFILE=default looks for new ones.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_OF_ITSELF = ("web", "voice", "tray", "home_assistant")
"""Folders with a step of the gate of their own; ``OF_ITSELF`` in the Makefile."""


_ON_POSTGRESQL = os.environ.get("STRAWBERRY_TEST_DATABASE") == "postgresql"


def pytest_configure() -> None:
    """Spare the workers what the product would do again and again in them."""
    # Under nohup, or in the background of a script, they are ignored, and would be in all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    forkserver.install()
    reused.install()
    if _ON_POSTGRESQL:
        postgresql.use()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Rewrite the asserts of a fresh checkout in one worker, for which the others wait.

    That takes twice the time of all else that is done to collect tests.
    """
    rewritten = Path(__file__).parent / "__pycache__" / f"rewritten-{sys.implementation.cache_tag}"
    if "PYTEST_XDIST_WORKER" not in os.environ or sys.dont_write_bytecode or rewritten.exists():
        return (yield)
    with FileLock(rewritten.with_suffix(".lock")) as lock:
        if rewritten.exists():
            lock.release()
        yield
        rewritten.touch()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is below a folder that `make` runs by itself, by the folder's name."""
    for item in items:
        for name in _OF_ITSELF:
            if item.nodeid.startswith(f"tests/{name}/"):
                item.add_marker(name)
        if _ON_POSTGRESQL and item.get_closest_marker("sqlite") is not None:
            item.add_marker(pytest.mark.skip("it is about SQLite"))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from searching the product and 3,000 tests again and again.

    It took a tenth of the processor time of all tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape half characters in what a test logged: a worker cannot send them to the main process."""
    report = yield
    if report.skipped:
        _note_skipped(report.nodeid)
    report.sections = [
        (title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections
    ]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Use the databases of a test for others when all is closed."""
    yield
    directory = item.funcargs.get("tmp_path") if isinstance(item, pytest.Function) else None
    if _ON_POSTGRESQL and isinstance(directory, Path):
        postgresql.give_back(directory)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note modules that are skipped as a whole."""
    if report.skipped:
        _note_skipped(report.nodeid)


def _note_skipped(test: str) -> None:
    """Add a test to the file of those that the gate runs once more, when all that they need is installed."""
    if file := os.environ.get("STRAWBERRY_SKIPPED"):
        with Path(file).open("a", encoding="utf-8") as skipped:
            skipped.write(f"{test}\n")


@pytest.fixture(scope="session")
def sandbox_files(pytestconfig: pytest.Config) -> Path:
    """A directory with the sandbox installed; kept between runs, since the first one has to download."""
    chosen = os.environ.get("STRAWBERRY_TEST_SANDBOX")
    assert pytestconfig.cache is not None
    directory = Path(chosen) if chosen else pytestconfig.cache.mkdir("strawberry-sandbox")
    # One worker builds, the others wait for it.
    with FileLock(directory.with_suffix(".lock")):
        asyncio.run(install(directory))
    return directory


@pytest.fixture(autouse=True)
def failed_tasks() -> Iterator[list[str]]:
    """Errors of tasks that failed alone in this process; a test that does not clear them fails."""
    failed: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: failed.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("chat.tasks").addHandler(handler)
    yield failed
    logging.getLogger("chat.tasks").removeHandler(handler)
    assert failed == []


def _logging_as_before() -> Iterator[None]:
    """Take back what a host that ran here did to logging: it does that for the life of a process."""
    root = logging.getLogger()
    handlers = tuple(root.handlers)
    leveled: list[logging.Logger | logging.Handler] = [*map(logging.getLogger, _PACKAGES), *handlers]
    levels = [(each, each.level) for each in leveled]
    yield
    for handler in set(root.handlers).difference(handlers):
        root.removeHandler(handler)
    for each, level in levels:
        if each.level != level:  # to set one clears what all loggers know
            each.setLevel(level)


logging_of_module = pytest.fixture(_logging_as_before, scope="module", autouse=True)
logging_of_test = pytest.fixture(_logging_as_before, autouse=True)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """A scripted model server; a test gives it its script."""
    with ScriptedModel() as server:
        yield server
        assert server.refused == []


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    """A plain Mosquitto on loopback: MQTT 5, no login."""
    require(find_mosquitto() is not None, HINT)
    with Mosquitto(tmp_path) as broker:
        yield broker


@pytest.fixture(params=KINDS)
async def any_bus(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bus]:
    """Each broker that can be our bus, with rights."""
    async with open_bus(request.param, tmp_path / "broker") as bus:
        yield bus
