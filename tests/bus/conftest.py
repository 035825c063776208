"""Each broker that the product supports, and a house on it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest
import pytest_asyncio

from identity.keys import KeyPair
from tests.brokers import KINDS, Bus, open_bus
from tests.bus.rpc_world import House, Spoke, open_house
from tests.mosquitto import Mosquitto

OpenHouse = Callable[..., AbstractAsyncContextManager[House]]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def shared_bus(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bus]:
    """Each broker that can be our bus, one for the tests of a module: no call is retained on it."""
    async with open_bus(request.param, tmp_path_factory.mktemp("bus") / "broker") as bus:
        yield bus


@pytest.fixture
def new_house(shared_bus: Bus) -> OpenHouse:
    """Opens a house with the settings it is given, on each broker."""
    return lambda **more: open_house(shared_bus.url, shared_bus.hub, bus=shared_bus, **more)


@pytest_asyncio.fixture(loop_scope="module")
async def house(new_house: OpenHouse) -> AsyncIterator[House]:
    """A hub on each broker; spokes are opened by the test."""
    async with new_house() as house:
        yield house


@pytest_asyncio.fixture(loop_scope="module")
async def open_bus_house(mosquitto: Mosquitto) -> AsyncIterator[House]:
    """A hub on a Mosquitto without rights of any kind: only signatures protect the calls."""
    async with open_house(mosquitto.url, KeyPair.generate()) as house:
        yield house


@pytest_asyncio.fixture(loop_scope="module")
async def fuzzed(open_bus_house: House) -> AsyncIterator[tuple[House, Spoke]]:
    """A hub and one spoke, to be thrown rubbish at."""
    async with open_bus_house.spoke() as spoke:
        yield open_bus_house, spoke
