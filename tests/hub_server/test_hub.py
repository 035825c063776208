"""The hub as a whole: opened, closed, and opened again."""

import asyncio
import json
import os
import stat
import time
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from contracts.errors import ConfigError
from hub_agent.settings import BusSettings, HttpSettings, HubSettings
from hub_server.service import open_hub
from identity.logins.proofs import make_proof
from spoke.membership.hub_http import HubHttp
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import LampSkill
from tests.hub_registry.spokes import eventually
from tests.ports import free_port


async def test_it_leaves_its_address_and_an_owner_only_token_for_the_command_line(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home") as home:
        address = json.loads((home.directory / "hub" / "run.json").read_text())
        assert address["url"] == home.hub.url
        assert address["pid"] == os.getpid()
        first = home.admin_token
        for file in (home.directory / "hub").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
        async with home.client() as client:
            assert (await client.get("/api/devices")).status_code == 200
    assert not (tmp_path / "home" / "hub" / "run.json").exists()
    async with open_home(tmp_path / "home") as home:
        assert home.admin_token == first, "a token that is still good is kept"
        authority = home.hub.registry.authority
        await authority.revoke([authority.check(first).jti])
    async with open_home(tmp_path / "home") as home:
        assert home.admin_token != first
        async with home.client() as client:
            assert (await client.get("/api/devices")).status_code == 200


async def test_a_busy_port_names_its_owner_and_leaves_the_first_hub_alone(home: Home, tmp_path: Path) -> None:
    settings = HubSettings(
        home=tmp_path / "second",
        bus=BusSettings(url=home.broker_url),
        http=HttpSettings(port=home.hub.http_port),
    )
    with pytest.raises(ConfigError) as caught:
        async with open_hub(settings):
            pass
    assert str(home.hub.http_port) in caught.value.message
    assert f"pid {os.getpid()}" in caught.value.message
    assert "port" in caught.value.hint
    assert not (tmp_path / "second" / "hub" / "run.json").exists()


@pytest.mark.slow
async def test_it_serves_while_the_broker_is_away_and_says_so(tmp_path: Path) -> None:
    settings = HubSettings(
        home=tmp_path, bus=BusSettings(url=f"mqtt://127.0.0.1:{free_port()}"), http=HttpSettings(port=0)
    )
    async with open_hub(settings) as hub, httpx.AsyncClient(base_url=hub.url, timeout=60) as client:
        health = (await client.get("/api/health")).json()
        assert health["status"] == "degraded"
        assert health["broker"] == {"connected": False}


async def test_what_goes_wrong_in_the_block_comes_out_as_itself(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_home(tmp_path / "home"):
            raise KeyError("mine")


async def test_it_stops_when_it_is_cancelled(tmp_path: Path) -> None:
    opened = asyncio.Event()

    async def serve() -> None:
        async with open_home(tmp_path / "home"):
            opened.set()
            await asyncio.Event().wait()

    running = asyncio.get_running_loop().create_task(serve())
    await opened.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not (tmp_path / "home" / "hub" / "run.json").exists()


async def test_it_works_under_a_base_path(tmp_path: Path) -> None:
    http = HttpSettings(port=0, base_path="/strawberry")
    async with open_home(tmp_path / "home", http=http) as home:
        assert home.hub.url.endswith("/strawberry")
        async with home.client() as client:
            assert (await client.get("/api/health")).status_code == 200
            assert (await client.get("/api/skills")).status_code == 200
        # A proof names the address that the device uses, also where a proxy takes the path off.
        device = await home.device("Bedroom PC")
        for url in (home.hub.url, home.hub.url.removesuffix("/strawberry")):
            hub = HubHttp(url, hub_key=home.hub.registry.key.kid, key=device.key)
            assert (await hub.request("GET", "/api/bus", bearer=SecretStr(device.token))).status == 200
        proof = make_proof(
            device.key,
            method="GET",
            target=f"{home.hub.url}/api/bus",
            token=device.token,
            now=time.time(),
        )
        headers = {"authorization": f"DPoP {device.token}", "dpop": proof}
        async with httpx.AsyncClient(timeout=60, verify=False) as proxy:
            stripped = home.hub.url.removesuffix("/strawberry")
            assert (await proxy.get(f"{stripped}/api/bus", headers=headers)).status_code == 200


async def test_a_device_comes_back_after_a_restart_with_its_name_and_skills(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home") as home:
        await home.device("Bedroom PC", LampSkill())
    async with open_home(tmp_path / "home") as home, home.client() as client:
        rows = (await client.get("/api/devices")).json()
        assert [(row["name"], row["skills"]) for row in rows] == [("Bedroom PC", ["LampSkill"])]


async def test_a_program_runs_in_the_sandbox_with_the_callers_rights(thinking: Home) -> None:
    lamp = LampSkill()
    device = await thinking.device("Bedroom PC", lamp, shared=True)

    async with thinking.client() as client:

        async def run(code: str, **more: str) -> dict[str, object]:
            answer = await client.post("/api/exec", json={"code": code, **more})
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        done = await run("print('hi')\ndevices.bedroom_pc.LampSkill.turn_on(level=12)")
        assert (done["status"], done["stdout"], done["error"]) == ("ok", "hi\n", None)
        assert done["value"] == "The lamp is at 12 percent."
        assert (await run("device.LampSkill.status()", device=device.id))["value"] == 12
        failed = await run("devices.bedroom_pc.LampSkill.turn_of()")
        assert failed["status"] == "error"
        assert "turn_on" in str(failed["error"])
        assert (await run("[m['path'] for m in device.search_skills('lamp')]"))["value"]
        await client.patch(f"/api/devices/{device.id}", json={"name": "Study PC"})
        old = await run("devices.bedroom_pc.LampSkill.turn_on(level=99)")
        assert "study_pc" in str(old["error"])
        here = await run("devices.bedroom_pc.LampSkill.turn_on(level=99)", device=device.id)
        assert here["status"] == "error", "the old name is no name of the current device either"
        assert (await run("devices.study_pc.LampSkill.turn_on(level=5)"))["status"] == "ok"
        await run("level = 5")
        assert (await run("level"))["value"] == 5
    # Another program of the same user: its variables are its own.
    async with thinking.client(await thinking.token()) as client:
        answer = await client.post("/api/exec", json={"code": "level"})
        assert "NameError" in answer.json()["error"]
    guest = await thinking.hub.registry.accounts.add("Guest", role="guest")
    async with thinking.client(await thinking.token(guest)) as client:
        answer = await client.post("/api/exec", json={"code": "devices.study_pc.LampSkill.turn_on(1)"})
        assert "read-only access" in answer.json()["error"]
    assert lamp.level == 5


async def test_without_its_sandbox_a_program_is_refused_and_calls_go_on(home: Home) -> None:
    lamp = LampSkill()
    await home.device("Bedroom PC", lamp)
    async with home.client() as client:
        answer = await client.post("/api/exec", json={"code": "1"})
        assert (answer.status_code, answer.json()["code"]) == (503, "sandbox_unavailable")
        body = {"device": "bedroom_pc", "skill": "LampSkill", "method": "turn_on"}
        assert (await client.post("/api/skills/call", json=body)).status_code == 200


async def test_a_fault_in_a_task_ends_neither_the_hub_nor_what_the_task_does(
    home: Home, monkeypatch: pytest.MonkeyPatch, failed_tasks: list[str]
) -> None:
    search = home.hub.registry.search
    index = search.sync

    def fails_once() -> None:
        monkeypatch.setattr(search, "sync", index)
        raise RuntimeError("a fault that was not expected")

    monkeypatch.setattr(search, "sync", fails_once)
    await home.device("Bedroom PC", LampSkill())
    await eventually(lambda: "registry: index" in str(failed_tasks))
    async with home.client() as client:
        await eventually(lambda: search.waiting == 0)
        assert (await client.post("/api/chat", json={"message": "turn on the lamp"})).status_code == 200
    assert failed_tasks == ["the task 'registry: index' failed and starts again in 1 s"]
    failed_tasks.clear()


async def test_a_removed_device_is_gone_from_every_answer(home: Home) -> None:
    device = await home.device("Bedroom PC", LampSkill())
    async with home.client() as client:
        await client.post(f"/api/devices/{device.id}/revoke")
        entry = home.hub.registry.directory.get(device.id)
        assert entry is not None
        await eventually(lambda: not entry.connected)
        body = {"device": "bedroom_pc", "skill": "LampSkill", "method": "turn_on"}
        answer = await client.post("/api/skills/call", json=body)
        assert (answer.status_code, answer.json()["code"]) == (503, "offline")
        refused = await client.post("/api/chat", json={"message": "turn on the lamp"})
        assert refused.status_code == 503, "no sentence of a device that was shut out matches"
    async with home.client(device.token) as client:
        assert (await client.post("/api/chat", json={"message": "hi"})).status_code == 401
