"""What a person asks of a watcher: its topics, its instruction, and the calls that it may make."""

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from contracts import topics as bus_topics
from contracts.names import Token
from contracts.wire import Json
from hub_agent.live.watchers.predicates import KEYWORDS

LEAST_EVERY_S: Final = 1.0
DEFAULT_EVERY_S: Final = 300.0
"""Interval of a watcher without a predicate that names none: a model that is asked costs money or heat."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}\Z")

Missed = Literal["run", "tell"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _one_topic(topic: str) -> str:
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        raise ValueError("a watcher follows single topics, without wildcards")
    return topic


class Source(_Part):
    """One value that a watcher sees.

    Attributes:
        value: Path of the value in the decoded payload, for example ``state.temperature``. By default the
            payload itself; of a device's state topic, its ``value``.
    """

    topic: Annotated[str, Field(max_length=500), AfterValidator(_one_topic)]
    value: Annotated[str | None, Field(max_length=200)] = None
    link: Literal["bus", "home"] = "bus"

    @property
    def path(self) -> str | None:
        """Path of the value in the decoded payload; None for all of it."""
        if self.value is None and self.link == "bus" and bus_topics.STATE.place(self.topic):
            return "value"
        return self.value or None


class Allowed(_Part):
    """A call that a watcher may make.

    Attributes:
        path: ``devices.<key>.<Skill>.<method>``.
        arguments: By name, either the one value that is approved, or a range: ``{"minimum": 0, "maximum":
            50}`` or ``{"enum": ["low", "high"]}``, of which the model chooses one. Arguments that are not
            named cannot be given.
    """

    path: Annotated[str, Field(max_length=200)]
    arguments: dict[str, Json] = {}


class Change(_Part):
    """What is changed with an approval; None leaves it as it is.

    Attributes:
        predicate: An empty one removes it: the model then evaluates at its interval.
    """

    predicate: Annotated[str | None, Field(max_length=2_000)] = None
    allow: Annotated[tuple[Allowed, ...] | None, Field(max_length=16)] = None
    dry_run: bool | None = None


class WatcherRequest(_Part):
    """A watcher to make.

    Attributes:
        topics: By the name that the predicate uses. In a list, topics are named by their last level.
        every_s: Seconds between two evaluations by the model, at least.
        on_change: Evaluate with each new value.
        schedule: Evaluate at these times only; see `schedule.Schedule`.
        predicate: None to have one proposed.
        missed: What happens to scheduled evaluations that came while the hub was stopped.
        actions_per_hour: None for the limit of the settings.
    """

    name: Annotated[Token, Field(description="letters, digits, '_', '-' and '.', at most 64")]
    topics: Annotated[dict[str, Source], Field(max_length=32)] = {}
    instruction: Annotated[str, Field(min_length=1, max_length=4_000)]
    every_s: Annotated[float, Field(ge=LEAST_EVERY_S, le=30 * 86_400)] | None = None
    on_change: bool = False
    schedule: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    predicate: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None
    allow: Annotated[tuple[Allowed, ...], Field(max_length=16)] = ()
    dry_run: bool = False
    missed: Missed = "tell"
    actions_per_hour: Annotated[int, Field(ge=1, le=1_000)] | None = None

    @field_validator("topics", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        if isinstance(given, list):
            named: dict[str, Any] = {}
            for each in given:
                topic = each.get("topic") if isinstance(each, dict) else each
                named[_free_name(str(topic), named)] = each
            given = named
        if isinstance(given, dict):
            return {name: {"topic": each} if isinstance(each, str) else each for name, each in given.items()}
        return given

    @field_validator("topics")
    @classmethod
    def _names(cls, topics: dict[str, Source]) -> dict[str, Source]:
        for name in topics:
            if not _NAME.match(name) or name.lower() in KEYWORDS:
                raise ValueError(f"{name!r} cannot be a name: letters, digits and '_', and no 'and', 'for' …")
        return topics

    @model_validator(mode="after")
    def _one_trigger(self) -> Self:
        given = [self.every_s is not None, self.on_change, self.schedule is not None]
        if sum(given) > 1:
            raise ValueError("give one of every_s, on_change and schedule")
        if not self.topics and self.schedule is None:
            raise ValueError("a watcher needs topics, or a schedule")
        if not self.topics and self.predicate is not None:
            raise ValueError("a predicate needs topics")
        return self

    @property
    def interval_s(self) -> float | None:
        """Seconds between two evaluations by the model; None where each change or a schedule decides."""
        if self.every_s is None and not self.on_change and self.schedule is None:
            return DEFAULT_EVERY_S
        return self.every_s


def _free_name(topic: str, taken: dict[str, Any]) -> str:
    base = re.sub(r"\W+", "_", topic.rpartition("/")[2], flags=re.ASCII).strip("_")[:28] or "value"
    if base[0].isdigit() or base.lower() in KEYWORDS:
        base = f"value_{base}"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name
