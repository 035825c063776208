"""The profile of an agent, as ``agents/NAME.yml`` holds it."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from agent_core.models.entries import ModelEntry
from contracts.addresses import endpoint, host_of, is_loopback
from contracts.devices.registration import MethodFlags
from contracts.errors import Forbidden
from contracts.validation import matching
from contracts.wire import Strict
from identity.confined import parts_of

DATA: Final = "data"
"""The folder of ``STRAWBERRY_HOME`` in which agents have theirs."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


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


class SkillRights(Strict):
    """The methods that an agent may call, on devices and of the hub.

    Attributes:
        allow: The methods; none where it is empty.
        read_only: Whether it may call only those of them that modify nothing.
    """

    allow: tuple[SkillPattern, ...] = ()
    read_only: bool = False


_TAKEN: Final = ("search_skills", "describe_function", "python_exec", "get_function_info", "get_skill_info")
"""Names of the tools by which skills are called."""

SECRET: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_CONNECTION: Final = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding")
_PLACE: Final = re.compile(r"\{([^{}]*)\}")


def _header(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", name) or name.lower() in _CONNECTION:
        raise ValueError(f"{name!r} is not a header that can be set here")
    return name


HeaderName = Annotated[str, AfterValidator(_header)]

BuiltIn = Literal["calculator", "file_reader", "file_writer", "file_list"]
"""Tools that every agent may have; the last three see its own files."""


ToolName = Annotated[
    str, matching(r"^[A-Za-z][A-Za-z0-9_]{0,63}$", "letters, digits and '_', a letter first")
]


class _Flags(Strict):
    """What a tool may do, in the words that methods of skills have for it.

    Attributes:
        read_only: Whether it modifies nothing, so that people with read-only access may use it. None: of a
            request by its method; no function.
        open_world: Whether it reaches outside the home: then a call after a stranger's text was read in the
            conversation needs a yes.
        confirm: Whether each call needs a yes.
        untrusted_output: Whether its results may hold a stranger's text.
        timeout_s: Seconds that a call may take.
    """

    read_only: bool | None = None
    open_world: bool = False
    confirm: bool = False
    untrusted_output: bool = False
    timeout_s: Annotated[float, Field(gt=0, le=300)] = 15.0

    @property
    def flags(self) -> MethodFlags:
        """The same as flags of a method."""
        given = self.model_dump(include=set(MethodFlags.model_fields), exclude_none=True)
        return MethodFlags.model_validate({"unknown": False, **given})


class PythonTool(_Flags):
    """A function of a Python file beside the profile; it runs in the hub's process.

    Attributes:
        python: File and function: ``money.py:monthly_total``.
    """

    python: Annotated[
        str,
        matching(
            r"^[A-Za-z0-9_-]{1,64}\.py:[A-Za-z][A-Za-z0-9_]{0,63}$",
            "a file and a function of it, such as money.py:monthly_total",
        ),
    ]

    @property
    def name(self) -> str:
        return self.python.partition(":")[2]


class HttpParameter(Strict):
    """A parameter that the model fills in.

    Attributes:
        place: Where it goes; in the path it replaces ``{name}``.
        enum: The values that there are, if they are few.
    """

    place: Annotated[Literal["path", "query", "body"], Field(alias="in")] = "query"
    type: Literal["string", "integer", "number", "boolean"] = "string"
    description: Annotated[str, Field(max_length=400)] = ""
    required: bool = True
    enum: Annotated[tuple[str | int | float, ...], Field(max_length=100)] = ()


class HttpTool(_Flags):
    """A request to an HTTP API.

    Attributes:
        http: What the model calls it.
        url: With ``{name}`` for parameters in its path.
        headers: Also with ``${NAME}`` for a secret of ``.env``, as has ``query``.
        allowed_hosts: Where a redirect may lead; by default to no other host.
        allow_private: Whether its host may be in the home's own network, or this machine.
        max_bytes: How much of an answer is read.
    """

    open_world: bool = True
    untrusted_output: Literal[True] = True
    http: ToolName
    description: Annotated[str, Field(min_length=1, max_length=1_000)]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: Annotated[str, Field(max_length=2_000)]
    parameters: Annotated[dict[ToolName, HttpParameter], Field(max_length=32)] = {}
    headers: Annotated[dict[HeaderName, str], Field(max_length=32)] = {}
    query: Annotated[dict[str, str], Field(max_length=32)] = {}
    allowed_hosts: tuple[str, ...] = ()
    allow_private: bool = False
    max_bytes: Annotated[int, Field(ge=1, le=1024 * 1024)] = 64 * 1024

    @property
    def name(self) -> str:
        return self.http

    @property
    def flags(self) -> MethodFlags:
        """As its profile says; what only gets something modifies nothing if that is not said."""
        reads = self.method == "GET" if self.read_only is None else self.read_only
        return super().flags.model_copy(update={"read_only": reads})

    @property
    def secrets(self) -> tuple[str, ...]:
        """The variables of ``.env`` that it needs."""
        return tuple(
            name for text in (*self.headers.values(), *self.query.values()) for name in SECRET.findall(text)
        )

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        found = endpoint(url)
        if found is None or found.scheme not in ("http", "https"):
            raise ValueError("a URL begins with https:// or http:// and a host")
        parts = urlsplit(url)
        if "@" in parts.netloc or "{" in parts.netloc:
            raise ValueError("the host of a URL stands as it is, without a login")
        if parts.query or parts.fragment or "$" in url or not url.isascii():
            raise ValueError("what follows '?' belongs into query, and secrets into query or headers")
        return url

    @model_validator(mode="after")
    def _fits(self) -> Self:
        inside = set(_PLACE.findall(self.url))
        declared = {name for name, each in self.parameters.items() if each.place == "path"}
        if wrong := sorted(inside ^ declared):
            raise ValueError(f"url: {{{wrong[0]}}} must be in it, and be a parameter with 'in: path'")
        if self.secrets and urlsplit(self.url).scheme == "http" and not is_loopback(host_of(self.url)):
            raise ValueError("url: a secret is sent by https only")
        return self


def _form_of_tool(value: Any) -> str | None:
    match value:
        case str():
            return "built-in"
        case PythonTool() | {"python": _}:
            return "python"
        case HttpTool() | {"http": _}:
            return "http"
    return None


Tool = Annotated[
    Annotated[BuiltIn, Tag("built-in")]
    | Annotated[PythonTool, Tag("python")]
    | Annotated[HttpTool, Tag("http")],
    Discriminator(
        _form_of_tool,
        custom_error_type="tool",
        custom_error_message="must be the name of a built-in tool, or have the key 'python' or 'http'",
    ),
]


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


class Quota(Strict):
    """The quota of an agent's files.

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


class AgentProfile(Strict):
    """The profile of an agent: what it is and may do.

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
    tools: Annotated[tuple[Tool, ...], Field(max_length=32)] = ()
    data_dir: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_data_dir)] | None = None
    quota: Quota = Quota()
    sentences: bool = False
    skills: SkillRights = SkillRights()

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        names = [tool if isinstance(tool, str) else tool.name for tool in self.tools]
        for name in names:
            if name in _TAKEN or names.count(name) > 1:
                raise ValueError(f"tools: there are two tools called {name}")
        return self
