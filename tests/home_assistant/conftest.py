"""A Home Assistant beside a broker, for tests of the marker `home_assistant`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.home_assistant.server import HINT, HomeAssistant, find_home_assistant
from tests.mosquitto import Mosquitto
from tests.requirements import require


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence waits for its index and its language also on a busy machine."""
    for wait in ("CATCH_UP_S", "FIRST_INTENT_WAIT_S"):
        monkeypatch.setattr(f"agent_core.limits.{wait}", 60.0)


@pytest.fixture
def home_assistant_directory(tmp_path: Path) -> Path:
    """Where a Home Assistant keeps everything; skips or fails the test where none is installed."""
    require(find_home_assistant() is not None, HINT)
    return tmp_path / "home-assistant"


@pytest.fixture
async def home_assistant(
    home_assistant_directory: Path, mosquitto: Mosquitto
) -> AsyncIterator[HomeAssistant]:
    """A running Home Assistant with MQTT on the fixture `mosquitto`."""
    async with HomeAssistant(home_assistant_directory, broker_port=mosquitto.port) as running:
        yield running
