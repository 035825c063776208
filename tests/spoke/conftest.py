import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from identity.keys import KeyPair
from tests.hub_agent.home import Home, open_home
from tests.model_server import Says, ScriptedModel
from tests.mosquitto import Mosquitto
from tests.requirements import require
from tests.spoke.home import HUB, JOURNAL, BusSide, Place, StandInHub, on_bus, serving
from tests.spoke.talk import Talker, open_talker, small_model


@pytest.fixture
def hub_key() -> KeyPair:
    return KeyPair.generate()


@pytest.fixture
async def embedded(tmp_path: Path, hub_key: KeyPair) -> AsyncIterator[str]:
    """The embedded broker; gives its address."""
    settings = EmbeddedSettings(
        data_dir=tmp_path / "broker", hub_id=HUB, hub_key=hub_key.public, listeners=(Listener(port=0),)
    )
    async with open_embedded(settings) as broker:
        yield broker.url


@pytest.fixture(params=["embedded", "mosquitto"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A broker, once of each kind."""
    if request.param == "embedded":
        url: str = request.getfixturevalue("embedded")
        return url
    broker: Mosquitto = request.getfixturevalue("mosquitto")
    return broker.url


@pytest.fixture
def hub(hub_key: KeyPair, broker_url: str) -> Iterator[StandInHub]:
    """A hub that lets devices in over HTTP."""
    with serving(StandInHub(brokers=[broker_url], key=hub_key)) as hub:
        yield hub


@pytest.fixture
async def bus(hub: StandInHub, broker_url: str) -> AsyncIterator[BusSide]:
    """The hub on the bus."""
    async with on_bus(hub, broker_url) as side:
        yield side


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A machine with a skill that writes down what really ran."""
    place = Place(tmp_path / "spoke")
    place.add_skill("journal.py", JOURNAL)
    return place


@pytest.fixture
def hub_model() -> Iterator[ScriptedModel]:
    """What answers on the hub."""
    with ScriptedModel(lambda seen: Says(text="The hub answers.")) as server:
        yield server


@pytest.fixture
def own_model() -> Iterator[ScriptedModel]:
    """What answers on the spoke."""
    with ScriptedModel(lambda seen: Says(text="The spoke answers.")) as server:
        yield server
        assert server.refused == []


@pytest.fixture
async def home(tmp_path: Path, hub_model: ScriptedModel) -> AsyncIterator[Home]:
    async with open_home(tmp_path / "home", models=small_model(hub_model.base_url)) as opened:
        yield opened


@pytest.fixture
async def talker(home: Home, place: Place, own_model: ScriptedModel) -> AsyncIterator[Talker]:
    async with open_talker(home, place, models=small_model(own_model.base_url)) as opened:
        yield opened


@pytest.fixture(scope="session")
def dbus_daemon() -> str:
    path = shutil.which("dbus-daemon")
    require(path is not None, "dbus-daemon is not installed: apt-get install dbus")
    assert path is not None
    return path


@pytest.fixture
def session_bus(dbus_daemon, tmp_path, monkeypatch):
    """A private session bus, and the environment that points to it."""
    command = [dbus_daemon, "--session", "--nofork", "--print-address", f"--address=unix:path={tmp_path}/bus"]
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    address = daemon.stdout.readline().strip()
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    yield address
    daemon.kill()
    daemon.communicate()
