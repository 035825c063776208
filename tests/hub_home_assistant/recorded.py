"""Home Assistant's WebSocket API as far as the hub asks it, for what the real one in the tests lacks.

Messages are as 2024.3.3 sends them; floors as 2024.4 and later.
"""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

TOKEN = "a-long-lived-token"


@dataclass
class Recorded:
    """What it has, and what it was asked.

    Attributes:
        entities: By id, the state, attributes and registry entry of each.
        called: The calls of services.
        withheld: Ids of the entities that are not exposed to Assist.
        hangs_up: Whether a connection is closed once it has sent everything.
    """

    entities: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    areas: list[dict[str, Any]] = field(default_factory=list)
    floors: list[dict[str, Any]] | None = None
    called: list[dict[str, Any]] = field(default_factory=list)
    withheld: set[str] = field(default_factory=set)
    url: str = ""
    hangs_up: bool = False
    connected: int = 0
    refused: int = 0

    async def answer(self, socket: ServerConnection) -> None:
        """Serve one connection."""
        await socket.send(json.dumps({"type": "auth_required", "ha_version": "2024.4.0"}))
        shown = json.loads(await socket.recv())["access_token"]
        verdict = "auth_ok" if shown == TOKEN else "auth_invalid"
        await socket.send(json.dumps({"type": verdict, "ha_version": "2024.4.0"}))
        self.refused += verdict != "auth_ok"
        while verdict == "auth_ok":
            try:
                text = await socket.recv()
            except ConnectionClosed:
                return
            message = json.loads(text)
            result = self._result(message)
            error = {"code": "unknown_command", "message": "Unknown command."}
            said = (
                {"success": False, "error": error} if result is None else {"success": True, "result": result}
            )
            await socket.send(json.dumps({"id": message["id"], "type": "result", **said}))
            if message["type"] == "subscribe_entities":
                states = {id_: {"s": s, "a": a, "lc": 1.7e9} for id_, (s, a, _) in self.entities.items()}
                await socket.send(json.dumps({"id": message["id"], "type": "event", "event": {"a": states}}))
                self.connected += 1
                if self.hangs_up:
                    return

    def _result(self, message: dict[str, Any]) -> Any:
        match message["type"]:
            case "config/floor_registry/list":
                return self.floors
            case "config/area_registry/list":
                return self.areas
            case "config/device_registry/list":
                return []
            case "config/entity_registry/list":
                return [{"entity_id": id_} for id_ in self.entities]
            case "config/entity_registry/get_entries":
                return {id_: entry for id_, (_, _, entry) in self.entities.items()}
            case "get_config":
                return {"unit_system": {"temperature": "°F"}}
            case "get_states":
                return [{"entity_id": id_} for id_ in self.entities]
            case "homeassistant/expose_entity/list":
                told = {id_: {"conversation": id_ not in self.withheld} for id_ in self.entities}
                return {"exposed_entities": told}
            case "call_service":
                self.called.append(message)
        return {}


@asynccontextmanager
async def recorded(**given: Any) -> AsyncIterator[Recorded]:
    """Serve on loopback."""
    made = Recorded(**given)
    quiet = logging.getLogger(__name__)
    # It is shown the token, too.
    quiet.disabled = True
    async with serve(made.answer, "127.0.0.1", 0, max_size=None, logger=quiet) as server:
        made.url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        yield made
