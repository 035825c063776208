"""Arguments and results checked by a method's contract alone, without the skill's code."""

import contextlib
import functools
import hashlib
import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final

from agent_core import limits
from agent_core.schemas.foreign_schema import TooLong, kinds_of, resolved, worst_misfit
from agent_core.schemas.nearest import suggestion
from contracts.devices.registration import Method
from contracts.errors import CallError, ErrorCode
from contracts.phrases import Phrase
from contracts.text import shortened
from contracts.wire import Json

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_TRUE: Final = frozenset({"true", "yes", "on", "1", "t", "y"})
_FALSE: Final = frozenset({"false", "no", "off", "0", "f", "n"})
_SCALARS: Final = frozenset({"integer", "number", "boolean"})
_PLAIN: Final[dict[str, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
_OF_NUMBERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}
_BOUNDS: Final[dict[str, dict[str, Callable[[Any, Any], bool]]]] = {
    "integer": _OF_NUMBERS,
    "number": _OF_NUMBERS,
    "string": {
        "minLength": lambda text, least: len(text) >= least,
        "maxLength": lambda text, most: len(text) <= most,
    },
    "array": {
        "minItems": lambda items, least: len(items) >= least,
        "maxItems": lambda items, most: len(items) <= most,
    },
}
_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "deprecated"})
_OBJECT: Final = frozenset({"type", "properties", "required", "additionalProperties"})
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def bad_arguments(method: Method, message: str, *, hint: str = "") -> CallError:
    """Return the error for arguments that do not fit; without another hint it shows the signature."""
    return CallError(
        ErrorCode.BAD_ARGUMENTS,
        "{name}: {text}",
        name=method.name,
        text=shortened(message, limits.MAX_MISFIT_MESSAGE),
        hint=hint or f"it is {method.signature}",
    )


def bind(method: Method, args: Sequence[Json], kwargs: Mapping[str, Json]) -> dict[str, Json]:
    """Assign each argument to its parameter.

    Raises:
        CallError: ``bad_arguments`` for too many, unknown, missing or doubly given ones.
    """
    properties = method.parameters.get("properties", {})
    if len(args) > len(method.positional):
        raise bad_arguments(
            method, f"takes at most {len(method.positional)} arguments by position, got {len(args)}"
        )
    bound = dict(zip(method.positional, args, strict=False))
    for name, value in kwargs.items():
        if name in bound:
            raise bad_arguments(method, f"got {name!r} by position and by name")
        if name not in properties:
            raise _unknown(method, name)
        bound[name] = value
    missing = [name for name in method.parameters.get("required", ()) if name not in bound]
    if missing:
        raise bad_arguments(method, f"needs {', '.join(map(repr, missing))}")
    return bound


def check_arguments(method: Method, args: Sequence[Json], kwargs: Mapping[str, Json]) -> dict[str, Json]:
    """Bind arguments to names and check them against the JSON Schema of the method.

    Numbers and booleans may be given as text, as the skill's own coercion takes them.

    Returns:
        The arguments by name, scalars converted.

    Raises:
        CallError: ``bad_arguments``, naming the parameter.
    """
    try:
        bound = bind(method, args, kwargs)
        properties = method.parameters.get("properties", {})
        known: dict[int, set[str]] = {}
        loosened = {
            name: _loosened(value, properties[name], method.parameters, known)
            for name, value in bound.items()
        }
        misfit = _misfit(method.parameters_json, loosened, secret_arguments(method))
    except CallError:
        raise
    except TooLong as error:
        raise bad_arguments(method, str(error), hint="pass less at once") from error
    except Exception as error:  # a device may send any schema
        raise bad_arguments(method, f"its schema cannot be used ({type(error).__name__})") from error
    if misfit:
        raise bad_arguments(method, misfit)
    return loosened


def secret_arguments(method: Method) -> frozenset[str]:
    """Return the names of the arguments that are never shown, as a ``SecretStr`` is."""
    properties = method.parameters.get("properties", {})
    if '"password"' not in method.parameters_json:
        return frozenset()
    return frozenset(name for name, each in properties.items() if _has_secret(each, method.parameters))


def _has_secret(schema: Json, root: Mapping[str, Json]) -> bool:
    """Return whether there is a secret in a schema, however deep; each part is looked at once."""
    seen, left = set[int](), [schema]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict) and id(part) not in seen:
            seen.add(id(part))
            if part.get("format") == "password":
                return True
            left += part.values()
            if isinstance(part.get("$ref"), str):
                left.append(resolved(part, root))
    return False


