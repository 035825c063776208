"""What the pages say; see `agent_core.texts`."""

from typing import Final

from agent_core.texts import LANGUAGE, ZONE, Translator, catalogue, choose, languages, text

__all__ = ["LANGUAGE", "ZONE", "Translator", "catalogue", "choose", "language_names", "text"]

_NAMES: Final = {"en": "English", "de": "Deutsch"}


def language_names() -> dict[str, str]:
    return {each: _NAMES.get(each, each) for each in languages()}
