"""The base class of skills and the decorator of their methods."""

import logging
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from agent_core import limits
from agent_core.skills.home import Home, HomeCaller
from agent_core.skills.results import Publication, SkillSink, to_json
from agent_core.times import parse_duration
from contracts.devices.registration import MethodFlags

if TYPE_CHECKING:
    from agent_core.skills.settings import StoredSettings
    from agent_core.skills.tasks import SkillTasks

_OPTIONS: Final = "__skill_method__"
_TRIGGERS: Final = "__skill_triggers__"
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}\Z")

_CANCEL_FLAG: ContextVar[threading.Event | None] = ContextVar("cancel_flag", default=None)
"""Set by the runner for the time of a call, so that a skill need not be handed it."""

DEFAULT_TIMEOUT_S: Final = 30.0
MAX_TIMEOUT_S: Final = 900.0

Method = TypeVar("Method", bound=Callable[..., Any])


class SkillCancelled(Exception):
    """The caller gave up, and the method stopped where it could.

    A signal to the method, not an error: outside the tree, so that what handles errors lets it pass.
    """


@dataclass(frozen=True)
class MethodOptions:
    """What an author declares about a method beyond its signature.

    Attributes:
        flags: What the method may do.
        timeout_s: How long one call may run, in seconds.
        concurrency: How many calls of this method run at the same time; None leaves it to the skill.
        sentences: Sentence templates by language (BCP 47).
        responses: Response templates by language.
    """

    flags: MethodFlags = field(default_factory=MethodFlags)
    timeout_s: float = DEFAULT_TIMEOUT_S
    concurrency: int | None = None
    sentences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    responses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SkillContext:
    """The folder and the sink that a host provides to a skill.

    Attributes:
        data_dir: The skill's own folder; made when it is first asked for.
        sink: Where states and events go.
        home: Calls other skills; None where that cannot be done.
        variables: Those of ``.env`` in the folder of skills, for settings.
    """

    data_dir: Path
    sink: SkillSink
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    home: HomeCaller | None = field(default=None, repr=False)


def skill_method(
    *,
    read_only: bool = False,
    idempotent: bool = False,
    destructive: bool = False,
    open_world: bool = False,
    confirm: bool = False,
    untrusted_output: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    concurrency: int | None = None,
    sentences: Mapping[str, Sequence[str]] | None = None,
    responses: Mapping[str, str] | None = None,
) -> Callable[[Method], Method]:
    """Declare what a method of a skill may do. Without it, a person is asked before a model calls it.

    Args:
        read_only: It changes nothing, anywhere.
        idempotent: Calling it twice has the same effect as calling it once.
        destructive: It can lose something for good.
        open_world: It reaches outside the home.
        confirm: A person confirms each call.
        untrusted_output: It returns text that strangers wrote: web pages, mail, feeds.
        timeout_s: How long one call may run, in seconds; at most 900.
        concurrency: How many calls of it run at the same time; by default what the skill allows.
        sentences: Sentence templates by language; a spoken or typed sentence that matches one runs the
            method without a model: ``{"en": ["turn on [the] lamp"]}``.
        responses: The sentence for the result, by language: ``{"en": "The lamp is {result.is_on:on|off}."}``.
            Without one it is written by the types of its values.

    Raises:
        ValueError: The timeout or the concurrency is out of range.
    """
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise ValueError(f"timeout_s is more than 0 and at most {MAX_TIMEOUT_S:g}, not {timeout_s}")
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"concurrency is at least 1, not {concurrency}")
    options = MethodOptions(
        flags=MethodFlags(
            read_only=read_only,
            idempotent=idempotent,
            destructive=destructive,
            open_world=open_world,
            confirm=confirm,
            untrusted_output=untrusted_output,
            unknown=False,
        ),
        timeout_s=timeout_s,
        concurrency=concurrency,
        sentences={language: tuple(templates) for language, templates in (sentences or {}).items()},
        responses=dict(responses or {}),
    )

    def mark(method: Method) -> Method:
        function = method.__func__ if isinstance(method, (staticmethod, classmethod)) else method
        setattr(function, _OPTIONS, options)
        return method

    return mark


def options_of(owner: type, name: str) -> MethodOptions:
    """Return the options of a method; an override without a decorator keeps those of its base class.

    An override that silently lost ``confirm`` would be a hole.
    """
    for base in owner.__mro__:
        member = vars(base).get(name)
        options = getattr(getattr(member, "__func__", member), _OPTIONS, None)
        if isinstance(options, MethodOptions):
            return options
    return MethodOptions()


TriggerKind = Literal["every", "at", "event", "value"]


@dataclass(frozen=True)
class Trigger:
    """When a method runs by itself.

    Attributes:
        source: Name of an event, or ``Skill.name`` of a value.
        interval_s: Of ``every``.
        times: Of ``at``, in the home's time zone.
    """

    kind: TriggerKind
    source: str = ""
    interval_s: float = 0.0
    times: tuple[time, ...] = ()


