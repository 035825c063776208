"""A real Home Assistant as a child process, and a client of its API.

Runs from a venv of its own, set up by `make test-home-assistant`. What a person would enter in a browser
is written before its first start: an owner, a long-lived token and, where there is a broker, MQTT.
"""

import asyncio
import json
import os
import signal
import subprocess
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import httpx
import jwt
from websockets.asyncio.client import connect

from tests.hub_registry.spokes import eventually
from tests.ports import free_port
from tests.requirements import require

VENV: Final = Path(__file__).parents[2] / ".venv-home-assistant"
HINT: Final = "Home Assistant is not installed: make test-home-assistant"

_CONFIGURATION: Final = """
homeassistant: {{name: Home, latitude: 52.5, longitude: 13.4, elevation: 30, unit_system: metric,
  time_zone: Europe/Berlin, country: DE, currency: EUR}}
http: {{server_host: 127.0.0.1, server_port: {port}}}
api:
websocket_api:
config:
conversation:
logger: {{default: warning, logs: {{homeassistant.components.mqtt: info}}}}
{more}
"""
_LATER: Final = "2024.5.5"
_MISSING: Final = """from __future__ import annotations
import sys
import types
from homeassistant import components, config_entries, core, data_entry_flow
from homeassistant.helpers import event
config_entries.ConfigFlowResult = data_entry_flow.FlowResult
core.EventStateChangedData = event.EventStateChangedData
components.dhcp = sys.modules["homeassistant.components.dhcp"] = types.ModuleType("dhcp")
"""
"""What later integrations import and 2024.3.3 does not have, or only with many packages."""
_START_S: Final = 300
_USER: Final = "0" * 31 + "1"
_REFRESH: Final = "0" * 31 + "2"
_KEY: Final = "5" * 128


def find_home_assistant() -> Path | None:
    """Give the path of the program, if it is installed."""
    program = VENV / "bin" / "hass"
    return program if program.exists() else None


def install_later(directory: Path, integration: str) -> None:
    """Put an integration of a later version into a Home Assistant that is not started yet.

    Later versions need a later Python. 2024.4 is the first with a client of Ollama, 2024.5 the first to which
    ESPHome devices send sound over their connection, and not by UDP.
    """
    wheel = next((VENV / "newer").glob(f"homeassistant-{_LATER}-*.whl"), None)
    require(wheel is not None, HINT)
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.startswith(f"homeassistant/components/{integration}/"):
                files.extract(name, directory)
    place = directory / "custom_components" / integration
    place.parent.mkdir(exist_ok=True)
    (directory / "homeassistant" / "components" / integration).rename(place)
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps({**manifest, "version": _LATER}))
    code = (place / "__init__.py").read_text().replace("from __future__ import annotations\n", _MISSING, 1)
    (place / "__init__.py").write_text(code)


