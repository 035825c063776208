"""While a spoke runs: it follows the bus, uses a shared broker as a guest, and says when it is locked out."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from pydantic import SecretStr

from bus.link import LinkSettings, Message, open_link
from contracts import topics
from contracts.devices.joining import Login
from identity.keys import KeyPair
from spoke.app import open_spoke
from spoke.membership.joining import join
from spoke.membership.membership import Membership
from spoke.presence.clock import HubClock
from tests.hub_agent.home import Home, open_home
from tests.mosquitto import HINT, Mosquitto
from tests.requirements import require
from tests.spoke.home import Place, wait_for
from tests.spoke.hub import BUS, DEVICE, StandInHub, serving
from tests.spoke.talk import Talker, open_talker

STATUS = topics.STATUS.build(device=DEVICE)
SKILL = topics.SKILL.build(device=DEVICE, skill="JournalSkill")


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Mosquitto]:
    """A second broker of the house."""
    directory = tmp_path / "another"
    directory.mkdir()
    with Mosquitto(directory) as broker:
        yield broker


async def test_a_bus_that_moves_while_the_spoke_runs_is_followed_in_the_same_epoch(
    mosquitto: Mosquitto, another: Mosquitto, place: Place
) -> None:
    with serving(StandInHub(brokers=[mosquitto.url])) as hub:
        async with open_spoke(place.settings(hub, away_s=0.1), token=hub.invite()) as spoke:
            await asyncio.wait_for(spoke.announced(), 30)
            hub.brokers, hub.prefix = [another.url], "moved/"
            await asyncio.to_thread(mosquitto.kill)
            seen: list[Message] = []
            async with open_link(LinkSettings(urls=(another.url,), client_id="watch")) as watching:
                await watching.subscribe(f"moved/{STATUS}", seen.append)
                await wait_for(lambda: seen, "the spoke on the other broker")
            assert json.loads(seen[0].payload)["epoch"] == spoke.epoch
    stored = json.loads((place.home / "spoke" / "enrolment.json").read_text())
    assert (stored["brokers"], stored["prefix"]) == ([another.url], "moved/")


async def test_a_revoked_spoke_says_so_once_and_leaves_everybody_in_peace(
    home: Home, talker: Talker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await home.hub.registry.revoke_device(DEVICE)
    problem = await wait_for(lambda: talker.spoke.problem, "the word of it")
    assert "revoked" in problem
    assert "strawberry spoke join" in problem
    await wait_for(lambda: not talker.spoke.connected, "the broker's refusal")
    refusals, asked = caplog.text.count("refused 127.0.0.1"), talker.line.seen.count(BUS)
    # More than the wait after a refused login, and many looks.
    await asyncio.sleep(0.6)
    assert caplog.text.count("refused 127.0.0.1") == refusals
    assert talker.line.seen.count(BUS) == asked
    assert caplog.text.count("refuses garage_pc") == 1


async def test_a_spoke_that_is_let_in_again_comes_back_by_itself(
    embedded: str, hub_key: KeyPair, place: Place
) -> None:
    with serving(StandInHub(brokers=[embedded], key=hub_key)) as hub:
        settings = place.settings(hub, rejected_s=0.1, broker_wait_s=0.1)
        token = (await join(settings, token=hub.invite(), clock=HubClock())).enrolment.token
        hub.revoke(token)
        async with open_spoke(settings) as spoke:
            await wait_for(lambda: spoke.problem, "the word of it")
            # As when the hub's clock was wrong, and its tokens seemed to have expired.
            hub.revoked.clear()
            await asyncio.wait_for(spoke.announced(), 30)
            await wait_for(lambda: spoke.problem is None, "the problem to be over")


async def test_a_login_that_is_refused_while_the_hub_is_away_is_told_about(
    embedded: str, hub_key: KeyPair, place: Place
) -> None:
    with serving(StandInHub(brokers=[embedded], key=hub_key)) as hub:
        await join(place.settings(hub), token=hub.invite(), clock=HubClock())
        path = place.home / "spoke" / "enrolment.json"
        path.write_text(
            json.dumps(
                json.loads(path.read_text())
                | {"bus_token": hub.token(DEVICE, age_s=200_000, audience="mqtt")}
            )
        )
    async with open_spoke(place.settings(hub, broker_wait_s=0.1)) as spoke:
        problem = await wait_for(lambda: spoke.problem, "the word of it")
        assert "the hub cannot be asked why" in problem


async def test_devices_begin_at_different_nodes_of_a_cluster_and_know_all(place: Place) -> None:
    nodes = tuple(f"mqtt://127.0.0.{node}" for node in (1, 2, 3))
    with serving(StandInHub(brokers=list(nodes))) as hub:
        settings = place.settings(hub)
        joined = await join(settings, token=hub.invite(), clock=HubClock())

    def urls(device: str, qos: int) -> tuple[str, ...]:
        enrolment = joined.enrolment.model_copy(update={"device": device, "qos": qos})
        known = {"key": joined.key, "settings": settings, "clock": HubClock(), "is_confirmed": True}
        return Membership(enrolment, **known).link_settings().urls  # type: ignore[arg-type]

    of_cluster = {urls(f"spoke_{number}", 0) for number in range(20)}
    assert {each[0] for each in of_cluster} == {*nodes}
    assert all({*each} == {*nodes} for each in of_cluster)
    # What has no cluster of ours has the best address first.
    assert {urls(f"spoke_{number}", 1) for number in range(20)} == {nodes}


# A broker that is shared with others


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Mosquitto]:
    """Somebody's broker with an ordinary login."""
    tool = shutil.which("mosquitto_passwd")
    require(tool is not None, HINT)
    assert tool is not None
    passwords = tmp_path / "passwords"
    subprocess.run([tool, "-c", "-b", passwords, "anna", "her-password"], check=True, stderr=subprocess.PIPE)
    with Mosquitto(tmp_path, password_file=passwords) as broker:
        yield broker


