"""The broker that stands in the house beside the bus, as whoever watches it sees the hub there."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from pydantic import SecretStr

from bus.link import Link, LinkSettings, Message, open_link
from contracts import topics
from contracts.answers.devices import Purged
from contracts.devices.joining import Login
from contracts.errors import InvalidTopic
from hub_agent.bus.home_link import HomeTopics, open_home_link, purge_home
from hub_agent.settings import HomeLinkSettings
from hub_registry.storage.store import open_store
from tests.hub_agent.home import linked, open_home
from tests.hub_registry.spokes import eventually
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

TOPIC = "strawberry/main/availability"
QUESTION = "ann/asks"

_numbers = count()


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker of the house with ordinary logins."""
    require(find_mosquitto() is not None, HINT)
    directory = tmp_path / "there"
    directory.mkdir()
    passwords = directory / "passwords"
    for name in ("strawberry", "ann"):
        add = ["mosquitto_passwd", "-b", *(() if passwords.exists() else ("-c",)), passwords, name, "secret"]
        subprocess.run(add, check=True, capture_output=True)
    with Mosquitto(directory, password_file=passwords) as broker:
        yield broker


@pytest.fixture
async def home_topics(tmp_path: Path) -> AsyncIterator[HomeTopics]:
    async with open_store(tmp_path / "hub.db") as store:
        yield HomeTopics(store)


def login_at(broker: Mosquitto) -> HomeLinkSettings:
    return HomeLinkSettings(url=broker.url, login=Login(username="strawberry", password="secret"))


class Watcher:
    """Somebody else on that broker: what it is sent, and what the broker retains."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.retained: dict[str, bytes] = {}

    def hear(self, message: Message) -> None:
        self.retained[message.topic] = message.payload

    @property
    def kept(self) -> dict[str, bytes]:
        """What stands there at present."""
        return {topic: said for topic, said in self.retained.items() if said and topic != QUESTION}


@asynccontextmanager
async def watching(broker: Mosquitto) -> AsyncIterator[Watcher]:
    async with linked(login_of_ann(broker, f"ann-{next(_numbers)}")) as link:
        watcher = Watcher(link)
        await link.subscribe("#", watcher.hear)
        yield watcher


def login_of_ann(broker: Mosquitto, client_id: str) -> LinkSettings:
    password = SecretStr("secret")
    return LinkSettings(urls=(broker.url,), client_id=client_id, username="ann", password=password)


@asynccontextmanager
async def taking_its_place(broker: Mosquitto) -> AsyncIterator[Link]:
    """Cut the hub's connection: a broker lets a client id in once, and ends the first connection."""
    async with open_link(login_of_ann(broker, "strawberry-home-main")) as link:
        yield link


async def kept_by(broker: Mosquitto) -> dict[str, bytes]:
    """What a newcomer is sent: all that is retained, once a message of its own has come back."""
    async with watching(broker) as watcher:
        await watcher.link.publish(QUESTION, b"?")
        await eventually(lambda: QUESTION in watcher.retained)
        return watcher.kept


async def test_the_hub_says_there_that_it_is_there(tmp_path: Path, there: Mosquitto) -> None:
    async with watching(there) as watcher:
        async with open_home(tmp_path / "home", home_link=login_at(there)) as home:
            await eventually(lambda: watcher.kept == {TOPIC: topics.HOME_ONLINE})
            async with home.client() as client:
                health = (await client.get("/api/health")).json()
            assert health["home_broker"] == {"connected": True, "mqtt": "5"}
            assert health["status"] == "ok"
        await eventually(lambda: watcher.kept == {TOPIC: topics.HOME_OFFLINE})
    assert await kept_by(there) == {TOPIC: topics.HOME_OFFLINE}


async def test_when_the_hub_dies_its_last_will_says_so(there: Mosquitto, home_topics: HomeTopics) -> None:
    async with (
        watching(there) as watcher,
        open_home_link(login_at(there), home_topics, instance="main") as link,
    ):
        await eventually(lambda: watcher.kept == {TOPIC: topics.HOME_ONLINE})
        async with taking_its_place(there) as other:
            await eventually(lambda: not link.link.connected)
            await eventually(lambda: watcher.kept == {TOPIC: topics.HOME_OFFLINE})
            other.pause()
            await eventually(lambda: watcher.kept == {TOPIC: topics.HOME_ONLINE})


async def test_the_hub_runs_while_that_broker_is_away_and_is_there_when_it_comes(
    tmp_path: Path, there: Mosquitto
) -> None:
    there.stop()
    async with open_home(tmp_path / "home", home_link=login_at(there)) as home, home.client() as client:
        health = (await client.get("/api/health")).json()
        assert health["home_broker"]["connected"] is False
        assert health["home_broker"]["error"]
        assert (health["status"], health["broker"]["connected"]) == ("degraded", True)
        there.start()
        async with watching(there) as watcher:
            await eventually(lambda: watcher.kept == {TOPIC: topics.HOME_ONLINE})