def every(interval: str) -> Callable[[Method], Method]:
    """Run a method when its skill starts and then at an interval, such as ``30s``, ``5m`` or ``1h30m``.

    Raises:
        ValueError: It is no duration, or shorter than a second.
    """
    seconds = parse_duration(str(interval))  # an author may well write 30
    if not limits.LEAST_INTERVAL_S <= seconds <= limits.MAX_INTERVAL_S:
        raise ValueError(f"an interval is at least 1s and at most 366d, not {interval}")
    return _marking(Trigger("every", interval_s=seconds))


def at(*times: str) -> Callable[[Method], Method]:
    """Run a method each day at times such as ``07:30``, in the time zone of the home.

    Raises:
        ValueError: One is no time of day.
    """
    if not times:
        raise ValueError("at() needs a time, such as 07:30")
    return _marking(Trigger("at", times=tuple(map(_time_of_day, times))))


def on_event(name: str) -> Callable[[Method], Method]:
    """Run a method at an event of a skill of this device.

    The method is given what the event carries, if it takes an argument.

    Raises:
        ValueError: No skill can publish it, as a topic of another device.
    """
    return _marking(Trigger("event", _topic_level(name)))


def on_value(path: str) -> Callable[[Method], Method]:
    """Run a method when a value that a skill publishes has changed, as ``BoilerSkill.temperature``.

    The skill is one of this device. The method is given the new value, if it takes an argument. It runs for
    the first value, too, and only for the latest of several.

    Raises:
        ValueError: It is no path.
    """
    if path.count(".") != 1 or "/" in path:
        raise ValueError(f"a value of this device is named as BoilerSkill.temperature, not {path!r}")
    return _marking(Trigger("value", path))


def _marking(trigger: Trigger) -> Callable[[Method], Method]:
    def mark(method: Method) -> Method:
        setattr(method, _TRIGGERS, (*getattr(method, _TRIGGERS, ()), trigger))
        return method

    return mark


def _time_of_day(text: str) -> time:
    try:
        return datetime.strptime(text.strip(), "%H:%M").time()  # noqa: DTZ007 - a time of any day
    except ValueError:
        raise ValueError(f"{text!r} is no time of day, such as 07:30") from None


def triggers_of(member: object) -> tuple[Trigger, ...]:
    """Return the triggers of a method."""
    found: tuple[Trigger, ...] = getattr(member, _TRIGGERS, ())
    return found


def triggered(owner: type) -> Iterator[tuple[str, tuple[Trigger, ...]]]:
    """Return the methods of a class that run by themselves, those of its bases included."""
    members = {name: member for base in reversed(owner.__mro__) for name, member in vars(base).items()}
    for name, member in sorted(members.items()):
        if found := triggers_of(member):
            yield name, found


@dataclass(frozen=True)
class Unit:
    """The unit of a number, in its type hint: ``Annotated[float, Unit("°C")]``.

    Answers show it. Bytes (``B``) and seconds (``s``) are written as people say them.
    """

    name: str

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(core_schema), "unit": self.name}


