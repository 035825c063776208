"""Requests for watchers: topics, instruction, the calls that one may make; and the person who asks."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from agent_core.times import parse_duration
from contracts import topics as bus_topics
from contracts.answers.live import LinkName
from contracts.answers.watchers import Allowed, Step
from contracts.errors import InvalidMessage
from contracts.names import device_key
from contracts.validation import did_you_mean, validated
from contracts.wire import Json, Strict
from hub_live import limits
from hub_live.watchers.predicates import KEYWORDS
from hub_live.watchers.tables import WatcherRow

_TOKEN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}\Z")

Missed = Literal["run", "tell"]


def _one_topic(topic: str) -> str:
    if "+" in topic or "#" in topic:
        raise ValueError(
            f"{topic[:80]!r} has a wildcard, and a watcher follows single topics: name each of them"
        )
    if not topic or "\0" in topic:
        raise ValueError(f"{topic[:80]!r} is not a topic")
    return topic


def watcher_id(name: str) -> str:
    """Return the id of a watcher of this name: the name itself if it can be one.

    Raises:
        ValueError: If it is empty.
    """
    if _TOKEN.match(name):
        return name
    if not name.strip():
        raise ValueError("a watcher has a name")
    return device_key(name, otherwise="watcher")


Title = Annotated[str, AfterValidator(lambda title: " ".join(title.split())), Field(max_length=200)]


class WatchedValue(Strict):
    """One value that a watcher sees: of a topic, or of a method that it asks.

    Attributes:
        value: Path of the value in the decoded payload, for example ``state.temperature``. By default the
            payload itself; of a device's state topic, its ``value``; of Home Assistant, the ``state``; of a
            method, the answer.
        ask: A read-only method: ``devices.<key>.<Skill>.<method>``. The topic is then made by the hub.
        arguments: Of the method, by name.
        every: How often it is asked, as ``5m``.
    """

    topic: Annotated[str, Field(max_length=500), AfterValidator(_one_topic)] = ""
    value: Annotated[str | None, Field(max_length=200)] = None
    link: LinkName = "bus"
    ask: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    arguments: dict[str, Json] | None = None
    every: Annotated[str | None, Field(max_length=32)] = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if not self.topic and self.ask is None:
            raise ValueError("a value has a topic, or a method in ask")
        if self.ask is None and (self.arguments or self.every):
            raise ValueError("arguments and every are for ask")
        if not limits.LEAST_ASK_S <= self.every_s <= limits.MOST_DURATION_S:
            raise ValueError(f"{self.every} is not between {limits.LEAST_ASK_S:g}s and 31d")
        return self

    @property
    def every_s(self) -> float:
        return duration_of(self.every) if self.every else limits.DEFAULT_EVERY_S

    @property
    def path(self) -> str | None:
        """Path of the value in the decoded payload; None for all of it."""
        if self.ask is not None:
            return f"value.{self.value}" if self.value else "value"
        if self.value is None and self.link == "bus" and bus_topics.STATE.place(self.topic):
            return "value"
        if self.value is None and self.link == "home_assistant":
            return "state"
        return self.value or None


_HOLE: Final = re.compile(r"\{([A-Za-z_]\w*)\}")


class CheckedStep(Step):
    """A step that can be done."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.notify is None) == (self.call is None):
            raise ValueError("a step has either notify or call")
        if self.arguments and self.call is None:
            raise ValueError("only a call has arguments")
        if self.if_still and self.after is None:
            raise ValueError("if_still needs after: without a delay it is still so")
        if self.after is not None and not 1 <= duration_of(self.after) <= limits.MOST_DURATION_S:
            raise ValueError(f"{self.after[:40]!r} is not between 1s and 31d")
        return self

    @property
    def after_s(self) -> float:
        return duration_of(self.after) if self.after else 0.0

    def text(self, values: Mapping[str, str]) -> str:
        return _HOLE.sub(lambda hole: values.get(hole[1], hole[0]), self.notify or "")


