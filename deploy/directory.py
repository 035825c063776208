"""Where Strawberry keeps its files: one directory, which ``STRAWBERRY_HOME`` moves.

Imports nothing heavy: every command goes through here, also those that must start fast.
"""

import errno
import os
import shutil
import tomllib
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contracts.errors import ConfigError
from identity.files import only_one

STAGE: Final = "restore"
"""Where a backup is unpacked before it takes the place of what is in the data directory."""


class _Below:
    """A path below the data directory."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, home: "Home", _: object) -> Path:
        return home.directory.joinpath(*self._parts)


@dataclass(frozen=True)
class Home:
    """The data directory of one installation; owner-only."""

    directory: Path

    @classmethod
    def named(cls) -> "Home":
        """Return the directory that ``STRAWBERRY_HOME`` names, or ``~/.strawberry``, whatever is there."""
        named = os.environ.get("STRAWBERRY_HOME")
        return cls((Path(named) if named else Path.home() / ".strawberry").expanduser().absolute())

    @classmethod
    def find(cls) -> "Home":
        """Return the data directory; it may not exist yet.

        Raises:
            ConfigError: If it is a file.
        """
        home = cls.named()
        if home.directory.is_file():
            raise ConfigError(
                f"the data directory {home.directory} is a file",
                hint="Move the file away, or set STRAWBERRY_HOME to a directory.",
            )
        return home

    def unchecked_table(self, name: str) -> dict[str, Any]:
        """Return a table of ``strawberry.toml`` for what cannot wait until it is checked.

        The check reports what is wrong with it.
        """
        with suppress(OSError, ValueError, RecursionError):
            found = tomllib.loads((self.directory / "strawberry.toml").read_text("utf-8")).get(name)
            return found if isinstance(found, dict) else {}
        return {}

    hub = _Below("hub")
    """The hub's key, database and address."""
    broker = _Below("broker")
    """Data of a broker that this home runs: retained messages, revocations, logins."""
    spoke = _Below("spoke")
    """The local spoke's key, enrolment and state."""
    sandbox = _Below("sandbox")
    skills = _Below("skills")
    certs = _Below("certs")
    """The certificate authority of this home, and the server certificate of this machine."""
    enrolment_file = _Below("spoke", "enrolment.json")
    broker_run_file = _Below("broker", "run.json")
    """Our own broker as it describes itself: ``{"kind", "urls", "addresses", …}``."""
    provisioned_file = _Below("hub", "broker.json")
    """The Mosquitto that was set up for this home: ``{"url", "kind", "ca"}``."""
    address_file = _Below("hub", "run.json")
    """The address of the running hub: ``{"url", "pid", …}``."""
    spoke_address_file = _Below("spoke", "run.json")
    """The address of the running spoke: ``{"url", "pid", "device"}``."""
    spoke_token_file = _Below("spoke", "http.token")
    token_file = _Below("hub", "cli.token")
    restore_plan = _Below(STAGE, "plan.json")
    """There while a restore was decided and is not complete."""
    chat_history_file = _Below("chat_history")

    @property
    def has_hub(self) -> bool:
        return any((self.hub / name).exists() for name in ("key.pem", "hub.db"))

    @property
    def is_spoke_alone(self) -> bool:
        return not self.has_hub and self.enrolment_file.exists()


def explained(error: OSError) -> tuple[str, str]:
    """Return what is wrong with a full disk or an unwritable directory, and what to do about it."""
    # A number is a file descriptor.
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""
    hint = ""
    if error.errno == errno.ENOSPC:
        hint = "Free some space; 'strawberry doctor' shows where, and how much is needed."
    elif name and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        file, home = Path(name), Home.named().directory
        if home.is_relative_to(file) or file.is_relative_to(home):
            hint = "Give yourself the right to write there, or set STRAWBERRY_HOME to another directory."
    return f"{name}: {error.strerror or error}" if name else error.strerror or str(error), hint


def discard_restore(home: Home) -> None:
    """Remove what was unpacked or uploaded, unless its restore was decided."""
    if not home.restore_plan.exists():
        shutil.rmtree(home.directory / STAGE, ignore_errors=True)


def only_hub(home: Home) -> AbstractContextManager[None]:
    """Hold this home for one hub; two would write one database and one address.

    Raises:
        ConfigError: If another process holds it.
    """
    return only_one(
        home.hub, what="a hub", hint="Stop it, or set another STRAWBERRY_HOME for a second household."
    )
