"""What is published for Home Assistant, kept equal to what the owner exposes.

All that was ever retained is recorded in the database (`hub_agent.bus.home_link`) before it is published.
So what no longer belongs there is emptied, also where it was published by an earlier run of the hub.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from agent_core.search.directory import is_for
from bus.link import Message
from chat.tasks import happens
from contracts import own_version, topics
from contracts.answers.system import Discovery
from contracts.devices.presence import State
from contracts.errors import Disconnected, InvalidMessage, StrawberryError
from contracts.phrases import for_people
from contracts.rates import complaint_limit
from contracts.wire import Json, rfc3339
from hub_agent.bus.home_link import HomeLink
from hub_home_assistant import limits
from hub_home_assistant.outward.configs import MAX_STATE, ON, Announcement, Command, Handler, Place
from hub_home_assistant.outward.exposures import Exposures
from hub_home_assistant.outward.rules import Entity, entities_of, object_name
from hub_live.topics import Sample
from hub_live.topics import field as payload_field
from hub_registry.devices.directory import Directory, Entry

_log = logging.getLogger(__name__)

HUB: Final = "hub"
"""Level of the hub itself among the devices."""
_NO_PROBLEM: Final = "none"
"""What *Last problem* shows after a success; an empty text would be unknown."""
_ENDS: Final = {"OPEN": (b"open", b"100"), "CLOSE": (b"closed", b"0")}
"""State and position of a cover after a command."""
_LEARNED: Final = frozenset({"binary_sensor", "event", "sensor"})
"""What is known only once the skill has published it, which may be long after the start of the hub."""


@dataclass(eq=False)
class Publishing:
    """Publishes devices, entities and states, and takes them back. `run` it while the hub lives.

    Attributes:
        place: Gives the place of a device.
        tasks: Owns the events that are being sent.
        extend: Adds what belongs to the hub itself, and no skill, to its announcement.
        url: Where other machines find the hub's pages; None where only this one does.
        status: What Home Assistant last said of itself since this start: ``online``, ``offline``, or nothing.
        commands: What listens on each command topic.
    """

    directory: Directory
    exposures: Exposures
    home: HomeLink
    discovery: Discovery
    place: Callable[[str], Place]
    tasks: asyncio.TaskGroup
    extend: Callable[[Announcement], None] = lambda _: None
    url: str | None = None
    language: str = "en"
    status: str = ""
    commands: dict[str, Command | Handler] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._values: defaultdict[tuple[str, str], dict[str, State | None]] = defaultdict(dict)
        self._events: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._assumed: dict[str, bytes] = {}
        self._problems: dict[str, str] = {}
        self._made: dict[str, Announcement] = {}
        self._sent: dict[str, bytes] = {}
        self._areas: dict[str, str | None] = {}
        self._changed: set[str] = set()
        self._all = True
        self._is_away = False
        self._wake = asyncio.Event()
        self._complaints = complaint_limit()

    @property
    def entities(self) -> int:
        return sum(len(each.components) for each in self._made.values())

    def entities_of(self, entry: Entry) -> Iterable[tuple[str, Entity]]:
        """Iterate over what could be exposed of a device, with the path of each."""
        for skill in entry.skills.values():
            place = (entry.id, skill.name)
            try:
                found = list(entities_of(skill, self._values[place], self._events[place], self.language))
            except Exception:  # noqa: BLE001  whatever a device registers, it must not end the others
                _log.exception("%s of %s cannot be shown in Home Assistant", skill.name, entry.id)
                continue
            for entity in found:
                yield f"{entry.id}.{skill.name}.{entity.name}", entity

    def is_shown(self, entry: Entry, path: str, entity: Entity) -> bool:
        """Return whether an entity is exposed, by a person who sees the device."""
        exposure = self.exposures.find(path)
        if exposure is None or not is_for(exposure.user, entry):
            return False
        return not entity.only_by_name or self.exposures.names(path)

    def refresh(self, device: str = "") -> None:
        """Publish what has changed, of a device or of anything."""
        if device:
            self._changed.add(device)
        else:
            self._all = True
        self._wake.set()

    async def resend(self) -> None:
        """Publish everything again, after each connect: the broker may have forgotten it."""
        self._sent.clear()
        self.refresh()

    def hear_birth(self, message: Message) -> None:
        """Publish everything again when Home Assistant has started; for `Link.subscribe`.

        While it is stopped, nothing is taken back: it would miss that, and keep the entity for ever.
        """
        self.status = message.payload.decode(errors="replace")[:20]
        self._is_away = message.payload == topics.HOME_OFFLINE
        if message.payload == b"online" and not message.retain:
            self._sent.clear()
            self.refresh()

    def hear_state(self, sample: Sample) -> None:
        """Publish the state of a skill; for `Feed.follow`."""
        names = topics.STATE.match(sample.topic)
        if names is None or names["device"] not in self.directory:
            return
        device, place, name = names["device"], (names["device"], names["skill"]), names["property"]
        size = len(sample.payload)
        try:
            # A value that is too large is none, and not the one before it.
            state = topics.STATE.parse(sample.payload) if 0 < size <= limits.MAX_STATE_PAYLOAD_BYTES else None
        except InvalidMessage:
            return
        if size > limits.MAX_STATE_PAYLOAD_BYTES and self._complaints.take(device):
            _log.warning("Home Assistant does not show %s: it has %d bytes", sample.topic, size)
        if name not in self._values.get(place, ()) and not self._has_room(device):
            if self._complaints.take(device):
                _log.warning(
                    "Home Assistant does not show %s: it has %d others",
                    sample.topic,
                    limits.STATES_PER_DEVICE,
                )
            return
        self._values[place][name] = state
        if device in self._made:
            self.refresh(device)

    def _has_room(self, device: str) -> bool:
        """Return whether a property of a device can be remembered; those that went make room."""
        own = [known for (of, _), known in self._values.items() if of == device]
        if sum(map(len, own)) >= limits.STATES_PER_DEVICE:
            for known in own:
                for gone in [name for name, state in known.items() if state is None]:
                    del known[gone]
        return sum(map(len, own)) < limits.STATES_PER_DEVICE

    def hear_event(self, sample: Sample) -> None:
        """Publish an event of a device as one of its entities, if that is exposed; for `Feed.follow`."""
        names, skill = topics.EVENT.match(sample.topic), payload_field(sample.value, "skill")
        entry = self.directory.get(names["device"]) if names is not None else None
        if names is None or entry is None or not isinstance(skill, str) or skill not in entry.skills:
            return
        device, name = names["device"], names["name"]
        known = self._events[device, skill]
        if name not in known and len(known) < limits.EVENTS_PER_SKILL:
            known.add(name)
            self.refresh(device)
        told = {"event_type": name, "data": payload_field(sample.value, "data")}
        for path, entity in self.entities_of(entry):
            is_it = (entity.skill, entity.name, entity.component) == (skill, name, "event")
            if is_it and self.is_shown(entry, path, entity):
                self.send_event(device, entity.object, told)

    def send_event(self, device: str, name: str, payload: dict[str, Any]) -> None:
        self.tasks.create_task(self._send_event(device, name, payload), name="home assistant: event")

    async def _send_event(self, device: str, name: str, payload: dict[str, Any]) -> None:
        topic = self.place(device).topic("state", name)
        try:
            await self.home.link.publish(topic, json.dumps(payload).encode())
        except Disconnected as error:
            _log.info("an event is not told to Home Assistant: %s", error)

    def assume(self, topic: str, command: Command, text: str) -> None:
        """Show what was set, where the skill itself does not publish it."""
        # What commands is there; its birth message can be switched off.
        self._is_away = False
        shown = topic.replace("/set/", "/state/", 1)
        if command.verb != "press":
            self._assumed[shown] = text.encode()
        elif command.entity.component == "cover" and text in _ENDS:
            self._assumed[shown], self._assumed[f"{shown}/position"] = _ENDS[text]
        else:
            return
        self.refresh(command.path.partition(".")[0])

    def show_problem(self, topic: str, error: StrawberryError) -> None:
        """Show on its device that a command failed: Home Assistant does not learn it otherwise."""
        command = self.commands.get(topic)
        if isinstance(command, Command):
            device = command.path.partition(".")[0]
            text = f"{command.entity.label}: {error.message}. {for_people(error.hint)}".strip()
            self._problems[device] = text[:MAX_STATE]
            self.refresh(device)

    def end_problem(self, command: Command) -> None:
        """Show that the last command on a device worked."""
        device = command.path.partition(".")[0]
        if self._problems.get(device, _NO_PROBLEM) != _NO_PROBLEM:
            self._problems[device] = _NO_PROBLEM
            self.refresh(device)

    async def run(self) -> None:
        """Publish changes as they come, until cancelled."""
        while True:
            if not await happens(self._wake, within_s=limits.SEEN_LOOK_S):
                self._changed |= self._made.keys()
            await asyncio.sleep(limits.PUBLISH_SETTLE_S)
            self._wake.clear()
            try:
                await self._publish()
            except Disconnected as error:
                _log.debug("Home Assistant gets the change when the broker is back: %s", error)
                self._all = True
            except StrawberryError as error:
                _log.error("Home Assistant did not get every change: %s", error)
                self._all = True

    async def _publish(self) -> None:
        everything, changed = self._all, self._changed
        self._all, self._changed = False, set()
        devices = {entry.id for entry in self.directory.entries()} | {HUB}
        # The hub first: others are behind it.
        for device in sorted(devices | self._made.keys() if everything else changed, key=HUB.__ne__):
            made = self._announced(device) if device in devices else None
            if made is None:
                self._made.pop(device, None)
            else:
                self._made[device] = made
        self.commands = {topic: each for made in self._made.values() for topic, each in made.commands.items()}
        wanted = {each.place.node: each for each in self._made.values()}
        dropped = await self._drop(wanted)
        for node, made in wanted.items():
            area = made.device.get("suggested_area")
            if self._areas.setdefault(node, area) in (None, area):
                # A device without an area takes the first that it is given.
                self._areas[node] = area
            elif not self._is_away:
                await self._leave(made)
                self._areas[node] = area
            for topic, payload in {**made.messages(self.discovery, dropped[node]), **made.states}.items():
                if self._sent.get(topic) != payload:
                    await self.home.publish(topic, payload)
                    self._sent[topic] = payload
            if self.discovery == "device":
                # Recorded so that a component that goes is known after a restart, too.
                await self.home.record(
                    topics.discovery_topic(component, node, name) for component, name in made.components
                )

    def _announced(self, device: str) -> Announcement | None:
        try:
            return self._announce(device)
        except Exception:  # noqa: BLE001  whatever a device publishes, it must not end the others
            _log.exception("%s cannot be shown in Home Assistant", device)
            return self._made.get(device)

    def _announce(self, device: str) -> Announcement | None:
        """Make what is to be published of a device; None where nothing of it is exposed."""
        place = self.place(device)
        origin = {"name": "Strawberry", "sw_version": own_version()}
        described = {"identifiers": [place.node], "manufacturer": "Strawberry"}
        if self.url is not None:
            page = "" if device == HUB else f"/devices/{device}"
            described["configuration_url"] = f"{self.url.rstrip('/')}{page}"
        if device == HUB:
            described |= {"name": "Strawberry", "model": "Hub", "sw_version": own_version()}
            made = Announcement(place, described, origin)
            made.states[place.topic("availability")] = topics.HOME_ONLINE
            self.extend(made)
            return made if made.components else None
        entry = self.directory.get(device)
        if entry is None or entry.revoked or not self.exposures.within(device):
            return None
        described |= {"name": entry.display_name, "model": "Spoke"}
        given = {"sw_version": entry.version, "suggested_area": entry.device.area}
        described |= {key: value for key, value in given.items() if value}
        hub = Announcement(self.place(HUB), {}, origin)
        self.extend(hub)
        if hub.components:
            described["via_device"] = hub.place.node
        made = Announcement(place, described, origin, self._assumed)
        for path, entity in self.entities_of(entry):
            if self.is_shown(entry, path, entity):
                made.add_entity(entity)
        if made.components or self.exposures.find(device) is not None:
            _add_presence(made, entry)
            if made.commands:
                _add_diagnostic(made, "problem", "Last problem", self._problems.get(device), icon="mdi:alert")
            return made
        return None

    async def _drop(self, wanted: dict[str, Announcement]) -> dict[str, set[tuple[str, str]]]:
        """Empty what is published and wanted no more; return the components that went, by node."""
        entity_topics = {
            topics.discovery_topic(component, node, name)
            for node, made in wanted.items()
            for component, name in made.components
        }
        keep = {
            topic
            for made in wanted.values()
            for topic in (*made.messages(self.discovery, set()), *made.states)
        }
        gone: dict[str, set[tuple[str, str]]] = defaultdict(set)
        if self._is_away:
            return gone
        empty = []
        for topic in await self.home.recorded():
            parts = topic.split("/")
            if not self._is_ours(parts) or topic in keep or self._may_come_back(parts):
                continue
            if len(parts) == 5 and self.discovery == "device":
                if topic in entity_topics:
                    if not self._sent:
                        # From when each entity announced itself.
                        await self.home.link.publish(topic, b"", retain=True)
                    continue
                gone[parts[2]].add((parts[1], parts[3]))
            empty.append(topic)
        announced = [topic for topic in empty if topic.startswith("homeassistant/")]
        await self.home.retract(announced)
        if len(announced) not in (0, len(empty)):
            # An entity that still listens would complain about an empty state.
            await asyncio.sleep(limits.TAKEN_BACK_S)
        await self.home.retract([topic for topic in empty if topic not in announced])
        for topic in empty:
            self._sent.pop(topic, None)
        return gone

    def _is_ours(self, parts: list[str]) -> bool:
        own = self.place(HUB)
        if parts[0] == "strawberry":
            return len(parts) > 3 and parts[1] == own.instance
        return len(parts) > 3 and parts[2].startswith(own.node.removesuffix(HUB))

    def _may_come_back(self, parts: list[str]) -> bool:
        """Return whether a topic is of an entity that an earlier run learned of, and this one not yet."""
        node, name = (parts[2], parts[4]) if parts[0] == "strawberry" and len(parts) > 4 else ("", "")
        if parts[0] == "homeassistant" and len(parts) == 5 and parts[1] in _LEARNED:
            node, name = parts[2].removeprefix(self.place(HUB).node.removesuffix(HUB)), parts[3]
        skill, _, member = name.partition("-")
        entry = self.directory.get(node)
        if entry is None or skill not in entry.skills:
            return False
        exposure = self.exposures.find(f"{node}.{skill}.{member}")
        known = {*self._values[node, skill], *self._events[node, skill], *entry.skills[skill].methods}
        return exposure is not None and name not in {object_name(skill, each) for each in known}

    async def _leave(self, made: Announcement) -> None:
        """Remove a device from Home Assistant: it takes an area only for one that is new to it."""
        for topic in made.messages(self.discovery, set()):
            await self.home.link.publish(topic, b"", retain=True, confirmed=True)
            self._sent.pop(topic, None)
        await asyncio.sleep(limits.TAKEN_BACK_S)


def _add_presence(made: Announcement, entry: Entry) -> None:
    place = made.place
    made.states[place.topic("availability")] = topics.HOME_ONLINE if entry.connected else topics.HOME_OFFLINE
    shown = place.topic("state", "connected")
    made.states[shown] = ON[entry.connected].encode()
    made.add(
        "binary_sensor",
        "connected",
        "Connected",
        lasting=True,
        state_topic=shown,
        device_class="connectivity",
        entity_category="diagnostic",
    )
    if entry.last_heartbeat is not None:
        seen = place.topic("state", "seen")
        made.states[seen] = rfc3339(entry.last_heartbeat).encode()
        made.add(
            "sensor",
            "seen",
            "Last seen",
            lasting=True,
            state_topic=seen,
            device_class="timestamp",
            entity_category="diagnostic",
        )
    heartbeat = entry.heartbeat
    if heartbeat is not None:
        load = None if heartbeat.load is None else round(heartbeat.load * 100)
        of: dict[str, Json] = {"state_class": "measurement", "enabled_by_default": False}
        _add_diagnostic(made, "load", "Processor load", load, unit_of_measurement="%", icon="mdi:chip", **of)
        memory = None if heartbeat.memory_mb is None else round(heartbeat.memory_mb)
        as_size: dict[str, Json] = {"unit_of_measurement": "MiB", "device_class": "data_size", **of}
        _add_diagnostic(made, "memory", "Memory", memory, **as_size)
        as_time: dict[str, Json] = {"unit_of_measurement": "s", "device_class": "duration", **of}
        if heartbeat.battery is not None:
            as_charge: dict[str, Json] = {"unit_of_measurement": "%", "device_class": "battery"}
            _add_diagnostic(made, "battery", "Battery", heartbeat.battery, **as_charge)
        _add_diagnostic(made, "uptime", "Uptime", round(heartbeat.uptime_s), **as_time)


def _add_diagnostic(made: Announcement, name: str, label: str, value: Json, **config: Json) -> None:
    shown = made.place.topic("state", name)
    if value is not None:
        made.states[shown] = str(value).encode()
    made.add("sensor", name, label, state_topic=shown, entity_category="diagnostic", **config)
