"""Signatures as contracts, and arguments coerced back; on the spoke and by the contract alone."""

import datetime as dt
import decimal
import enum
import math
import pathlib
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from agent_core.schemas.arguments import (
    arguments_digest,
    check_arguments,
    check_result,
)
from agent_core.skills.results import to_json
from agent_core.skills.schema import method_schema
from agent_core.skills.skill import MethodOptions, options_of, skill_method
from contracts.devices.registration import Method
from contracts.errors import CallError, ErrorCode


class Mode(enum.Enum):
    ECO = "eco"
    BOOST = "boost"


@dataclass
class Song:
    title: str
    seconds: int = 180
    cover: bytes = b""


class Alarm(BaseModel):
    at: dt.datetime
    title: str = "Alarm"


class Branch(BaseModel):
    leaves: int
    branches: list["Branch"] = []


class KitchenSkill:
    def set_volume(self, level: int = 30, *, fade: float | None = None) -> None:
        """Set the volume.

        Args:
            level: In per cent.
        """

    def everything(
        self,
        when: dt.datetime,
        songs: list[Song],
        mode: Mode = Mode.ECO,
        *,
        alarm: Alarm | None = None,
        power: Literal["on", "off"] = "on",
        where: pathlib.Path = pathlib.Path("x"),
        price: decimal.Decimal = decimal.Decimal("1.5"),
        picture: bytes = b"",
        percent: Annotated[int, Field(ge=0, le=100)] = 4,
        quiet: bool = False,
        extra=None,
    ) -> list[Song]: ...

    def by_place(self, first: int = 1, second: int = 2, /, third: int = 3) -> int: ...

    def shadowing(self, schema: str = "s", copy: int = 1, model_config: int = 2) -> str: ...

    def count(self) -> Iterator[int]: ...

    def work(self) -> Generator[int, None, Song]: ...

    async def watch(self) -> AsyncIterator[str]: ...

    def free(self): ...


def schema_of(name):
    return method_schema(getattr(KitchenSkill(), name), name, MethodOptions())


def test_the_contract_shows_signature_summary_and_schema():
    contract = schema_of("set_volume").contract
    assert contract.signature == "set_volume(level: int = 30, *, fade: float | None = None) -> None"
    assert contract.summary == "Set the volume."
    assert contract.parameters == {
        "type": "object",
        "properties": {
            "level": {"type": "integer", "default": 30},
            "fade": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        },
        "additionalProperties": False,
    }
    assert contract.positional == ["level"]
    assert contract.result == {"type": "null"}
    assert Method.model_validate_json(contract.model_dump_json()) == contract


def test_types_are_written_without_their_modules():
    assert schema_of("everything").contract.signature.startswith(
        "everything(when: datetime, songs: list[Song], mode: Mode = 'ECO', *, alarm: Alarm | None = None, "
        "power: Literal['on', 'off'] = 'on'"
    )
    assert schema_of("by_place").contract.signature == (
        "by_place(first: int = 1, second: int = 2, /, third: int = 3) -> int"
    )


def test_json_becomes_what_the_hints_ask_for():
    args, kwargs = schema_of("everything").coerce(
        ["2026-01-01T10:00:00Z", [{"title": "a", "seconds": "4", "cover": "_w=="}]],
        {
            "mode": "boost",
            "alarm": {"at": "2026-01-02T10:00:00Z"},
            "where": "/tmp/x",
            "price": "9.99",
            "picture": "_w==",
            "percent": "30",
            "quiet": "yes",
            "extra": {"any": [1]},
        },
    )
    assert args == []
    assert kwargs == {
        "when": dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC),
        "songs": [Song("a", 4, b"\xff")],
        "mode": Mode.BOOST,
        "alarm": Alarm(at=dt.datetime(2026, 1, 2, 10, tzinfo=dt.UTC)),
        "where": pathlib.Path("/tmp/x"),
        "price": decimal.Decimal("9.99"),
        "picture": b"\xff",
        "percent": 30,
        "quiet": True,
        "extra": {"any": [1]},
    }


def test_what_is_positional_only_stays_in_place_when_one_is_left_out():
    assert schema_of("by_place").coerce([], {"second": 5, "third": 6}) == ([1, 5], {"third": 6})
    assert schema_of("by_place").coerce([], {}) == ([], {})


def test_parameters_may_have_the_names_of_pydantic_attributes():
    assert schema_of("shadowing").coerce(["x"], {"copy": 3, "model_config": 4})[1] == {
        "schema": "x",
        "copy": 3,
        "model_config": 4,
    }


WHEN = "2026-01-01T10:00:00Z"


