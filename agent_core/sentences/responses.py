"""Answers in words: the result of a call by its method's response template, or by the types of its values.

A template is text with placeholders, in the language of the sentence::

    The lamp is {result.is_on:on|off}[, at {result.brightness} %].

``{result}`` is the whole result, ``{result.field}`` a part of it, ``{name}`` an argument of the call. A
field of a list is that of all its items. A format after a colon chooses: ``{…:on|off}`` one of two texts by
truth, ``{…:rain=Regen|snow=Schnee}`` a text by the value (another value is said as it is), ``{…:GB}`` a
number of bytes in that unit without its name. Text in square brackets is left out where a placeholder in it
gives nothing. There are no expressions, no attributes and no calls: templates and results come from devices.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from agent_core import limits
from agent_core.schemas.foreign_schema import without_null
from agent_core.texts import languages, translated, translations
from agent_core.times import UNITS
from contracts.devices.registration import Method
from contracts.errors import CallError, ErrorCode, StrawberryError
from contracts.phrases import Phrase, for_people
from contracts.text import shortened
from contracts.wire import Json

MAX_ANSWER: Final = 2_000
"""Characters of an answer; more is not read, and certainly not spoken."""


_BYTE_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_PLACEHOLDER: Final = re.compile(r"\{(?P<path>\w+(?:\.\w+)*)(?::(?P<format>[^{}\[\]]*))?\}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DURATION: Final = TypeAdapter(timedelta)
_EMPTY: Final[tuple[Json, ...]] = (None, "", [], {})
_ENGLISH: Final = "en"
_QUESTIONS: Final = {
    "devices": "On which device: {names}? Say it again with the name of the device at the end.",
    "methods": "That can mean {names}. Please use other words.",
}
_FAILURES: Final = {
    ErrorCode.NEEDS_CONFIRMATION: "I need a yes for that, and I cannot ask here: say it in the browser.",
    ErrorCode.SKILL_ERROR: "Sorry, that did not work: {message}. {hint}",
}
"""In English, where the others say their message; translations have a text for each code."""


class BadResponse(StrawberryError):
    """A response template that cannot be used; the message says why."""


def primary(language: str) -> str:
    """Return the first part of a language tag in lower case: ``de`` of ``de-AT``."""
    return re.split(r"[-_]", language, maxsplit=1)[0].lower()


def _said(words: str, language: str) -> str:
    """Return words of an answer in a language; in English where that has none."""
    return translations("spoken", primary(language)).get(words, words)


def in_languages(english: str) -> dict[str, str]:
    """Return a response template of a skill of the hub in all languages that have it."""
    found = {each: translations("spoken", each).get(english, "") for each in languages()}
    return {_ENGLISH: english} | {language: said for language, said in found.items() if said}


def response_text(
    method: Method,
    result: Json,
    arguments: Mapping[str, Json] | None = None,
    *,
    language: str = "en",
    limit: int | None = MAX_ANSWER,
) -> str:
    """Write the result of a call in words.

    A template that does not fit the result is passed over: the answer then has the result without it.

    Args:
        language: BCP 47; only its first part counts.
        limit: Most characters; None for all.
    """
    templates = {primary(each): text for each, text in method.responses.items()}
    template = templates.get(primary(language))
    text = None
    if template is not None:
        try:
            text = _Renderer(method, result, arguments or {}, language).render(template)
        except BadResponse:
            text = None
    if text is None:
        text = _answer(method, result, language)
    text = _without_control(text)
    return text if limit is None else shortened(text, limit)


def failure_text(error: CallError, *, language: str = "en") -> str:
    """Write in words why a call gave no result: by its kind where its reason has no words in this language.

    Args:
        language: BCP 47; only its first part counts.
    """
    language = primary(language) if primary(language) in languages() else _ENGLISH
    english = _FAILURES.get(error.code, "")
    template = translations("spoken", language).get(english or error.code, english)
    is_part = "{message}" in template
    said = error.message if is_part else Phrase(error.message).capitalized()
    spoken = for_people(error.hint)
    reason, hint = translated(said, language), translated(spoken, language)
    if language != _ENGLISH:
        is_told = reason != said and error.code is not ErrorCode.NEEDS_CONFIRMATION
        template = "" if is_told and not is_part else template
        hint = "" if hint == spoken else hint
    template = template or "{message}. {hint}"
    text = template.replace("{hint}", hint).replace("{message}", reason.rstrip(". ")).rstrip(". ") + "."
    return shortened(_without_control(text), MAX_ANSWER)


def choice_text(names: list[str], *, of: Literal["devices", "methods"], language: str) -> str:
    """Write the question which of several devices or methods is meant.

    Args:
        language: BCP 47; only its first part counts.
    """
    if len(names) > limits.MAX_CHOICES_NAMED:
        others = _said("one of {count} others", language)
        names = [
            *names[: limits.MAX_CHOICES_NAMED - 1],
            others.format(count=len(names) - limits.MAX_CHOICES_NAMED + 1),
        ]
    either = _said("or", language)
    said = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {either} {names[-1]}"
    return _said(_QUESTIONS[of], language).format(names=said)


def near_text(said: str, *, language: str) -> str:
    return _said("Did you mean: {text}?", language).format(text=_without_control(said))


def _without_control(text: str) -> str:
    return _CONTROL.sub(" ", text).strip()


def check_response(template: str, method: Method) -> None:
    """Check that a template can be read and names only the result and parameters of its method.

    Raises:
        BadResponse: If not; the message says what is wrong.
    """
    known = {"result", *method.parameters.get("properties", {})}

    def look(path: list[str], format_: str | None) -> str | None:
        if path[0] not in known:
            raise BadResponse(
                "{text!r}: {name} is neither result nor a parameter", text=template, name=path[0]
            )
        if format_ is not None and "|" not in format_ and format_ not in _BYTE_UNITS:
            units = ", ".join(_BYTE_UNITS)
            raise BadResponse(
                "{text!r}: the format {format!r} is neither 'one|other' nor of {kinds}",
                text=template,
                format=format_,
                kinds=units,
            )
        return "x"

    _filled(template, look)


class _Missing(Exception):
    """A placeholder has no value."""


def _filled(template: str, value_of: Callable[[list[str], str | None], str | None]) -> str:
    """Replace the placeholders of a template, and leave out optional parts that miss a value.

    Args:
        value_of: Text for a path and a format; None where there is no value.

    Raises:
        BadResponse: If brackets or braces do not match, or brackets stand in each other.
        _Missing: If a value outside of brackets is missing.
    """
    made = []
    for number, part in enumerate(re.split(r"\[([^\[\]]*)\]", template)):
        if re.search(r"[\[\]{}]", _PLACEHOLDER.sub("", part)):
            raise BadResponse("{text!r} has a bracket or brace that does not match", text=template)
        is_optional = number % 2 == 1
        values = [
            value_of(match["path"].split("."), match["format"]) for match in _PLACEHOLDER.finditer(part)
        ]
        if is_optional and not all(values):
            continue
        if None in values:
            raise _Missing
        texts = iter(values)
        made.append(_PLACEHOLDER.sub(lambda _: next(texts) or "", part))  # noqa: B023 - used at once
    return "".join(made)


@dataclass(frozen=True)
class _Renderer:
    """Fills the templates of one call."""

    method: Method
    result: Json
    arguments: Mapping[str, Json]
    language: str

    def render(self, template: str) -> str | None:
        """Return the text; None where the result misses a value that the template needs."""
        try:
            return _filled(template, self._value)
        except _Missing:
            return None

    def _value(self, path: list[str], format_: str | None) -> str | None:
        name, *steps = path
        if name == "result":
            value, schema, root = self.result, self.method.result or {}, self.method.result or {}
        else:
            value, root = self.arguments.get(name), self.method.parameters
            schema = root.get("properties", {}).get(name, {})
        for step in steps:
            value, schema = _step(value, step), _part(schema, step, root)
        choices = format_.split("|") if format_ is not None and "|" in format_ else []
        is_by_value = bool(choices) and all("=" in each for each in choices)
        if choices and not is_by_value:
            return choices[0] if value else "|".join(choices[1:])
        if value in _EMPTY:
            return None
        if is_by_value and isinstance(value, str):
            texts = dict(each.split("=", 1) for each in choices)
            return texts.get(value, value)
        if format_ is None or is_by_value:
            return _text(value, schema, root, self.language)
        if isinstance(value, bool) or not isinstance(value, int | float) or format_ not in _BYTE_UNITS:
            return None
        return _number(value / 1000 ** _BYTE_UNITS.index(format_), self.language)


def _step(value: Json, name: str) -> Json:
    if isinstance(value, list):
        return [item.get(name) for item in value if isinstance(item, dict)]
    return value.get(name) if isinstance(value, dict) else None


def _answer(method: Method, result: Json, language: str) -> str:
    if result in _EMPTY:
        return _said("Nothing." if method.flags.read_only else "Done.", language)
    schema = method.result or {}
    text = _text(result, schema, schema, language)
    return f"{text[:1].upper()}{text[1:]}." if isinstance(result, bool) else text


def _text(value: Json, schema: Json, root: Mapping[str, Json], language: str, depth: int = 0) -> str:
    """Write a value as its type and its schema ask for."""
    schema = without_null(schema, root)
    if depth > limits.MAX_RESPONSE_DEPTH:
        return "…"
    match value:
        case None:
            return _said("none", language)
        case bool():
            return _said("yes" if value else "no", language)
        case int() | float():
            return _quantity(value, schema.get("unit"), language)
        case str():
            return _formatted(value, schema.get("format"))
        case list():
            items = [_text(item, schema.get("items"), root, language, depth + 1) for item in value]
            if any(isinstance(item, dict | list) for item in value):
                return "\n".join(items)
            first, last = ", ".join(items[:-1]), items[-1] if items else _said("none", language)
            return f"{first} {_said('and', language)} {last}" if first else last
        case dict():
            parts = (
                f"{key.replace('_', ' ')}: {_text(item, _part(schema, key, root), root, language, depth + 1)}"
                for key, item in value.items()
            )
            return ", ".join(parts) or _said("none", language)
    return str(value)


def _quantity(value: float, unit: Json, language: str) -> str:
    if unit == "B":
        return bytes_text(value, decimal=_said(".", language))
    if unit == "s":
        return duration_text(value)
    number = _number(value, language)
    return f"{number} {unit}" if isinstance(unit, str) and unit else number


def _number(value: float, language: str) -> str:
    if isinstance(value, int):
        return str(value)
    digits = 1 if abs(value) >= 1 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".").replace(".", _said(".", language)) if "." in text else text


def bytes_text(size: float, *, decimal: str = ".") -> str:
    """Write a number of bytes as people say it: ``5.4 GB``."""
    power = 0
    while abs(size) >= 1000 and power < len(_BYTE_UNITS) - 1:
        size, power = size / 1000, power + 1
    digits = f"{size:.0f}" if power == 0 or abs(size) >= 100 else f"{size:.1f}"
    return f"{digits.replace('.', decimal)} {_BYTE_UNITS[power]}"


def duration_text(seconds: float, *, units: int = 2) -> str:
    """Write a duration by its largest units: ``1 h 13 min``, ``45 s``."""
    sign, left = ("-" if seconds < 0 else ""), abs(seconds)
    if left < 10 and left != int(left):
        return f"{sign}{left:.1f} s"
    left = round(left)
    parts: list[str] = []
    for size, unit in UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == units:
            break
    return sign + (" ".join(filter(None, parts)) or "0 s")


def _formatted(text: str, format_: Json) -> str:
    if format_ == "duration":
        try:
            return duration_text(_DURATION.validate_python(text).total_seconds())
        except ValidationError:
            return text
    if format_ == "date-time":
        try:
            return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}"
        except ValueError:
            return text
    return text


def _part(schema: Json, name: str, root: Mapping[str, Json]) -> Json:
    """Return the schema of a property; of a list, one for the same property of its items."""
    schema = without_null(schema, root)
    is_list = "items" in schema
    if is_list:
        # Not further: lists in lists have no fields, and may be of themselves.
        schema = without_null(schema["items"], root)
    properties = schema.get("properties")
    found = properties.get(name) if isinstance(properties, dict) else None
    found = found if found is not None else schema.get("additionalProperties")
    return {"items": found} if is_list else found