def without_secrets(method: Method, arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Return arguments as people, models, traces and logs may see them."""
    secret = secret_arguments(method)
    return {name: "••••••" if name in secret and value else value for name, value in arguments.items()}


def arguments_digest(arguments: Mapping[str, Json]) -> str:
    """Hash arguments by name, whatever their order (SHA-256, hex): what was confirmed, what was called."""
    return hashlib.sha256(_CANONICAL.encode(arguments).encode("utf-8", "surrogatepass")).hexdigest()


def check_result(method: Method, value: Json) -> None:
    """Check a result against the schema that the author's annotation gave, if there is one.

    Raises:
        CallError: ``skill_error`` when the method returned something else than it declares.
    """
    if method.result is None:
        return
    try:
        misfit = _misfit(method.result_json, value)
    except (ValueError, RecursionError, ImportError):
        # One that cannot be checked in time is ignored; a skill's own process leaves it to the device.
        return
    if misfit:
        raise CallError(
            ErrorCode.SKILL_ERROR,
            "{name} ran, but its result does not fit its declaration: {misfit}",
            name=method.name,
            misfit=misfit[: limits.MAX_MISFIT_MESSAGE],
            hint="the skill's return annotation is wrong, or what it returns is",
        )


def _unknown(method: Method, name: str) -> CallError:
    hint = suggestion(name, method.parameters.get("properties", {})) or "it takes no arguments"
    return bad_arguments(method, Phrase("has no parameter {name!r}", name=name), hint=hint)


def _loosened(
    value: Json, schema: Json, root: Mapping[str, Json], known: dict[int, set[str]], depth: int = 0
) -> Json:
    """Convert text to the number or boolean that a schema asks for; leave everything else as it is.

    Args:
        known: As in `kinds_of`.
    """
    if depth > limits.MAX_ARGUMENT_DEPTH:
        return value
    schema = resolved(schema, root)
    if isinstance(value, str):
        value = _member(value, schema, root)
    if isinstance(value, str):
        kinds = kinds_of(schema, root, known)
        return value if "string" in kinds else _scalar(value, kinds)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        return {
            key: _loosened(item, properties.get(key, others), root, known, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_loosened(item, schema.get("items"), root, known, depth + 1) for item in value]
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        scalars = kinds_of(schema, root, known) & _SCALARS
        if isinstance(value, bool):
            return int(value) if scalars and "boolean" not in scalars else value
        return bool(value) if scalars == {"boolean"} else value
    return value


def with_members(method: Method, bound: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return arguments in which the names of the members of an Enum are their values."""
    if '"names"' not in method.parameters_json:
        return bound
    properties, root = method.parameters["properties"], method.parameters
    return {name: _loosened(value, properties[name], root, {}) for name, value in bound.items()}


def _member(text: str, schema: dict[str, Any], root: Mapping[str, Json]) -> Json:
    """Return the value of the member that a text names, as ``ECO`` or ``Mode.ECO``; else the text."""
    ways = [schema, *(resolved(each, root) for each in schema.get("anyOf", ()))]
    if any(each.get("type") == "string" and "enum" not in each for each in ways):
        return text
    for way in ways:
        values, names = way.get("enum"), way.get("names")
        if isinstance(values, list) and isinstance(names, list) and text not in values:
            name = text.rpartition(".")[2]
            if name in names[: len(values)]:
                return values[names.index(name)]
    return text


def _scalar(text: str, kinds: Set[str]) -> Json:
    stripped = text.strip()
    if kinds & {"integer", "number"}:
        with contextlib.suppress(ValueError):
            return int(stripped)
        with contextlib.suppress(ValueError, OverflowError):
            number = float(stripped)
            # Neither NaN nor infinity is a JSON number; "30.0" is an integer, to JSON Schema as well.
            if math.isfinite(number) and ("number" in kinds or number.is_integer()):
                return number if "number" in kinds else int(number)
    if "boolean" in kinds and stripped.lower() in _TRUE | _FALSE:
        return stripped.lower() in _TRUE
    return text


def _misfit(schema: str, value: Json, secret: Set[str] = frozenset()) -> str:
    """Return where a value does not fit a schema, given as JSON text; empty where it does.

    Args:
        secret: Names of the parts that are not quoted.
    """
    if _plainly_fits(_parsed_schema(schema), value):
        return ""
    worst = worst_misfit(schema, value)
    return "" if worst is None else _explained(worst, secret)


_parsed_schema: Final = functools.lru_cache(maxsize=2_048)(json.loads)


def _plainly_fits(schema: Json, value: Json) -> bool:
    """Return whether a value certainly fits: named scalars within bounds, lists of them. False tells nothing.

    The library takes 50 µs for what this does in 3, and 25 ms for its import.
    """
    if not isinstance(schema, dict):
        return schema is True
    constraints = schema.keys() - _ANNOTATIONS
    if not constraints:
        return True
    kind = str(schema.get("type"))
    if not isinstance(value, _PLAIN.get(kind, ())) or isinstance(value, bool) != (kind == "boolean"):
        return False
    bounds = _BOUNDS.get(kind, {})
    if not all(bounds[name](value, schema[name]) for name in constraints & bounds.keys()):
        return False
    constraints -= bounds.keys()
    if constraints == {"type"}:
        return True
    if isinstance(value, list):
        return constraints == {"type", "items"} and all(
            _plainly_fits(schema["items"], each) for each in value
        )
    if not isinstance(value, dict) or not constraints <= _OBJECT:
        return False
    if schema.get("additionalProperties") is not False:
        return False
    properties, required = schema.get("properties", {}), schema.get("required", ())
    return (
        # A device may require one name a thousand times.
        len(required) <= len(value)
        and all(name in value for name in required)
        and all(name in properties and _plainly_fits(properties[name], each) for name, each in value.items())
    )


def _explained(error: "ValidationError", secret: Set[str]) -> str:
    path, is_secret = "", bool(secret & set(list(error.absolute_path)[:1]))
    for step in error.absolute_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    message = (
        error.message
        if len(error.message) <= 200 and not is_secret
        else Phrase("does not fit {rule!r}", rule=error.validator)
    )
    if error.validator == "anyOf" and not is_secret and isinstance(error.validator_value, list):
        kinds = [each.get("type") if isinstance(each, dict) else None for each in error.validator_value]
        if all(isinstance(kind, str) for kind in kinds):
            message = Phrase(
                "{value} is not of type {kinds}",
                value=repr(error.instance)[:80],
                kinds=" or ".join(map(repr, kinds)),
            )
    return Phrase("{path}: {text}", path=path.lstrip("."), text=message) if path else message
