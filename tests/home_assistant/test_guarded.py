"""Alarms, garage doors, blinds and thermostats of a real Home Assistant; all in German, too."""

from pathlib import Path
from typing import Any

from agent_core.prompt import Household
from tests.home_assistant.test_inward import CONFIGURATION, answer, asked, connected, furnished, hub_beside
from tests.hub_registry.spokes import eventually
from tests.hub_server.test_http_direct_calls import call, post


def _cover(name: str, switch: str) -> str:
    return f"""
      {name.lower()}:
        friendly_name: {name}
        value_template: "{{{{ is_state('input_boolean.{switch}', 'on') }}}}"
        open_cover: {{service: input_boolean.turn_on, target: {{entity_id: input_boolean.{switch}}}}}
        close_cover: {{service: input_boolean.turn_off, target: {{entity_id: input_boolean.{switch}}}}}"""


GUARDED = f"""
{CONFIGURATION}
cover:
  - platform: template
    covers: {_cover("Garage", "three")} {_cover("Blind", "four")}
alarm_control_panel:
  - {{platform: manual, name: House Alarm, code_arm_required: false, arming_time: 0}}
climate:
  - platform: generic_thermostat
    name: Thermostat
    heater: input_boolean.five
    target_sensor: sensor.kitchen_temperature
    initial_hvac_mode: heat
    min_temp: 5
    max_temp: 30
"""


async def test_an_alarm_and_a_garage_ask_and_a_blind_and_a_thermostat_do_not(
    home_assistant_directory: Path, tmp_path: Path
) -> None:
    async with (
        furnished(home_assistant_directory, GUARDED) as assistant,
        hub_beside(assistant, tmp_path / "home") as home,
        home.client() as client,
    ):
        await connected(home)
        # It has no class: its name tells what it may be.
        question = await asked(home, "open_cover", name="Garage")
        assert "Garage may be a garage, a gate or a door" in question["detail"]
        await assistant.until("cover.garage", "open")
        assert "I cannot ask here" in await answer(home, "open the garage")
        # To close it is safe, if the words of a sentence say so.
        assert await answer(home, "close the garage") == "Closing Garage."
        await assistant.until("cover.garage", "closed")
        assert await answer(home, "open the blind") == "Opening Blind."
        await assistant.until("cover.blind", "open")

        # To arm is the safe direction, to disarm is not.
        alarms: dict[str, Any] = {"name": "House Alarm", "service": "alarm_control_panel.alarm_arm_away"}
        made = await post(client, call("hub", "HomeAssistantSkill.call_service", **alarms))
        assert made[0] == 200
        await assistant.until("alarm_control_panel.house_alarm", "armed_away")
        alarms["service"] = "alarm_control_panel.alarm_disarm"
        refused = await post(client, call("hub", "HomeAssistantSkill.call_service", **alarms))
        assert (refused[0], refused[1]["code"]) == (409, "needs_confirmation")

        async def alarm() -> bool:
            return await answer(home, "what is the house alarm") == "House Alarm: armed_away."

        # The hub hears of it by another connection.
        await eventually(alarm)

        assert await answer(home, "set the thermostat to 23 degrees") == "Set Thermostat to 23°."
        assert (await assistant.attributes("climate.thermostat"))["temperature"] == 23
        await assistant.until("input_boolean.five", "on")
        assert await answer(home, "turn off the thermostat") == "Turned off Thermostat."
        await assistant.until("climate.thermostat", "off")


async def test_in_german_by_an_alias_and_with_a_comma(home_assistant_directory: Path, tmp_path: Path) -> None:
    async with furnished(home_assistant_directory, GUARDED) as assistant:
        aliases = ["Küchenlicht", "{x} [y] (z|q)"]
        await assistant.command("config/entity_registry/update", entity_id="light.kitchen", aliases=aliases)
        household = Household(language="de-AT", time_zone="Europe/Vienna")
        async with hub_beside(assistant, tmp_path / "home", household=household) as home:
            await connected(home)
            assert await answer(home, "Schalte das Küchenlicht ein!") == "Kitchen Light: eingeschaltet."
            await assistant.until("light.kitchen", "on")
            assert await answer(home, "schalte {x} [y] (z|q) aus") == "Kitchen Light: ausgeschaltet."
            await assistant.until("light.kitchen", "off")
            assert await answer(home, "mach in der Kitchen das Licht an") == "Kitchen Light: eingeschaltet."
            await assistant.until("light.kitchen", "on")
            locked = await answer(home, "ist front door abgeschlossen")
            assert locked == "Nein, aufgeschlossen."
            assert await answer(home, "was ist Front Door") == "Front Door: nicht abgeschlossen."
            assert await answer(home, "Wie warm ist es in der Kitchen?") == "Es sind 21,5 °C."
            assert await answer(home, "Stelle Thermostat auf 22,5 Grad.") == "Thermostat: 22,5°."
            assert (await assistant.attributes("climate.thermostat"))["temperature"] == 22.5
            assert await answer(home, "ist Garage geschlossen") == "Ja."
            assert await answer(home, "fahr Blind hoch") == "Blind: wird geöffnet."
            await assistant.until("cover.blind", "open")