@pytest.mark.parametrize(
    ("args", "kwargs", "named", "hint"),
    [
        (["x", []], {}, "when", "it is everything("),
        ([WHEN, [{"titel": "a"}]], {}, "songs[0]", "it is everything("),
        ([WHEN, [{"title": "a", "seconds": "x"}]], {}, "songs[0].seconds", "it is everything("),
        ([WHEN, [], "max"], {}, "mode", "it is everything("),
        ([WHEN, []], {"percent": 101}, "percent", "it is everything("),
        ([WHEN, []], {"percent": "lots"}, "percent", "it is everything("),
        ([WHEN, []], {"powr": "on"}, "'powr'", "nearest: power"),
        ([WHEN], {}, "'songs'", "it is everything("),
        ([WHEN, [], "eco", 4], {}, "at most 3", "it is everything("),
        ([WHEN, []], {"when": WHEN}, "'when' by position and by name", "it is everything("),
    ],
)
def test_wrong_arguments_get_one_line_that_names_the_parameter_on_both_sides(args, kwargs, named, hint):
    schema = schema_of("everything")
    readers = [schema.coerce]
    if named != "when":  # what a date looks like is for the spoke to say: JSON Schema does not
        readers.append(lambda args, kwargs: check_arguments(schema.contract, args, kwargs))
    for reader in readers:
        with pytest.raises(CallError) as caught:
            reader(args, kwargs)
        assert caught.value.code is ErrorCode.BAD_ARGUMENTS
        assert named in caught.value.message
        assert "\n" not in caught.value.message
        assert caught.value.hint.startswith(hint)


def test_the_hub_takes_numbers_and_booleans_in_text_as_the_spoke_does():
    contract = schema_of("everything").contract
    assert check_arguments(
        contract, [WHEN, [{"title": "30", "seconds": "4"}]], {"percent": "30", "quiet": "off", "extra": "1"}
    ) == {
        "when": WHEN,
        "songs": [{"title": "30", "seconds": 4}],
        "percent": 30,
        "quiet": False,
        "extra": "1",
    }
    assert check_arguments(schema_of("set_volume").contract, [], {"fade": "1.5"}) == {"fade": 1.5}


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ("30", True),
        (" 30 ", True),
        ("30.0", True),
        ("30.5", False),
        ("nan", False),
        ("", False),
    ],
)
def test_hub_and_spoke_agree_on_what_is_a_whole_number(text, is_taken):
    schema = schema_of("set_volume")
    for read in (schema.coerce, lambda args, kwargs: check_arguments(schema.contract, args, kwargs)):
        try:
            read([text], {})
            was_taken = True
        except CallError:
            was_taken = False
        assert was_taken is is_taken


BRANCHING = {
    f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} if level < 60 else {"type": "integer"}
    for level in range(61)
}
ENDLESS = {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}


@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": {"x": {"$ref": "http://127.0.0.1:1/schema"}}},
        {"properties": {"x": {"$ref": "#/$defs/nowhere"}}},
        {"properties": {"x": {"$ref": "#/properties/x"}}},
        {"properties": {"x": {"type": "no such type"}}},
        {"properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": BRANCHING},
        {"properties": {"x": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}, "$defs": ENDLESS},
        {"properties": {"x": 7}},
        {"properties": ["x"]},
    ],
)
def test_a_registered_schema_that_cannot_be_used_lets_nothing_through(parameters):
    contract = Method(name="m", signature="m(x)", parameters=parameters, positional=["x"])
    with pytest.raises(CallError, match="cannot be used"):
        check_arguments(contract, ["text"], {})


def test_regular_expressions_are_left_to_the_device():
    slow = {"pattern": "^(a+)+$", "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}
    contract = Method(name="m", signature="m(x)", parameters={"properties": {"x": slow}}, positional=["x"])
    text = "a" * 64 + "!"
    assert check_arguments(contract, [text], {}) == {"x": text}
    assert check_arguments(contract, [{text: 1}], {}) == {"x": {text: 1}}


@pytest.mark.parametrize(
    ("items", "value"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 255}, 255),
        ({"type": "string", "minLength": 1, "maxLength": 4}, "four"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "four"),
        # Comparing each value with each choice would take half an hour.
        ({"enum": [str(number) for number in range(100_000)]}, "99999"),
    ],
    ids=("integers", "texts", "unions", "choices"),
)
def test_a_long_list_is_checked_and_one_that_is_too_long_has_that_reason(items, value):
    parameters = {"properties": {"x": {"type": "array", "items": items}}}
    contract = Method(name="m", signature="m(x)", parameters=parameters, positional=["x"])
    taken = [value] * 10_000
    assert check_arguments(contract, [taken], {}) == {"x": taken}
    with pytest.raises(CallError, match=r"x\[9999\]"):
        check_arguments(contract, [[*taken[1:], [None]]], {})
    if items.keys() & {"anyOf", "enum"}:
        with pytest.raises(CallError, match="too long to check") as refused:
            check_arguments(contract, [taken * 10], {})
        assert refused.value.hint == "pass less at once"


