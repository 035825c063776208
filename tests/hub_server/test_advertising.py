"""The hub's announcement in the local network, heard over the loopback interface with the real library."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from zeroconf import ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from contracts import addresses
from hub_agent.settings import HttpSettings, LanSettings
from hub_server.advertising import Advertisement, advertise
from identity.certificates import Authority
from tests.hub_agent.home import open_home
from tests.hub_registry.spokes import eventually


@asynccontextmanager
async def looking_around() -> AsyncIterator[Callable[[], set[str]]]:
    """Somebody in the network; gives the names that are announced at the moment."""
    names: set[str] = set()

    def hear(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        (names.discard if state_change is ServiceStateChange.Removed else names.add)(name)

    async with (
        AsyncZeroconf(interfaces=["127.0.0.1"]) as network,
        AsyncServiceBrowser(network.zeroconf, addresses.DNS_SD_SERVICE, handlers=[hear]),
    ):
        yield lambda: names


async def told_of(name: str) -> AsyncServiceInfo:
    info = AsyncServiceInfo(addresses.DNS_SD_SERVICE, name)
    async with AsyncZeroconf(interfaces=["127.0.0.1"]) as network:
        assert await info.async_request(network.zeroconf, 60_000)
    return info


async def test_a_hub_that_others_may_reach_is_announced_and_taken_back_when_it_stops(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    Authority.load_or_create(certs).issue(("hub.test",), ("127.0.0.1",), directory=certs)
    lan = LanSettings(host="127.0.0.1", port=0, certificates=certs)
    http = HttpSettings(port=0, lan=lan, base_path="/strawberry")
    async with looking_around() as names:
        async with open_home(tmp_path / "home", http=http) as home:
            mine = f"Strawberry {home.hub.registry.hub_id[:8]}.{addresses.DNS_SD_SERVICE}"
            await eventually(lambda: mine in names())
            info = await told_of(mine)
            assert info.decoded_properties == {
                addresses.TXT_HUB_ID: home.hub.registry.hub_id,
                addresses.TXT_KEY: home.hub.registry.key.kid,
                addresses.TXT_PATH: "/strawberry",
                addresses.TXT_TLS: "1",
            }
            assert info.port == home.hub.lan_port
            assert info.parsed_addresses() == ["127.0.0.1"]
        await eventually(lambda: mine not in names())


async def test_a_hub_on_loopback_alone_is_not_announced(tmp_path: Path) -> None:
    async with looking_around() as names, open_home(tmp_path / "home") as home:
        other = Advertisement(hub_id="someone-else", key="k", host="127.0.0.1", port=1, tls=False)
        async with asyncio.TaskGroup() as tasks:
            announcing = tasks.create_task(advertise(other))
            await eventually(lambda: any("someone" in name for name in names()))
            announcing.cancel()
        assert not any(home.hub.registry.hub_id[:8] in name for name in names())


# The library leaves the socket that it had opened before to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_where_multicast_fails_one_line_says_so_and_that_is_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # An address that this machine does not have.
    nowhere = Advertisement(hub_id="home-1", key="k", host="192.0.2.7", port=1, tls=False)
    with caplog.at_level(logging.WARNING, logger="hub_server"):
        await advertise(nowhere)
    gc.collect()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("hub_server")]
    assert len(said) == 1
    assert "joined by its address" in said[0]
