"""JSON Schemas of devices, made safe to validate with.

A schema is a small program. A malicious one could fetch an address, spend hours in a regular
expression, or branch without end.
"""

import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Set
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from agent_core import limits
from contracts.wire import Json

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

MAX_BRANCHES: Final = 2_000
"""Sub-schemas that one check may meet, references followed; the largest honest ones have some hundreds."""


_OF_NAMES: Final = ("properties", "$defs", "dependentSchemas")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")

_SAME_VALUE: Final = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "dependentSchemas"})
"""Keywords whose schemas check the same value, so that a reference in them may lead round in a circle."""


_LEFT: Final[ContextVar[list[int]]] = ContextVar("left")
"""The number of steps that the present check may still take, as the only item."""


_WORD: Final = re.compile(r"[\w.+#%-]{0,32}")
"""What is short and has no blank cannot hold an instruction to a model."""
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_DEFINITION: Final = re.compile(r"#/\$defs/[^/~%]+$")
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


class TooLong(ValueError):
    """A value has so many parts that its check would hold up the others."""


def check_schema(schema: Mapping[str, Json]) -> None:
    """Check that every keyword that constrains a value has the form that JSON Schema (2020-12) gives it.

    Keywords that constrain nothing may have any value. Written by hand, because checking against the
    meta-schema takes milliseconds for each method of each device, at every start.

    Raises:
        ValueError: The schema is malformed, too deep, or branches too much.
    """
    _check(schema, "", 0)
    branches(schema)


