"""What the pages say, in the language of the person: the English sentence is the key of its translation."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from typing import Any, Final

_ENGLISH: Final = "en"
_MESSAGES: Final = "messages"
"""The section with what the hub says; its keys are the templates of `contracts.errors`."""
_Template = tuple[str, re.Pattern[str], str, int]
"""The longest fixed text of a message, its pattern and translation, how many sentences another follows."""
SENTENCES: Final = re.compile(r"(?<=[.!?]) ")
_MOST: Final = 20
"""Parts of a whole message that are looked up, and how deep: a device chooses what is in some."""
_DEEPEST: Final = 4
_LONGEST: Final = 500
"""Characters of a message that is translated."""

LANGUAGE: Final[ContextVar[str]] = ContextVar("language", default=_ENGLISH)
"""That of the person whose page is shown, as in ``lang`` of HTML, for example ``de``."""


class Translator:
    """Translates into the present language; what has no translation stays English."""

    def __call__(self, sentence: str, /, **values: Any) -> str:
        """Return a sentence, with values in place of names in braces.

        Example:
            ``text("Hello {name}", name="Ada")``, and ``text("Stop|an answer")``: what follows a ``|`` is not
            shown, and says which of two meanings it has.
        """
        found = catalogue(LANGUAGE.get()).get(sentence) or sentence.partition("|")[0]
        return found.format(**values) if values else found

    def count(self, number: int, one: str, many: str, /, **values: Any) -> str:
        """Return the sentence for one or for any other number; ``{n}`` stands for it.

        Example:
            ``text.count(2, "{n} device", "{n} devices")``
        """
        return self(one if number == 1 else many, n=number, **values)

    def message(self, said: str) -> str:
        """Return what the hub says in this language, as far as there is a translation.

        Example:
            ``there is no turn 't1' here``
        """
        if len(said) > _LONGEST or not (templates := _templates(LANGUAGE.get())):
            return said
        return _translated(said, templates, _DEEPEST, iter(range(_MOST)))

    def sentence(self, said: str) -> str:
        """Return what the hub says as a sentence, which begins with a capital; a name at its begin stays."""
        told = self.message(said)
        if (first := told.partition(" ")[0]).isalpha() and first != told:
            told = told[0].upper() + told[1:]
        return told if not told or told[-1] in ".!?:…" else f"{told}."

    def number(self, value: float, digits: int = 0) -> str:
        """Return a number as it is written in this language.

        Example:
            ``1,234.5``, in German ``1.234,5``
        """
        written = f"{value:,.{digits}f}"
        return written if LANGUAGE.get() == _ENGLISH else written.translate(str.maketrans(",.", ".,"))


text: Final = Translator()
"""The texts of the page that is built or that an event has come from."""


@cache
def catalogue(language: str) -> dict[str, str]:
    """Return the translations into a language by sentence; empty for English and where there are none."""
    pages = {name: section for name, section in _sections(language).items() if name != _MESSAGES}
    return {sentence: said for section in pages.values() for sentence, said in section.items()}


@cache
def messages(language: str) -> dict[str, str]:
    """Return the translations of what the hub says, by template: a name in braces is any value."""
    return _sections(language).get(_MESSAGES, {})


def _translated(said: str, templates: list[_Template], depth: int, left: Iterator[int]) -> str:
    """Translate a message and those in it: its values, its sentences, and what follows a name and a colon.

    Args:
        left: Has an item for each part that may still be looked up.
    """
    if depth == 0 or (" " not in said.strip() and depth < _DEEPEST):
        return said  # a value of one word is a name
    if next(left, None) is None:
        return said
    sentences = SENTENCES.split(said, _MOST)
    for words, pattern, translation, breaks in templates:
        if words not in said:  # takes a twentieth of the time of a pattern
            continue
        # What is no sentence itself may be made one with a full stop.
        end = "." if said.endswith(".") and not translation.endswith(".") else ""
        found = pattern.fullmatch(said, 0, len(said) - len(end))
        if found is not None and breaks >= len(sentences) - 1:
            values = found.groupdict().items()
            made = {key: _translated(each, templates, depth - 1, left) for key, each in values}
            return translation.format(**made) + end
    for parts, between in ((sentences, " "), (said.split("; ", _MOST), "; ")):
        if len(parts) > 1:
            return between.join(_translated(each, templates, depth - 1, left) for each in parts)
    name, colon, rest = said.partition(": ")
    return name + colon + _translated(rest, templates, depth - 1, left) if rest else said


@cache
def _templates(language: str) -> list[_Template]:
    def pattern(template: str) -> re.Pattern[str]:
        first, *rest = re.split(r"\{(\w+)\}", template)
        values = [
            f"(?P<{name}>.*?){re.escape(after)}" for name, after in zip(rest[::2], rest[1::2], strict=True)
        ]
        # Atomic but for the last: a long text from outside takes no more than one look at each place.
        named = [f"(?>{each})" for each in values[:-1]] + values[-1:]
        return re.compile(re.escape(first) + "".join(named), re.DOTALL)

    # The one with the most words of its own first: '{name} is not set' ends many a sentence.
    items = sorted(messages(language).items(), key=lambda item: -len(re.sub(r"\{\w+\}", "", item[0])))
    return [
        (
            max(re.split(r"\{\w+\}", template), key=len),
            pattern(template),
            said,
            len(SENTENCES.findall(template)),
        )
        for template, said in items
    ]


def _sections(language: str) -> dict[str, dict[str, str]]:
    if language == _ENGLISH or language not in languages():
        return {}
    return tomllib.loads((files("hub_web") / "locale" / f"{language}.toml").read_text("utf-8"))


@cache
def languages() -> tuple[str, ...]:
    """Return the languages that there are translations for, and English."""
    names = (file.name for file in (files("hub_web") / "locale").iterdir())
    return (_ENGLISH, *sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def choose(*wishes: str | None) -> str:
    """Return the first language of the wishes that there is.

    Args:
        wishes: BCP 47, or a header ``Accept-Language``; the first counts most.
    """
    for wish in wishes:
        for tag in _tags(wish or ""):
            language = tag.split("-")[0].lower()
            if language in languages():
                return language
    return _ENGLISH


def _tags(header: str) -> Iterable[str]:
    weighed: list[tuple[float, str]] = []
    for item in header.split(",")[:10]:
        tag, _, weight = item.strip().partition(";q=")
        try:
            weighed.append((-float(weight or 1), tag))
        except ValueError:
            continue
    # Sorting is stable: equal weights stay in their order.
    return [tag for _, tag in sorted(weighed, key=lambda each: each[0])]
