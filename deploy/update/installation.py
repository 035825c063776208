"""How this program was installed, and the one command that updates it."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Kind = Literal["script", "container", "checkout", "pipx", "uv", "venv"]

PACKAGE: Final = "strawberry-home"
CONTAINER: Final = "STRAWBERRY_CONTAINER"
"""Set in the environment of our container image."""
SCRIPT: Final = Path(__file__).with_name("install.sh")

_COMMANDS: Final[Mapping[Kind, str]] = {
    "script": f"strawberry update --from {PACKAGE}",
    "container": "docker compose pull && docker compose up -d",
    "checkout": "git pull && make setup",
    "pipx": f"pipx upgrade {PACKAGE}",
    "uv": f"uv tool upgrade {PACKAGE}",
    "venv": "{python} -m pip install --upgrade " + PACKAGE,
}
_ABOUT: Final[Mapping[Kind, str]] = {
    "script": "by install.sh",
    "container": "as a container",
    "checkout": "as a checkout of the repository",
    "pipx": "with pipx",
    "uv": "with uv tool",
    "venv": "with pip",
}


@dataclass(frozen=True)
class Installation:
    """One installation of this program.

    Attributes:
        root: Of one that ``install.sh`` made: the directory with its versions.
    """

    kind: Kind
    prefix: Path
    root: Path | None = None

    @property
    def command(self) -> str:
        """What updates it, as it is typed."""
        return _COMMANDS[self.kind].format(python=self.prefix / "bin" / "python")

    @property
    def about(self) -> str:
        """How it was installed, for people."""
        return _ABOUT[self.kind]


def script_root(prefix: Path) -> Path | None:
    """Return the directory that ``install.sh`` made for this environment; None where it did not."""
    root = prefix.parent.parent
    return root if prefix.parent.name == "versions" and (root / "current").is_symlink() else None


def find_installation(
    prefix: Path = Path(sys.prefix), environment: Mapping[str, str] = os.environ
) -> Installation:
    """Return how the running program was installed."""
    root = script_root(prefix)
    if root is not None:
        return Installation("script", prefix, root)
    kind: Kind = "venv"
    if CONTAINER in environment:
        kind = "container"
    elif (SCRIPT.parents[2] / "pyproject.toml").exists():
        kind = "checkout"
    elif (prefix / "pipx_metadata.json").exists():
        kind = "pipx"
    elif (prefix / "uv-receipt.toml").exists():
        kind = "uv"
    return Installation(kind, prefix)