def test_a_type_may_refer_to_itself():
    class TreeSkill:
        def plant(self, tree: Branch) -> None: ...

    contract = method_schema(TreeSkill().plant, "plant", MethodOptions()).contract
    tree = {"leaves": "3", "branches": [{"leaves": 2, "branches": []}]}
    assert check_arguments(contract, [tree], {})["tree"]["leaves"] == 3
    with pytest.raises(CallError, match="leaves"):
        check_arguments(contract, [{"leaves": 1, "branches": [{"leaves": "many"}]}], {})


def test_generators_are_marked_and_have_the_type_of_their_result():
    assert schema_of("count").contract.result == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    work = schema_of("work").contract.result
    assert work is not None
    assert work["properties"]["title"] == {"type": "string"}
    assert schema_of("free").contract.result is None


def test_a_result_is_checked_against_its_declaration():
    contract = schema_of("by_place").contract
    check_result(contract, 3)
    check_result(schema_of("free").contract, "anything")
    with pytest.raises(CallError, match="does not fit its declaration") as caught:
        check_result(contract, "three")
    assert caught.value.code is ErrorCode.SKILL_ERROR


@pytest.mark.parametrize("kind", ["string", "integer", "number", "boolean", "null", "array", "object"])
def test_a_value_fits_a_plain_schema_as_it_does_for_the_library(kind: str) -> None:
    values: list[object] = [True, 1, 1.0, 0.5, "a", None, [], {}, {"a": 1}]
    others: list[dict] = [{}, {"default": 7}, {"enum": [1, "a"]}, {"maxLength": 0}]
    contract = schema_of("by_place").contract
    for value, more in product(values, others):
        plain = {"type": kind, **more}
        named = {
            "type": "object",
            "properties": {"a": plain},
            "required": ["a"],
            "additionalProperties": False,
        }
        for schema, given in (
            (plain, value),
            (named, {"a": value}),
            (named, {}),
            (named, {"a": value, "b": 1}),
        ):
            try:
                check_result(contract.model_copy(update={"result": schema}), given)
            except CallError:
                is_taken = False
            else:
                is_taken = True
            assert is_taken is Draft202012Validator(schema).is_valid(given), (schema, given)


def test_the_decorator_says_flags_time_and_sentences():
    class LampSkill:
        @skill_method(read_only=True, timeout_s=2, sentences={"en": ["is the lamp on"]})
        def status(self) -> bool: ...

    contract = method_schema(LampSkill().status, "status", options_of(LampSkill, "status")).contract
    assert contract.flags.read_only
    assert not contract.flags.idempotent
    assert contract.timeout_ms == 2000
    assert contract.sentences == {"en": ["is the lamp on"]}


def test_an_override_keeps_the_flags_of_what_it_overrides():
    class Base:
        @skill_method(confirm=True)
        def erase(self) -> None: ...

    class DiskSkill(Base):
        def erase(self) -> None: ...

    assert options_of(DiskSkill, "erase").flags.confirm


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"timeout_s": 901}, {"concurrency": 0}])
def test_the_decorator_refuses_impossible_bounds(options):
    with pytest.raises(ValueError, match="not"):
        skill_method(**options)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Song("a", cover=b"\xff\xfe"), {"title": "a", "seconds": 180, "cover": "__4="}),
        (Alarm(at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), {"at": "2026-01-01T00:00:00Z", "title": "Alarm"}),
        ({"when": dt.date(2026, 1, 1), 3: Mode.ECO}, {"when": "2026-01-01", "3": "eco"}),
        ((1, "two", None), [1, "two", None]),
        ({7}, [7]),
        (dt.timedelta(minutes=90), "PT1H30M"),
        ([math.nan, math.inf, 1.5], [None, None, 1.5]),
        (decimal.Decimal("1.20"), "1.20"),
        (pathlib.Path("a"), "a"),
        (range(3).__iter__(), [0, 1, 2]),
    ],
)
def test_results_become_json(value, expected):
    assert to_json(value) == expected


def test_results_that_json_cannot_express_are_refused():
    circle: list[object] = []
    circle.append(circle)
    for value in (object(), circle, {"x": lambda: None}):
        with pytest.raises(CallError, match="cannot be sent") as caught:
            to_json(value)
        assert caught.value.code is ErrorCode.SKILL_ERROR


def test_a_result_that_is_too_large_says_so():
    with pytest.raises(CallError, match="more than the 100") as caught:
        to_json("x" * 200, max_bytes=100)
    assert caught.value.code is ErrorCode.TOO_LARGE


def test_the_digest_of_arguments_is_of_their_meaning() -> None:
    assert arguments_digest({"a": 1, "b": 2}) == arguments_digest({"b": 2, "a": 1})
    assert arguments_digest({"a": 1}) != arguments_digest({"a": 2})
    assert arguments_digest({"a": "\ud800"}) != arguments_digest({"a": ""})
