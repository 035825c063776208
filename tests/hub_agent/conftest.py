from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.directory import Home as Installation
from deploy.home.maintenance import Maintenance
from tests.hub_agent.home import Home, open_home
from tests.model_server import ScriptedModel


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence waits for its index and its language also on a busy machine."""
    for wait in ("CATCH_UP_S", "FIRST_INTENT_WAIT_S"):
        monkeypatch.setattr(f"agent_core.limits.{wait}", 60.0)


@pytest.fixture
def host(tmp_path: Path) -> Maintenance:
    """The installation around the hub in ``home``; it does not start again."""
    return installed(tmp_path / "home")


def installed(directory: Path) -> Maintenance:
    """Return an installation in a directory; it does not start again."""
    directory.mkdir(exist_ok=True)
    return Maintenance(Installation(directory), restart=None)


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
