"""Validation errors of pydantic in words for people: what is wrong where, and the nearest right name.

Also what pydantic takes and no message may have, and types that it does not have.
"""

import difflib
import json
import math
import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Annotated, Any, Final, TypeVar
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from contracts import limits
from contracts.errors import InvalidMessage
from contracts.phrases import Phrase
from contracts.text import shortened

Model = TypeVar("Model", bound=BaseModel)
Parsed = TypeVar("Parsed")

_TYPE: Final = re.compile(r"str|int|float|bool|constrained-\w+|[a-z-]+\[.*\]")
"""What pydantic puts into the place of a mistake where a value may be of several types."""
_SHOULD: Final = re.compile(r"^(?:Input|Value|String|List|Tuple|Set|Dictionary|Data|URL|Bytes) should ")
_LINE: Final = re.compile(r"line (\d+) column (\d+)")
_FIRST: Final = ("extra_forbidden", "missing")
"""A misspelt name is both an unknown and a missing one; the unknown one shows the mistake."""

_SHAPE: Final = bytes.maketrans(b"123456789E", b"000000000e")
_PERHAPS_TOO_LARGE: Final = (b"0e000", b"0e+000", b"0" * 309)


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}; one is Europe/Berlin") from None
    return name


_FORMS: Final[dict[str, str]] = {}
"""Descriptions for people, by pattern."""
_KINDS: Final = {
    "json_invalid": "is no valid JSON",
    "string_type": "must be a string",
    "time_delta_parsing": "must be a duration such as PT1H30M",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "must be a number"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "must be a list"),
}
"""Messages by pydantic's type of error; of other types, pydantic's own is used."""


def matching(pattern: str, form: str) -> Any:
    """Return the constraint of a string by a pattern, with its description for people: ``a host name``."""
    _FORMS[pattern] = form
    return Field(pattern=pattern, description=form)


