"""The classes behind a signature, written as Python from a method's JSON Schemas."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent_core import limits
from contracts.devices.registration import Method
from contracts.text import shortened
from contracts.wire import Json

_PLAIN: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "array": "list",
    "object": "dict",
}
_BOUNDS: Final = (
    "format",
    "unit",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
)
_RETURNS: Final = re.compile(r"->\s*([A-Za-z_]\w*)\Z")
_HOW: Final = "# Pass an object of a class as a dict, and a member of an Enum by its value or name."


class Classes:
    """Classes that the types of a method name, collected while the types are written.

    Args:
        definitions: The ``$defs`` that references lead to.
    """

    def __init__(self, definitions: Json = None) -> None:
        self.definitions = definitions if isinstance(definitions, dict) else {}
        self._schemas: dict[str, Mapping[str, Any]] = {}

    def type_of(self, schema: Json, name: str = "", depth: int = 0) -> str:
        """Write a type as Python does: ``list[Song] | None``.

        Args:
            name: What an object without a name is called.
        """
        if not isinstance(schema, dict) or depth > limits.MAX_TYPE_DEPTH:
            return "Any"
        if isinstance(reference := schema.get("$ref"), str):
            called = reference.removeprefix("#/$defs/")
            if isinstance(found := self.definitions.get(called), dict):
                if "enum" not in found and "properties" not in found:
                    return self.type_of(found, name, depth + 1)
                self._schemas.setdefault(called, found)
            return _words(called)
        if isinstance(values := schema.get("enum", [schema["const"]] if "const" in schema else None), list):
            shown = [typed(each) for each in values[: limits.MAX_VALUES_SHOWN]]
            return f"Literal[{', '.join([*shown, *(['…'] if len(values) > len(shown) else [])])}]"
        if isinstance(ways := schema.get("anyOf") or schema.get("oneOf"), list):
            texts = (self.type_of(each, name, depth + 1) for each in ways[: limits.MAX_VALUES_SHOWN])
            return " | ".join(dict.fromkeys(texts))
        kinds = schema.get("type")
        if isinstance(kinds, list):
            # Each once: lists of lists that repeat one would be written without end.
            given = dict.fromkeys(map(str, kinds))
            return " | ".join(self.type_of({**schema, "type": each}, name, depth + 1) for each in given)
        if kinds == "array":
            return self._list_of(schema, name, depth)
        if isinstance(schema.get("properties"), dict) and schema["properties"] and name:
            self._schemas.setdefault(name, schema)
            return name
        if kinds == "object" and isinstance(others := schema.get("additionalProperties"), dict):
            return f"dict[str, {self.type_of(others, name, depth + 1)}]"
        return _PLAIN.get(str(kinds), "Any")

    def _list_of(self, schema: Mapping[str, Any], name: str, depth: int) -> str:
        if isinstance(places := schema.get("prefixItems"), list):
            parts = (self.type_of(each, name, depth + 1) for each in places[: limits.MAX_VALUES_SHOWN])
            return f"tuple[{', '.join(parts)}]"
        kind = "set" if schema.get("uniqueItems") is True else "list"
        items = schema.get("items")
        return f"{kind}[{self.type_of(items, name, depth + 1)}]" if isinstance(items, dict) else kind

    def write(self) -> list[str]:
        """Return the lines of all classes that were named, and of those that their fields name."""
        lines: list[str] = []
        written = 0
        while written < len(self._schemas) and written < limits.MAX_CLASSES_SHOWN:
            name, schema = list(self._schemas.items())[written]
            written += 1
            lines += self._class(name, schema)
        room, fitting = limits.MAX_CLASSES_TEXT, list[str]()
        for line in lines:
            room -= len(line) + 1
            if room < 0:
                break
            fitting.append(line)
        return [*fitting, "# …"] if len(fitting) < len(lines) or written < len(self._schemas) else fitting

    def _class(self, name: str, schema: Mapping[str, Any]) -> list[str]:
        if isinstance(values := schema.get("enum"), list):
            names = schema.get("names")
            if not isinstance(names, list) or len(names) != len(values):
                names = [f"_{number}" for number in range(len(values))]
            shown = list(zip(names, values, strict=True))[: limits.MAX_VALUES_SHOWN]
            members = "; ".join(f"{each} = {typed(value)}" for each, value in shown)
            return [f"class {_words(name)}(Enum): {members}{'; …' if len(shown) < len(values) else ''}"]
        fields = schema.get("properties", {})
        required = schema.get("required")
        lines = [f"class {_words(name)}:{_comment([_words(schema.get('description'))])}"]
        for field, part in list(fields.items())[: limits.MAX_FIELDS_SHOWN]:
            text = f"    {_words(field)}: {self.type_of(part, class_name(field))}"
            is_left_out = not isinstance(required, list) or field not in required
            if isinstance(part, dict) and "default" in part:
                text += f" = {typed(part['default'])}"
                is_left_out = False
            lines.append(text + _comment([*(["optional"] if is_left_out else []), *facts(part)]))
        if len(fields) > limits.MAX_FIELDS_SHOWN:
            lines.append(f"    # … {len(fields) - limits.MAX_FIELDS_SHOWN} more")
        return lines


def class_lines(methods: Iterable[Method]) -> list[str]:
    """Return the classes behind the signatures of methods, and what is known of their parameters."""
    lines: dict[str, None] = {}
    for method in methods:
        given = Classes(method.parameters.get("$defs"))
        for name, schema in method.parameters.get("properties", {}).items():
            given.type_of(schema, class_name(name))
            if known := facts(schema):
                lines[f"# {_words(name)}: {', '.join(known)}"] = None
        passed = given.write()
        lines |= dict.fromkeys(passed)
        if passed:
            lines[_HOW] = None
        if method.result is not None:
            returned = Classes(method.result.get("$defs"))
            named = _RETURNS.search(method.signature)
            returned.type_of(method.result, named[1] if named else "Result")
            lines |= dict.fromkeys(line for line in returned.write())
    return list(lines)


def facts(schema: Json) -> list[str]:
    """List what a type does not say of a value: format, unit, bounds, description."""
    if not isinstance(schema, dict):
        return []
    ways = [each for each in schema.get("anyOf", ()) if isinstance(each, dict)]
    bounds = [
        f"{name} {shortened(str(each[name]), limits.MAX_VALUE_TEXT)}"
        for each in (schema, *ways)
        for name in _BOUNDS
        if name in each
    ]
    return [*dict.fromkeys(bounds), *filter(None, [_words(schema.get("description"))])]


def typed(value: Json) -> str:
    """Write a value as it can be typed in Python; one that is too long as ``...``."""
    text = repr(value)
    return text if len(text) <= limits.MAX_VALUE_TEXT else "..."


def class_name(field: str) -> str:
    """Return what the class of a field without one is called: ``WhereTo`` for ``where_to``."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"\W|_", field)) or "Value"


def _words(text: Json) -> str:
    return shortened(" ".join(text.split()), limits.MAX_SCHEMA_TEXT) if isinstance(text, str) else ""


def _comment(parts: list[str]) -> str:
    text = ", ".join(filter(None, parts))
    return f"  # {text}" if text else ""
