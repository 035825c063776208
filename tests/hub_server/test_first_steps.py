"""The first steps over HTTP: access for other machines, and Home Assistant found, tried and written."""

import socket
import subprocess
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from contracts.answers.system import FoundHomeAssistant
from contracts.devices.joining import Login
from deploy.cli.commands import make_parser
from deploy.cli.serve import _lan
from deploy.directory import Home as Installation
from deploy.home.brokers.bus import choose_home_link
from deploy.home.maintenance import Maintenance
from deploy.home.running import Restart
from deploy.service.notify import ServiceManager
from deploy.settings.options import LanOptions
from hub_agent.settings import BusSettings
from hub_home_assistant.inward.trial import look_around
from hub_server import limits
from tests.hub_agent.home import Home, open_home
from tests.hub_home_assistant.recorded import TOKEN, recorded
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

PASSWORD = 's3cret "1"'


class _Restart(Restart):
    is_requested = False

    def request(self) -> None:
        self.is_requested = True


@asynccontextmanager
async def opened(tmp_path: Path, lan: LanOptions) -> AsyncIterator[tuple[Home, _Restart]]:
    """Open a home whose hub was started so, and may start again."""
    directory = tmp_path / "home"
    directory.mkdir(exist_ok=True)
    restart = _Restart(ServiceManager())
    host = Maintenance(Installation(directory), restart=restart, lan=lan, mqtts=free_port())
    async with open_home(directory, host=host) as home:
        yield home, restart


def _exposure(directory: Path, *words: str) -> LanOptions:
    return _lan(Installation(directory), make_parser().parse_args(["up", *words]))


