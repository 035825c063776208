"""A pool of real sandbox processes, and a house for their programs."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandbox_host import PoolSettings, Session, open_pool
from sandbox_host.install import Installed
from tests.reused import sandbox_command
from tests.sandbox_host.house import House


@pytest.fixture(scope="module", autouse=True)
def _sandbox_of_the_product() -> Iterator[None]:
    """Start each process exactly as the product does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Installed, "command", sandbox_command)
        yield


@pytest.fixture
def house() -> House:
    house = House()

    async def echo(*args: Any, **kwargs: Any) -> Any:
        return [list(args), kwargs]

    house.answers["devices.pc.EchoSkill.echo"] = echo
    return house


@pytest.fixture
def settings(sandbox_files: Path) -> PoolSettings:
    return PoolSettings(sandbox_files, spares=0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(sandbox_files: Path) -> AsyncIterator[Session]:
    """One interpreter for the tests of a module that do not ask for a new one: starting it takes a second."""
    async with open_pool(PoolSettings(sandbox_files, spares=0)) as pool:
        yield await pool.session("conversation")
