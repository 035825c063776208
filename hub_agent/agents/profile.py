"""The profile of an agent, as ``agents/NAME.yml`` holds it."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag

from agent_core.models.entries import ModelEntry
from contracts.errors import Forbidden
from identity.confined import parts_of

DATA: Final = "data"
"""The folder of ``STRAWBERRY_HOME`` in which agents have theirs."""

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


BuiltIn = Literal["calculator", "file_reader", "file_writer", "file_list"]
"""Tools that every agent may have; the last three see its own files."""


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


class Quota(_Part):
    """What the files of an agent may be.

    Attributes:
        files: How many, those included that others put there.
        bytes: Of all together.
    """

    files: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    bytes: Annotated[int, Field(ge=1, le=2**40)] = 100 * 1024 * 1024


def _data_dir(text: str) -> str:
    if PurePath(text).is_absolute():
        return text
    try:
        first, *inner = parts_of(text.rstrip("/"))
    except Forbidden as error:
        raise ValueError(error.message) from None
    if first != DATA or not inner:
        raise ValueError(f"write a folder in {DATA}/, such as {DATA}/finance, or an absolute path")
    return text


class AgentProfile(_Part):
    """What an agent is and may do.

    Attributes:
        prompt: Its instructions; the system prompt begins with them.
        description: What it is for, in a line, for people.
        model: Entries of ``[[models]]`` in the order in which they are asked, or one of its own. None: all,
            as for the assistant.
        tools: What it can do besides calling skills.
        data_dir: The folder of its files: one in ``data/``, by default of its name, or an absolute path.
        quota: How large they may grow.
        sentences: Whether declared sentences act at once, without a model.
        skills: What it may call.
    """

    prompt: Annotated[str, Field(min_length=1, max_length=32_000)]
    description: Annotated[str, Field(max_length=200)] = ""
    model: ModelChoice | None = None
    tools: Annotated[tuple[BuiltIn, ...], Field(max_length=32)] = ()
    data_dir: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_data_dir)] | None = None
    quota: Quota = Quota()
    sentences: bool = False
    skills: SkillRights = SkillRights()