def _check(schema: Json, path: str, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise _malformed(path, "must be an object or a boolean")
    if depth > limits.MAX_SCHEMA_DEPTH:
        raise ValueError(f"the JSON Schema is nested more than {limits.MAX_SCHEMA_DEPTH} levels deep")
    for key, value in schema.items():
        place = f"{path}.{key}" if path else key
        if key in _SINGLE:
            _check(value, place, depth + 1)
        elif key in _OF_NAMES:
            if not isinstance(value, dict):
                raise _malformed(place, "must be an object")
            for name, child in value.items():
                _check(child, f"{place}.{name}", depth + 1)
        elif key in _LISTS:
            if not isinstance(value, list) or not value:
                raise _malformed(place, "must be a list that is not empty")
            for number, child in enumerate(value):
                _check(child, f"{place}[{number}]", depth + 1)
        elif (form := _FORMS.get(key)) is not None and not form[0](value):
            raise _malformed(place, f"must be {form[1]}")


def _malformed(path: str, reason: str) -> ValueError:
    return ValueError(f"malformed JSON Schema: {path[:200] or 'it'} {reason}")


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_type(value: Json) -> bool:
    names = [value] if isinstance(value, str) else value
    return _is_names(names) and bool(names) and _TYPES.issuperset(names)


def _is_definition(value: Json) -> bool:
    # A pointer to anywhere else could reach a part that is not checked as a schema.
    return isinstance(value, str) and _DEFINITION.match(value) is not None


_FORMS: Final[dict[str, tuple[Callable[[Json], bool], str]]] = {
    "type": (_is_type, "a type or a list of types"),
    "required": (_is_names, "a list of names"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "uniqueItems": (lambda value: isinstance(value, bool), "a boolean"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "dependentRequired": (
        lambda value: isinstance(value, dict) and all(map(_is_names, value.values())),
        "an object of lists of names",
    ),
    "$ref": (_is_definition, "a reference to a definition, '#/$defs/NAME'"),
    **dict.fromkeys(("pattern", "format"), (lambda value: isinstance(value, str), "a string")),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (_is_number, "a finite number")
    ),
    **dict.fromkeys(
        (
            *("minLength", "maxLength", "minItems", "maxItems"),
            *("minProperties", "maxProperties", "minContains", "maxContains"),
        ),
        (_is_count, "a count"),
    ),
}


def worst_misfit(schema: str, value: Json) -> "ValidationError | None":
    """Return where a value does not fit a schema, given as JSON text; None where it does.

    Only known keywords are kept. Regular expressions are not among them: the device checks those itself.
    References lead to the schema's own definitions only.

    Raises:
        TooLong: The check takes too many steps.
        ValueError: The schema branches too much, or refers to something that is not a definition.
    """
    # 25 ms to import, and no call is checked before the first call.
    from jsonschema.exceptions import best_match

    left = _LEFT.set([limits.MAX_CHECK_STEPS])
    try:
        misfit: ValidationError | None = best_match(
            itertools.islice(_validator(schema).iter_errors(value), limits.MAX_MISFITS)
        )
        return misfit
    finally:
        _LEFT.reset(left)


@functools.lru_cache(maxsize=2_048)
def _validator(schema: str) -> "Validator":
    from referencing import Registry

    safe = _rebuilt(json.loads(schema))
    branches(safe)
    # An empty registry, because the default one fetches references from the network.
    return _validator_class()(safe, registry=Registry())


@functools.cache
def _validator_class() -> "type[Validator]":
    """Make the class of validators that count their steps."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def counted(keyword: str, check: Callable[..., Any]) -> Callable[..., Any]:
        def counting(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            _take(_steps(keyword, wanted, instance))
            for misfit in check(validator, wanted, instance, schema) or ():
                # Most texts show the whole value, and some the whole schema.
                _take(limits.STEPS_PER_MISFIT + len(misfit.message) // limits.WRITTEN_PER_STEP)
                yield misfit

        return counting

    def compared(value: Json) -> str:
        text = _canonical(value)
        _take(1 + len(text) // limits.COMPARED_PER_STEP)
        return text

    # The library compares each value with each other one.
    def unique(validator: Any, wanted: bool, instance: Any, _: Any) -> Iterator[ValidationError]:
        is_list = wanted and validator.is_type(instance, "array")
        if is_list and len(set(map(compared, instance))) < len(instance):
            yield ValidationError(f"{instance!r} has non-unique elements")

    def enum(_: Any, choices: dict[str, Json], instance: Any, __: Any) -> Iterator[ValidationError]:
        if compared(instance) not in choices:
            shown = (
                list(choices.values())
                if len(choices) <= limits.MAX_CHOICES_LISTED
                else f"{len(choices)} values"
            )
            yield ValidationError(f"{instance!r} is not one of {shown}")

    def const(_: Any, choices: dict[str, Json], instance: Any, __: Any) -> Iterator[ValidationError]:
        if compared(instance) not in choices:
            yield ValidationError(f"{next(iter(choices.values()))!r} was expected")

    own = {**Draft202012Validator.VALIDATORS, "uniqueItems": unique, "enum": enum, "const": const}
    checks = {keyword: counted(keyword, check) for keyword, check in own.items()}
    made: type[Validator] = extend(Draft202012Validator, checks)  # type: ignore[no-untyped-call]
    return made


def _steps(keyword: str, wanted: Any, instance: Json) -> int:
    """Return the steps that a keyword takes with a value, without those of the schemas inside it."""
    if keyword == "$ref":
        return limits.STEPS_PER_REFERENCE
    parts = len(instance) if isinstance(instance, list | dict) else 0
    named = len(wanted) if isinstance(wanted, list | dict) else 0
    if keyword == "dependentRequired":
        named += sum(map(len, wanted.values()))
    if keyword in ("enum", "const"):
        return 1
    if keyword in _LISTS or keyword == "dependentSchemas":
        return 1 + named
    if keyword in _SINGLE or keyword == "properties":
        return 1 + parts + named // limits.WRITTEN_PER_STEP
    return 1 + (parts + named) // limits.WRITTEN_PER_STEP


def _take(steps: int) -> None:
    left = _LEFT.get()
    left[0] -= steps
    if left[0] < 0:
        raise TooLong("the value takes too long to check")


def _canonical(value: Json) -> str:
    # Equal in JSON Schema are 1 and 1.0, but not 1 and true.
    return _CANONICAL.encode(_with_integers(value))


def _with_integers(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return list(map(_with_integers, value))
    if isinstance(value, dict):
        return {name: _with_integers(each) for name, each in value.items()}
    return value


def branches(schema: Mapping[str, Json]) -> int:
    """Count the sub-schemas that one check may meet; each takes up to ten microseconds.

    A hundred values of an ``enum`` take as long, and count as one.

    Raises:
        ValueError: They are too many, or one leads back to itself.
    """
    count = _branches(schema, schema.get("$defs", {}), {}, frozenset(), 0)
    if count > MAX_BRANCHES:
        raise ValueError(f"the JSON Schema branches into {count:,} schemas; {MAX_BRANCHES:,} are allowed")
    return count


def _branches(
    schema: Json, definitions: Mapping[str, Json], known: dict[str, int], within: frozenset[str], depth: int
) -> int:
    """Count the sub-schemas that a check may meet, each as often as it is referred to.

    Args:
        within: The definitions whose check of the same value this is a part of.
    """
    if not isinstance(schema, dict):
        return 1
    if depth > limits.MAX_SCHEMA_DEPTH:
        raise ValueError(f"the JSON Schema is nested more than {limits.MAX_SCHEMA_DEPTH} levels deep")
    count = (
        1
        + len(schema.get("enum", ())) // limits.VALUES_PER_BRANCH
        + sum(
            _branches(child, definitions, known, within if key in _SAME_VALUE else frozenset(), depth + 1)
            for key, child in _children(schema)
        )
    )
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in within:
            raise ValueError(f"{reference[:60]} in the JSON Schema leads back to itself")
        if reference not in known:
            known[reference] = 1  # met again inside itself, it goes one step deeper into the value
            target = definitions.get(reference.removeprefix("#/$defs/"))
            known[reference] = _branches(target, definitions, known, within | {reference}, depth + 1)
        count += known[reference]
    return count


def _children(schema: Mapping[str, Json]) -> list[tuple[str, Json]]:
    """Return the schemas directly inside a schema with their keywords, without its definitions."""
    named = [(key, child) for key in _OF_NAMES if key != "$defs" for child in schema.get(key, {}).values()]
    listed = [(key, child) for key in _LISTS for child in schema.get(key, ())]
    return named + listed + [(key, schema[key]) for key in _SINGLE if key in schema]


def kinds_of(schema: Json, root: Mapping[str, Json], known: dict[int, set[str]] | None = None) -> Set[str]:
    """Return the JSON types that a schema takes; empty means any.

    Args:
        known: Those of the sub-schemas by their identity, to look at each only once for many values.
    """
    schema = resolved(schema, root)
    # Each sub-schema once: a few that refer to each other would branch without end.
    known = {} if known is None else known
    if id(schema) in known:
        return known[id(schema)]
    kinds: set[str] = set()
    known[id(schema)] = kinds
    declared = schema.get("type")
    kinds.update([declared] if isinstance(declared, str) else declared or ())
    for value in (*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())):
        kinds.add("string" if isinstance(value, str) else "other")
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        kinds |= kinds_of(branch, root, known)
    return kinds


def resolved(schema: Json, root: Mapping[str, Json]) -> dict[str, Any]:
    """Follow references into ``$defs``; what cannot be followed is an empty schema."""
    for _ in range(limits.MAX_REFERENCES):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if reference is None:
            return schema
        schema = root.get("$defs", {}).get(str(reference).removeprefix("#/$defs/"))
    return {}


def without_null(schema: Json, root: Mapping[str, Json]) -> dict[str, Any]:
    """Follow references and optional values; what cannot be followed is an empty schema."""
    for _ in range(limits.MAX_REFERENCES):
        found = resolved(schema, root)
        choices = found.get("anyOf")
        if not isinstance(choices, list):
            return found
        schema = next((each for each in choices if isinstance(each, dict) and each.get("type") != "null"), {})
    return {}


def _rebuilt(schema: Json) -> Any:
    """Return the parts of a schema that are safe to run: known keywords, references to definitions."""
    if not isinstance(schema, dict):
        return schema
    safe = {key: value for key, value in schema.items() if key in _KEPT}
    if "$ref" in safe and not _is_definition(safe["$ref"]):
        raise ValueError("a reference leads out of the schema's definitions")
    if "patternProperties" in schema:
        # What they allowed would now count as additional.
        safe.pop("additionalProperties", None)
    if "enum" in safe:
        safe["enum"] = {_canonical(each): each for each in safe["enum"]}
    if "const" in safe:
        safe["const"] = {_canonical(safe["const"]): safe["const"]}
    for key in _OF_NAMES:
        if key in safe:
            safe[key] = {name: _rebuilt(child) for name, child in safe[key].items()}
    for key in _LISTS:
        if key in safe:
            safe[key] = [_rebuilt(child) for child in safe[key]]
    for key in _SINGLE:
        if key in safe:
            safe[key] = _rebuilt(safe[key])
    return safe


def without_text(schema: Json, removed: list[str], path: str = "") -> Any:
    """Return a schema without its prose: descriptions, and values and names that are more than a word.

    Args:
        removed: Receives what was left out, one line for each keyword.
        path: Of the schema within the whole, for those lines.
    """
    if not isinstance(schema, dict):
        return schema
    bare: dict[str, Json] = {}
    for key, value in schema.items():
        # Each line has a path: long names must not multiply.
        place = f"{path}.{key}"[-limits.MAX_SCHEMA_PATH :]
        if key in _OF_NAMES:
            bare[key] = {
                name: without_text(child, removed, f"{place}.{name}")
                for name, child in value.items()
                if _is_word(name)
            }
            removed += [f"{place}: {name}" for name in value if not _is_word(name)]
        elif key in _LISTS:
            bare[key] = [without_text(child, removed, place) for child in value]
        elif key in _SINGLE:
            bare[key] = without_text(value, removed, place)
        elif (key in _KEPT or key in ("default", "format", "names")) and _is_wordy(value):
            bare[key] = value
        else:
            removed.append(f"{place}: {value if isinstance(value, str) else json.dumps(value)}")
    return bare


def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None


def _is_wordy(value: Json) -> bool:
    if isinstance(value, dict):
        return all(_is_word(name) and _is_wordy(child) for name, child in value.items())
    if isinstance(value, list):
        return all(map(_is_wordy, value))
    return not isinstance(value, str) or _is_word(value.removeprefix("#/$defs/"))


_KEPT: Final = frozenset({*_OF_NAMES, *_LISTS, *_SINGLE, *_FORMS, "const"} - {"pattern", "format"})