async def test_other_machines_may_connect_once_it_is_switched_on_and_no_longer_once_it_is_off(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(limits, "RESTART_S", 0)
    port = free_port()
    directory = tmp_path / "home"
    async with opened(tmp_path, LanOptions(https_port=port)) as (home, restart), home.client() as client:
        before = (await client.get("/api/system/lan")).json()
        assert (before["exposure"], before["obstacle"], before["url"]) == ("loopback", "", "")
        with socket.create_server(("0.0.0.0", port)):
            taken = await client.put("/api/system/lan", json={"enabled": True})
        assert (taken.status_code, f"port {port}" in taken.text) == (422, True)
        assert _exposure(directory).exposure == "loopback"
        async with home.client(await home.token(scopes=("admin",))) as program:
            assert (await program.put("/api/system/lan", json={"enabled": True})).status_code == 403
        async with await home.left_open() as stale:
            asked = await stale.put("/api/system/lan", json={"enabled": True})
            assert asked.json()["code"] == "password_needed"
        assert (await client.put("/api/system/lan", json={"enabled": True})).status_code == 200
        assert (directory / "certs" / "server.pem").exists()
        assert restart.is_requested
        acts = (await client.get("/api/audit")).text
        assert "allow other machines to connect" in acts
    switched = _exposure(directory)
    assert (switched.exposure, switched.by_settings) == ("tls", True)
    async with opened(tmp_path, switched) as (home, _), home.client() as client:
        assert (await client.put("/api/system/lan", json={"enabled": False})).status_code == 200
    assert _exposure(directory).exposure == "loopback"


async def test_what_an_option_of_the_command_allows_is_not_changed_in_the_browser(tmp_path):
    started = _exposure(tmp_path, "--lan")
    async with opened(tmp_path, started) as (home, restart), home.client() as client:
        assert "option" in (await client.get("/api/system/lan")).json()["obstacle"]
        refused = await client.put("/api/system/lan", json={"enabled": False})
        assert (refused.status_code, restart.is_requested) == (422, False)


async def test_the_household_is_written_beside_what_stands_there_and_counts_after_a_restart(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(limits, "RESTART_S", 0)
    async with opened(tmp_path, LanOptions()) as (home, restart), home.client() as client:
        file, path = home.directory / "strawberry.toml", "/api/system/household"
        file.write_text('[household]\nlanguage = "de"  # ours\ntime_zone = "Asia/Tokyo"\n')
        for wrong in (
            {"latitude": 91, "longitude": 0},
            {"latitude": 5},
            {"time_zone": "Nowhere"},
            {"rules": ["x" * 301]},
        ):
            assert (await client.patch(path, json=wrong)).status_code == 422
        async with home.client(await home.token(scopes=("admin",))) as program:
            assert (await program.patch(path, json={})).status_code == 403
        assert not restart.is_requested
        berlin = {"latitude": 52.5, "longitude": 13.4}
        others = {"time_zone": "Asia/Tokyo", "language": "de", "units": "metric", "rules": []}
        assert (await client.patch(path, json=berlin)).json() == {**others, **berlin}
        await client.patch(path, json={"rules": ["Never open the garage."]})
        assert (await client.get(path)).json() == {**others, **berlin, "rules": ["Never open the garage."]}
        assert '"de"  # ours' in file.read_text()
        assert restart.is_requested
        file.write_text("[houshold]\n")
        assert (await client.patch(path, json=berlin)).status_code == 422
        assert file.read_text() == "[houshold]\n"


async def test_home_assistant_is_written_only_once_it_has_taken_the_token(tmp_path):
    entities: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "light.hall": ("on", {}, {}),
        "lock.door": ("locked", {}, {}),
    }
    async with (
        recorded(entities=entities, withheld={"lock.door"}) as assistant,
        opened(tmp_path, LanOptions()) as (home, _),
        home.client() as client,
    ):
        file = home.directory / "strawberry.toml"
        path = "/api/system/home-assistant"
        for url, token in (("homeassistant", TOKEN), (assistant.url, "wrong"), (assistant.url, "")):
            refused = await client.put(path, json={"url": url, "token": token})
            assert refused.status_code == 422
            assert not file.exists()
        found = await client.put(path, json={"url": assistant.url, "token": TOKEN})
        assert found.json() == {"version": "2024.4.0", "entities": 2, "exposed": 1}
        assert tomllib.loads(file.read_text())["home_assistant"] == {"url": assistant.url}
        assert TOKEN in (home.directory / ".env").read_text()
        assert TOKEN not in (await client.get("/api/audit")).text


async def test_what_of_home_assistant_is_asked_about_is_set_beside_its_address(tmp_path):
    async with opened(tmp_path, LanOptions()) as (home, restart), home.client() as client:
        file, path = home.directory / "strawberry.toml", "/api/system/home-assistant"
        file.write_text('[home_assistant]\nurl = "http://assistant:8123"  # upstairs\n')
        assert (await client.get(path)).json() == {
            "confirm": [],
            "hide": [],
            "expose": "assist",
            "unasked": 5,
        }
        for wrong in ({"unasked": -1}, {"url": "http://elsewhere:8123"}, {"expose": "none"}):
            assert (await client.patch(path, json=wrong)).status_code == 422
        changed = {"confirm": ["switch.heater_*"], "unasked": 2}
        assert (await client.patch(path, json=changed)).json() == {"hide": [], "expose": "assist", **changed}
        assert tomllib.loads(file.read_text())["home_assistant"] == {
            "url": "http://assistant:8123",
            **changed,
        }
        assert "# upstairs" in file.read_text()
        assert not restart.is_requested


@pytest.fixture
def broker(tmp_path):
    """A broker of the house with a login."""
    require(find_mosquitto() is not None, HINT)
    add = ["mosquitto_passwd", "-b", "-c", tmp_path / "passwords", "strawberry", PASSWORD]
    subprocess.run(add, check=True, capture_output=True)
    with Mosquitto(tmp_path, password_file=tmp_path / "passwords") as broker:
        yield broker


async def test_the_home_broker_is_written_only_once_it_has_taken_the_login(tmp_path, monkeypatch, broker):
    monkeypatch.setattr(limits, "RESTART_S", 0)
    async with opened(tmp_path, LanOptions()) as (home, restart), home.client() as client:
        file, path = home.directory / "strawberry.toml", "/api/system/home-broker"
        login = {"url": broker.url, "username": "strawberry", "password": PASSWORD}
        for wrong, said in (
            ({"password": "wrong"}, "refuses this login"),
            ({"username": "", "password": None}, "refuses this login"),
            ({"username": ""}, "a password needs a user name"),
            ({"url": home.hub.url}, "is not the address of a broker"),
            ({"url": home.hub.url.replace("http", "mqtt")}, "is not an MQTT broker"),
            ({"url": f"mqtt://127.0.0.1:{free_port()}"}, "no connection to"),
        ):
            refused = await client.put(path, json=login | wrong)
            assert (refused.status_code, said in refused.json()["detail"]) == (422, True), refused.text
        assert not file.exists()
        async with await home.left_open() as stale:
            assert (await stale.put(path, json=login)).json()["code"] == "password_needed"
        assert not restart.is_requested
        monkeypatch.setenv("HOME_BROKER_PASSWORD", "of compose.yaml")
        refused = await client.put(path, json=login)
        assert (refused.status_code, "has precedence" in refused.json()["detail"]) == (422, True)
        monkeypatch.delenv("HOME_BROKER_PASSWORD")
        # The second time there is a table already.
        for scheme in ("", "MQTT://\n"):
            url = broker.url.replace("mqtt://", scheme)
            taken = await client.put(path, json={**login, "url": url})
            assert taken.status_code == 204, taken.text
            assert restart.is_requested
            installation = Installation(home.directory)
            found = choose_home_link(installation, BusSettings(url="mqtt://127.0.0.1:1883", kind="embedded"))
            assert found is not None
            assert (found.url, found.login) == (
                broker.url,
                Login(username="strawberry", password=PASSWORD),
            )
        assert "s3cret" not in file.read_text()
        assert (home.directory / ".env").stat().st_mode & 0o077 == 0
        assert "s3cret" not in (await client.get("/api/audit")).text


async def test_a_home_assistant_that_announces_itself_is_found():
    info = ServiceInfo(
        "_home-assistant._tcp.local.",
        "Nest._home-assistant._tcp.local.",
        port=8123,
        parsed_addresses=["127.0.0.1"],
        properties={"location_name": "Nest\nof us", "version": "2024.3.3", "internal_url": ""},
        server="nest-of-tests.local.",
    )
    async with AsyncZeroconf(interfaces=["127.0.0.1"]) as network:
        await (await network.async_register_service(info))
        found: list[FoundHomeAssistant] = []
        # Answers that come while this machine stands still are lost.
        while not found:
            found = await look_around(interfaces=["127.0.0.1"])
    assert [(each.name, each.url, each.version) for each in found] == [
        ("Nest of us", "http://127.0.0.1:8123", "2024.3.3")
    ]


@pytest.mark.parametrize("content", [b"", b'{"steps": ["elsewhere"]}'])
async def test_skipped_steps_are_kept_and_a_damaged_list_is_none(tmp_path, content):
    async with opened(tmp_path, LanOptions()) as (home, _), home.client() as client:
        (home.directory / "hub" / "skipped_steps.json").write_bytes(content)
        assert (await client.get("/api/system/skipped")).json() == {"steps": []}
        await client.put("/api/system/skipped", json={"steps": ["people"]})
        assert (await client.get("/api/system/skipped")).json() == {"steps": ["people"]}
