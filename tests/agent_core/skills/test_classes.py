"""What a model reads of the types of a method, and what it may pass."""

import enum
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, NotRequired

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from agent_core import limits
from agent_core.schemas.arguments import check_arguments
from agent_core.schemas.class_text import Classes, class_lines
from agent_core.skills.schema import method_schema
from agent_core.skills.skill import MethodOptions
from contracts.devices.registration import Method
from contracts.errors import CallError


class Mode(enum.Enum):
    ECO = 1
    BOOST = 2


class Genre(enum.StrEnum):
    ROCK = "rock"
    JAZZ = "jazz"


@dataclass
class Song:
    """A piece of music."""

    title: str
    genre: Genre = Genre.ROCK
    year: int | None = None
    mode: Mode = Mode.ECO


class Place(TypedDict):
    lat: float
    name: NotRequired[str]


class Playlist(BaseModel):
    songs: list[Song]
    kind: Literal["new", "old"] = Field("new", description="when it was made")


class MusicSkill:
    def make(
        self,
        songs: list[Song],
        where: Place | None = None,
        pause: timedelta = timedelta(minutes=90),
        mode: Mode = Mode.ECO,
        genre: Genre | None = Genre.JAZZ,
        level: Annotated[int, Field(ge=0, le=100)] = 5,
    ) -> Playlist: ...


MAKE = method_schema(MusicSkill().make, "make", MethodOptions())


def test_the_classes_behind_a_signature_are_shown_with_defaults_that_can_be_typed():
    assert MAKE.contract.signature == (
        "make(songs: list[Song], where: Place | None = None, pause: timedelta = 'PT1H30M', "
        "mode: Mode = 'ECO', genre: Genre | None = 'jazz', level: int = 5) -> Playlist"
    )
    assert class_lines([MAKE.contract]) == [
        "# pause: format duration",
        "# level: minimum 0, maximum 100",
        "class Song:  # A piece of music.",
        "    title: str",
        "    genre: Genre = 'rock'",
        "    year: int | None = None",
        "    mode: Mode = 1",
        "class Place:",
        "    lat: float",
        "    name: str  # optional",
        "class Mode(Enum): ECO = 1; BOOST = 2",
        "class Genre(Enum): ROCK = 'rock'; JAZZ = 'jazz'",
        "# Pass an object of a class as a dict, and a member of an Enum by its value or name.",
        "class Playlist:",
        "    songs: list[Song]",
        "    kind: Literal['new', 'old'] = 'new'  # when it was made",
    ]


def test_members_are_accepted_by_name_and_by_value_wherever_they_stand():
    given = {"songs": [{"title": "a", "mode": "BOOST"}], "mode": "Mode.BOOST", "genre": "ROCK"}
    checked = check_arguments(MAKE.contract, [], given)
    assert checked == {"songs": [{"title": "a", "mode": 2}], "mode": 2, "genre": "rock"}
    _, values = MAKE.coerce([], given)
    assert values["songs"] == [Song("a", mode=Mode.BOOST)]
    assert (values["mode"], values["genre"]) == (Mode.BOOST, Genre.ROCK)
    with pytest.raises(CallError, match="not one of"):
        check_arguments(MAKE.contract, [], {"songs": [], "mode": "WARM"})


def test_the_types_of_a_device_cannot_flood_a_model():
    fields = {f"f{number}": {"$ref": f"#/$defs/C{number}"} for number in range(500)}
    defs = {
        f"C{number}": {"type": "object", "properties": fields, "description": "x\n" * 9_000}
        for number in range(500)
    } | {"C1": {"enum": ["y" * 500] * 5_000}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/C0"}}, "$defs": defs}
    lines = class_lines([Method(name="m", signature="m(a: C0)", parameters=schema)])
    assert sum(map(len, lines)) < limits.MAX_CLASSES_TEXT + 200
    assert not any("\n" in line for line in lines)


def test_a_type_that_is_listed_twice_is_written_once():
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(3):
        schema = {"type": ["array"] * 20, "items": schema}
    assert Classes().type_of(schema) == "list[list[list[str]]]"
