"""A home with a disk, a camera and a lock, and a scripted model that watches them."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from agent_core.skills.skill import Skill, skill_method
from contracts import topics
from contracts.devices.presence import State
from hub_registry.storage.tables import now
from tests.hub_agent.home import Device, Home
from tests.hub_registry.spokes import eventually
from tests.model_server import Reply, Says, SeenRequest, calls

STOP = "devices.nas.CameraSkill.stop"
INSTRUCTION = "Stop the camera node if the disk is above 95 %."


class CameraSkill(Skill):
    """A camera, and what else is in the house."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.levels: list[int] = []
        self.unlocked = 0

    @skill_method(destructive=True)
    def stop(self, node: str = "camera") -> str:
        """Stop a node."""
        self.stopped.append(node)
        return f"{node} is stopped"

    def light(self, level: int) -> None:
        """Set the light."""
        self.levels.append(level)

    @skill_method(confirm=True)
    def unlock(self) -> None:
        """Unlock the door."""
        self.unlocked += 1


class Watching:
    """What the tests do and see."""

    def __init__(self, home: Home, device: Device, camera: CameraSkill, client: httpx.AsyncClient) -> None:
        self.home = home
        self.device = device
        self.camera = camera
        self.client = client

    async def disk(self, value: Any, name: str = "disk", unit: str | None = None) -> None:
        """Publish a value, and wait until the hub has it."""
        topic = self.topic(name)
        payload = State(value=value, at=now(), unit=unit).model_dump_json().encode()
        await self.device.spoke.send(topic, payload)
        feed = self.home.hub.live.feed

        def there() -> bool:
            sample = feed.latest(topic)
            return sample is not None and sample.payload == payload

        await eventually(there)

    def topic(self, name: str = "disk") -> str:
        return topics.STATE.build(device=self.device.id, skill="SystemSkill", property=name)

    async def ask(self, method: str, path: str = "", body: Any = None, *, client: Any = None) -> Any:
        """Send a request; an error becomes its code. An approval is of what is there."""
        if path.endswith("/approve"):
            body = {"digest": (await self.show(path.split("/")[1]))["digest"], **(body or {})}
        response = await (client or self.client).request(method, f"/api/watchers{path}", json=body)
        given = response.json()
        return given["code"] if response.is_error else given

    async def add(self, name: str = "full", *, client: Any = None, **more: Any) -> Any:
        body = {
            "name": name,
            "topics": {"disk": {"topic": self.topic()}},
            "instruction": INSTRUCTION,
            "on_change": True,
            "allow": [{"path": STOP, "arguments": {"node": "camera"}}],
            **more,
        }
        return await self.ask("POST", body={k: v for k, v in body.items() if v is not None}, client=client)

    async def show(self, name: str = "full") -> Any:
        return await self.ask("GET", f"/{name}")

    async def decided(self, count: int, name: str = "full") -> list[Any]:
        """Wait for so many decisions of the model; return what is in the history, oldest first."""
        history: list[Any] = []

        async def there() -> bool:
            history[:] = [each for each in (await self.show(name))["history"] if each["decision"] != "gap"]
            watched = self.home.hub.live.watchers.engine.get(name)
            is_done = watched is None or not watched.phase.is_asking
            return len(history) >= count and is_done and all(each["state"] != "acting" for each in history)

        await eventually(there)
        return history[::-1]

    async def notes(self) -> list[str]:
        """The texts of all notifications, oldest first."""
        events = await self.home.hub.live.events.after(0, user=None, kinds=["notification"])
        return [str(event.data["text"]) for event in events]


def decides(decision: str, reason: str = "as asked", **more: Any) -> Says:
    """The reply of a model that decides."""
    return calls("decide", decision=decision, reason=reason, **more)


def stops() -> Says:
    return decides("act", "The disk is at 96 %.", call=STOP)


def script(decision: Callable[[SeenRequest], Reply] | Reply, *, predicate: str = "disk > 95") -> Any:
    """A model that proposes a predicate and decides."""

    def reply(seen: SeenRequest) -> Reply:
        if seen.tools == ["propose"]:
            return calls("propose", predicate=predicate, reason="the disk")
        assert seen.tools == ["decide"]
        return decision(seen) if callable(decision) else decision

    return reply


def asked(seen: Sequence[SeenRequest], tool: str = "decide") -> list[str]:
    """What the model was asked with a tool."""
    return [json.dumps(each.messages, ensure_ascii=False) for each in seen if each.tools == [tool]]
