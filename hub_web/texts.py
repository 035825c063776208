"""What the pages say, in the language of the person: the English sentence is the key of its translation."""

import re
import tomllib
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from typing import Any, Final

_ENGLISH: Final = "en"
_MESSAGES: Final = "messages"
"""The section with what the hub says; its keys are the templates of `contracts.errors`."""
_SENTENCES: Final = re.compile(r"(?<=[.!?]) ")

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
        whole = self._message(said)
        return whole or " ".join(self._message(each) or each for each in _SENTENCES.split(said))

    def _message(self, said: str) -> str | None:
        for pattern, translation in _templates(LANGUAGE.get()):
            if (found := pattern.fullmatch(said)) is not None:
                return translation.format(**found.groupdict())
        return None

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


@cache
def _templates(language: str) -> list[tuple[re.Pattern[str], str]]:
    def pattern(template: str) -> re.Pattern[str]:
        parts = re.split(r"\{(\w+)\}", template)
        named = (f"(?P<{part}>.*?)" if at % 2 else re.escape(part) for at, part in enumerate(parts))
        return re.compile("".join(named), re.DOTALL)

    # The one with the most words of its own first: '{name} is not set' ends many a sentence.
    items = sorted(messages(language).items(), key=lambda item: -len(re.sub(r"\{\w+\}", "", item[0])))
    return [(pattern(template), said) for template, said in items]


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