def duration_of(text: str) -> float:
    """Return the seconds of a duration; raise ValueError if it is none."""
    try:
        return parse_duration(text)
    except InvalidMessage as error:
        raise ValueError(error.message) from None


class WatcherRequest(Strict):
    """A watcher to make.

    Attributes:
        name: Any text; a text that cannot be an id becomes one.
        title: What people read; by default the name as it was given.
        topics: By the name that the predicate uses. In a list, topics are named by their last level.
        every_s: Seconds between two evaluations by the model, at least.
        on_change: Evaluate with each new value.
        schedule: Evaluate at these times only; see `schedule.Schedule`.
        predicate: None to have one proposed.
        allow: Calls of which a model may choose.
        then: What it does without a model, in this order.
        missed: What happens to scheduled evaluations that came while the hub was stopped.
        actions_per_hour: None for the limit of the settings.
    """

    name: Annotated[str, AfterValidator(watcher_id), Field(max_length=200, description="any text")]
    title: Title = ""
    topics: Annotated[dict[str, WatchedValue], Field(max_length=limits.MOST_TOPICS)] = {}
    instruction: Annotated[str, Field(max_length=4_000)] = ""
    every_s: Annotated[float, Field(ge=limits.LEAST_EVERY_S, le=30 * 86_400)] | None = None
    on_change: bool = False
    schedule: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    predicate: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None
    allow: Annotated[tuple[Allowed, ...], Field(max_length=limits.MOST_CALLS)] = ()
    then: Annotated[tuple[CheckedStep, ...], Field(max_length=limits.MOST_CALLS)] = ()
    dry_run: bool = False
    missed: Missed = "tell"
    actions_per_hour: Annotated[int, Field(ge=1, le=1_000)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _titled(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.get("title") and isinstance(given.get("name"), str):
            return {**given, "title": given["name"]}
        return given

    @field_validator("topics", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        if isinstance(given, list | dict) and len(given) > limits.MOST_TOPICS:
            raise ValueError(f"a watcher may have {limits.MOST_TOPICS} topics")
        if isinstance(given, list):
            named: dict[str, Any] = {}
            for each in given:
                topic = each.get("topic") or each.get("ask") if isinstance(each, dict) else each
                named[free_name(str(topic), named)] = each
            given = named
        if isinstance(given, str):
            raise ValueError('they are a list, or by name as {"disk": "devices/nas/…"}, not text')  # noqa: TRY004 - pydantic
        if isinstance(given, dict):
            return {name: {"topic": each} if isinstance(each, str) else each for name, each in given.items()}
        return given

    @field_validator("topics")
    @classmethod
    def _names(cls, topics: dict[str, WatchedValue]) -> dict[str, WatchedValue]:
        for name in topics:
            if not _NAME.match(name) or name.lower() in KEYWORDS:
                raise ValueError(f"{name!r} cannot be a name: letters, digits and '_', and no 'and', 'for' …")
        return topics

    @model_validator(mode="after")
    def _one_trigger(self) -> Self:
        given = [self.every_s is not None, self.on_change, self.schedule is not None]
        if sum(given) > 1:
            raise ValueError("give one of every_s, on_change and schedule")
        if not self.topics and self.schedule is None and self.predicate is None:
            raise ValueError("a watcher needs topics, a schedule, or a predicate with the time")
        if not self.instruction and not self.then:
            raise ValueError("a watcher needs an instruction for a model, or steps in then")
        return self

    @model_validator(mode="after")
    def _steps(self) -> Self:
        if not self.then:
            return self
        if self.allow:
            raise ValueError("allow is for a model, and a watcher with steps in then asks none")
        if self.predicate is None and self.schedule is None:
            raise ValueError("steps in then need a predicate or a schedule, which says when")
        if self.predicate is None and any(step.if_still for step in self.then):
            raise ValueError("if_still needs a predicate, which can end")
        for name in {hole for step in self.then for hole in _HOLE.findall(step.notify or "")}:
            if name not in self.topics:
                near = did_you_mean(name, self.topics)
                raise ValueError(f"{{{name}}} in a text is none of the topics{near}")
        return self

    @property
    def interval_s(self) -> float | None:
        """Seconds between two evaluations by the model; None where each change or a schedule decides."""
        if self.then:
            return None
        if self.every_s is None and not self.on_change and self.schedule is None:
            return limits.DEFAULT_EVERY_S
        return self.every_s

    @property
    def calls(self) -> tuple[Allowed, ...]:
        """The calls that need approval: those that a model may choose, or those of the steps, in order."""
        steps = [Allowed(path=step.call, arguments=step.arguments) for step in self.then if step.call]
        return self.allow or tuple(steps)

    def stored(self) -> dict[str, Any]:
        """Return the fields of a `WatcherRow` that may be changed later, but for its calls."""
        kept = self.model_dump(include={"title", "instruction", "predicate", "dry_run", "schedule", "missed"})
        kept["then"] = [step.model_dump(exclude_defaults=True) for step in self.then]
        kept["topics"] = {name: each.model_dump(exclude_none=True) for name, each in self.topics.items()}
        return {**kept, "every_s": self.interval_s}


_Topics = Annotated[
    dict[str, WatchedValue | str] | list[WatchedValue | str], Field(max_length=limits.MOST_TOPICS)
]


class Edit(Strict):
    """Changes of a watcher; what is left out stays.

    An empty predicate removes it; one of every_s, on_change and schedule takes the place of the present one.
    """

    title: Annotated[Title | None, Field(min_length=1)] = None
    instruction: str | None = None
    topics: _Topics | None = None
    predicate: str | None = None
    allow: Annotated[tuple[Allowed, ...], Field(max_length=limits.MOST_CALLS)] | None = None
    then: Annotated[tuple[CheckedStep, ...], Field(max_length=limits.MOST_CALLS)] | None = None
    every_s: float | None = None
    on_change: bool | None = None
    schedule: str | None = None
    missed: Missed | None = None
    dry_run: bool | None = None

    def applied_to(self, row: WatcherRow, calls: Json) -> WatcherRequest:
        """Return the watcher as it is asked for with these changes.

        Args:
            calls: Those that it may make now.

        Raises:
            InvalidMessage: If it could not be made like this.
        """
        given = self.model_dump(exclude_none=True, exclude={"digest"})
        kept = ["name", "title", "instruction", "topics", "predicate", "missed", "dry_run", "then"]
        if not given.keys() & {"every_s", "on_change", "schedule"}:
            kept += ["every_s", "schedule"]
            given["on_change"] = not (row.every_s or row.schedule)
        asked = {each: getattr(row, each) for each in kept} | {"allow": calls} | given
        if asked["then"] and self.allow is None:
            asked["allow"] = ()  # those of its steps
        return validated(WatcherRequest, {**asked, "predicate": asked["predicate"] or None}, what="field")


class Approval(Edit):
    """A yes to a watcher, with changes of the person who says it.

    Attributes:
        digest: Of the watcher as it was shown; see `views.digest_of`.
    """

    digest: Annotated[str, Field(max_length=64)]


def sources_of(row: WatcherRow) -> dict[str, WatchedValue]:
    return {name: WatchedValue.model_validate(each) for name, each in row.topics.items()}


def free_name(topic: str, taken: Mapping[str, Any]) -> str:
    """Return a name for the value of a topic or an id that no other one has."""
    base = (
        re.sub(r"\W+", "_", topic.rpartition("/" if "/" in topic else ".")[2], flags=re.ASCII).strip("_")[:28]
        or "value"
    )
    if base[0].isdigit() or base.lower() in KEYWORDS:
        base = f"value_{base}"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name
