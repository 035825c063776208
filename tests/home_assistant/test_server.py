"""Home Assistant itself, as the tests use it."""

import json

from bus.link import LinkSettings
from tests.home_assistant.server import HomeAssistant
from tests.hub_agent.home import linked
from tests.mosquitto import Mosquitto


async def test_what_is_announced_over_mqtt_is_there_until_it_is_taken_back(
    home_assistant: HomeAssistant, mosquitto: Mosquitto
) -> None:
    config = {
        "unique_id": "a_lamp",
        "name": "Lamp",
        "command_topic": "a/set",
        "state_topic": "a/state",
        "device": {"identifiers": ["a"], "name": "A"},
    }
    topic = "homeassistant/switch/a/lamp/config"
    async with linked(LinkSettings(urls=(mosquitto.url,), client_id="a")) as link:
        await link.publish(topic, json.dumps(config).encode(), retain=True)
        await home_assistant.until("switch.a_lamp", "unknown")
        assert list(await home_assistant.devices()) == ["A"]
        await home_assistant.stop()
        await home_assistant.start()
        await home_assistant.until("switch.a_lamp", "unknown")
        # Retained: it subscribes only a while after it has announced the entity.
        await link.publish("a/state", b"ON", retain=True)
        await home_assistant.until("switch.a_lamp", "on")
        await link.publish(topic, b"", retain=True)
        await home_assistant.until("switch.a_lamp", None)
    assert await home_assistant.devices() == {}
