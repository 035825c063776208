"""Fields of forms and controls from JSON Schemas: what is entered how, and what it then means."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

from agent_core.skills.schema import method_schema
from agent_core.skills.skill import MethodOptions
from contracts.answers.skills import MethodBody
from hub_web.pages.live.topic_tree import short
from hub_web.parts.calls.controls import controls_of
from hub_web.parts.calls.schema import BadValue, documented, fields_of, read_value, shown_value

NO_KEY = SecretStr("")


class Place(BaseModel):
    room: str
    floor: int | None = None


def work(
    level: Annotated[int, Field(ge=0, le=100)],
    mode: Literal["eco", "warm"] = "eco",
    tags: list[str] | None = None,
    numbers: list[float] | None = None,
    place: Place | None = None,
    key: SecretStr = NO_KEY,
    on: bool | None = None,
    anything: Any = None,
    days: list[Literal["mon", "tue"]] | None = None,
) -> None:
    """Work.

    Args:
        level: How much of it,
            from nothing to all.
        tags (list): Words.
    """


CONTRACT = method_schema(work, "work", MethodOptions()).contract
FIELDS = {each.name: each for each in fields_of(CONTRACT.parameters, doc=CONTRACT.doc)}


def test_each_kind_of_value_has_its_field() -> None:
    kinds = {name: field.kind for name, field in FIELDS.items()}
    assert kinds == {
        "level": "number",
        "mode": "choice",
        "tags": "list",
        "numbers": "list",
        "place": "object",
        "key": "secret",
        "on": "choice",
        "anything": "json",
        "days": "list",
    }
    level = FIELDS["level"]
    assert (level.required, level.is_bounded, level.integer) == (True, True, True)
    assert level.description == "How much of it, from nothing to all."
    assert [each.name for each in FIELDS["place"].fields] == ["room", "floor"]
    assert FIELDS["days"].choices == ("mon", "tue")
    assert documented("Nothing about them.") == {}


@pytest.mark.parametrize(
    ("name", "entered", "value"),
    [
        ("level", "40", 40),
        ("level", 40.0, 40),
        ("level", "", None),
        ("tags", "milk\n\n sugar ", ["milk", "sugar"]),
        ("tags", "", None),
        ("numbers", "1\n2,5", [1.0, 2.5]),
        ("key", "", None),
        ("anything", '{"a": [1]}', {"a": [1]}),
        ("days", ["mon"], ["mon"]),
    ],
)
def test_what_is_entered_becomes_a_value(name: str, entered: Any, value: Any) -> None:
    assert read_value(FIELDS[name], entered) == value


def test_what_is_no_value_is_said_and_what_is_one_is_shown() -> None:
    for name, entered in (("level", "much"), ("numbers", "1\nx"), ("anything", "{")):
        with pytest.raises(BadValue):
            read_value(FIELDS[name], entered)
    assert shown_value(FIELDS["tags"], ["a", "b"]) == "a\nb"
    assert shown_value(FIELDS["key"], None) == ""


def test_a_foreign_schema_that_refers_to_itself_ends() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/none"}},
        "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}},
    }
    a, b = fields_of(schema)
    assert (a.kind, b.kind) == ("object", "json")


def _method(name: str, flags: list[str] | None = None, **properties: Any) -> MethodBody:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return MethodBody(
        name=name,
        path=f"devices.pc.LampSkill.{name}",
        signature=f"{name}()",
        summary="",
        doc="",
        parameters=parameters,
        result=None,
        flags=flags or [],
        digest="",
        sentences={},
        timeout_s=10,
    )


def test_a_switch_is_made_of_two_methods_and_a_state() -> None:
    methods = [
        _method("turn_on"),
        _method("turn_off"),
        _method("set_brightness", percent={"type": "integer", "minimum": 0, "maximum": 100}),
        _method("status", ["read_only"]),
        _method("wipe", ["destructive"]),
        _method("shutdown", ["unknown"]),
        _method("blink", times={"type": "integer"}, color={"type": "string"}),
        _method("toggle"),
    ]
    made = controls_of(methods, {"power": "off", "brightness": 40, "color": "#fff"})
    assert made.power is not None
    assert (made.power[0].name, made.power[2]) == ("turn_on", "power")
    assert [(each.name, state) for each, _, state in made.simple] == [
        ("toggle", None),
        ("set_brightness", "brightness"),
    ]
    assert made.states == ["color"]
    # Without a state that says which, both are buttons.
    assert [each.name for each, argument, _ in controls_of(methods, {}).simple if argument is None] == [
        "turn_on",
        "turn_off",
        "toggle",
    ]


def test_no_schema_and_no_state_of_a_device_breaks_a_page() -> None:
    parts = {
        "mode": {"enum": ["eco", ["warm"]]},
        "way": {"enum": ["up", "down"]},
        "level": {"type": "integer", "minimum": 0, "maximum": 10**30},
    }
    mode, way, level = fields_of({"properties": parts})
    assert (mode.kind, level.is_bounded) == ("json", False)
    states: list[Any] = ["up", "left", ["up"], {}]
    assert [shown_value(way, each) for each in states] == ["up", None, None, None]
    assert [shown_value(level, each) for each in (3, 10**30, "3")] == [3, None, None]
    assert short({"blob": "lamp", "bytes": "many"}) == "blob lamp, bytes many"
    assert short({"blob": "image/png", "bytes": 1200}) == "image/png, 1.2 kB"
