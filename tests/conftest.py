"""Fixtures that tests of several packages share."""

import asyncio
import os
from pathlib import Path

import pytest

from sandbox_host import install


@pytest.fixture(scope="session")
def sandbox_files(pytestconfig: pytest.Config) -> Path:
    """A directory with the sandbox installed; kept between runs, since the first one has to download."""
    chosen = os.environ.get("STRAWBERRY_TEST_SANDBOX")
    assert pytestconfig.cache is not None
    directory = Path(chosen) if chosen else pytestconfig.cache.mkdir("strawberry-sandbox")
    asyncio.run(install(directory))
    return directory
