"""Where Strawberry keeps its files: one directory, which ``STRAWBERRY_HOME`` moves.

Imports nothing heavy: every command goes through here, also those that must start fast.
"""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """The data directory of one installation; owner-only."""

    directory: Path

    @classmethod
    def find(cls) -> "Home":
        """Give the directory that ``STRAWBERRY_HOME`` names, or ``~/.strawberry``."""
        named = os.environ.get("STRAWBERRY_HOME")
        return cls((Path(named) if named else Path.home() / ".strawberry").expanduser().absolute())

    @property
    def hub(self) -> Path:
        """The hub's key, database and address."""
        return self.directory / "hub"

    @property
    def broker(self) -> Path:
        """What the embedded broker keeps: retained messages and revocations."""
        return self.directory / "broker"

    @property
    def spoke(self) -> Path:
        """The local spoke's key, enrolment and state."""
        return self.directory / "spoke"

    @property
    def sandbox(self) -> Path:
        """Pyodide and the snapshot it starts from."""
        return self.directory / "sandbox"

    @property
    def skills(self) -> Path:
        """The skills that the user wrote."""
        return self.directory / "skills"

    @property
    def address_file(self) -> Path:
        """Where a running hub says how it is reached: ``{"url", "pid", …}``."""
        return self.hub / "run.json"

    @property
    def token_file(self) -> Path:
        """The owner's token for this command line."""
        return self.hub / "cli.token"
