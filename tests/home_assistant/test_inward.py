"""What a real Home Assistant has, used by the hub: found, switched, followed, and asked about."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from hub_agent.settings import HomeAssistantAccess, NotificationSettings
from hub_live.events import NotificationData
from hub_live.topics import Sample
from tests.home_assistant.server import HomeAssistant
from tests.hub_agent.home import Home, open_home, says
from tests.hub_registry.spokes import eventually
from tests.hub_server.test_http_direct_calls import call, post
from tests.model_server import Says, ScriptedModel, calls

CONFIGURATION = """
input_boolean:
  fan: {name: Kitchen Fan}
  one: {name: Lamp One}
  two: {name: Lamp Two}
  three: {name: Lamp Three}
  four: {name: Lamp Four}
  five: {name: Lamp Five}
  six: {name: Lamp Six}
input_number:
  level: {name: Level, min: 0, max: 255}
  degrees: {name: Degrees, min: -20, max: 50, initial: 21.5}
light:
  - platform: template
    lights:
      kitchen:
        unique_id: kitchen
        friendly_name: Kitchen Light
        value_template: "{{ states('input_boolean.fan') }}"
        level_template: "{{ states('input_number.level') | int }}"
        turn_on: {service: input_boolean.turn_on, target: {entity_id: input_boolean.fan}}
        turn_off: {service: input_boolean.turn_off, target: {entity_id: input_boolean.fan}}
        set_level:
          - service: input_boolean.turn_on
            target: {entity_id: input_boolean.fan}
          - service: input_number.set_value
            target: {entity_id: input_number.level}
            data: {value: "{{ brightness }}"}
lock:
  - platform: template
    name: Front Door
    unique_id: front_door
    value_template: "{{ is_state('input_boolean.one', 'on') }}"
    lock: {service: input_boolean.turn_on, target: {entity_id: input_boolean.one}}
    unlock: {service: input_boolean.turn_off, target: {entity_id: input_boolean.one}}
template:
  - sensor:
      - name: Kitchen Temperature
        unique_id: kitchen_temperature
        state: "{{ states('input_number.degrees') }}"
        unit_of_measurement: "°C"
        device_class: temperature
script:
  ask:
    sequence: [{service: conversation.process, data: {text: hello}}]
  ask_by_another:
    sequence: [{service: script.ask}]
  ask_by_template:
    sequence: [{service: "{{ 'conversation.process' }}", data: {text: hello}}]
  ask_by_automation:
    sequence: [{service: automation.trigger, target: {entity_id: automation.asker}}]
automation:
  - id: asker
    alias: Asker
    trigger: [{platform: event, event_type: never}]
    action: [{service: Conversation.Process, data: {text: hello}}]
