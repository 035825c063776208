"""Home Assistant as a house: its connection kept up, its entities and states kept up to date."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from chat.tasks import happens, open_tasks
from contracts.errors import Disconnected, LinkError, LoginRefused, NotFound
from contracts.rates import Backoff
from contracts.wire import Json, Part, rfc3339
from hub_agent.settings import HomeAssistantAccess
from hub_home_assistant import limits
from hub_home_assistant.inward.connection import HomeAssistantConnection, Refused, open_connection
from hub_home_assistant.inward.entities import UNKNOWN, Entity, EntityIndex, State
from hub_home_assistant.inward.registry import Registries, changed_states, read_exposed, read_registries
from hub_home_assistant.inward.topics import StateTopics

_log = logging.getLogger(__name__)

_CHANGES: Final = (
    "area_registry_updated",
    "floor_registry_updated",
    "device_registry_updated",
    "entity_registry_updated",
)
_SERVICE_KEYS: Final = ("service", "action", "service_template")
_STARTERS: Final = frozenset({"automation", "homeassistant", "script"})
"""Domains whose services start scripts and automations."""
_PLACES: Final = frozenset({"area_id", "device_id", "floor_id", "label_id"})
"""Targets with entities that are only known when a service is called."""


class HomeAssistantHealth(Part):
    """Whether Home Assistant is connected, and what was wrong last."""

    connected: bool
    error: str | None


class HomeAssistant:
    """A ``House`` that is Home Assistant; none while no settings are given.

    Args:
        topics: Gets the states.

    Attributes:
        on_entities: Called when there are other entities.
        settings: Where it is; None where there is none.
        entities: Those that there are; what was known stays while the connection is lost.
        withheld: Ids of those that are left out since Assist does not have them.
        temperature_unit: See `House`.
    """

    def __init__(self, settings: HomeAssistantAccess | None, *, topics: StateTopics) -> None:
        self.settings = settings
        self.entities = EntityIndex()
        self.withheld: frozenset[str] = frozenset()
        self.temperature_unit = "°C"
        self.on_entities: Callable[[], None] = lambda: None
        self._topics = topics
        self._connection: HomeAssistantConnection | None = None
        self._error: LinkError | None = None
        self._states: dict[str, State] = {}
        self._registries = Registries()
        self._changed = asyncio.Event()
        self._is_outdated = False
        self._other_settings = asyncio.Event()
        self._try_now = asyncio.Event()
        self._tried = asyncio.Event()

    def use(self, settings: HomeAssistantAccess | None) -> None:
        """Use another Home Assistant, or none, from now on; try the same again at once if it is away."""
        self._try_now.set()
        if settings != self.settings:
            self.settings = settings
            self._other_settings.set()

    def health(self) -> HomeAssistantHealth | None:
        """Return whether it is connected; None where there is none."""
        if self.settings is None:
            return None
        error = self._error.message if self._error is not None else None
        connected = self._connection is not None
        return HomeAssistantHealth(connected=connected, error=error)

    async def run(self) -> None:
        """Keep up with it until cancelled."""
        while True:
            self._other_settings.clear()
            async with open_tasks() as tasks:
                if self.settings is not None:
                    tasks.create_task(self._stay_connected(self.settings), name="Home Assistant")
                await self._other_settings.wait()
            self._states.clear()
            self._registries = Registries()
            await self._show()

    def state(self, entity: Entity) -> State:
        known = self._states.get(entity.id) if self._connection is not None else None
        return known or State()

    async def call(
        self, domain: str, service: str, entities: Sequence[Entity], data: Mapping[str, Json]
    ) -> None:
        fields: dict[str, Json] = {"service_data": dict(data)}
        if entities:
            fields["target"] = {"entity_id": [each.id for each in entities]}
        await self._connected().call_service(domain, service, within_s=limits.SERVICE_S, **fields)

    async def notify(self, name: str, data: Mapping[str, Json]) -> None:
        """Send a notification by ``notify.NAME``: in newer versions that may be an entity.

        The first attempt to connect is waited for: alarms of the time without the hub come at its start.

        Raises:
            StrawberryError: If it is not there, or refuses.
        """
        if self.settings is not None:
            await self._tried.wait()
        if name in self._states:
            await self.call("notify", "send_message", [Entity(name, name)], data)
        else:
            domain, _, service = name.partition(".")
            await self.call(domain, service, (), data)

    async def services_of(self, script: str) -> frozenset[str]:
        domain, _, name = script.partition(".")
        # The service of a script keeps its name when its entity gets another id.
        entries = self._registries.entries.items()
        wanted = domain, name
        own = (id_ for id_, each in entries if (each.get("platform"), each.get("unique_id")) == wanted)
        services = set[str]()
        for entity in {script, *own}:
            try:
                config = await self._connected().ask(f"{domain}/config", entity_id=entity)
            except Refused as error:
                if error.code != "not_found":
                    raise
            else:
                services.update(services_in(config))
        return frozenset(services)

    async def history(self, entity: Entity, since: float) -> list[State]:
        try:
            found = await self._connected().ask(
                "history/history_during_period",
                start_time=rfc3339(datetime.fromtimestamp(since, UTC)),
                entity_ids=[entity.id],
                significant_changes_only=False,
                no_attributes=True,
                minimal_response=True,
            )
        except Refused as error:
            if error.code != "unknown_command":
                raise
            raise NotFound(
                "Home Assistant keeps no history", hint="Its integrations recorder and history are off."
            ) from None
        attributes = self.state(entity).attributes
        rows: list[dict[str, Any]] = found.get(entity.id) or []
        return [State(row.get("s"), attributes, row.get("lc", row.get("lu"))) for row in rows]

    def _connected(self) -> HomeAssistantConnection:
        if self._connection is None:
            why = f": {self._error.message}" if self._error is not None else ""
            raise Disconnected("Home Assistant is not connected{why}", why=why, hint="It is tried again.")
        return self._connection

    async def _stay_connected(self, settings: HomeAssistantAccess) -> None:
        backoff, loop = Backoff(*limits.RECONNECT_S), asyncio.get_running_loop()
        while True:
            began = loop.time()
            error = LinkError("the connection was lost")
            try:
                async with open_connection(settings) as connection:
                    await self._follow(connection)
            except LinkError as failure:
                error = failure
            except Exception:  # noqa: BLE001 - the hub goes on without it
                _log.exception("what Home Assistant sends cannot be read")
                error = LinkError("what it sends cannot be read")
            finally:
                if self._connection is not None and loop.time() - began >= limits.STEADY_S:
                    backoff.reset()
                self._connection = None
                self._topics.disconnect()
            if self._error is None or self._error.message != error.message:
                _log.warning("Home Assistant: %s", error.message)
            self._error = error
            self._tried.set()
            self._try_now.clear()
            wait_s = limits.REFUSED_S if isinstance(error, LoginRefused) else backoff.next()
            await happens(self._try_now, within_s=wait_s)

    async def _follow(self, connection: HomeAssistantConnection) -> None:
        """Read everything, and then what changes until the connection ends."""
        first = asyncio.Event()
        for kind in _CHANGES:
            await connection.subscribe(self._note_registries, "subscribe_events", event_type=kind)
        config = await connection.ask("get_config")
        units = config.get("unit_system") if isinstance(config, dict) else None
        is_fahrenheit = isinstance(units, dict) and units.get("temperature") == "°F"
        self.temperature_unit = "°F" if is_fahrenheit else "°C"
        self._registries = await read_registries(connection)
        self._is_outdated = False
        self._states.clear()

        def hear(event: dict[str, Any]) -> None:
            changed, is_other = changed_states(self._states, event)
            self._topics.put(changed, self._states, self.entities.by_id)
            if is_other:
                self._changed.set()
            first.set()

        await connection.subscribe(hear, "subscribe_entities")
        if not await happens(first, within_s=limits.FIRST_ENTITIES_S):
            raise LinkError(
                "Home Assistant sends no states within {within:.0f} s", within=limits.FIRST_ENTITIES_S
            )
        if not self._is_outdated:
            self._changed.clear()
        await self._show()
        # Who hears that it is connected finds all of it.
        self._connection, self._error = connection, None
        self._tried.set()
        await self._topics.connect()
        _log.info("Home Assistant %s has %d entities", connection.version, len(self.entities))
        async with open_tasks() as tasks:
            tasks.create_task(self._keep_up(connection), name="registries of Home Assistant")
            await connection.closed()

    def _note_registries(self, _: object) -> None:
        self._is_outdated = True
        self._changed.set()

    async def _keep_up(self, connection: HomeAssistantConnection) -> None:
        """Show other entities and names; while it starts, thousands come one by one."""
        while True:
            if not await happens(self._changed, within_s=limits.EXPOSED_LOOK_S):
                exposed = await read_exposed(connection, self._registries.entries)
                if exposed == self._registries.exposed:
                    continue
                self._registries = replace(self._registries, exposed=exposed)
            await asyncio.sleep(limits.CHANGES_SETTLE_S)
            self._changed.clear()
            if self._is_outdated:
                self._is_outdated = False
                self._registries = await read_registries(connection)
            await self._show()

    async def _show(self) -> None:
        """Show the entities as they are now, and the states of those that came or went."""
        settings, index, states = self.settings, self._registries.index, dict(self._states)
        # Two thousand entities take 0.2 s; those that were known stay meanwhile.
        made = await asyncio.to_thread(index, states, settings) if settings is not None else None
        self.entities = made or EntityIndex()
        self.withheld = self._registries.withheld(states, settings) if settings is not None else frozenset()
        self._topics.put({*self._topics.entities, *self._states}, self._states, self.entities.by_id)
        self.on_entities()


def services_in(config: Any) -> Iterator[str]:
    """Iterate over the services that the configuration of a script may call.

    `UNKNOWN` is among them for a template, and where scripts are started by area, label or group. Scripts
    and automations are among them also where another service starts them.
    """
    match config:
        case dict():
            named = [config[key] for key in _SERVICE_KEYS if isinstance(config.get(key), str)]
            yield from map(_service, named)
            targets = [config, config.get("target"), config.get("data")]
            starts = any(each.partition(".")[0].strip().lower() in _STARTERS for each in named)
            if starts and any(_is_group(each) for each in targets if isinstance(each, dict)):
                yield UNKNOWN
            for value in config.values():
                yield from services_in(value)
        case list():
            for each in config:
                yield from services_in(each)
        case str():
            names = (each.strip().lower() for each in config.split(","))
            yield from (each for each in names if each.startswith(("script.", "automation.")))


def _is_group(target: dict[str, Any]) -> bool:
    """Return whether a target may have scripts that it does not name."""
    given = target.get("entity_id", ())
    names = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [given]
    named = [str(each).strip().lower() for each in names]
    is_open = any(each == "all" or each.startswith("group.") or "{" in each for each in named)
    return is_open or not _PLACES.isdisjoint(target)


def _service(named: str) -> str:
    service = named.strip().lower()
    domain, _, rest = service.partition(".")
    return UNKNOWN if "{" in domain or (domain in _STARTERS and "{" in rest) else service
