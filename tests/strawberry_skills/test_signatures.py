"""Signatures in the styles that people write: they are offered and run, or are refused with a reason."""

from __future__ import annotations

import enum
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from agent_core.skills.loading.exposure import expose
from strawberry_skills import Skill
from strawberry_skills.testing import CallError, Host, host

__all__ = ["host"]

T = TypeVar("T")
Room = NewType("Room", str)


class Mode(enum.Enum):
    ECO = 1
    FULL = 2


class Colour(enum.StrEnum):
    RED = "red"


@dataclass
class Song:
    title: str
    tags: list[str] = field(default_factory=list)
    next: Song | None = None


class Point(NamedTuple):
    x: int
    y: int = 0


class Order(BaseModel):
    drink: Literal["tea", "coffee"]
    cups: Annotated[int, Field(ge=1, le=4)] = 1


class Ticket(TypedDict, total=False):
    seat: int


class Box(BaseModel, Generic[T]):
    value: T


# fmt: off
class ManySkill(Skill):
    """Methods in many styles."""

    def nothing(self) -> None: ...
    def plain(self, text: str) -> str: return text
    def untyped(self, value): return value
    def defaults(self, a: int = 1, b: float = 0.5, c: bool = True, d: str = "x") -> list: return [a, b, c, d]
    def only_named(self, *, cups: int) -> int: return cups
    def only_positional(self, cups: int, /) -> int: return cups
    def union(self, value: int | str) -> int | str: return value
    def old_union(self, value: int | None) -> int | None: return value
    def literal(self, mode: Literal["a", 1]) -> str: return str(mode)
    def enum_value(self, mode: Mode = Mode.ECO) -> Mode: return mode
    def enum_text(self, colour: Colour) -> Colour: return colour
    def listed(self, names: list[str]) -> list[str]: return names
    def bare_list(self, names: list) -> list: return names
    def sequence(self, names: Sequence[int]) -> Sequence[int]: return names
    def chosen(self, names: set[str]) -> set[str]: return names
    def pair(self, both: tuple[int, str]) -> tuple[int, str]: return both
    def many(self, each: tuple[int, ...]) -> tuple[int, ...]: return each
    def mapped(self, by_name: dict[str, int]) -> dict[str, int]: return by_name
    def mapping(self, by_name: Mapping[str, Any]) -> Mapping[str, Any]: return by_name
    def moment(self, at: datetime) -> datetime: return at
    def day(self, at: date) -> date: return at
    def clock(self, at: time) -> time: return at
    def duration(self, for_: timedelta = timedelta(minutes=1)) -> timedelta: return for_
    def file(self, path: Path) -> Path: return path
    def price(self, amount: Decimal) -> Decimal: return amount
    def raw(self, content: bytes) -> bytes: return content
    def identity(self, one: uuid.UUID) -> uuid.UUID: return one
    def bounded(self, percent: Annotated[int, Field(le=100, description="How bright")]) -> int: return percent
    def data(self, song: Song) -> Song: return song
    def named(self, at: Point) -> Point: return at
    def model(self, order: Order) -> Order: return order
    def typed(self, ticket: Ticket) -> Ticket: return ticket
    def generic(self, box: Box[int]) -> Box[int]: return box
    def new_type(self, room: Room) -> Room: return room
    def anything(self, value: Any) -> Any: return value
    async def later(self, value: int) -> int: return value
    def steps(self) -> Iterator[int]: yield from (1, 2)
    async def later_steps(self) -> AsyncIterator[int]:
        yield 3
    @staticmethod
    def static(value: int) -> int: return value
    @classmethod
    def of_class(cls, value: int) -> str: return f"{cls.__name__} {value}"


ONE = "00000000-0000-0000-0000-000000000001"
SONG = {"title": "A", "tags": [], "next": {"title": "B", "tags": ["x"], "next": None}}
CALLS: list[tuple[str, list[Any], Any]] = [
    ("nothing", [], None), ("plain", ["x"], "x"), ("untyped", [[1]], [1]),
    ("defaults", ["2"], [2, 0.5, True, "x"]), ("only_positional", [1], 1), ("union", ["x"], "x"),
    ("old_union", [None], None), ("literal", ["a"], "a"), ("enum_value", ["FULL"], 2), ("enum_value", [1], 1),
    ("enum_text", ["red"], "red"), ("listed", [["a"]], ["a"]), ("bare_list", [[1, "a"]], [1, "a"]),
    ("sequence", [[1, "2"]], [1, 2]), ("chosen", [["a", "a"]], ["a"]), ("pair", [[1, "a"]], [1, "a"]),
    ("many", [[1, 2]], [1, 2]), ("mapped", [{"a": 1}], {"a": 1}), ("mapping", [{"a": []}], {"a": []}),
    ("moment", ["2026-11-28T10:00:00Z"], "2026-11-28T10:00:00Z"), ("day", ["2026-11-28"], "2026-11-28"),
    ("clock", ["07:30"], "07:30:00"), ("duration", [], "PT1M"), ("file", ["a/b"], "a/b"),
    ("price", ["1.50"], "1.50"), ("raw", ["YWI="], "YWI="), ("identity", [ONE], ONE), ("bounded", ["40"], 40),
    ("data", [SONG], SONG), ("named", [{"x": 1}], [1, 0]),
    ("model", [{"drink": "tea"}], {"drink": "tea", "cups": 1}), ("typed", [{"seat": 4}], {"seat": 4}),
    ("generic", [{"value": "3"}], {"value": 3}), ("new_type", ["hall"], "hall"),
    ("anything", [{"a": 1}], {"a": 1}), ("later", [1], 1), ("steps", [], 2), ("later_steps", [], 3),
    ("static", [2], 2), ("of_class", [2], "ManySkill 2"),
]


class OddSkill(Skill):
    """Methods that no caller could use."""

    def works(self) -> None: ...
    def rest(self, *cups: int) -> None: ...
    def options(self, **options: int) -> None: ...
    def function(self, work: Callable[[], None]) -> None: ...
    def own_class(self, host: Host) -> None: ...
    def unknown(self, value: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def settings(self) -> None: ...
# fmt: on


def test_what_people_write_is_described_and_runs(host: Host) -> None:
    skill = host(ManySkill)
    assert [(name, args, skill.call(name, *args)) for name, args, _ in CALLS] == CALLS
    assert skill.call("only_named", cups="2") == 2
    with pytest.raises(CallError, match="percent must be less"):
        skill.call("bounded", percent=101)


def test_what_no_caller_could_use_is_refused_with_a_reason() -> None:
    skill, problems = expose(OddSkill())
    assert list(skill.methods) == ["works"]
    refused = {each.path.rpartition(".")[2]: each.message for each in problems}
    assert sorted(refused) == ["function", "options", "own_class", "rest", "settings", "unknown"]
    assert all(refused.values())