recorder: {commit_interval: 0}
history:
"""


@asynccontextmanager
async def furnished(directory: Path, configuration: str = CONFIGURATION) -> AsyncIterator[HomeAssistant]:
    """Run a Home Assistant with a kitchen."""
    async with HomeAssistant(directory, configuration=configuration) as running:
        kitchen = await running.command("config/area_registry/create", name="Kitchen")
        for entity in ("light.kitchen", "sensor.kitchen_temperature"):
            await running.command(
                "config/entity_registry/update", entity_id=entity, area_id=kitchen["area_id"]
            )
        yield running


@pytest.fixture
async def assistant(home_assistant_directory: Path) -> AsyncIterator[HomeAssistant]:
    """A running Home Assistant with a kitchen, lamps, a lock and scripts."""
    async with furnished(home_assistant_directory) as running:
        yield running


@asynccontextmanager
async def hub_beside(
    assistant: HomeAssistant, directory: Path, *, url: str | None = None, **more: Any
) -> AsyncIterator[Home]:
    """Run a hub that uses this Home Assistant."""
    given: dict[str, Any] = {"url": url or assistant.url, "token": SecretStr(assistant.token)}
    settings = HomeAssistantAccess(**given, **{"expose": "all", **more.pop("settings", {})})
    async with open_home(directory, home_assistant_access=settings, **more) as home:
        yield home


async def connected(home: Home) -> None:
    """Wait until the hub has the entities."""
    await eventually(lambda: home.hub.live.home_assistant.client.health().connected)
    await eventually(lambda: home.hub.registry.search.sync() is None)


async def answer(home: Home, text: str) -> str:
    """What the assistant says to a sentence."""
    async with home.client() as client:
        response = await client.post("/v1/chat/completions", json=says(text))
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


async def test_a_light_is_switched_by_sentences_without_a_model(
    assistant: HomeAssistant, tmp_path: Path
) -> None:
    async with hub_beside(assistant, tmp_path / "home") as home:
        await connected(home)
        assert await answer(home, "Turn on the kitchen light.") == "Turned on Kitchen Light."
        await assistant.until("light.kitchen", "on")
        assert await answer(home, "set the kitchen light to 40 %") == "Set Kitchen Light to 40 %."
        await assistant.until("input_number.level", "102.0")
        assert await answer(home, "turn off the lights in the kitchen") == "Turned off Kitchen Light."
        await assistant.until("light.kitchen", "off")
        assert await answer(home, "is the front door locked?") == "No, unlocked."
        assert await answer(home, "what is the temperature in the kitchen") == "It is 21.5 °C."
        assert await answer(home, "how warm is it in the kitchen") == "It is 21.5 °C."


async def test_a_model_finds_and_switches_it(
    assistant: HomeAssistant, tmp_path: Path, model: ScriptedModel, sandbox_files: Path
) -> None:
    program = (
        "found = devices.hub.HomeAssistantSkill.find(area='Kitchen', domain='light')\n"
        "devices.hub.HomeAssistantSkill.turn_on(name=[e['id'] for e in found['entities']])"
    )
    model.script = [
        calls("search_skills", query="turn on a light"),
        calls("python_exec", code=program),
        Says(text="It is on."),
    ]
    opened = hub_beside(assistant, tmp_path / "home", model_url=model.base_url, sandbox=sandbox_files)
    async with opened as home:
        await connected(home)
        assert await answer(home, "Make it bright where I cook, would you?") == "It is on."
        await assistant.until("light.kitchen", "on")
    assert "HomeAssistantSkill.turn_on" in model.requests[1].results[0]


async def test_names_are_resolved_nothing_unknown_is_everything_and_guests_change_nothing(
    assistant: HomeAssistant, tmp_path: Path
) -> None:
    async with hub_beside(assistant, tmp_path / "home") as home, home.client() as client:
        await connected(home)
        for method, arguments, hint in (
            ("turn_on", {"name": "kitchen lihgt"}, "nearest: Kitchen Light"),
            ("turn_on", {"name": "all"}, "there are: "),
            ("turn_on", {"area": "Kitchn"}, "nearest: Kitchen"),
            ("turn_on", {"name": "front door"}, "Kitchen Fan"),
            ("turn_on", {}, "Say what is meant."),
            ("find", {"floor": "Attic"}, "there are: Kitchen"),
            ("find", {"domain": "lihgt"}, "nearest: light"),
            (
                "call_service",
                {"service": "light.turn_on", "name": "Kitchen Light", "data": {"area_id": "x"}},
                "names",
            ),
            ("call_service", {"service": "no service"}, "vacuum.start"),
            (
                "call_service",
                {"service": "light.turn_onn", "name": "Kitchen Light"},
                "nearest: light.turn_on",
            ),
        ):
            status, error = await post(client, call("hub", f"HomeAssistantSkill.{method}", **arguments))
            assert (status, error["code"]) == (422, "bad_arguments"), error
            assert hint in error["hint"]
        assert await assistant.state("light.kitchen") == "off"
        row = {"id": "light.kitchen", "name": "Kitchen Light", "area": "Kitchen", "state": "off"}
        found = await post(client, call("hub", "HomeAssistantSkill.find", area="kitchen", domain="light"))
        assert found[1]["entities"][0].items() >= row.items()
        state = await post(client, call("hub", "HomeAssistantSkill.get_state", name="Kitchen Temperature"))
        assert (state[1]["state"], state[1]["unit"], state[1]["attributes"]["device_class"]) == (
            21.5,
            "°C",
            "temperature",
        )
        guest = await home.token(await home.hub.registry.accounts.add("Gus", role="guest"))
        async with home.client(guest) as visitor:
            light = {"name": "Kitchen Light"}
            read = await post(visitor, call("hub", "HomeAssistantSkill.get_state", **light))
            changed = await post(visitor, call("hub", "HomeAssistantSkill.turn_on", **light))
        assert (read[0], changed[0], changed[1]["code"]) == (200, 403, "refused")


async def asked(home: Home, method: str, **arguments: Any) -> Any:
    """What a person is asked before a call, which is then approved."""
    body = call("hub", f"HomeAssistantSkill.{method}", **arguments)
    async with home.client() as client:
        status, question = await post(client, body)
        assert (status, question["code"]) == (409, "needs_confirmation"), question
        confirmed = await post(client, {**body, "confirmation": question["confirmation"]})
    assert confirmed[0] == 200, confirmed
    return question


async def test_locks_and_six_at_once_and_what_is_listed_ask(assistant: HomeAssistant, tmp_path: Path) -> None:
    lamps = [f"Lamp {number}" for number in ("One", "Two", "Three", "Four", "Five", "Six")]
    settings = {"confirm": ("*.fan",)}
    async with hub_beside(assistant, tmp_path / "home", settings=settings) as home, home.client() as client:
        await connected(home)
        locked = await post(client, call("hub", "HomeAssistantSkill.lock", name="front door"))
        assert locked[0] == 200
        await assistant.until("lock.front_door", "locked")
        # A sentence asks, too; where no question can be shown, it is refused.
        assert "I cannot ask here" in await answer(home, "unlock the front door")
        assert await assistant.state("lock.front_door") == "locked"
        question = await asked(home, "unlock", name="front door")
        assert "Front Door is a lock" in question["detail"]
        await assistant.until("lock.front_door", "unlocked")
        five = await post(client, call("hub", "HomeAssistantSkill.turn_off", name=[*lamps[:3], "Lamp Six"]))
        assert five[0] == 200
        question = await asked(home, "turn_on", name=lamps)
        assert "6 entities" in question["detail"]
        assert question["arguments"]["entities"][0] == "Lamp One (input_boolean.one)"
        await assistant.until("input_boolean.six", "on")
        await asked(home, "turn_on", name="Kitchen Fan")
        await asked(home, "call_service", service="persistent_notification.create", data={"message": "x"})


async def test_no_call_asks_an_assistant_not_even_through_scripts(
    assistant: HomeAssistant, tmp_path: Path
) -> None:
    async with hub_beside(assistant, tmp_path / "home") as home, home.client() as client:
        await connected(home)
        for method, arguments in (
            ("call_service", {"service": "conversation.process", "data": {"text": "hello"}}),
            ("call_service", {"service": "Conversation.Process", "data": {"text": "hello"}}),
            ("call_service", {"service": "assist_pipeline.run"}),
            ("call_service", {"service": "script.ask"}),
            ("turn_on", {"name": "ask"}),
            ("turn_on", {"name": "script.ask_by_another"}),
            ("turn_on", {"name": "script.ask_by_template"}),
            ("turn_on", {"name": "script.ask_by_automation"}),
            ("call_service", {"service": "automation.trigger", "name": "asker"}),
            ("call_service", {"service": "homeassistant.turn_on", "name": "script.ask"}),
        ):
            await is_refused(client, method, **arguments)
        # The service script.ask, which another script calls, stays that of the renamed entity.
        update = {"entity_id": "script.ask", "new_entity_id": "script.say"}
        await assistant.command("config/entity_registry/update", **update)
        await eventually(
            lambda: "script.say" in home.hub.live.home_assistant.client.entities.by_id,
        )
        await is_refused(client, "turn_on", name="script.ask_by_another")


async def is_refused(client: httpx.AsyncClient, method: str, **arguments: Any) -> None:
    """Assert that a call is refused because it asks an assistant."""
    status, error = await post(client, call("hub", f"HomeAssistantSkill.{method}", **arguments))
    assert (status, error["code"]) == (403, "refused"), error
    assert "asks an assistant" in error["detail"]


async def test_renamed_moved_removed_hidden_and_withheld_entities_are_followed(
    assistant: HomeAssistant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub_home_assistant.limits.EXPOSED_LOOK_S", 0.2)
    settings = {"hide": ("input_boolean.o*",), "expose": "assist"}
    async with hub_beside(assistant, tmp_path / "home", settings=settings) as home, home.client() as client:
        await connected(home)
        entities = home.hub.live.home_assistant.client

        async def found(**arguments: Any) -> list[str]:
            status, result = await post(client, call("hub", "HomeAssistantSkill.find", **arguments))
            return [each["id"] for each in result["entities"]] if status == 200 else []

        assert await found(name="Lamp One") == []
        update = {"entity_id": "light.kitchen", "name": "Stove\u202e\n Lamp"}
        await assistant.command("config/entity_registry/update", **update)
        await eventually(lambda: found(name="stove lamp"))
        assert await answer(home, "turn on the stove lamp") == "Turned on Stove Lamp."
        update = {"entity_id": "light.kitchen", "new_entity_id": "light.stove"}
        await assistant.command("config/entity_registry/update", **update)
        await eventually(lambda: "light.stove" in entities.entities.by_id)
        hall = await assistant.command("config/area_registry/create", name="Hall", aliases=["corridor"])
        update = {"entity_id": "light.stove", "area_id": hall["area_id"]}
        await assistant.command("config/entity_registry/update", **update)
        await eventually(lambda: found(area="corridor"))
        assert await answer(home, "turn off the lights in the corridor") == "Turned off Stove Lamp."
        await assistant.command("config/entity_registry/remove", entity_id="lock.front_door")
        await eventually(lambda: "lock.front_door" not in entities.entities.by_id)
        status, error = await post(client, call("hub", "HomeAssistantSkill.lock", name="front door"))
        assert (status, error["code"]) == (422, "bad_arguments")
        # Home Assistant reports that an entity of its registry changed; the zone is not in it.
        for entity, exposed in (("light.stove", False), ("input_boolean.two", True), ("zone.home", True)):
            assert (entity in entities.entities.by_id) is not exposed
            change = {"assistants": ["conversation"], "entity_ids": [entity], "should_expose": exposed}
            await assistant.command("homeassistant/expose_entity", **change)
            await eventually(lambda id_=entity, is_=exposed: (id_ in entities.entities.by_id) is is_)


async def test_each_side_may_restart(assistant: HomeAssistant, tmp_path: Path) -> None:
    async with hub_beside(assistant, tmp_path / "home") as home, home.client() as client:
        await connected(home)
        health = home.hub.live.home_assistant.client.health
        assistant.kill()
        await eventually(lambda: not health().connected)
        status, error = await post(client, call("hub", "HomeAssistantSkill.turn_on", name="Kitchen Light"))
        assert (status, error["code"]) == (503, "offline")
        assert "tried again" in error["hint"]
        await assistant.start()
        await connected(home)
        await eventually(lambda: "light.kitchen" in home.hub.live.home_assistant.client.entities.by_id)
        assert await answer(home, "turn on the kitchen light") == "Turned on Kitchen Light."
        await assistant.until("light.kitchen", "on")
    # The same hub again: beside it, and before it.
    async with hub_beside(assistant, tmp_path / "home") as home:
        await connected(home)
        assert await answer(home, "is the kitchen light on") == "Yes."
        assert await answer(home, "turn off the kitchen light") == "Turned off Kitchen Light."
        await assistant.until("light.kitchen", "off")
    await assistant.stop()
    async with hub_beside(assistant, tmp_path / "home") as home:
        assert not home.hub.live.home_assistant.client.health().connected
        await assistant.start()
        await connected(home)
        await eventually(lambda: "light.kitchen" in home.hub.live.home_assistant.client.entities.by_id)
        assert await answer(home, "turn on the kitchen light") == "Turned on Kitchen Light."
        await assistant.until("light.kitchen", "on")


async def test_states_are_in_the_world_and_topics_that_watchers_follow(
    assistant: HomeAssistant, tmp_path: Path
) -> None:
    async with hub_beside(assistant, tmp_path / "home") as home, home.client() as client:
        await connected(home)
        world = (await client.get("/api/world", params={"name": "Kitchen Temperature"})).json()
        [thing] = world["things"]
        assert (thing["state"], thing["unit"], thing["area"]) == (21.5, "°C", "Kitchen")
        assert (thing["topic"], thing["link"], thing["field"]) == (
            "sensor/kitchen_temperature",
            "home_assistant",
            "state",
        )
        seen: list[Sample] = []
        with home.hub.live.feed.follow("sensor/kitchen_temperature", seen.append, link="home_assistant"):
            await assistant.call("input_number.set_value", entity_id="input_number.degrees", value=25)
            await eventually(lambda: [each.value["state"] for each in seen] == [25.0])
        body = {
            "name": "warm",
            "topics": {"warm": {"topic": "sensor/kitchen_temperature", "link": "home_assistant"}},
            "instruction": "Tell me when it is warm.",
            "predicate": "warm > 30",
            "on_change": True,
        }
        made = await client.post("/api/watchers", json=body)
        assert made.status_code in (200, 201), made.text
        history = call("hub", "HomeAssistantSkill.get_history", name="Kitchen Temperature", since="1h")

        async def states() -> list[Any]:
            status, rows = await post(client, history)
            assert status == 200, rows
            return [each["state"] for each in rows]

        await eventually(lambda: _ends(states, [21.5, 25.0]))


async def _ends(read: Any, expected: list[Any]) -> bool:
    return (await read())[-len(expected) :] == expected


async def test_notifications_arrive_in_home_assistant_also_the_first_and_the_last(
    home_assistant_directory: Path, tmp_path: Path
) -> None:
    settings = NotificationSettings(urls=("notify.persistent_notification",))
    async with furnished(home_assistant_directory, f"{CONFIGURATION}\nnotify:\n") as assistant:
        async with (
            hub_beside(assistant, tmp_path / "home", notifications=settings) as home,
            home.client() as client,
        ):
            # Home Assistant is not connected yet.
            answer = await client.post("/api/notifications/test")
            assert answer.json() == [{"name": "notify.persistent_notification", "sent": True, "problem": ""}]
            last = NotificationData(subject="Strawberry", text="This was the last.")
            await home.hub.live.events.publish("admin", last)
        shown = await assistant.command("persistent_notification/get")
        assert {each["message"] for each in shown} == {"This is a test.", "This was the last."}
