"""Programs that the owner allows by name, run without a shell."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, Field

from bus.processes import open_process, output_of
from contracts.errors import ConfigError, NotFound
from strawberry_skills import Skill, skill_method

_OUTPUT_BYTES: Final = 8_000
"""Of the output in an answer, its end: about 2,000 tokens of a model."""
_LONGEST_RUN_S: Final = 600
_PASSED_ON: Final = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "SYSTEMROOT", "XDG_RUNTIME_DIR")
"""Variables that a program gets. Keys of models, which the spoke may have, are not among them."""

Name = Annotated[str, Field(pattern=r"^\w[\w -]{0,60}$")]
Command = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=1_000)]], Field(min_length=1, max_length=50)
]


@dataclass
class Output:
    """How a program ended: its exit code, 0 where it succeeded, and the end of what it printed."""

    code: int
    output: str


class CommandSkill(Skill):
    """Runs programs on this device, which its owner has allowed one by one; a person confirms each call."""

    labels = {
        "de": {"CommandSkill": "Befehle", "list_commands": "Erlaubte Befehle", "run": "Ausführen"}
        | {"command": "Befehl", "commands": "Erlaubte Befehle"},
        "en": {"CommandSkill": "Commands", "list_commands": "Allowed commands"},
    }

    class Settings(BaseModel):
        """What may be run: program and arguments, by the names that you call it."""

        commands: Annotated[
            dict[Name, Command], Field(min_length=1, max_length=100, description='{"disk": ["df", "-h"]}')
        ]

    @skill_method(read_only=True)
    def list_commands(self) -> dict[str, list[str]]:
        """Return the commands that may be run, with program and arguments."""
        commands: dict[str, list[str]] = self.settings.commands
        return commands

    @skill_method(
        destructive=True,
        open_world=True,
        confirm=True,
        untrusted_output=True,
        timeout_s=_LONGEST_RUN_S,
        sentences={"en": ["run [the] command {command}"], "de": ["führe [den] Befehl {command} aus"]},
        responses={
            "en": "It ended with code {result.code}[: {result.output}]",
            "de": "Beendet mit Code {result.code}[: {result.output}]",
        },
    )
    async def run(self, command: str) -> Output:
        """Run an allowed command to its end, and return the end of its output.

        Args:
            command: Its name; case does not matter.
        """
        commands: dict[str, list[str]] = self.settings.commands
        wanted = command.strip().casefold()
        words = next((each for name, each in commands.items() if name.casefold() == wanted), None)
        if words is None:
            known = ", ".join(commands)
            raise NotFound("{name!r} is not allowed", name=command, known=known, hint="Allowed are: {known}.")
        try:
            return await _run(words)
        except OSError as error:
            raise ConfigError(
                "{program} cannot be run: {error}", program=words[0], error=error.strerror
            ) from None


async def _run(words: list[str]) -> Output:
    kept = bytearray()
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
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
