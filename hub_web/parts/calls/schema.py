"""Fields of forms and controls, made from the JSON Schema of a method's arguments."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from contracts.wire import Json
from hub_web import limits
from hub_web.texts import text

Kind = Literal["switch", "choice", "number", "text", "secret", "list", "object", "json"]

_NUMBERS: Final = frozenset({"integer", "number"})
_LARGEST: Final = 2.0**53
"""Beyond it browsers do not count exactly, and NiceGUI sends no integers at all."""


@dataclass(frozen=True)
class Field:
    """One argument, or one part of an object.

    Attributes:
        kind: How it is entered; ``json`` for what no other way fits.
        required: Whether the call fails without it.
        default: Json value; None also where there is none.
        choices: Of a choice, and of each item of a list of choices; no lists and no objects.
        integer: Whether only whole numbers are taken, also of each item of a list.
        numbers: Of a list, whether its items are numbers.
        fields: Of an object.
        long: Whether a text may have several lines.
        called: What people call it; empty for its name as they write it.
    """

    name: str
    kind: Kind
    required: bool = False
    default: Json = None
    description: str = ""
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    unit: str = ""
    choices: tuple[Json, ...] = ()
    integer: bool = False
    numbers: bool = False
    fields: "tuple[Field, ...]" = ()
    long: bool = False
    called: str = ""

    @property
    def label(self) -> str:
        """Its name as people write it."""
        if self.called:
            return self.called
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", self.name).strip()
        return words[:1].upper() + words[1:].lower()

    @property
    def is_bounded(self) -> bool:
        # A slider sets it.
        return self.kind == "number" and None not in (self.minimum, self.maximum)


class BadValue(ValueError):
    """What was entered is no value of its field."""


def fields_of(schema: Mapping[str, Any], *, doc: str = "") -> tuple[Field, ...]:
    """Return the fields of an object, in its order.

    Args:
        schema: Of the arguments of a method.
        doc: The docstring of the method, which may describe them.
    """
    return _fields(schema, schema, documented(doc), 0)


def documented(doc: str) -> dict[str, str]:
    """Return what the section ``Args`` of a docstring says of each argument."""
    _, found, section = doc.partition("Args:\n")
    described: dict[str, str] = {}
    name = ""
    for line in section.splitlines() if found else ():
        if line.strip() and not line.startswith(" "):
            break
        if match := re.match(r"\s{2,6}(\w+)(?: \([^)]*\))?:\s+(.*)", line):
            name = match[1]
            described[name] = match[2].strip()
        elif line.strip() and name:
            described[name] += f" {line.strip()}"
    return described


def _fields(
    schema: Mapping[str, Any], root: Mapping[str, Any], described: Mapping[str, str], depth: int
) -> tuple[Field, ...]:
    required = schema.get("required", ())
    return tuple(
        _field(name, part, root, name in required, described.get(name, ""), depth)
        for name, part in schema.get("properties", {}).items()
    )


def _field(
    name: str, schema: Any, root: Mapping[str, Any], required: bool, description: str, depth: int
) -> Field:
    default = schema.get("default") if isinstance(schema, dict) else None
    schema, nullable = _resolved(schema, root)
    common: dict[str, Json] = {
        "name": name,
        "required": required and not nullable,
        "default": default if default is not None else schema.get("default"),
        "description": description or str(schema.get("description", "")),
        "unit": str(schema.get("unit", "")),
    }
    kind = schema.get("type")
    if choices := _choices(schema):
        return Field(kind="choice", choices=choices, **common)
    if kind == "boolean":
        # Without a value of its own it is none of yes and no.
        if common["default"] is None and not required:
            return Field(kind="choice", choices=(True, False), **common)
        return Field(kind="switch", **common)
    if kind in _NUMBERS:
        return Field(kind="number", integer=kind == "integer", **_bounds(schema), **common)
    if kind == "string":
        secret = schema.get("format") == "password"
        long = schema.get("maxLength", 0) > 300 or name in ("text", "code", "message", "source")
        return Field(kind="secret" if secret else "text", long=long, **common)
    if kind == "array" and (item := _item(schema, root)) is not None:
        return Field(kind="list", choices=item.choices, integer=item.integer, numbers=item.numbers, **common)
    if kind == "object" and schema.get("properties") and depth < limits.MAX_FORM_DEPTH:
        return Field(kind="object", fields=_fields(schema, root, {}, depth + 1), **common)
    return Field(kind="json", **common)


def _item(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Field | None:
    item, nullable = _resolved(schema.get("items"), root)
    if choices := _choices(item):
        return Field("", "list", choices=choices)
    if nullable or item.get("type") not in ("string", *_NUMBERS):
        return None
    return Field("", "list", integer=item["type"] == "integer", numbers=item["type"] in _NUMBERS)


def _choices(schema: Mapping[str, Any]) -> tuple[Json, ...]:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or any(isinstance(each, (list, dict)) for each in values):
        return ()
    return tuple(values)


def _bounds(schema: Mapping[str, Any]) -> dict[str, Json]:
    is_whole = schema.get("type") == "integer"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and is_whole and "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"] + 1
    if high is None and is_whole and "exclusiveMaximum" in schema:
        high = schema["exclusiveMaximum"] - 1
    step = schema.get("multipleOf") or (1 if is_whole else None)
    given = {"minimum": low, "maximum": high, "step": step}
    return {name: each for name, each in given.items() if each is not None and abs(each) <= _LARGEST}


def _resolved(schema: Any, root: Mapping[str, Any]) -> tuple[dict[str, Json], bool]:
    """Follow references and the one way of ``anyOf`` that is not null; return also whether null is taken."""
    nullable = False
    for _ in range(limits.MAX_FORM_DEPTH * 4):
        if not isinstance(schema, dict):
            return {}, nullable
        if "$ref" in schema:
            more = {key: value for key, value in schema.items() if key != "$ref"}
            found = root.get("$defs", {}).get(str(schema["$ref"]).removeprefix("#/$defs/"), {})
            schema = {**found, **more} if isinstance(found, dict) else {}
            continue
        ways = schema.get("anyOf") or schema.get("oneOf")
        if not isinstance(ways, list):
            return schema, nullable
        others = [way for way in ways if not (isinstance(way, dict) and way.get("type") == "null")]
        nullable |= len(others) < len(ways)
        if len(others) != 1:
            constants = [way["const"] for way in others if isinstance(way, dict) and "const" in way]
            return ({"enum": constants} if len(constants) == len(others) else {}), nullable
        more = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
        schema = {**others[0], **more} if isinstance(others[0], dict) else {}
    return {}, nullable


def read_value(field: Field, entered: Any) -> Json:
    """Return the value of what was entered; None where that is nothing.

    Bounds are the hub's to check: its words are the same everywhere.

    Raises:
        BadValue: If it is none.
    """
    match field.kind:
        case "number":
            return _number(entered, integer=field.integer)
        case "list" if not field.choices:
            lines = [line.strip() for line in str(entered or "").splitlines() if line.strip()]
            items: list[Json] = [
                _number(line, integer=field.integer) if field.numbers else line for line in lines
            ]
            return items or None
        case "list":
            return list(entered) if entered else None
        case "json":
            written = str(entered or "").strip()
            try:
                value: Json = json.loads(written) if written else None
            except (ValueError, RecursionError) as error:
                raise BadValue(text("This is no JSON: {error}", error=error)) from None
            return value
        case "text" | "secret":
            return None if entered in (None, "") else str(entered)
        case _:
            given: Json = entered
            return given


def _number(entered: Any, *, integer: bool) -> Json:
    if entered in (None, ""):
        return None
    try:
        number = float(str(entered).replace(",", "."))
    except ValueError:
        raise BadValue(text("{value} is no number", value=entered)) from None
    return int(number) if integer and number.is_integer() else number


def shown_value(field: Field, value: Json) -> Any:
    """Return the value that a field shows; a device may have sent any."""
    match field.kind:
        case "choice":
            return value if not isinstance(value, (list, dict)) and value in field.choices else None
        case "number":
            return value if isinstance(value, (int, float)) and abs(value) <= _LARGEST else None
        case "list" if not field.choices:
            return "\n".join(map(str, value)) if isinstance(value, list) else ""
        case "list":
            return value if isinstance(value, list) else []
        case "json":
            return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)
        case "switch":
            return bool(value)
        case "text" | "secret":
            return "" if value is None else str(value)
        case _:
            return value
