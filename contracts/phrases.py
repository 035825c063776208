"""Texts for people that keep their template and values, so that each face can translate them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from contracts import limits

MEMBER: Final = "phrases"
"""Member of a JSON object with the templates and values of its texts, by the names of their members."""
SAID: Final = "{en}"
"""Template of a phrase whose values are all of it, by language."""
MOMENT: Final = "{clock}"
"""Template of a moment: `clock` is how the home writes it, `at` when it is, in RFC 3339."""
SENTENCES: Final = re.compile(r"(?<=[.!?]) ")
"""Between the sentences of a text."""
_FOR_PROGRAMS: Final = re.compile(
    r"\bstrawberry (?!spoke)[a-z{]|strawberry\.toml|\.env\b|pip install|(GET|POST) /api/"
    r"|^(The|There are no) (field|parameter)s|own token"
)
"""Sentences of a hint for who installs or programs: what to type in a terminal, to write or to send."""
_FIELD: Final = re.compile(r"\{\{|\}\}|\{(\w+)(!r)?(?::(,|g|,?\.\d[fg%]))?\}")
"""Of format specifications those that write a number: a template may come from a device, and a width of 9999
is a text of that length."""
_MOST: Final = 8_000
"""Characters of phrases that are read from JSON: without it a device could store a MiB with each turn."""


class Phrase(str):
    """An English text that was made of a template and values.

    Attributes:
        template: Names of values are in braces, as in ``str.format``; its translation is found by it.
        values: Texts, numbers and further phrases, by name.

    Example:
        ``Phrase("there is no watcher {name!r}", name="disk")``
    """

    template: str
    values: Mapping[str, Any]

    def __new__(cls, template: object, /, **values: Any) -> "Phrase":
        """Make the text; without values the template is taken as it is, braces and all."""
        if isinstance(template, cls):
            return template
        template = str(template)
        used = {
            name: _plain(value)
            for name, value in values.items()
            if any(f"{{{name}{end}" in template for end in "}!:")
        }
        return cls._of(template, used)

    @classmethod
    def _of(cls, template: str, values: Mapping[str, Any], *, most: float = math.inf) -> "Phrase":
        phrase = super().__new__(cls, fill(template, values, most=most))
        phrase.template, phrase.values = template, values
        return phrase

    @classmethod
    def said(cls, texts: Mapping[str, str]) -> "Phrase":
        """Return a phrase with words of its own in several languages, as the sentences of a skill have.

        Args:
            texts: By language (BCP 47); ``en`` is among them.
        """
        return cls._of(SAID, dict(texts))

    @classmethod
    def moment(cls, at: str, clock: str) -> "Phrase":
        """Return a moment, which a face can write as the clock of its person shows it; see `MOMENT`."""
        return cls._of(MOMENT, {"clock": clock, "at": at})

    @classmethod
    def joined(cls, between: str, parts: Sequence[str]) -> "Phrase":
        """Join texts; those that are phrases can still be translated."""
        values = {f"part{number}": part for number, part in enumerate(parts)}
        return cls(between.join(f"{{{name}}}" for name in values), **values)

    def capitalized(self) -> "Phrase":
        """Return the phrase with its first letter as a capital, unless that is of a name."""
        if self.template == SAID:
            return self.said({each: f"{said[:1].upper()}{said[1:]}" for each, said in self.values.items()})
        first = self.template[1:].partition("}")[0] if self.template[:1] == "{" else ""
        if isinstance(value := self.values.get(first), Phrase):
            return self._of(self.template, {**self.values, first: value.capitalized()})
        return self._of(self.template[:1].upper() + self.template[1:], self.values)

    def unstopped(self) -> "Phrase":
        # So that another text can follow.
        return self._of(self.template.rstrip(" ."), self.values)


def for_people(hint: str) -> str:
    """Return a hint without its sentences for programs and terminals, as each face shows it to a family."""
    phrase = Phrase(hint)
    kept = (each for each in SENTENCES.split(phrase.template) if not _FOR_PROGRAMS.search(each))
    values = {
        name: for_people(value) if isinstance(value, Phrase) else value
        for name, value in phrase.values.items()
    }
    return Phrase._of(" ".join(kept), values)


def fill(
    template: str,
    values: Mapping[str, Any],
    quote: Callable[[Any], str] = repr,
    *,
    most: float = math.inf,
) -> str:
    """Return a template with its values; a name without a value stays.

    Args:
        quote: Writes a value that the template names as ``{name!r}``.
        most: Characters of all values together.

    Raises:
        OverflowError: If there are more.
    """
    room = most

    def value(found: re.Match[str]) -> str:
        nonlocal room
        name, quoted, form = found.groups()
        if name is None or name not in values:
            return found[0][0] if name is None else found[0]
        try:
            text = format(quote(values[name]) if quoted else values[name], form or "")
        except (TypeError, ValueError):  # values of another kind than ours: they come from a device
            text = str(values[name])
        room -= len(text)
        if room < 0:
            raise OverflowError("the values are too long")
        return text

    return _FIELD.sub(value, template) if values else template


def with_phrases(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with what its texts were made of, beside them; see `read_phrases`."""
    made = {
        name: _encoded(value) for name, value in said.items() if isinstance(value, Phrase) and value.values
    }
    return {**said, MEMBER: made} if made else dict(said)


def read_phrases(said: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object in which the texts are phrases again that `with_phrases` has found.

    A device may have written it: what does not say exactly its text, or is large, stays text.
    """
    made = said.pop(MEMBER, None)
    if isinstance(made, dict) and len(repr(made)) <= _MOST:
        for name, parts in made.items():
            text = said.get(name)
            if not isinstance(text, str):
                continue
            # Each of its parts is a part of the text: what is longer is refused before it is made.
            with suppress(OverflowError):
                read = _read(parts, limits.MAX_PHRASE_DEPTH, len(text))
                if read is not None and read == text:
                    said[name] = read
    return said


def _plain(value: Any) -> Any:
    if isinstance(value, Exception):
        value = getattr(value, "message", str(value))
    return value if value is None or type(value) in (str, int, float, bool, Phrase) else str(value)


def _encoded(phrase: Phrase) -> dict[str, Any]:
    values = phrase.values.items()
    return {
        "template": phrase.template,
        "values": {name: _encoded(each) if isinstance(each, Phrase) else each for name, each in values},
    }


def _read(parts: Any, depth: int, most: int) -> Phrase | None:
    match parts:
        case {"template": str(template), "values": dict(values)} if depth:
            read = {
                str(name): _read(each, depth - 1, most) if isinstance(each, dict) else _plain(each)
                for name, each in values.items()
            }
            return Phrase._of(template, read, most=most)
    return None
