"""What a service is to be: which command it runs, for whom, and what it may use."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from contracts.errors import ConfigError
from deploy.logs.logs import redact
from deploy.update.installation import script_root

Kind = Literal["up", "hub", "spoke"]
KINDS: Final[tuple[Kind, ...]] = ("up", "hub", "spoke")

COMMANDS: Final[dict[Kind, tuple[str, ...]]] = {"up": ("up",), "hub": ("hub",), "spoke": ("spoke", "run")}
MEMORY: Final[dict[Kind, str]] = {"up": "3584M", "hub": "3584M", "spoke": "1G"}
"""Default caps. A hub runs up to five sandbox processes of up to 450 MB; a spoke with models runs one."""
_SIZE: Final = re.compile(r"[1-9][0-9]*[KMG]")
ABOUT: Final[dict[Kind, str]] = {
    "up": "Strawberry: broker, hub and spoke of this machine",
    "hub": "Strawberry hub",
    "spoke": "Strawberry spoke: the skills of this machine",
}


@dataclass(frozen=True)
class ServicePlan:
    """One service of this machine.

    Attributes:
        kind: What it is.
        program: The words that start ``strawberry``; the first is an absolute path.
        options: What follows the command, as it would be typed.
        home: The data directory, which it may write.
        writable: Other directories that it may write.
        code: Directories that the program is read from.
        memory: Its memory cap, as systemd writes sizes.
        user: Whose rights it has; None for the user whose manager runs it.
    """

    kind: Kind
    program: tuple[str, ...]
    options: tuple[str, ...]
    home: Path
    writable: tuple[Path, ...] = ()
    code: tuple[Path, ...] = ()
    memory: str = ""
    user: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.program, *COMMANDS[self.kind], *self.options)


def is_size(text: str) -> bool:
    return _SIZE.fullmatch(text) is not None


def name_of(kind: Kind) -> str:
    return f"strawberry-{kind}"


def own_program() -> tuple[str, ...]:
    """Return the words that start this very installation, or what an update puts in its place."""
    root = script_root(Path(sys.prefix))
    script = root / "current/bin/strawberry" if root else Path(sys.executable).with_name("strawberry")
    if script.is_file():
        return (str(script),)
    # -P: nothing that lies in the directory where it is started becomes part of the program.
    return (sys.executable, "-P", "-m", "deploy.cli.main")


def own_code() -> tuple[Path, ...]:
    """Return the directories of this very installation: its environment, its Python, and its packages."""
    packages = Path(__file__).parents[2]
    prefix = Path(sys.prefix)
    return tuple(dict.fromkeys((script_root(prefix) or prefix, Path(sys.base_prefix), packages)))


def typed(options: argparse.Namespace, defaults: argparse.Namespace) -> tuple[str, ...]:
    """Return the options that say something else than the defaults, as they would be typed.

    Raises:
        ConfigError: If one of them holds a secret, which others could then read.
    """
    words: list[str] = []
    for name, default in vars(defaults).items():
        value = getattr(options, name)
        if value != default:
            words += _option(f"--{name.replace('_', '-')}", value)
    for word in words:
        if redact(word) != word:
            raise ConfigError(
                "every user of this machine could read a password or token in the command of a service",
                hint="Put it into strawberry.toml and .env of the data directory.",
            )
    return tuple(words)


def _option(option: str, value: Any) -> list[str]:
    if value is True:
        return [option]
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    # In one word, so that a value may begin with a dash.
    return [f"{option}={each}" for each in values]