Language = Annotated[
    str,
    matching(r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$", "a language such as de or pt-BR"),
    StringConstraints(max_length=35),
]
"""BCP 47, for example ``de`` or ``pt-BR``."""
TimeZone = Annotated[str, StringConstraints(max_length=64), AfterValidator(_time_zone)]
"""IANA name, for example ``Europe/Berlin``."""
IpAddress = Annotated[str, AfterValidator(lambda text: str(ip_address(text)))]
WebAddress = Annotated[str, matching(r"^https?://", "an address that begins with http:// or https://")]
VariableName = Annotated[
    str, matching(r"^[A-Za-z_][A-Za-z0-9_]*$", "the name of a variable, not the key itself")
]
"""Of an environment variable that holds a secret."""


def check_numbers(payload: bytes) -> None:
    """Check that all numbers of valid JSON are finite, and none is larger than a float may be.

    Pydantic takes NaN, Infinity, 1e400 and integers of thousands of digits in free values.

    Raises:
        ValueError: One is not.
    """
    # Regular expressions take a hundred times as long for this.
    shape = payload.translate(_SHAPE)
    if b"NaN" in payload or b"Infinity" in payload or any(each in shape for each in _PERHAPS_TOO_LARGE):
        json.loads(payload, parse_constant=_no_number, parse_float=_finite, parse_int=_finite)


def parsed(kind: TypeAdapter[Parsed], payload: str | bytes) -> Parsed:
    """Parse a message.

    Raises:
        InvalidMessage: If it is none of this kind, or one of its numbers is not finite.
    """
    try:
        message = kind.validate_json(payload)
        check_numbers(payload if isinstance(payload, bytes) else payload.encode())
    except ValidationError as error:
        raise InvalidMessage(explain(error, what="field")) from None
    except ValueError as error:
        raise InvalidMessage(str(error)) from None
    return message


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def validated(model: type[Model], given: Any, *, what: str = "argument") -> Model:
    """Return a model of values that a person or a program gave.

    Raises:
        InvalidMessage: If they are wrong; it says what is wrong where.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InvalidMessage(explain(error, model, what=what)) from None


def explain(
    error: ValidationError | ErrorDetails,
    model: type[BaseModel] | None = None,
    *,
    what: str = "setting",
    root: str = "",
    show_value: bool = False,
) -> str:
    """Describe a mistake in one line; of a validation the first one, see `first_mistake`.

    Args:
        model: What was validated. An unknown name is compared with its fields.
        what: Noun for a field: ``setting``, ``field``, ``argument``.
        root: Name of the value as a whole, where it has one.
        show_value: Whether to quote the wrong value. Not where a person may have pasted a key.

    Returns:
        For example ``unknown setting 'provder'; did you mean 'provider'?`` or
        ``timeout_s must be greater than 0``.
    """
    mistake = first_mistake(error.errors()) if isinstance(error, ValidationError) else error
    steps = [root] if root else []
    place, parent = location((*steps, *mistake["loc"])), location((*steps, *mistake["loc"][:-1]))
    name = shortened(str(mistake["loc"][-1]), limits.MAX_VALUE_SHOWN) if mistake["loc"] else ""
    inside = f" in {parent}" if parent else ""
    given = f", not {_shown(mistake['input'])}" if show_value else ""
    match mistake["type"]:
        case "extra_forbidden":
            known = model.model_fields if model is not None and len(mistake["loc"]) == 1 else ()
            return f"unknown {what} {name!r}{inside}{did_you_mean(name, known)}"
        case "missing":
            return f"{what} {name!r} is missing{inside}"
        case "literal_error" | "enum":
            expected = str(mistake.get("ctx", {}).get("expected", ""))
            near = did_you_mean(str(mistake["input"]), re.findall(r"'([^']*)'", expected))
            return f"{place or 'it'} must be {expected}{given}{near}"
        case "union_tag_not_found":
            return f"{what} {mistake['ctx']['discriminator']} is missing" + (f" in {place}" if place else "")
        case "union_tag_invalid":
            place = location((*steps, *mistake["loc"], mistake["ctx"]["discriminator"].strip("'")))
            return f"{place} must be one of {mistake['ctx']['expected_tags']}"
        case "value_error":
            reason = str(mistake["ctx"]["error"])
            return (f"{place}: {reason}" if place else reason) + given
        case "string_pattern_mismatch":
            form = _FORMS.get(mistake["ctx"]["pattern"])
            rule = f"be {form}" if form else f"match {mistake['ctx']['pattern']}"
            return f"{place or 'it'} must {rule}{given}"
        case kind if kind in _KINDS:
            if kind == "json_invalid" and (where := _LINE.search(mistake["msg"])):
                given = f" (line {where[1]}, column {where[2]})"
            return f"{place or 'it'} {_KINDS[kind]}{given}"
        case _:
            message, replaced = _SHOULD.subn("must ", mistake["msg"].partition(" after validation")[0])
            message = (
                message
                if replaced
                else Phrase("is not valid: {first}{rest}", first=message[:1].lower(), rest=message[1:])
            )
            return f"{place or 'it'} {message}{given}"


def first_mistake(mistakes: Iterable[ErrorDetails]) -> ErrorDetails:
    """Return the one of the mistakes of a validation that `explain` describes."""
    return min(
        mistakes,
        key=lambda each: _FIRST.index(each["type"]) if each["type"] in _FIRST else len(_FIRST),
    )


def location(steps: Iterable[str | int]) -> str:
    """Write the path to a value as Python does: ``players[2].volume``."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not _TYPE.fullmatch(step):
            path += f".{shortened(step, limits.MAX_VALUE_SHOWN)}"
    return path.removeprefix(".")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known name nearest to a wrong one, empty where none is near."""
    if len(name) > limits.MAX_NAME_COMPARED:
        return ""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if not near and len(name) >= limits.LEAST_ABBREVIATION:
        near = [each for each in by_lower if each.startswith(name.lower())]
    return Phrase("; did you mean {name!r}?", name=by_lower[near[0]]) if near else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return shortened(text, limits.MAX_VALUE_SHOWN)
