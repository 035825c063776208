"""Home Assistant as a skill of the hub; the devices of Zigbee2MQTT, where there is none."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal

from agent_core.sentences.intents import HOME_KIND
from agent_core.skills.labels import labels_of
from agent_core.skills.skill import skill_method
from agent_core.times import parse_since
from contracts.errors import Disconnected, InvalidMessage, NotFound
from contracts.wire import Json, rfc3339
from hub_agent.calls.own_skills import HubSkill
from hub_home_assistant import limits
from hub_home_assistant.inward import answers
from hub_home_assistant.inward.control import ANY, Control, Rules
from hub_home_assistant.inward.entities import Entity, House
from hub_home_assistant.inward.topics import number_or_text

_SWITCHED: Final = frozenset(
    {
        "automation",
        "climate",
        "fan",
        "group",
        "humidifier",
        "input_boolean",
        "light",
        "media_player",
        "remote",
        "scene",
        "script",
        "siren",
        "switch",
        "water_heater",
    }
)
_LEVELS: Final[dict[str, tuple[str, str, float]]] = {
    "light": ("turn_on", "brightness_pct", 1),
    "cover": ("set_cover_position", "position", 1),
    "valve": ("set_valve_position", "position", 1),
    "fan": ("set_percentage", "percentage", 1),
    "humidifier": ("set_humidity", "humidity", 1),
    "media_player": ("volume_set", "volume_level", 0.01),
}
"""By domain, the service that sets it to some per cent, its argument, and what one per cent is of that."""
_CLIMATES: Final = frozenset({"climate", "water_heater"})
_COVERS: Final = frozenset({"cover", "valve"})
_LOCKS: Final = frozenset({"lock"})
_REVIVING: Final = frozenset({"reload_config_entry", "update_entity"})
"""Services that make sense for what is not reachable."""

_ACTIONS: Final = {
    **dict.fromkeys(("start", "return_to_base"), "vacuum"),
    **dict.fromkeys(("start_mowing", "dock"), "lawn_mower"),
}
"""The domain of an action; all others are of players."""
Action = Literal[
    "media_pause", "media_play", "media_next_track", "media_previous_track", "volume_up", "volume_down",
    "start", "return_to_base", "start_mowing", "dock",
]  # fmt: skip
Names = str | list[str] | None

_reads = partial(skill_method, read_only=True, untrusted_output=True)
_acts = partial(skill_method, untrusted_output=True, timeout_s=limits.CALL_TIMEOUT_S)


class HomeAssistantSkill(HubSkill):
    """Lights, switches, covers, locks, climate, sensors: all that Home Assistant or Zigbee2MQTT has.

    name is the name or id of an entity, or a list of them: one call for all that is meant. What locks, opens
    garages, or changes many entities asks the user first.
    """

    labels = labels_of(
        "HomeAssistantSkill",
        english={
            "HomeAssistantSkill": "Home Assistant",
            "get_state": "State",
            "get_history": "History",
            "open_cover": "Open",
            "close_cover": "Close",
            "domain": "Kind",
        },
    )

    kind = HOME_KIND

    def __init__(
        self,
        house: Callable[[], House],
        *,
        rules: Callable[[], Rules],
        area_of: Callable[[str | None], str | None],
    ) -> None:
        self._house = house
        self._rules = rules
        self._area_of = area_of
        self._control = Control()

    @_reads()
    async def find(
        self,
        name: str | None = None,
        area: str | None = None,
        floor: str | None = None,
        domain: str | None = None,
        limit: int = 50,
    ) -> dict[str, Any]:
        """Find lights, switches, sensors and other entities, with their ids and states.

        Args:
            name: Its name or id, or words of it.
            area: Only in this area, for example Kitchen.
            floor: Only on this floor.
            domain: Only of this kind: light, switch, cover, lock, climate, sensor, media_player.
            limit: At most so many; "more" counts the others.
        """
        house = self._house()
        found = house.entities.find(name=name, area=area, floor=floor, domain=domain)
        shown = found[: max(1, min(limit, limits.MAX_FOUND))]
        return {"entities": [_row(house, each) for each in shown], "more": len(found) - len(shown)}

    @_reads(responses=answers.STATE)
    async def get_state(self, name: str, area: str | None = None) -> dict[str, Any]:
        """Read an entity: its state with its attributes, and since when it is so.

        Args:
            name: Its name or id.
            area: Where it is, if several have the name.
        """
        house = self._house()
        entity = self._named(name, None, area)
        row = _row(house, entity)
        shown = {key: _short(value) for key, value in house.state(entity).attributes.items()}
        return {**row, "state_de": answers.german_state(row["state"]), "attributes": shown}

    @_reads(responses=answers.MEASURE)
    async def measure(self, area: str, quantity: str = "temperature") -> dict[str, Any]:
        """Read the temperature, humidity or another quantity of an area.

        Args:
            area: An area or a floor.
            quantity: Its device class in Home Assistant: temperature, humidity, illuminance, pressure, power.
        """
        house, wanted = self._house(), quantity
        found = [each for each in house.entities.find(area=area) if each.device_class == wanted]
        readings = [
            (each, state)
            for each in found
            if isinstance(state := number_or_text(house.state(each)), int | float)
        ]
        if not readings and wanted == "temperature":
            climates = [each for each in house.entities.find(area=area) if each.domain in _CLIMATES]
            measured = ((each, house.state(each).attributes.get("current_temperature")) for each in climates)
            readings = [(each, value) for each, value in measured if isinstance(value, int | float)]
        if not readings:
            raise NotFound("nothing measures the {quantity} in {area!r}", quantity=quantity, area=area[:100])
        if len(readings) > 1:
            several = [f"{each.name}: {value:g} {each.unit or ''}".strip() for each, value in readings]
            return {"value": None, "unit": None, "name": None, "several": several}
        entity, value = readings[0]
        unit = entity.unit
        if entity.domain in _CLIMATES:
            unit = house.temperature_unit
        return {"value": value, "unit": unit, "name": entity.name, "several": None}

    @_reads()
    async def get_history(self, name: str, since: str = "24h", limit: int = 100) -> list[dict[str, Any]]:
        """Read how an entity was: its states with the time from which each held, oldest first.

        Args:
            name: Its name or id.
            since: How far back, as 30m, 24h or 7d, or a time in RFC 3339.
            limit: At most so many, the newest.
        """
        house, start = self._house(), parse_since(since)
        entity = self._named(name, None, None)
        states = await house.history(entity, start)
        return [
            {"at": _moment(each.changed), "state": number_or_text(each)}
            for each in states[-max(1, min(limit, limits.MAX_HISTORY)) :]
        ]

    @_acts(idempotent=True, responses=answers.TURN_ON)
    async def turn_on(
        self, name: Names = None, area: str | None = None, domain: str = "light"
    ) -> dict[str, Any]:
        """Turn on lights, switches, fans, media players; activate scenes; run scripts.

        Args:
            name: Names or ids; without any, all of the domain in the area.
            area: An area or a floor.
            domain: What is meant in the area: light, switch, fan.
        """
        return await self._switch("turn_on", name, area, domain)

    @_acts(idempotent=True, responses=answers.TURN_OFF)
    async def turn_off(
        self, name: Names = None, area: str | None = None, domain: str = "light"
    ) -> dict[str, Any]:
        """Turn off lights, switches, fans, media players, climate; see turn_on."""
        return await self._switch("turn_off", name, area, domain)

    @_acts(responses=answers.TOGGLE)
    async def toggle(
        self, name: Names = None, area: str | None = None, domain: str = "light"
    ) -> dict[str, Any]:
        """Turn on what is off, and off what is on; see turn_on."""
        return await self._switch("toggle", name, area, domain)

    @_acts(idempotent=True, responses=answers.SET_LEVEL)
    async def set_level(self, percent: float, name: Names = None, area: str | None = None) -> dict[str, Any]:
        """Set the brightness of lights, the position of covers, the speed of fans, the volume of players.

        Args:
            percent: 0 to 100.
            name: Names or ids; without any, all lights in the area.
            area: An area or a floor.
        """
        if not 0 <= percent <= 100:
            raise InvalidMessage("percent is 0 to 100, not {percent:g}", percent=percent)
        by_service: dict[tuple[str, str], dict[str, Json]] = {}
        entities = self._meant(name, area, frozenset(_LEVELS), "light")
        for domain in {each.domain for each in entities}:
            service, argument, scale = _LEVELS[domain]
            by_service[domain, service] = {argument: percent if scale == 1 else round(percent * scale, 4)}
        return await self._call(entities, by_service)

    @_acts(idempotent=True, responses=answers.SET_TEMPERATURE)
    async def set_temperature(
        self, degrees: float, name: Names = None, area: str | None = None
    ) -> dict[str, Any]:
        """Set the target temperature of thermostats and air conditioners.

        Args:
            degrees: In the unit of the home.
            name: Names or ids; without any, all in the area.
            area: An area or a floor.
        """
        entities = self._meant(name, area, _CLIMATES, "climate")
        data: dict[str, Json] = {"temperature": degrees}
        return await self._call(entities, {(each.domain, "set_temperature"): data for each in entities})

    @_acts(idempotent=True, responses=answers.OPEN)
    async def open_cover(self, name: Names = None, area: str | None = None) -> dict[str, Any]:
        """Open blinds, shutters, curtains, garage doors, gates, valves.

        Args:
            name: Names or ids; without any, all covers in the area.
            area: An area or a floor.
        """
        entities = self._meant(name, area, _COVERS, "cover")
        return await self._call(entities, {(each.domain, f"open_{each.domain}"): {} for each in entities})

    @_acts(idempotent=True, responses=answers.CLOSE)
    async def close_cover(self, name: Names = None, area: str | None = None) -> dict[str, Any]:
        """Close blinds, shutters, curtains, garage doors, gates, valves; see open_cover."""
        entities = self._meant(name, area, _COVERS, "cover")
        return await self._call(entities, {(each.domain, f"close_{each.domain}"): {} for each in entities})

    @_acts(idempotent=True, responses=answers.LOCK)
    async def lock(self, name: str | list[str]) -> dict[str, Any]:
        """Lock a door."""
        return await self._call(self._meant(name, None, _LOCKS, "lock"), {("lock", "lock"): {}})

    @_acts(idempotent=True, responses=answers.UNLOCK)
    async def unlock(self, name: str | list[str]) -> dict[str, Any]:
        """Unlock a door; the user confirms it."""
        return await self._call(self._meant(name, None, _LOCKS, "lock"), {("lock", "unlock"): {}})

    @_acts(idempotent=True)
    async def set_color(self, color: str, name: Names = None, area: str | None = None) -> dict[str, Any]:
        """Set the colour of lights, and turn them on.

        Args:
            color: Its English name, as red.
            name: Names or ids; without any, all lights in the area.
            area: An area or a floor.
        """
        entities = self._meant(name, area, frozenset({"light"}), "light")
        return await self._call(entities, {("light", "turn_on"): {"color_name": color}})

    @_acts()
    async def operate(self, action: Action, name: Names = None, area: str | None = None) -> dict[str, Any]:
        """Control players, vacuum cleaners and lawn mowers.

        Args:
            action: What one of that kind does.
            name: Names or ids; without any, all in the area.
            area: An area or a floor.
        """
        domain = _ACTIONS.get(action, "media_player")
        entities = self._meant(name, area, frozenset({domain}), domain)
        return await self._call(entities, {(domain, action): {}})

    @_reads()
    async def check_states(self, name: str | list[str], state: str) -> dict[str, Any]:
        """Return which of some entities are in a state, and which are not.

        Args:
            name: Names or ids.
            state: As Home Assistant has it: on, off, open, closed, locked, unlocked.
        """
        house, matched, unmatched = self._house(), list[dict[str, Json]](), list[dict[str, Json]]()
        text = ""
        for entity in self._meant(name, None, None, ""):
            value = house.state(entity).value
            is_so = value == state or answers.is_busy_as(entity, value, state)
            (matched if is_so else unmatched).append({"name": entity.name})
            said = answers.said_state(entity, number_or_text(house.state(entity)))
            text = f"{said} {entity.unit or ''}".strip()
        return {"matched": matched, "unmatched": unmatched, "state": text, "state_with_unit": text}

    @_acts(destructive=True, open_world=True)
    async def call_service(
        self, service: str, name: Names = None, data: dict[str, Json] | None = None
    ) -> dict[str, Any]:
        """Call any service of Home Assistant, for what no other method does.

        Without a name, or with nested data, the user confirms it.

        Args:
            service: With its domain, as vacuum.start or media_player.media_pause.
            name: Names or ids of the entities that it is for.
            data: Its further arguments, as {"fan_speed": "low"}.
        """
        domain, dot, made = service.strip().casefold().partition(".")
        if not dot or not domain.isidentifier() or not made.isidentifier():
            raise InvalidMessage(
                "{service!r} is no service", service=service[:100], hint="One is vacuum.start."
            )
        entities = self._meant(name, None, None, "") if name else []
        return await self._call(entities, {(domain, made): data or {}})

    async def _switch(self, service: str, name: Names, area: str | None, domain: str) -> dict[str, Any]:
        if domain not in _SWITCHED:
            raise InvalidMessage(
                "{domain!r} cannot be switched",
                domain=domain[:100],
                switched=", ".join(sorted(_SWITCHED)),
                hint="{switched} can.",
            )
        entities = self._meant(name, area, _SWITCHED, domain)
        domains = {each.domain for each in entities}
        return await self._call(entities, {(domains.pop() if len(domains) == 1 else ANY, service): {}})

    def _meant(
        self, name: Names, area: str | None, domains: frozenset[str] | None, domain: str
    ) -> list[Entity]:
        """Find the entities that are meant, each once; at least one.

        Args:
            domains: Those that named ones may be of.
            domain: That of all in an area, where none is named.
        """
        if name:
            names = [name] if isinstance(name, str) else name
            return list({(found := self._named(each, domains, area)).id: found for each in names}.values())
        place = area or self._area_of(self.asking.actor.device)
        if place is None:
            raise InvalidMessage("neither a name nor an area is given", hint="Say what is meant.")
        return self._house().entities.within(place, frozenset({domain}))

    def _named(self, name: str, domains: frozenset[str] | None, area: str | None) -> Entity:
        near = self._area_of(self.asking.actor.device)
        return self._house().entities.named(name, domains=domains, area=area, near=near)

    async def _call(
        self, entities: Sequence[Entity], services: Mapping[tuple[str, str], Mapping[str, Json]]
    ) -> dict[str, Any]:
        """Call services, each on the entities of its domain, after all of it was checked at once.

        Home Assistant accepts a call for an entity that is not available, and does nothing.
        """
        house, by_domain = self._house(), defaultdict[str, list[Entity]](list)
        revives = any(service in _REVIVING for _, service in services)
        lost = [each for each in entities if not revives and house.state(each).value == "unavailable"]
        reached = [each for each in entities if each not in lost]
        if lost and not reached:
            named = ", ".join(each.name for each in lost)
            raise Disconnected(
                "{named} cannot be reached", named=named, hint="Check its power and its connection."
            )
        for each in reached:
            by_domain[each.domain].append(each)
        for (domain, service), data in services.items():
            await self._control.check(
                self.asking,
                house,
                reached,
                service=f"{domain}.{service}",
                data=data,
                rules=self._rules(),
            )
        for (domain, service), data in services.items():
            concerned = by_domain[domain] if len(services) > 1 else reached
            if entities and not concerned:
                continue  # none of this domain can be reached
            await house.call(domain, service, concerned, data)
        names, others = ([each.name for each in some] or None for some in (reached, lost))
        return {"names": names, "ids": [each.id for each in reached], "unavailable": others}


def _row(house: House, entity: Entity) -> dict[str, Any]:
    state, place = house.state(entity), entity.place
    made = {
        "id": entity.id,
        "name": entity.name,
        "area": entity.area,
        "floor": place.floor.name if place and place.floor else None,
        "state": answers.said_state(entity, number_or_text(state)),
        "unit": entity.unit,
        "since": _moment(state.changed),
    }
    return {key: value for key, value in made.items() if value is not None or key == "state"}


def _short(value: Any) -> Json:
    text = value if isinstance(value, str) else str(value)
    return value if len(text) <= limits.MAX_ATTRIBUTE else f"{text[: limits.MAX_ATTRIBUTE]}…"


def _moment(seconds: float | None) -> str | None:
    return rfc3339(datetime.fromtimestamp(seconds, UTC)) if seconds is not None else None
