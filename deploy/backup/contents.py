"""Which files of a home are in its backup."""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from contracts.errors import ConfigError
from deploy import limits
from deploy.directory import STAGE, Home
from deploy.settings.settings import read_table
from hub_agent.settings import CaptureSettings
from identity.files import is_held, only_one

ASIDE: Final = "replaced"
"""Where what was replaced is kept."""
PARTIAL: Final = ".backup-"
"""What the names of temporary directories begin with."""

IN_PARTS: Final = ("hub", "broker", "spoke")
"""Directories whose files are replaced one by one: the lock in each is held meanwhile."""
_LOCK: Final = "lock"
_OF_A_RUN: Final = (_LOCK, "run.json", "cli.token", "http.token")
"""What is rewritten at each start, below one of `IN_PARTS`."""
_ELSEWHERE: Final = ("sandbox", STAGE, ASIDE)
"""Directories that stay as they are."""
_RECORDINGS: Final = ("hub", "recordings")
_ENVIRONMENTS: Final = ("spoke", "environments")
"""Packages of skills, for this machine; ``strawberry skills packages`` installs them again."""
_NATS: Final = ("broker", "nats")
"""Of a node of NATS, whose name and part of what the cluster stores the other nodes count on."""
_MADE_AGAIN: Final = frozenset({"__pycache__", ".venv", "venv", "node_modules"})
"""Names of directories that programs of nodes make again."""
_JOURNALS: Final = ("-wal", "-shm", "-journal")

Kind = Literal["data", "capture", "none"]


@dataclass(frozen=True)
class Rules:
    """Decides about each path, which is relative to the home.

    Attributes:
        captures: Folders of captures that are below the home.
    """

    captures: tuple[PurePosixPath, ...]

    @classmethod
    def of(cls, home: Home) -> "Rules":
        """Read where captures are; from settings that cannot be used, where they are by default."""
        settings = None
        # They may be the reason for the backup, or for restoring one.
        with suppress(ConfigError):
            settings = read_table(home, "captures", CaptureSettings)
        folders = (settings or CaptureSettings()).folders
        inside = (home.directory / folder.expanduser() for folder in folders)
        return cls(
            tuple(
                PurePosixPath(folder.relative_to(home.directory).as_posix())
                for folder in inside
                if folder.is_relative_to(home.directory) and folder != home.directory
            )
        )

    def kind(self, path: PurePosixPath) -> Kind:
        """Return what a file is: data of the home, a capture, or nothing that a backup holds."""
        first, parts = path.parts[0], path.parts
        if self.is_left_out(path) or path.name.endswith(_JOURNALS):
            return "none"
        if first == "broker" and parts != ("broker", "revoked.json"):
            # Retained messages are a cache, and Mosquitto's logins are made from the hub's database.
            return "none"
        if len(parts) == 2 and first in (*IN_PARTS, "certs") and path.name in _OF_A_RUN:
            return "none"
        if parts[:2] == _RECORDINGS or any(path.is_relative_to(folder) for folder in self.captures):
            return "capture"
        return "data"

    def is_left_out(self, path: PurePosixPath) -> bool:
        """Return whether nothing at or below a path is in a backup."""
        first = path.parts[0]
        is_elsewhere = first in _ELSEWHERE or path.parts[:2] == _ENVIRONMENTS
        return is_elsewhere or first.startswith(PARTIAL) or not _MADE_AGAIN.isdisjoint(path.parts)

    def stays(self, path: PurePosixPath) -> bool:
        """Return whether a file or directory of the home stays when a backup replaces the rest."""
        return (
            path.parts[0] in _ELSEWHERE
            or path.parts[0].startswith(PARTIAL)
            or path.parts[:2] == _NATS
            or (len(path.parts) == 2 and path.parts[0] in IN_PARTS and path.name == _LOCK)
            or any(folder == path or folder.is_relative_to(path) for folder in self.captures)
        )


@dataclass(frozen=True)
class Found:
    """A file of the home.

    Attributes:
        name: Its path in the backup, seen from the home.
        size: Bytes, when it was looked at.
    """

    path: Path
    name: PurePosixPath
    size: int


def find_files(home: Home, *, captures: bool) -> Iterator[Found]:
    """List the files that a backup holds. Links are left out: what they lead to is not this home's."""
    rules = Rules.of(home)
    wanted = ("data", "capture") if captures else ("data",)
    for directory, folders, files in os.walk(home.directory):
        inside = PurePosixPath(Path(directory).relative_to(home.directory).as_posix())
        folders[:] = sorted(folder for folder in folders if not rules.is_left_out(inside / folder))
        for file in sorted(files):
            path, name = Path(directory, file), inside / file
            with suppress(FileNotFoundError):  # removed since it was listed
                status = path.lstat()
                if rules.kind(name) in wanted and stat.S_ISREG(status.st_mode):
                    yield Found(path, name, status.st_size)


def units(directory: Path) -> Iterator[PurePosixPath]:
    """List what is moved as one: the entries of a home, and those of each of its `IN_PARTS`."""
    for entry in sorted(directory.iterdir()):
        if entry.name in IN_PARTS and entry.is_dir() and not entry.is_symlink():
            yield from (PurePosixPath(entry.name, each.name) for each in sorted(entry.iterdir()))
        else:
            yield PurePosixPath(entry.name)


@contextmanager
def temporary_directory(home: Home) -> Iterator[Path]:
    """Yield a directory for the time of a backup; remove those of processes that were killed."""
    for left in home.directory.glob(f"{PARTIAL}*"):
        # One that is held belongs to a backup that is made or checked right now.
        with suppress(FileNotFoundError):
            if left.stat().st_mtime < time.time() - limits.BACKUP_LEFT_S and not is_held(left):
                shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(dir=home.directory, prefix=PARTIAL) as made,
        only_one(Path(made), what="a backup", hint="Try it again."),
    ):
        yield Path(made)
