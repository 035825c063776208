"""What people are told, in their language: the English sentence is the key of its translation."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final
from zoneinfo import ZoneInfo

from contracts.phrases import MOMENT, SAID, SENTENCES, Phrase, fill
from contracts.text import escaped

_ENGLISH: Final = "en"
_LINE: Final = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr(?:\[\d\])?) )?(".*")')
_CONTEXT: Final = "\x04"
"""Between a context and its message, as in the files of gettext."""

LANGUAGE: Final[ContextVar[str]] = ContextVar("language", default=_ENGLISH)
"""That of the person whose page is shown, as in ``lang`` of HTML, for example ``de``."""
ZONE: Final[ContextVar[ZoneInfo | None]] = ContextVar("zone", default=None)
"""That person's time zone; None where only the home's is known."""
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Translator:
    """Translates into the present language; what has no translation stays English."""

    def __call__(self, sentence: str, /, **values: Any) -> str:
        """Return a sentence, with values in place of names in braces.

        Example:
            ``text("Hello {name}", name="Ada")``
        """
        return fill(self._found(sentence) or sentence, values, _quoted)

    def of(self, context: str, sentence: str, /) -> str:
        """Return a sentence that has several meanings, as `context` says which.

        Example:
            ``text.of("an answer", "Stop")``
        """
        return self._found(context + _CONTEXT + sentence) or sentence

    def count(self, number: int, one: str, many: str, /, **values: Any) -> str:
        """Return the sentence for one or for any other number; ``{n}`` stands for it.

        Example:
            ``text.count(2, "{n} device", "{n} devices")``
        """
        return self(one if number == 1 else many, n=number, **values)

    def message(self, said: str) -> str:
        """Return what the hub says in this language: the translation of its template, with its values.

        What has no translation stays English; what is no phrase of the hub is shown as it is.
        """
        phrase = Phrase(said)
        if phrase.template == SAID:
            return str(phrase.values.get(LANGUAGE.get(), phrase))
        if phrase.template == MOMENT:
            return self._moment(phrase)
        values = {
            name: self.message(value) if isinstance(value, Phrase) else value
            for name, value in phrase.values.items()
        }
        if LANGUAGE.get() == _ENGLISH and values == phrase.values:
            return str(phrase)
        sentences = SENTENCES.split(phrase.template)
        return " ".join(fill(self._form(each), values, _quoted) for each in sentences)

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

    def at(self, zone: ZoneInfo, value: datetime) -> str:
        """Return a moment as a clock and a calendar on the wall show it.

        Example:
            ``14:05``, ``yesterday, 14:05``, ``20 Nov, 14:05`` or ``20 Nov 2025, 14:05``
        """
        there = value.astimezone(zone)
        today = datetime.now(zone).date()
        clock = there.strftime("%H:%M")
        if there.date() == today:
            return clock
        if there.date() == today - timedelta(days=1):
            return self("yesterday, {clock}", clock=clock)
        if there.date() == today + timedelta(days=1):
            return self("tomorrow, {clock}", clock=clock)
        day = self("{day} {month}", day=there.day, month=self(_MONTHS[there.month - 1]))
        return f"{day}, {clock}" if there.year == today.year else f"{day} {there.year}, {clock}"

    def _moment(self, phrase: Phrase) -> str:
        zone = ZONE.get()
        with suppress(ValueError, OverflowError):  # it may come from a device
            at = datetime.fromisoformat(str(phrase.values.get("at")))
            return str(phrase) if zone is None or at.tzinfo is None else self.at(zone, at)
        return str(phrase)

    def _found(self, sentence: str) -> str:
        return catalogue(LANGUAGE.get()).get(sentence, "")

    def _form(self, template: str) -> str:
        """Return the translation of a sentence; also with a full stop or a capital that its entry lacks."""
        if found := self._found(template):
            return found
        if template.endswith(".") and (found := self._found(template[:-1])):
            return f"{found}."
        if found := self._found(f"{template}."):
            return found.removesuffix(".")
        found = self._found(template[:1].lower() + template[1:])
        return found[:1].upper() + found[1:] if found else template


text: Final = Translator()
"""The texts in the language of the page that is built or that an event has come from."""


def translated(said: str, language: str) -> str:
    """Return what the hub or a skill says in a language (BCP 47); what has no translation stays English."""
    before = LANGUAGE.set(language.partition("-")[0].lower())
    try:
        return text.message(said)
    finally:
        LANGUAGE.reset(before)


def _quoted(value: Any) -> str:
    return text("'{text}'", text=escaped(value)) if isinstance(value, str) else str(value)


def catalogue(language: str) -> Mapping[str, str]:
    """Return the translations into a language by message; empty for English and where there are none."""
    # A client may name any language: of those that there are none of, nothing is kept.
    return _read(language) if language in languages() else {}


def translations(context: str, language: str) -> Mapping[str, str]:
    """Return the translations of one context into a language, by message."""
    return _by_context(language).get(context, {}) if language in languages() else {}


@cache
def _read(language: str) -> Mapping[str, str]:
    if language == _ENGLISH:
        return {}
    found: dict[str, str] = {}
    for entry in (files("agent_core") / "locale" / f"{language}.po").read_text("utf-8").split("\n\n"):
        parts: dict[str, str] = {}
        name = ""
        for line in filter(None, map(_LINE.fullmatch, entry.splitlines())):
            name = line[1] or name
            parts[name] = parts.get(name, "") + json.loads(line[2])
        context = f"{parts['msgctxt']}{_CONTEXT}" if "msgctxt" in parts else ""
        if "msgid_plural" in parts:
            found[parts["msgid"]], found[parts["msgid_plural"]] = parts["msgstr[0]"], parts["msgstr[1]"]
        elif parts.get("msgid"):
            found[context + parts["msgid"]] = parts["msgstr"]
    return found


@cache
def _by_context(language: str) -> Mapping[str, Mapping[str, str]]:
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for each, said in catalogue(language).items():
        context, _, message = each.rpartition(_CONTEXT)
        found[context][message] = said
    return found


@cache
def languages() -> tuple[str, ...]:
    """Return the languages that there are translations for, and English."""
    names = (file.name for file in (files("agent_core") / "locale").iterdir())
    return (_ENGLISH, *sorted(name.removesuffix(".po") for name in names if name.endswith(".po")))


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
