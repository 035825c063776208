"""Programs that the owner allows by name, run without a shell."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field

from bus.processes import open_process, output_of
from contracts.errors import ConfigError, Forbidden, NotFound
from strawberry_skills import Skill, skill_method

_GIVEN: Final = "{}"
"""Stands for an argument that is given with a call."""
_OUTPUT_BYTES: Final = 8_000
"""Of the output in an answer, its end: about 2,000 tokens of a model."""
_LONGEST_RUN_S: Final = 600
_PASSED_ON: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "SYSTEMROOT",
    "XDG_RUNTIME_DIR",
)
"""Variables that a program gets. Keys of models, which the spoke may have, are not among them."""


def _is_command(words: list[str]) -> list[str]:
    if not words[0] or _GIVEN in words[0]:
        raise ValueError("a command begins with its program")
    return words


Command = Annotated[
    list[Annotated[str, Field(max_length=1_000)]],
    Field(min_length=1, max_length=50),
    AfterValidator(_is_command),
]


@dataclass
class Output:
    """How a program ended: its exit code, 0 where it succeeded, and the end of what it printed."""

    code: int
    output: str


@dataclass
class Allowed:
    """A command, and how many arguments a call gives it."""

    name: str
    command: list[str]
    arguments: int


class CommandSkill(Skill):
    """Runs programs on this device, which its owner has allowed one by one; a person confirms each call."""

    labels = {
        "de": {
            "CommandSkill": "Befehle",
            "list_commands": "Erlaubte Befehle",
            "run": "Ausführen",
            "command": "Befehl",
            "arguments": "Angaben",
            "commands": "Erlaubte Befehle",
        },
        "en": {"CommandSkill": "Commands", "list_commands": "Allowed commands"},
    }

    class Settings(BaseModel):
        """What may be run, by the names that you call it."""

        commands: Annotated[
            dict[Annotated[str, Field(pattern=r"^\w[\w -]{0,60}$")], Command],
            Field(
                min_length=1,
                max_length=100,
                description='Program and arguments: {"disk": ["df", "-h"]}; "{}" is given with the call.',
            ),
        ]

    @skill_method(read_only=True)
    def list_commands(self) -> list[Allowed]:
        """List the commands that may be run, and how many arguments each takes."""
        commands: dict[str, list[str]] = self.settings.commands
        return [
            Allowed(name, words, sum(word.count(_GIVEN) for word in words))
            for name, words in commands.items()
        ]

    @skill_method(
        destructive=True,
        open_world=True,
        confirm=True,
        untrusted_output=True,
        timeout_s=_LONGEST_RUN_S,
        sentences={
            "en": ["run [the] command {command}"],
            "de": ["führe [den] Befehl {command} aus"],
        },
        responses={
            "en": "It ended with code {result.code}[: {result.output}]",
            "de": "Beendet mit Code {result.code}[: {result.output}]",
        },
    )
    async def run(
        self,
        command: str,
        arguments: Annotated[list[Annotated[str, Field(max_length=1_000)]], Field(max_length=20)] = [],  # noqa: B006 - it is not changed
    ) -> Output:
        """Run an allowed command to its end, and return the end of its output.

        Args:
            command: Its name; case does not matter.
            arguments: What it leaves open, in order.
        """
        words = self._words(command, arguments)
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        try:
            return await _run(words, environment)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError("{program} cannot be run: {reason}", program=words[0], reason=reason) from None

    def _words(self, command: str, arguments: list[str]) -> list[str]:
        commands: dict[str, list[str]] = self.settings.commands
        wanted = command.strip().casefold()
        words = next((each for name, each in commands.items() if name.casefold() == wanted), None)
        if words is None:
            known = ", ".join(commands)
            raise NotFound("{name!r} is not allowed", name=command, hint=f"Allowed are: {known}.")
        count = sum(word.count(_GIVEN) for word in words)
        if count != len(arguments):
            raise ValueError(f"{command} takes {count} arguments, not {len(arguments)}")
        for each in arguments:
            # An option could make an allowed program do something else, such as run another one.
            if each.startswith("-") or "\0" in each:
                raise Forbidden("{argument!r} cannot be an argument: it is an option", argument=each[:100])
        given = iter(arguments)
        # From left to right, and never in what was given.
        return [
            "".join(
                part if number == 0 else next(given) + part for number, part in enumerate(word.split(_GIVEN))
            )
            for word in words
        ]


async def _run(words: list[str], environment: Mapping[str, str]) -> Output:
    kept = bytearray()
    async with open_process(words, env=environment, stdout=PIPE, stderr=STDOUT) as process:
        try:
            async for chunk in output_of(process.stdout):
                kept += chunk
                del kept[:-_OUTPUT_BYTES]
            code = await process.wait()
        except asyncio.CancelledError:
            if sys.platform != "win32":
                # With all that it started: it leads a group of its own.
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise
    return Output(code, kept.decode("utf-8", "replace").strip())
