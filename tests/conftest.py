"""Fixtures that tests of several packages share."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from sandbox_host import install
from tests.mosquitto import HINT, Mosquitto, find_mosquitto

# The same examples in every run, and none of them against the clock: what failed can be seen again, and a
# machine that stands still for a moment fails nothing. HYPOTHESIS_PROFILE=default looks for new ones.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def sandbox_files(pytestconfig: pytest.Config) -> Path:
    """A directory with the sandbox installed; kept between runs, since the first one has to download."""
    chosen = os.environ.get("STRAWBERRY_TEST_SANDBOX")
    assert pytestconfig.cache is not None
    directory = Path(chosen) if chosen else pytestconfig.cache.mkdir("strawberry-sandbox")
    asyncio.run(install(directory))
    return directory


def require(present: bool, hint: str) -> None:
    """Skip a test whose server is missing; where everything must be there, fail it."""
    if present:
        return
    if os.environ.get("STRAWBERRY_REQUIRE_ALL") == "1":
        pytest.fail(hint)
    pytest.skip(hint)


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    """A plain Mosquitto on loopback: MQTT 5, no login."""
    require(find_mosquitto() is not None, HINT)
    with Mosquitto(tmp_path) as broker:
        yield broker
