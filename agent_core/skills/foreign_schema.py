"""JSON Schemas of devices, made safe to validate with.

A schema is a small program. A malicious one could fetch an address, spend hours in a regular
expression, or branch without end.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry

from contracts.wire import Json

MAX_BRANCHES: Final = 20_000
"""Sub-schemas that one check may meet, references followed; the largest honest ones have some hundreds."""

_OF_NAMES: Final = ("properties", "$defs", "dependentSchemas")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")

_MAX_DEPTH: Final = 64
"""Sub-schemas inside each other; pydantic's own for nested models stay below ten."""


def check_schema(schema: Mapping[str, Json]) -> None:
    """Check that every keyword has a value of the form that JSON Schema (2020-12) gives it.

    Raises:
        ValueError: The schema is malformed, or too deep.
    """
    _check_depth(schema, 0)
    _check_text(json.dumps(schema))


@functools.lru_cache(maxsize=2_048)
def _check_text(schema: str) -> None:
    try:
        Draft202012Validator.check_schema(json.loads(schema))
    except SchemaError as error:
        where = ".".join(str(step) for step in error.absolute_path)
        raise ValueError(f"malformed JSON Schema at {where or 'its top'}: {error.message[:200]}") from None


def _check_depth(schema: Json, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"the JSON Schema is nested more than {_MAX_DEPTH} levels deep")
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for child in children:
        _check_depth(child, depth + 1)


@functools.lru_cache(maxsize=2_048)
def validator(schema: str) -> Draft202012Validator:
    """Compile a schema, given as JSON text.

    Regular expressions are left out: the device checks them itself. References lead nowhere but into the
    schema.

    Raises:
        ValueError: It branches too much to be checked.
    """
    safe = _without_patterns(json.loads(schema))
    if _branches(safe, safe.get("$defs", {}), {}) > MAX_BRANCHES:
        raise ValueError("the schema branches too much")
    # An empty registry, because the default one fetches references from the network.
    return Draft202012Validator(safe, registry=Registry())


def _children(schema: Mapping[str, Json]) -> list[Json]:
    """Return the schemas directly inside a schema, without its definitions."""
    named = [child for key in _OF_NAMES if key != "$defs" for child in schema.get(key, {}).values()]
    listed = [child for key in _LISTS for child in schema.get(key, ())]
    return named + listed + [schema[key] for key in _SINGLE if key in schema]


def _branches(schema: Json, definitions: Mapping[str, Json], known: dict[str, int]) -> int:
    """Count the sub-schemas that a check may meet, each as often as it is referred to."""
    if not isinstance(schema, dict):
        return 1
    count = 1 + sum(_branches(child, definitions, known) for child in _children(schema))
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference not in known:
            known[reference] = 1  # met again inside itself, it goes one step deeper into the value
            target = definitions.get(reference.removeprefix("#/$defs/"))
            known[reference] = _branches(target, definitions, known)
        count += known[reference]
    return count


def _without_patterns(schema: Json) -> Any:
    if not isinstance(schema, dict):
        return schema
    safe = {key: value for key, value in schema.items() if key not in ("pattern", "patternProperties")}
    if "patternProperties" in schema:
        # What they allowed would now count as additional.
        safe.pop("additionalProperties", None)
    for key in _OF_NAMES:
        if key in safe:
            safe[key] = {name: _without_patterns(child) for name, child in safe[key].items()}
    for key in _LISTS:
        if key in safe:
            safe[key] = [_without_patterns(child) for child in safe[key]]
    for key in _SINGLE:
        if key in safe:
            safe[key] = _without_patterns(safe[key])
    return safe
