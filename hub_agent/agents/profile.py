"""The profile of an agent, as ``agents/NAME.yml`` holds it."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag

from agent_core.models.entries import ModelEntry

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _pattern(text: str) -> str:
    match text.split("."):
        case ["devices", device, skill, method] if device and skill and method:
            return text
    raise ValueError("write it as devices.<device>.<Skill>.<method>; each part may hold *")


SkillPattern = Annotated[str, Field(max_length=200), AfterValidator(_pattern)]
"""Paths of skill methods; ``*`` and ``?`` stand for letters of one part: ``devices.*.LampSkill.*``."""


def matches(patterns: Iterable[str] | None, path: str) -> bool:
    """Return whether a path of a method is one of those that the patterns name; None names all."""
    if patterns is None:
        return True
    parts = path.split(".")
    return any(
        len(parts) == len(pattern.split(".")) and all(map(fnmatchcase, parts, pattern.split(".")))
        for pattern in patterns
    )


class SkillRights(_Part):
    """What an agent may call on devices, and of the hub's own abilities.

    Attributes:
        allow: The methods; none where it is empty.
        read_only: Whether it may call only those of them that modify nothing.
    """

    allow: tuple[SkillPattern, ...] = ()
    read_only: bool = False


class OwnModel(ModelEntry):
    """A model that only this agent uses; the same settings as an entry of ``[[models]]``."""

    name: str = "agent"


def _form_of_model(value: Any) -> str:
    match value:
        case dict() | OwnModel():
            return "own"
        case list() | tuple():
            return "names"
    return "name"


ModelChoice = Annotated[
    Annotated[str, Tag("name")]
    | Annotated[tuple[str, ...], Field(min_length=1), Tag("names")]
    | Annotated[OwnModel, Tag("own")],
    Discriminator(_form_of_model),
]


class AgentProfile(_Part):
    """What an agent is and may do.

    Attributes:
        prompt: Its instructions; the system prompt begins with them.
        description: What it is for, in a line, for people.
        model: Entries of ``[[models]]`` in the order in which they are asked, or one of its own. None: all,
            as for the assistant.
        sentences: Whether declared sentences act at once, without a model.
        skills: What it may call.
    """

    prompt: Annotated[str, Field(min_length=1, max_length=32_000)]
    description: Annotated[str, Field(max_length=200)] = ""
    model: ModelChoice | None = None
    sentences: bool = False
    skills: SkillRights = SkillRights()
