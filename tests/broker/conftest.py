"""A house on each broker that the product supports."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from broker.embedded import EmbeddedSettings, open_embedded
from broker.keys import KeyPair
from tests.broker.rpc_world import HUB, House, Spoke, open_house
from tests.mosquitto import Mosquitto

OpenHouse = Callable[..., AbstractAsyncContextManager[House]]


@pytest.fixture(params=["mosquitto", "embedded"])
async def new_house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenHouse]:
    """Opens a house with the settings it is given, on Mosquitto (MQTT 5) or our own broker (3.1.1)."""
    hub = KeyPair.generate()
    if request.param == "mosquitto":
        broker: Mosquitto = request.getfixturevalue("mosquitto")
        yield lambda **more: open_house(broker.url, hub, with_tokens=False, **more)
        return
    settings = EmbeddedSettings(data_dir=tmp_path / "broker", hub_id=HUB, hub_key=hub.public, port=0)
    async with open_embedded(settings) as embedded:
        yield lambda **more: open_house(embedded.url, hub, with_tokens=True, **more)


@pytest.fixture
async def house(new_house: OpenHouse) -> AsyncIterator[House]:
    """A hub on each broker; spokes are opened by the test."""
    async with new_house() as house:
        yield house


@pytest.fixture
async def open_bus_house(mosquitto: Mosquitto) -> AsyncIterator[House]:
    """A hub on a Mosquitto without rights of any kind: only signatures protect the calls."""
    async with open_house(mosquitto.url, KeyPair.generate(), with_tokens=False) as house:
        yield house


@pytest.fixture
async def fuzzed(open_bus_house: House) -> AsyncIterator[tuple[House, Spoke]]:
    """A hub and one spoke, to be thrown rubbish at."""
    async with open_bus_house.spoke() as spoke:
        yield open_bus_house, spoke
