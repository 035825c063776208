"""What a watcher is refused that names or compares what its home does not have."""

from typing import Any

import pytest

from tests.hub_live.watchers.watching import Watching
from tests.hub_registry.spokes import eventually


@pytest.fixture
async def lamp(watching: Watching) -> Watching:
    """A device that publishes ``power``, which is on or off, ``is_open`` and ``level``."""
    values: dict[str, Any] = {"power": "off", "is_open": True, "level": 5}
    for name, value in values.items():
        await watching.disk(value, name)
    world = watching.home.hub.live.world
    await eventually(lambda: len(list(world.device_states("admin"))) == len(values))
    return watching


async def _answer(lamp: Watching, topic: str, predicate: str) -> str:
    body = {"name": "w", "topics": {"x": topic}, "predicate": predicate, "then": [{"notify": "Now"}]}
    answer = await lamp.client.post("/api/watchers", json=body)
    if answer.is_success:
        await lamp.client.delete("/api/watchers/w")
        return f"made{answer.json()['note']}"
    return str(answer.json()["detail"])


async def test_what_a_value_never_is_gets_the_nearest_before_a_watcher_is_made(lamp: Watching) -> None:
    never = "x is never {} (column 6): it is {} now{}"
    for name, constant, answer in (
        ("power", '"onn"', never.format('"onn"', '"off"', "; did you mean 'on'?")),
        ("power", '"Off"', never.format('"Off"', '"off"', "; did you mean 'off'?")),
        ("power", "true", never.format("true", '"off"', "; did you mean 'on'?")),
        ("is_open", '"on"', never.format('"on"', "true", "")),
        ("is_open", "1", never.format("1", "true", "")),
        ("power", '"on"', "made"),
        ("power", '"playing"', "made"),
        ("is_open", '"unavailable"', "made"),
        ("level", '"error"', "made"),
    ):
        assert await _answer(lamp, lamp.topic(name), f"x == {constant}") == answer, constant
    assert await lamp.ask("GET") == []


async def test_a_value_goes_by_the_name_that_the_world_prints_and_a_mistake_gets_the_nearest(
    lamp: Watching,
) -> None:
    for topic, answer in (
        ("SystemSkill level", "made"),
        ("devices.nas.SystemSkill.level", "made"),
        ("SystemSkill levle", "there is no value 'SystemSkill levle'; did you mean 'SystemSkill level'?"),
        ("devices.nas.SystemSkill.levle", "levle; did you mean 'SystemSkill.level'?"),
        # It may come later, as an alarm does.
        (
            lamp.topic("alarm"),
            "/alarm yet; there are " + ", ".join(map(lamp.topic, ("is_open", "level", "power"))),
        ),
        ("devices.nas.CameraSkill.light", "made"),  # It has the skill, which may publish it later.
    ):
        assert (await _answer(lamp, topic, "x > 1")).endswith(answer), topic
