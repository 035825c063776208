"""A pool of real sandbox processes, and a house for their programs."""

from pathlib import Path
from typing import Any

import pytest

from sandbox_host import PoolSettings
from tests.sandbox_host.house import House


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
