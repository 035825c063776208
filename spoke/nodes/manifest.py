"""The settings of a node: ``nodes/NAME/node.yaml``."""

import re
import shlex
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from agent_core.files.yaml_files import MAX_BYTES, parse_yaml
from contracts.errors import CallError, ErrorCode, FileProblem
from contracts.wire import Strict

FILE: Final = "node.yaml"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}\Z")
_OWN: Final = "strawberry"
"""Programs and services of Strawberry begin so; nodes may not."""


def _words(value: object) -> object:
    """Split a command that is written as one line, as a shell would; no shell runs it."""
    if not isinstance(value, str | list):
        said = "write it as one line, in quotation marks if YAML reads it as a value, or as a list of words"
        raise ValueError(said)  # noqa: TRY004 - pydantic reports no TypeError
    return shlex.split(value) if isinstance(value, str) else value


# What else there is cannot be given to any program.
Word = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Variable = Annotated[str, Field(pattern=r"^[^=\x00]+$")]
Command = Annotated[tuple[Word, ...], BeforeValidator(_words), Field(min_length=1, max_length=200)]

Restart = Literal["always", "on-failure", "never"]


class Health(Strict):
    """How a node shows that it works.

    Attributes:
        command: Ends with 0 while it does.
        topic: It publishes on this topic; the hub sees whether it still does.
        link: Where that topic is: on Strawberry's own bus, or on the broker of the home.
        every_s: Seconds between two runs of the command; how old the last message may be.
    """

    command: Command | None = None
    topic: Annotated[str, Field(max_length=500)] | None = None
    link: Literal["bus", "home"] = "bus"
    every_s: Annotated[float, Field(ge=1, le=86_400)] = 30


class Manifest(Strict):
    """What ``node.yaml`` says.

    Attributes:
        command: Run in the folder of the node: a list of words, or one line; no shell is in between.
        build: Makes the program ready, where it has to be.
        env: Variables of the environment, added to the few that every program needs, such as ``PATH``.
        restart: Whether it is started again when it ends: always, after an exit code other than 0, or never.
        protected: Whether it may be stopped at this machine only.
        stop_s: Seconds that it gets to end when it is stopped.
    """

    description: Annotated[str, Field(max_length=500)] = ""
    command: Command
    build: Command | None = None
    env: Annotated[dict[Variable, Word | int | float], Field(max_length=100)] = {}
    health: Health | None = None
    restart: Restart = "on-failure"
    protected: bool = False
    stop_s: Annotated[float, Field(ge=0, le=120)] = 10

    @property
    def variables(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.env.items()}


def node_folders(directory: Path) -> dict[str, Path]:
    """Return the folders of ``nodes`` that have settings, by name."""
    found = sorted(each.parent for each in directory.glob(f"*/{FILE}"))
    return {each.name: each for each in found if not each.name.startswith((".", "_"))}


def is_node_name(name: str) -> bool:
    return _NAME.match(name) is not None


def refuse_own(name: str) -> None:
    """Refuse to manage Strawberry itself, or a service of it, as a node.

    Raises:
        CallError: If the name is one of these.
    """
    if name.lower().startswith(_OWN):
        raise CallError(
            ErrorCode.REFUSED,
            f"{name[:100]!r} is refused: it is Strawberry itself, which is no node",
            hint="'strawberry service' starts and stops it, at its own machine.",
        )


def read_manifest(folder: Path) -> Manifest:
    """Read the settings of a node.

    Raises:
        FileProblem: If they are wrong; its message has file and line.
    """
    path = folder / FILE
    try:
        return parse_yaml(_text(path), Manifest)
    except FileProblem as problem:
        line = f":{problem.line}" if problem.line is not None else ""
        raise FileProblem(f"{path}{line}: {problem.message}", hint=problem.hint, line=problem.line) from None


def _text(path: Path) -> str:
    name = path.parent.name
    if not is_node_name(name):
        raise FileProblem(f"{name!r} is no name of a node: letters, digits, '_' and '-', at most 50")
    if name.lower().startswith(_OWN):
        raise FileProblem("names that begin with 'strawberry' are for Strawberry itself")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise FileProblem("is longer than {most} bytes", most=MAX_BYTES)
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileProblem("is not UTF-8 text") from None
    except OSError as error:
        raise FileProblem("cannot be read: {reason}", reason=error.strerror or error) from None