class Skill:
    """Base class of skills.

    Every public method that the class itself defines can be called. Methods of its base classes cannot;
    ``play = Player.play`` in the class body offers one on purpose.

    Attributes:
        device_agnostic: Any device with this skill serves as well as another.
        area: Where the skill acts, if that is not where the device stands.
        kind: What it is to everyday sentences ("turn on the light"), where its methods do not show it: light,
            switch, fan, cover, lock, climate, media_player, vacuum, lawn_mower, scene, timer, list, weather.
        labels: By language, what people call the skill, its methods, arguments, states and values, where the
            name itself does not say it: ``{"de": {"LampSkill": "Lampe", "turn_on": "Einschalten"}}``.
        concurrency: How many calls of this skill run at the same time; further ones wait.
        homeassistant: By method or state, what it is in Home Assistant, beyond what follows from its name:
            ``{"set_level": {"component": "number", "unit": "%"}}``; see ``docs/home-assistant.md``.
        uses: What it calls on other devices: ``("kitchen.LampSkill.turn_on",)``, with ``*`` on any device.
        Settings: What the owner can set, as a pydantic model; the skill waits for fields without a default.
    """

    device_agnostic: ClassVar[bool] = False
    area: ClassVar[str | None] = None
    kind: ClassVar[str | None] = None
    labels: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    concurrency: ClassVar[int] = 8
    homeassistant: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    uses: ClassVar[Sequence[str]] = ()
    Settings: ClassVar[type[BaseModel] | None] = None

    _context: SkillContext | None = None
    _stored_settings: "StoredSettings | None" = None
    _tasks: "SkillTasks | None" = None

    @classmethod
    def can_run(cls) -> bool:
        """Return whether what the skill needs is available; if not, it is left out without a problem."""
        return True

    async def setup(self) -> None:
        """Prepare; runs before the first call, and again after a growing wait where it fails."""

    async def close(self) -> None:
        """Release what ``setup`` took."""

    @property
    def data_dir(self) -> Path:
        """The skill's own folder, readable by its owner only."""
        folder = self._given.data_dir
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    @property
    def settings(self) -> Any:
        """The present values of its ``Settings``; the defaults while it is not hosted.

        Raises:
            CallError: Some have no value yet. It is not set up then, but its constructor runs.
        """
        if self.Settings is None:
            raise AttributeError(f"{type(self).__name__} declares no Settings")
        return self.stored_settings.value if self.stored_settings is not None else self.Settings()

    @property
    def stored_settings(self) -> "StoredSettings | None":
        """Return where its settings are kept; None where it has none, or is not hosted."""
        if self._stored_settings is None and self.Settings is not None and self._context is not None:
            from agent_core.skills.settings import StoredSettings

            self._stored_settings = StoredSettings(
                self.Settings,
                self._context.data_dir,
                skill=type(self).__name__,
                variables=self._context.variables,
            )
        return self._stored_settings

    def task(self, work: Callable[..., Coroutine[Any, Any, object]], *arguments: Any, name: str = "") -> None:
        """Run an ``async`` method in the background until the skill ends: ``self.task(self._watch)``.

        Where it fails, that is logged and shown, and it starts again after 5 s, 10 s … 5 min.

        Args:
            work: The function itself, without parentheses.
            arguments: What it is called with.
            name: For the log; else that of the function.

        Raises:
            TypeError: It is no ``async def`` function.
            RuntimeError: The skill is not hosted.
        """
        if self._tasks is None:
            raise RuntimeError(f"{type(self).__name__} is not hosted: tasks begin in its set-up or later")
        self._tasks.run(work, *arguments, name=name)

    @property
    def home(self) -> Home:
        """The skills of the home: ``await self.home.devices.kitchen.LampSkill.turn_on()``.

        They are called with the rights of the caller of the method that runs. A plain method needs no
        ``await``.
        """
        if self._given.home is None:
            raise RuntimeError(f"{type(self).__name__} cannot call other skills here: no hub is there")
        return Home(self._given.home, type(self).__name__)

    @property
    def log(self) -> logging.Logger:
        return logging.getLogger(f"strawberry.skills.{type(self).__name__}")

    def state(
        self, name: str, value: object, *, unit: str | None = None, device_class: str | None = None
    ) -> None:
        """Publish a value that stays until the next one.

        Args:
            name: Letters, digits, ``_``, ``-`` and ``.``.
            value: Anything that a method may return.
            unit: Unit of measurement, for example ``°C``.
            device_class: What kind of value it is, in the words of Home Assistant: ``temperature``.

        Raises:
            ValueError: The name cannot stand in a topic.
            CallError: The value cannot be sent.
        """
        _publish(self, "state", name, to_json(value), unit, device_class)

    def clear_state(self, name: str) -> None:
        """Withdraw a value: there is none until the next one.

        Raises:
            ValueError: The name cannot stand in a topic.
        """
        _publish(self, "clear", name)

    def emit(self, name: str, payload: object = None) -> None:
        """Publish an event on the bus; it is not retained.

        Raises:
            ValueError: The name cannot stand in a topic.
            CallError: The payload cannot be sent.
        """
        _publish(self, "event", name, to_json(payload))

    @property
    def cancelled(self) -> bool:
        """Return whether the caller of the running method gave up. Long loops in plain methods ask."""
        flag = _CANCEL_FLAG.get()
        return flag is not None and flag.is_set()

    def check_cancelled(self, wait_s: float = 0.0) -> None:
        """Stop the running method if its caller gave up.

        Args:
            wait_s: Wait so long for that, in place of ``time.sleep``. For plain methods; an ``async``
                one uses ``asyncio.sleep``.

        Raises:
            SkillCancelled: The caller gave up. Let it pass.
        """
        flag = _CANCEL_FLAG.get()
        if flag is None:
            # Outside of a call (a test, the set-up) nothing can be cancelled; the wait remains.
            flag = threading.Event()
        if flag.wait(wait_s) if wait_s else flag.is_set():
            raise SkillCancelled

    @property
    def _given(self) -> SkillContext:
        if self._context is None:
            raise RuntimeError(f"{type(self).__name__} is not hosted: it has no folder and no bus yet")
        return self._context


HOOKS: Final = frozenset({"can_run", "setup", "close"})
"""Methods that a skill may override and that are never exposed."""

FRAMEWORK_NAMES: Final = frozenset(name for name in vars(Skill) if not name.startswith("_")) - HOOKS
"""Names that a skill must leave alone."""


def attach(skill: Skill, context: SkillContext) -> None:
    skill._context = context


def attach_tasks(skill: Skill, tasks: "SkillTasks") -> None:
    skill._tasks = tasks


def tasks_of(skill: object) -> "SkillTasks | None":
    return skill._tasks if isinstance(skill, Skill) else None


def set_cancel_flag(flag: threading.Event) -> None:
    """Set, in the context of a call, the flag that is raised when its caller gives up."""
    _CANCEL_FLAG.set(flag)


def _publish(skill: Skill, kind: Literal["state", "clear", "event"], name: str, *given: Any) -> None:
    skill._given.sink(Publication(kind, type(skill).__name__, _topic_level(name), *given))


def _topic_level(name: str) -> str:
    if not _NAME.match(name):
        raise ValueError(
            f"{name!r} cannot be a name on the bus: letters, digits, '_', '-' and '.', at most 64"
        )
    return name
