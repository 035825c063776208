"""Schemas of devices: what is refused, and what is never run."""

import json

import pytest

from agent_core.schemas.foreign_schema import TooLong, check_schema, worst_misfit


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": [1, 2]}, "properties"),
        ({"required": 5}, "required"),
        ({"properties": {"a": {"items": {"type": 7}}}}, "properties.a.items.type"),
        ({"anyOf": []}, "anyOf"),
        ({"minimum": float("nan")}, "minimum"),
        ({"maxLength": 10**30}, "maxLength"),
        ({"$defs": {"A": 1}}, "$defs.A"),
        ({"$ref": 1}, "$ref"),
    ],
    ids=str,
)
def test_a_malformed_schema_is_refused_with_its_place(schema: dict[str, object], place: str) -> None:
    with pytest.raises(ValueError, match="malformed JSON Schema") as error:
        check_schema(schema)
    assert f"{place} must be" in str(error.value)


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    schema: dict[str, object] = {}
    for _ in range(100):
        schema = {"items": schema}
    with pytest.raises(ValueError, match="nested"):
        check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "^(a+)+$"}}},
        {"unevaluatedProperties": {"pattern": "^(a+)+$"}},
    ],
    ids=str,
)
def test_no_pattern_of_a_device_is_ever_run(schema: dict[str, object]) -> None:
    # With the pattern, this one value would take hours.
    assert worst_misfit(json.dumps(schema), {"a": "a" * 40 + "!"}) is None


def test_a_schema_that_branches_into_itself_does_not_check_without_end() -> None:
    nested = {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Nested"}] * 40}}
    schema = {"$ref": "#/$defs/Nested", "$defs": {"Nested": nested}}
    check_schema(schema)
    value: list[object] = []
    assert worst_misfit(json.dumps(schema), value) is None
    for _ in range(10):
        value = [value, "a"]
    with pytest.raises(ValueError, match="takes too long to check"):
        worst_misfit(json.dumps(schema), value)


@pytest.mark.parametrize(
    ("value", "is_unique"),
    [
        ([1, 1.0], False),
        ([{"a": [2], "b": 0}, {"b": 0, "a": [2.0]}], False),
        ([1, True, "1", "true", [1], [True]], True),
        # Compared each with each other one, these would take half an hour.
        ([{"a": n} for n in range(30_000)], True),
    ],
    ids=lambda value: str(value)[:40],
)
def test_equal_values_are_found_without_comparing_each_with_each(
    value: list[object], is_unique: bool
) -> None:
    misfit = worst_misfit(json.dumps({"uniqueItems": True}), value)
    assert (misfit is None) == is_unique


def test_what_one_keyword_costs_counts() -> None:
    refusing = {"anyOf": [{"required": ["a"] * 1_000, "type": "string"}] * 900}
    with pytest.raises(TooLong):
        worst_misfit(json.dumps({"items": refusing}), [{"a": "b" * 1_000}] * 1_000)


def test_a_reference_to_anything_but_a_definition_is_refused() -> None:
    # Only a keyword that nobody checks as a schema holds the pattern.
    schema = {"properties": {"a": {"$ref": "#/x-hidden"}}, "x-hidden": {"pattern": "^(a+)+$"}}
    with pytest.raises(ValueError, match=r"properties\.a\.\$ref must be a reference to a definition"):
        check_schema(schema)
    with pytest.raises(ValueError, match="out of the schema's definitions"):
        worst_misfit(json.dumps(schema), {})
