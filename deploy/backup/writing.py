"""Writing a backup: a tar file, compressed, then encrypted with a passphrase (`identity.age`)."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, cast

from pydantic import SecretStr

from contracts import own_version
from contracts.errors import ConfigError
from contracts.wire import rfc3339
from deploy.backup.contents import IN_PARTS, Found, find_files, temporary_directory
from deploy.directory import Home
from deploy.settings.settings import find_database
from hub_registry.access.hub_key import load_hub_key
from hub_registry.storage.copying import copy_rows
from hub_registry.storage.restoring import copy_database, inspect
from identity.age import AgeWriter

MANIFEST: Final = "strawberry-backup.json"
FORMAT: Final = 1
SHORTEST_PASSPHRASE: Final = 8
_LEVEL: Final = 6
_EXECUTABLE: Final = 0o100
_DATABASE: Final = b"SQLite format 3\0"

Progress = Callable[[int, int], None]
"""Called with the bytes that are done, and those that there are."""


def check_passphrase(passphrase: SecretStr) -> None:
    """Refuse a passphrase that protects nothing.

    Raises:
        ConfigError: If it is too short.
    """
    if len(passphrase.get_secret_value()) < SHORTEST_PASSPHRASE:
        raise ConfigError(
            "the passphrase has fewer than {shortest} characters",
            shortest=SHORTEST_PASSPHRASE,
            hint="The backup holds all keys of this home: take four or more words that only you know.",
        )


def write_backup(
    home: Home,
    target: BinaryIO,
    passphrase: SecretStr,
    *,
    captures: bool = False,
    progress: Progress = lambda _done, _all: None,
) -> int:
    """Write a backup of a home, whether or not its hub runs; return the bytes that are in it.

    Args:
        captures: Whether captures and recorded values are in it.

    Raises:
        ConfigError: If there is no hub here or no key of it, the passphrase is too short, or a file cannot be
            read.
    """
    check_passphrase(passphrase)
    if not home.has_hub:
        raise ConfigError(
            f"there is no hub in {home.directory}", hint="Set STRAWBERRY_HOME to its directory."
        )
    place = find_database(home)
    load_hub_key(home.hub, place)  # a backup without it could not be restored
    with temporary_directory(home) as copies:
        found = (_copied(file, copies) for file in find_files(home, captures=captures))
        files = [file for file in found if file is not None]
        if isinstance(place, str):
            # A file of SQLite, too: it restores anywhere, and a dump of strangers would be a program.
            copy = copies / "hub__hub.db"
            copy.unlink(missing_ok=True)
            copy_rows(place, copy)
            files = [file for file in files if file.path != copy]
            files.append(Found(copy, PurePosixPath("hub/hub.db"), copy.stat().st_size))
        encrypted = AgeWriter(target, passphrase)
        # Neither a name nor a time of this machine in its header.
        sink = cast("BinaryIO", encrypted)
        with (
            gzip.GzipFile(filename="", fileobj=sink, mode="wb", compresslevel=_LEVEL, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            _add_manifest(archive, copies, captures=captures)
            done, total = 0, sum(file.size for file in files)
            progress(done, total)
            for file in files:
                done += _add(archive, file, copies)
                progress(done, total)
        encrypted.finish()
    return done


def _copied(file: Found, copies: Path) -> Found | None:
    """Return a file as it can be read in peace: of a database, a copy of one moment; None if it is gone."""
    is_ours = file.name.parts[0] in IN_PARTS
    copy = copies / str(file.name).replace("/", "__")
    try:
        # Others call other things so: Thumbs.db of Windows is no database of SQLite.
        if file.path.suffix != ".db" or not (is_ours or _is_database(file.path)):
            return file
        copy_database(file.path, copy)
    except FileNotFoundError:
        return None
    return Found(copy, file.name, copy.stat().st_size)


def _is_database(path: Path) -> bool:
    with path.open("rb") as content:
        return content.read(len(_DATABASE)) == _DATABASE


def _add_manifest(archive: tarfile.TarFile, copies: Path, *, captures: bool) -> None:
    contents = inspect(copies / "hub__hub.db")
    manifest = {
        "format": FORMAT,
        "version": own_version(),
        "created_at": rfc3339(datetime.now(UTC)),
        "hub_id": contents.hub_id,
        "database": contents.revision,
        "captures": captures,
    }
    text = json.dumps(manifest, indent=1).encode()
    archive.addfile(_entry(MANIFEST, len(text), executable=False), io.BytesIO(text))


def _add(archive: tarfile.TarFile, file: Found, copies: Path) -> int:
    try:
        with file.path.open("rb") as content:
            # The size of this moment; a file that grows meanwhile is complete up to here.
            status = file.path.stat()
            executable = bool(status.st_mode & _EXECUTABLE)
            archive.addfile(_entry(str(file.name), status.st_size, executable=executable), content)
    except FileNotFoundError:
        if file.path.is_relative_to(copies):
            raise
        return 0  # removed since it was listed
    except OSError as error:
        if error.errno is not None:
            raise
        raise ConfigError(
            "{file} became shorter while it was read", file=file.path, hint="Try it again."
        ) from None
    return status.st_size


def _entry(name: str, size: int, *, executable: bool) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o700 if executable else 0o600
    return entry