async def test_nothing_of_the_bus_and_no_token_gets_there(tmp_path: Path, there: Mosquitto) -> None:
    async with watching(there) as watcher, open_home(tmp_path / "home", home_link=login_at(there)):
        await eventually(lambda: watcher.kept == {TOPIC: topics.HOME_ONLINE})
    assert set(watcher.retained) == {TOPIC}


async def test_purging_empties_both_brokers_and_the_hub_is_silent_until_it_starts_again(
    tmp_path: Path, there: Mosquitto
) -> None:
    directory = tmp_path / "home"
    async with watching(there) as watcher:
        async with open_home(directory, home_link=login_at(there)) as home, home.client() as client:
            await eventually(lambda: watcher.kept == {TOPIC: topics.HOME_ONLINE})
            answer = (await client.post("/api/purge")).json()
            assert answer["left"] == []
            assert answer["emptied"] >= 2
            assert await kept_by(there) == {}
            async with taking_its_place(there):
                # Its connection was cut, and there is no will that would be published now.
                assert await kept_by(there) == {}
        assert await kept_by(there) == {}
        async with open_home(directory, home_link=login_at(there)):
            await eventually(lambda: watcher.kept == {TOPIC: topics.HOME_ONLINE})


async def test_what_an_earlier_process_published_is_purged_too(
    there: Mosquitto, home_topics: HomeTopics
) -> None:
    old = ("homeassistant/light/old/config", "strawberry/attic/availability")
    async with open_home_link(login_at(there), home_topics, instance="main") as link:
        for topic in old:
            await link.publish(topic, b"{}", confirmed=True)
        await link.link.publish("zigbee2mqtt/lamp", b"on", retain=True, confirmed=True)
    later = HomeTopics(home_topics._store)
    async with open_home_link(login_at(there), later, instance="main") as link:
        assert set(await kept_by(there)) == {*old, TOPIC, "zigbee2mqtt/lamp"}
        assert await link.purge() == Purged(3)
        # What was not ours stays.
        assert set(await kept_by(there)) == {"zigbee2mqtt/lamp"}
        await link.publish("homeassistant/light/old/config", b"{}")
    assert set(await kept_by(there)) == {"zigbee2mqtt/lamp"}
    assert await later.list() == []


async def test_what_could_not_be_emptied_is_named_and_not_forgotten(
    there: Mosquitto, home_topics: HomeTopics
) -> None:
    gone = f"mqtt://127.0.0.1:{free_port()}"
    await home_topics.record(gone, "strawberry/old/availability")
    nobody = await purge_home(home_topics, None)
    assert nobody == Purged(0, (f"strawberry/old/availability on {gone}, which is not used any more",))
    async with open_home_link(login_at(there), home_topics, instance="main") as link:
        there.stop()
        await eventually(lambda: not link.link.connected)
        purged = await purge_home(home_topics, link)
        assert purged.emptied == 0
        assert purged.left[0] == f"{TOPIC} on {there.url}"
        assert len(purged.left) == 2
        assert len(await home_topics.list()) == 2
        # Half purged is not purged: the hub goes on there as before.
        there.start()
        async with watching(there) as watcher:
            await eventually(lambda: watcher.kept == {TOPIC: topics.HOME_ONLINE})


def test_only_names_of_hub_processes_stand_in_the_topic() -> None:
    assert topics.home_availability("main") == TOPIC
    for wrong in ("a/b", "#", "Main", ""):
        with pytest.raises(InvalidTopic):
            topics.home_availability(wrong)


async def test_on_the_bus_home_assistant_sees_what_is_exposed_and_the_broker_refuses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    on_bus = HomeLinkSettings(url="", is_bus=True)
    async with open_home(tmp_path / "home", home_link=on_bus) as home, home.client() as client:
        asked = {"name": "home_assistant", "home_assistant": True}
        made = (await client.post("/api/clients", json=asked)).json()
        assert (await client.post("/api/home-assistant/expose", json={"path": "hub.chat"})).is_success
        heard: list[str] = []
        async with linked(home.login("home_assistant", made["password"])) as link:
            for branch in topics.HOME_BRANCHES:
                await link.subscribe(branch, lambda each: heard.append(each.topic))
            await eventually(lambda: any(each.startswith("homeassistant/text/") for each in heard))
            await eventually(lambda: TOPIC in heard)
        refused = await client.post("/api/clients", json={**asked, "name": "both", "chat": True})
        assert refused.status_code == 422
    assert "refuse" not in caplog.text
