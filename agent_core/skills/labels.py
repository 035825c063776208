"""Names of skills, methods, arguments and values for people: declared, common, or made of the identifier."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from agent_core.texts import languages, translations

DeclaredLabels = Mapping[str, Mapping[str, str]]
"""By language (BCP 47), then by the name of a skill, a member, an argument or a value."""

_ENGLISH: Final = "en"
_COMMON_ENGLISH: Final = {
    "cpu": "CPU",
    "get_settings": "Read the settings",
    "list_installation": "Read what is installed",
    "expression": "Calculation",
    "pulse": "Switch on briefly",
    "turn_down": "Quieter",
    "turn_up": "Louder",
}
"""Words that many skills have, those of the bundled ones among them; others are translations."""


class Labels:
    """Names in one language.

    Args:
        declared: Of one skill. ``method.argument`` counts before ``argument``.
        language: BCP 47.
        own: What a person calls them, which counts before all others.
    """

    def __init__(self, declared: DeclaredLabels, language: str, own: Mapping[str, str] | None = None) -> None:
        short = language.partition("-")[0].lower()
        known = [declared.get(each, {}) for each in dict.fromkeys((language, short))]
        self._sources = [own or {}, *known, _common(short)]

    def __call__(self, name: str, *, of: str = "") -> str:
        """Return the name of something.

        Args:
            name: Of a skill, a method, an argument or a state, as its author wrote it.
            of: The method whose argument it is.
        """
        if found := self._find(name, of):
            return found
        # What sets a value is called as that.
        value = name.removeprefix("set_")
        return self(value) if value not in (name, "") else as_words(name)

    def value(self, value: str) -> str:
        """Return a value in words; one that is no word of the skill is text, and stays.

        ``open`` is a method, too: a state of that name is labelled as ``value.open``.
        """
        return self._find(f"value.{value}") or self._find(value) or value

    def entity(self, name: str) -> str:
        """Return the name of an entity: its English word in this language where it is a common one."""
        return self._find(name.casefold().replace(" ", "_"), of="entity") or name

    def _find(self, name: str, of: str = "") -> str:
        found = ((of and source.get(f"{of}.{name}")) or source.get(name) for source in self._sources)
        return next(filter(None, found), "")


def as_words(name: str) -> str:
    """Return an identifier as people write it: ``set_brightness``, ``LampSkill``."""
    words = "".join(f" {each}" if each.isupper() else each for each in name.removesuffix("Skill"))
    words = " ".join((words if words.count(" ") < len(name) / 2 else name).replace("_", " ").split())
    return words[:1].upper() + words[1:].lower()


def labels_of(skill: str, *, english: Mapping[str, str] = MappingProxyType({})) -> DeclaredLabels:
    """Return the labels of a skill that comes with the hub: its translations.

    Args:
        english: Labels that are not the identifier in words.
    """
    found = {language: translations(skill, language) for language in languages()}
    return {language: labels for language, labels in {**found, _ENGLISH: english}.items() if labels}


def _common(language: str) -> Mapping[str, str]:
    return _COMMON_ENGLISH if language == _ENGLISH else translations("label", language)
