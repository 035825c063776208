"""Each broker that the product supports, and a house on it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from identity.keys import KeyPair
from tests.brokers import Bus
from tests.bus.rpc_world import House, Spoke, open_house
from tests.mosquitto import Mosquitto

OpenHouse = Callable[..., AbstractAsyncContextManager[House]]


@pytest.fixture
async def new_house(any_bus: Bus) -> OpenHouse:
    """Opens a house with the settings it is given, on each broker."""
    return lambda **more: open_house(any_bus.url, any_bus.hub, bus=any_bus, **more)


@pytest.fixture
async def house(new_house: OpenHouse) -> AsyncIterator[House]:
    """A hub on each broker; spokes are opened by the test."""
    async with new_house() as house:
        yield house


@pytest.fixture
async def open_bus_house(mosquitto: Mosquitto) -> AsyncIterator[House]:
    """A hub on a Mosquitto without rights of any kind: only signatures protect the calls."""
    async with open_house(mosquitto.url, KeyPair.generate()) as house:
        yield house


@pytest.fixture
async def fuzzed(open_bus_house: House) -> AsyncIterator[tuple[House, Spoke]]:
    """A hub and one spoke, to be thrown rubbish at."""
    async with open_bus_house.spoke() as spoke:
        yield open_bus_house, spoke