def shared_hub(url: str) -> StandInHub:
    return StandInHub(
        brokers=[url], prefix="strawberry/", login=Login(username="anna", password="her-password")
    )


async def test_on_a_shared_broker_the_ordinary_login_and_the_prefix_are_used(
    shared: Mosquitto, place: Place
) -> None:
    with serving(shared_hub(shared.url)) as hub:
        async with open_spoke(place.settings(hub), token=hub.invite()) as spoke:
            await asyncio.wait_for(spoke.announced(), 30)
            login = LinkSettings(
                urls=(shared.url,), client_id="watch", username="anna", password=SecretStr("her-password")
            )
            seen: list[Message] = []
            async with open_link(login) as watching:
                await watching.subscribe("#", seen.append)
                await wait_for(lambda: len(seen) >= 2, "what the spoke keeps there")
            assert {message.topic for message in seen} >= {f"strawberry/{STATUS}", f"strawberry/{SKILL}"}
            assert all(message.topic.startswith("strawberry/") for message in seen)


@asynccontextmanager
async def listening(take: Callable[[bytes], None]) -> AsyncIterator[str]:
    """A broker that takes down what is said to it, and answers nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            take(await reader.read(65_536))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_shared_broker_never_sees_the_token(place: Place) -> None:
    said: list[bytes] = []
    async with listening(said.append) as url:
        with serving(shared_hub(url)) as hub:
            async with open_spoke(place.settings(hub, broker_wait_s=0.1), token=hub.invite()):
                await wait_for(lambda: said, "the login")
    token = json.loads((place.home / "spoke" / "enrolment.json").read_text())["token"]
    assert all(token.encode() not in one for one in said)
    # A name of its own: others may have a client that is called like our device.
    assert all(b"strawberry-garage_pc" in one and b"her-password" in one for one in said)


async def test_a_device_that_was_removed_from_a_shared_broker_puts_nothing_back(
    tmp_path: Path, place: Place
) -> None:
    async with open_home(tmp_path / "home", kind="shared") as home:
        async with open_talker(home, place) as talker, home.client() as client:
            # The broker cannot shut it out: only the hub can say that it is not wanted.
            assert (await client.delete(f"/api/devices/{DEVICE}")).is_success
            await wait_for(lambda: talker.spoke.problem and not talker.spoke.connected, "the spoke to leave")
        kept: list[Message] = []
        async with open_link(home.login("looking-on", "")) as link:
            await link.subscribe("devices/#", kept.append)
            await link.publish("devices/last", b"", confirmed=True)
            await wait_for(lambda: kept, "all that the broker keeps")
        left = {message.topic for message in kept if message.retain and message.payload}
        assert left <= {topics.HEARTBEAT.build(device=DEVICE)}
