"""``mcp.json``: which MCP servers there are, in the form that other programs have."""

import json
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from agent_core.files.yaml_files import line_of
from contracts.errors import FileProblem
from contracts.validation import WebAddress, explain, first_mistake

_Text = Annotated[str, Field(max_length=4_000)]


class Annotations(BaseModel):
    """What the owner approves of what a server says of a tool, in the words of the protocol."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, defer_build=True)

    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ServerEntry(BaseModel):
    """A server as people write it for other programs; what only those know is ignored.

    Attributes:
        annotations: By the name of a tool, ``*`` for all others.
        command: Starts a server that is spoken to over its standard input and output.
        url: Of one that runs elsewhere.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    command: _Text | None = None
    args: tuple[_Text, ...] = ()
    env: dict[str, _Text] = {}
    cwd: _Text | None = None
    url: Annotated[WebAddress, Field(max_length=4_000)] | None = None
    headers: dict[str, _Text] = {}
    disabled: bool = False
    annotations: Annotated[dict[str, Annotations], Field(max_length=200)] = {}

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either command or url")
        return self


class _File(BaseModel):
    model_config = ConfigDict(defer_build=True)

    mcpServers: Annotated[dict[Annotated[str, Field(max_length=64)], ServerEntry], Field(max_length=32)] = {}  # noqa: N815


def parse_servers(text: str) -> dict[str, ServerEntry]:
    """Read the text of ``mcp.json``.

    Raises:
        FileProblem: If it is not what it must be.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
            raise FileProblem("{key!r} is given twice", key=twice)
        return dict(pairs)

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise FileProblem(f"this is not JSON: {error}", line=line) from None
    except RecursionError:
        raise FileProblem("this is nested too deep") from None
    try:
        return _File.model_validate(found).mcpServers
    except ValidationError as error:
        # JSON is YAML, but for tabs between its words.
        line = line_of(text.replace("\t", " "), *first_mistake(error.errors())["loc"])
        hint = 'It holds {"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}, or "url" for a command.'
        raise FileProblem(explain(error, _File), line=line, hint=hint) from None
