import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.directory import Home as Installation
from deploy.home.maintenance import Maintenance
from deploy.logs.logs import _PACKAGES
from tests.hub_agent.home import Home, open_home
from tests.model_server import ScriptedModel


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence waits for its index also on a busy machine."""
    monkeypatch.setattr("agent_core.limits.CATCH_UP_S", 60.0)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Maintenance]:
    """The installation around the hub in ``home``; it does not start again."""
    with installed(tmp_path / "home") as host:
        yield host


@contextmanager
def installed(directory: Path) -> Iterator[Maintenance]:
    """Keep an installation that does not start again in a directory."""
    directory.mkdir(exist_ok=True)
    root = logging.getLogger()
    leveled: list[logging.Logger | logging.Handler] = [*map(logging.getLogger, _PACKAGES), *root.handlers]
    levels = [(each, each.level) for each in leveled]
    host = Maintenance(Installation(directory), restart=None)
    yield host
    root.removeHandler(host.logs)
    # Its log is for the life of a process; another test in this one captures what it asks for.
    for each, level in levels:
        each.setLevel(level)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    """A home without a model and without a sandbox."""
    async with open_home(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
async def thinking(tmp_path: Path, model: ScriptedModel, sandbox_files: Path) -> AsyncIterator[Home]:
    """A home with the scripted model and the sandbox."""
    async with open_home(tmp_path / "home", model_url=model.base_url, sandbox=sandbox_files) as opened:
        yield opened
