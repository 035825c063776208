"""Values that a watcher asks a read-only method for, at an interval."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_core.skills.skill import Skill, skill_method
from contracts import topics
from tests.hub_agent.home import open_home
from tests.hub_registry.spokes import eventually


@dataclass
class Size:
    """How large a tank is."""

    litres: float
    height: float


class TankSkill(Skill):
    """A tank that publishes nothing."""

    def __init__(self) -> None:
        self.value: Any = 50
        self.asked = 0

    @skill_method(read_only=True)
    def level(self, of: str = "tank") -> dict[str, Any]:
        """Return the level."""
        self.asked += 1
        if self.value is None:
            raise RuntimeError("the sensor is broken")
        return {of: self.value}

    @skill_method(read_only=True)
    def size(self) -> Size:
        """Return the size."""
        raise AssertionError

    @skill_method()
    def drain(self) -> int:
        """Drain it."""
        raise AssertionError


async def test_a_method_is_asked_while_its_watcher_watches_and_its_failures_are_in_the_trace(
    tmp_path: Path,
) -> None:
    tank = TankSkill()
    level = {"ask": "devices.yard.TankSkill.level", "arguments": {"of": "rain"}, "value": "rain"}
    body = {"name": "tank", "predicate": "level > 95", "then": [{"notify": "Tank at {level} %"}]}
    async with open_home(tmp_path / "home") as home, home.client() as client:
        await home.device("yard", tank)

        async def ask(method: str, path: str = "", json: Any = None) -> Any:
            return (await client.request(method, f"/api/watchers{path}", json=json)).json()

        async def again(outcome: str) -> None:
            """Ask now, and wait for what comes of it."""
            watched = home.hub.live.watchers.engine.get("tank")
            assert watched is not None
            await eventually(lambda: 0 < watched.asks.get("level", 0) < math.inf)
            before = tank.asked
            watched.asks["level"] = 0

            async def came() -> bool:
                trace = await ask("GET", "/tank/trace")
                return tank.asked == before + 1 and any(outcome in each["outcome"] for each in trace)

            await eventually(came)

        for wrong, problem in (
            ({"ask": "devices.yard.TankSkill.drain"}, "it is not read-only"),
            ({"ask": "devices.yard.TankSkill.levle"}, "level"),
            ({**level, "arguments": {"off": 1}}, "off"),
            ({**level, "value": None}, "level gives no single value Name a field of it"),
            ({"ask": "devices.yard.TankSkill.size"}, "gives no single value; it has litres, height"),
            ({"ask": "devices.yard.TankSkill.size", "value": "litre"}, "did you mean 'litres'?"),
            ({**level, "every": "1s"}, "is not between 10s and 31d"),
            ({"topic": "a", "every": "5m"}, "arguments and every are for ask"),
            ({}, "a value has a topic, or a method in ask"),
        ):
            refused = await ask("POST", "", {**body, "topics": {"level": wrong}})
            assert problem in f"{refused['detail']} {refused.get('hint')}", refused
        made = await ask("POST", "", {**body, "topics": {"level": {**level, "every": "1h"}}})
        assert made["state"] == "active"
        topic = topics.WATCHER_VALUE.build(user=made["owner"], watcher="tank", name="level")
        assert made["topics"]["level"] == {**level, "topic": topic, "link": "bus", "every": "1h"}
        assert "level" in made["sentence"].lower()
        await again("the condition is false")
        tank.value = 99
        await again("the condition became true")

        async def told() -> bool:
            events = await home.hub.live.events.after(0, user=None, kinds=["notification"])
            return [event.data["text"] for event in events] == ["Tank at 99 %"]

        await eventually(told)
        tank.value = None
        await again("devices.yard.TankSkill.level gave no value: ")
        # Nobody watches, and nothing is asked.
        await ask("POST", "/tank/pause")
        before = tank.asked
        assert home.hub.live.watchers.engine.get("tank") is None
        assert tank.asked == before
