"""What Home Assistant asks for: command topics, as calls with the rights of who exposed the entity."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Final

from pydantic_core import from_json

from agent_core.schemas.arguments import check_arguments
from agent_core.search.catalogue import SkillCall
from agent_core.search.targets import on_device
from bus.link import Message
from contracts.chat.messages import HOME_ASSISTANT
from contracts.devices.rpc import Actor
from contracts.errors import Disconnected, Forbidden, InvalidMessage, StrawberryError, TooManyRequests
from contracts.rates import Clock, Slots, TokenBucket, TokenBuckets, complaint_limit
from contracts.wire import Json
from hub_agent.calls.audit import Origin
from hub_agent.calls.device_manager import DeviceManager
from hub_home_assistant import limits
from hub_home_assistant.outward.configs import COLOR, Command, is_number
from hub_home_assistant.outward.publishing import Publishing
from hub_home_assistant.outward.rules import parameter
from hub_registry.registry import Registry

_log = logging.getLogger(__name__)


_SWITCHED: Final = {"ON": "on", "OFF": "off"}
_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "button": {"PRESS": "press"},
    "cover": {"OPEN": "on", "CLOSE": "off", "STOP": "stop"},
    "fan": _SWITCHED,
    "light": _SWITCHED,
    "lock": {"LOCK": "on", "UNLOCK": "off"},
    "switch": _SWITCHED,
}
"""By component, the call that a payload means."""


@dataclass(eq=False)
class Commands:
    """Carries out what arrives on command topics.

    Attributes:
        clock: Seconds, for how long commands wait and how many come.
    """

    registry: Registry
    manager: DeviceManager
    publishing: Publishing
    _: KW_ONLY
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        self._tasks = self.publishing.tasks
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slots = Slots(each=limits.MOST_COMMANDS_WAITING)
        # A slider that is moved sends some values a second, an automation that went wild hundreds.
        self._rates = TokenBuckets(burst=20, per_second=2, clock=self.clock)
        self._rate = TokenBucket(burst=100, per_second=20, clock=self.clock)
        self._complaints = complaint_limit()

    def arrived(self, message: Message) -> None:
        """Start what a message asks for; for `Link.subscribe`."""
        if message.retain and message.payload:
            # It was meant once, and the broker would keep it for ever.
            self._tasks.create_task(self._empty(message.topic), name="home assistant: empty")
        if message.retain or not message.payload:
            return
        command = self.publishing.commands.get(message.topic)
        try:
            if command is None:
                raise Forbidden("nothing that is exposed listens there")
            if not self._rate.take() or not self._rates.take(message.topic):
                raise TooManyRequests("too many commands come at once")
            text = _text(message.payload)
            if not isinstance(command, Command):
                command(text)
                return
            method, given = read_command(command, text)
            key = command.path.rpartition(".")[0]
            if not self._slots.take(key):
                raise TooManyRequests("too many commands wait")
        except StrawberryError as error:
            self._refuse(message.topic, error)
            return
        self._tasks.create_task(
            self._carry_out(message.topic, command, method, given, text, key), name=f"home assistant: {key}"
        )

    async def _carry_out(
        self, topic: str, command: Command, method: str, given: dict[str, Json], text: str, key: str
    ) -> None:
        arrived = self.clock()
        try:
            async with self._locks[key]:
                await self._call(command, method, given, arrived=arrived)
            self.publishing.assume(topic, command, text)
            self.publishing.end_problem(command)
        except StrawberryError as error:
            self._refuse(topic, error)
        except Exception:  # noqa: BLE001  one command must not end the hub
            _log.exception("the command on %.200s failed", topic)
            self.publishing.show_problem(topic, StrawberryError("the hub failed; its log says more"))
        finally:
            self._slots.give_back(key)

    async def _call(self, command: Command, method: str, given: dict[str, Json], *, arrived: float) -> None:
        """Call a method for who exposed it, with the rights that this person has now.

        Raises:
            TooManyRequests: If it waited too long for those before it.
            Forbidden: If it is not exposed any more.
            StrawberryError: If there is no result.
        """
        if self.clock() - arrived > limits.STALE_COMMAND_S:
            raise TooManyRequests("it waited too long for those before it")
        exposure = self.publishing.exposures.find(command.path)
        device = command.path.partition(".")[0]
        entry = self.registry.directory.get(device)
        if exposure is None or entry is None:
            raise Forbidden("it is not exposed any more")
        opening = {
            command.entity.calls[each].name for each in command.entity.opening & command.entity.calls.keys()
        }
        if method in opening and not self.publishing.exposures.names(command.path):
            raise Forbidden(
                "{path} is exposed only with its device, so it cannot be opened from Home Assistant",
                path=command.path,
                hint="Expose it by its own name.",
            )
        user = await self.registry.accounts.get(exposure.user)
        directory = self.registry.directory.seen_by(user.id)
        target = on_device(directory.find_on(entry, command.entity.skill, method))
        actor = Actor(user=user.id, agent=HOME_ASSISTANT, read_only=user.read_only)
        arguments = check_arguments(target.method, [], given)
        await self.manager.call(actor, SkillCall(target, arguments), origin=Origin(token=HOME_ASSISTANT))

    def _refuse(self, topic: str, error: StrawberryError) -> None:
        self.publishing.show_problem(topic, error)
        log = _log.warning if self._complaints.take(topic) else _log.debug
        log("Home Assistant asked for %.200s: %s", topic, error)

    async def _empty(self, topic: str) -> None:
        with suppress(Disconnected, ValueError):
            await self.publishing.home.link.publish(topic, b"", retain=True)


def read_command(command: Command, text: str) -> tuple[str, dict[str, Json]]:
    """Return the method that a payload asks for, and its arguments.

    Raises:
        InvalidMessage: If the payload is none that Home Assistant sends to this entity.
    """
    entity, verb = command.entity, command.verb
    calls: Mapping[str, str] = {field: method.name for field, method in entity.calls.items()}
    field = _WORDS.get(entity.component, {}).get(text, "") if verb in ("press", "set") else ""
    if verb == "set_mode" and verb not in calls:
        field = "" if text not in (entity.appearance.options or ()) else "off" if text == "off" else "on"
    if field in calls:
        return calls[field], {}
    value: Json = text
    if verb in ("set_brightness", "set_speed") or (
        entity.component in ("number", "cover", "climate") and verb == "set"
    ):
        with suppress(ValueError):
            value = from_json(text)
        if not is_number(value):
            raise InvalidMessage(f"{text[:40]!r} is no number")
        value = int(value) if value == int(value) else value
    elif verb == "set" and entity.component in ("switch", "light") and text in ("ON", "OFF"):
        value = text == "ON"
    elif not (verb == "set_color" and COLOR.fullmatch(text)) and (
        (entity.component != "select" and verb != "set_mode") or text not in (entity.appearance.options or ())
    ):
        raise InvalidMessage(f"{text[:40]!r} is nothing that can be set here")
    only = parameter(entity.calls[verb]) if verb in calls else None
    if only is None:
        raise InvalidMessage("nothing can be set here")
    return calls[verb], {only[0]: value}


def _text(payload: bytes) -> str:
    if len(payload) > limits.MAX_COMMAND_BYTES:
        raise InvalidMessage(f"a command has at most {limits.MAX_COMMAND_BYTES:,} bytes")
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise InvalidMessage("a command is text") from None