class HomeAssistant:
    """One Home Assistant, which can be stopped and started again; an asynchronous context manager.

    Args:
        directory: Where it keeps everything; made if it is not there.
        broker_port: The MQTT broker on loopback that it uses, with discovery; None for no MQTT.
        login: Its ``username``, ``password`` and ``client_id`` there.
        configuration: More lines for its configuration.yaml.

    Attributes:
        url: Its address, the same after each start.
        token: A long-lived token of its owner.
    """

    def __init__(
        self,
        directory: Path,
        *,
        broker_port: int | None = None,
        login: Mapping[str, str] = MappingProxyType({}),
        configuration: str = "",
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        claims = {"iss": _REFRESH, "iat": 1_700_000_000, "exp": 4_000_000_000}
        self.token = jwt.encode(claims, _KEY, algorithm="HS256")
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(exist_ok=True)
        (directory / "configuration.yaml").write_text(
            _CONFIGURATION.format(port=self.port, more=configuration)
        )
        self._seed(broker_port, login)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self.kill()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start it, and wait until it says that it is running."""
        self._launch()
        # Two seconds, or minutes where many other programs want the same processors.
        async with asyncio.timeout(_START_S):
            while not await self._is_running():  # noqa: ASYNC110 - another process tells nobody
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """End it as a service manager does, with all that it says before."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(self._process.wait, timeout=120)

    def kill(self) -> None:
        """End it without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def get(self, path: str) -> Any:
        """Ask its REST API, for example ``/api/states/light.kitchen``; None where there is no such thing."""
        return await self._request("GET", path)

    async def state(self, entity: str) -> str | None:
        """The state of an entity; None where there is no such entity."""
        found = await self.get(f"/api/states/{entity}")
        return None if found is None else str(found["state"])

    async def attributes(self, entity: str) -> dict[str, Any]:
        """The attributes of an entity; empty where there is no such entity."""
        found = await self.get(f"/api/states/{entity}")
        return {} if found is None else dict(found["attributes"])

    async def entities(self) -> set[str]:
        """The ids of all entities that have a state."""
        return {each["entity_id"] for each in await self.get("/api/states")}

    async def call(self, service: str, **data: Any) -> Any:
        """Call a service, for example ``light.turn_on``, with its data."""
        domain, _, name = service.partition(".")
        return await self._request("POST", f"/api/services/{domain}/{name}", data)

    async def set_up(self, integration: str, *steps: Mapping[str, Any]) -> str:
        """Set up an integration, as a person who fills in its forms; return the id of its entry."""
        path = "/api/config/config_entries/flow"
        form = await self._request("POST", path, {"handler": integration})
        for step in steps:
            form = await self._request("POST", f"{path}/{form['flow_id']}", step)
            assert not form.get("errors"), (form, self.log())
        return str(form["result"]["entry_id"])

    async def command(self, kind: str, **fields: Any) -> Any:
        """Give a command over its WebSocket, say ``config/device_registry/list``; return the result."""
        async with connect(f"ws://127.0.0.1:{self.port}/api/websocket", max_size=None) as socket:
            await socket.recv()
            await socket.send(json.dumps({"type": "auth", "access_token": self.token}))
            assert json.loads(await socket.recv())["type"] == "auth_ok"
            await socket.send(json.dumps({"id": 1, "type": kind, **fields}))
            answer = json.loads(await socket.recv())
        assert answer["success"], answer
        return answer["result"]

    async def devices(self) -> dict[str, dict[str, Any]]:
        """The devices of its registry, by their name."""
        return {each["name"]: each for each in await self.command("config/device_registry/list")}

    async def registry(self) -> dict[str, dict[str, Any]]:
        """The entities of its registry, by their id; also those that are disabled."""
        return {each["entity_id"]: each for each in await self.command("config/entity_registry/list")}

    async def until(self, entity: str, state: str | None) -> None:
        """Wait until an entity has a state, or, with None, until there is no such entity."""

        async def holds() -> bool:
            return await self.state(entity) == state

        await eventually(holds)

    def log(self) -> str:
        """What it wrote so far."""
        return (self.directory / "output.txt").read_text(errors="replace")

    def _launch(self) -> None:
        program = find_home_assistant()
        assert program is not None, HINT
        with (self.directory / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [program, "-c", self.directory, "--skip-pip"],
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": ""},
            )

    async def _request(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, verify=False) as client:
            answer = await client.request(method, path, json=body, timeout=120)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def _is_running(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        with suppress(httpx.TransportError):
            found = await self.get("/api/config")
            return found is not None and found["state"] == "RUNNING"
        return False

    def _seed(self, broker_port: int | None, login: Mapping[str, str]) -> None:
        """Write what a person would have entered in a browser."""
        made = datetime(2024, 1, 1, tzinfo=UTC).isoformat()
        user = {
            "id": _USER,
            "group_ids": ["system-admin"],
            "is_owner": True,
            "is_active": True,
            "name": "Ann",
            "system_generated": False,
            "local_only": False,
        }
        token = {
            "id": _REFRESH,
            "user_id": _USER,
            "client_id": None,
            "client_name": "tests",
            "client_icon": None,
            "token_type": "long_lived_access_token",
            "created_at": made,
            "access_token_expiration": 2_000_000_000.0,
            "token": "6" * 128,
            "jwt_key": _KEY,
            "last_used_at": None,
            "last_used_ip": None,
            "credential_id": None,
            "version": "2024.3.3",
        }
        groups = [{"id": "system-admin", "name": "Administrators"}]
        self._store(
            "auth", 1, {"users": [user], "groups": groups, "credentials": [], "refresh_tokens": [token]}
        )
        self._store("onboarding", 4, {"done": ["user", "core_config", "analytics", "integration"]})
        if broker_port is None:
            return
        entry = {
            "entry_id": "0" * 31 + "3",
            "version": 1,
            "minor_version": 1,
            "domain": "mqtt",
            "title": "MQTT",
            "data": {"broker": "127.0.0.1", "port": broker_port, "discovery": True, **login},
            "options": {},
            "pref_disable_new_entities": False,
            "pref_disable_polling": False,
            "source": "user",
            "unique_id": None,
            "disabled_by": None,
        }
        self._store("core.config_entries", 1, {"entries": [entry]})

    def _store(self, key: str, version: int, data: dict[str, Any]) -> None:
        file = self.directory / ".storage" / key
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"version": version, "minor_version": 1, "key": key, "data": data}))
