"""The first steps over HTTP: access for other machines, and Home Assistant found, tried and written."""

import socket
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from contracts.answers.system import FoundHomeAssistant
from deploy.cli.commands import make_parser
from deploy.cli.serve import _lan
from deploy.directory import Home as Installation
from deploy.home.maintenance import Maintenance
from deploy.home.running import Restart
from deploy.service.notify import ServiceManager
from deploy.settings.options import LanOptions
from hub_home_assistant.inward.trial import look_around
from hub_server import limits
from tests.hub_agent.home import Home, open_home
from tests.hub_home_assistant.recorded import TOKEN, recorded
from tests.ports import free_port


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
