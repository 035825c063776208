from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.hub_agent.home import Home, open_home
from tests.model_server import ScriptedModel


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """A scripted model server; a test gives it its script."""
    with ScriptedModel() as server:
        yield server
        assert server.refused == []


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
