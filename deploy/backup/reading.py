"""Reading a backup: all of it is unpacked and checked before anything of the home is touched."""

import gzip
import json
import os
import shutil
import sys
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, Final, cast

from pydantic import SecretStr

from contracts.errors import ConfigError, StrawberryError
from deploy import limits
from deploy.backup.contents import Rules
from deploy.backup.writing import FORMAT, MANIFEST, Progress
from deploy.directory import STAGE, Home
from deploy.settings.settings import check_settings
from hub_registry.storage.restoring import inspect
from hub_server.system.host import BackupContents, BackupDevice
from identity.age import AgeReader
from identity.files import make_private_directory
from identity.keys import KeyPair

_READ_WHOLE: Final = (".pem", ".toml", ".env")
_PIECE: Final = 1024 * 1024
_NO_ARCHIVE: Final = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError),
    *(ValueError, RecursionError),  # of numbers in a header, and of headers of headers
)
_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NOT_IN_NAMES: Final = frozenset('\\:*?"<>|' if os.name == "nt" else "\0")


def unpack(
    home: Home, source: BinaryIO, passphrase: SecretStr, *, progress: Progress = lambda _done, _all: None
) -> BackupContents:
    """Unpack a backup into the home's staging directory, and check it; nothing else of the home is touched.

    Args:
        source: The encrypted file, which can seek.

    Raises:
        ConfigError: If it is no backup or not whole, the passphrase is another one, a path in it leads
            elsewhere, or this version cannot use it. Nothing of it is left then.
    """
    files = staged_files(home)
    shutil.rmtree(files, ignore_errors=True)
    make_private_directory(files)
    try:
        total = source.seek(0, os.SEEK_END)
        source.seek(0)
        decrypted = AgeReader(source, passphrase)
        unpacking = _Unpacking(home, files, lambda: progress(source.tell(), total))
        # gzip reads from anything that has `read`.
        with gzip.GzipFile(fileobj=cast("BinaryIO", decrypted), mode="rb") as unzipped:
            stream = _Stream(unzipped)
            with tarfile.open(fileobj=cast("BinaryIO", stream), mode="r|") as archive:
                while (entry := stream.next_of(archive)) is not None:
                    unpacking.take(archive, entry)
            # To its very end, which alone tells that the file is whole.
            stream.read_rest()
        return unpacking.summary()
    except _NO_ARCHIVE as error:
        shutil.rmtree(files, ignore_errors=True)
        raise ConfigError("this is not a backup of Strawberry: {error}", error=error) from None
    except BaseException:
        shutil.rmtree(files, ignore_errors=True)
        raise


def staged_files(home: Home) -> Path:
    return home.directory / STAGE / "files"


class _Stream:
    """An archive that gives out a bounded number of bytes on the way from one entry to the next."""

    def __init__(self, source: gzip.GzipFile) -> None:
        self._source = source
        self._left = limits.MAX_HEADER_BYTES

    def next_of(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        """Return the next entry; None at the end."""
        self._left = limits.MAX_HEADER_BYTES
        entry = archive.next()
        self._left = sys.maxsize
        vars(archive)["members"].clear()  # it would keep them all
        return entry

    def read_rest(self) -> None:
        """Read what follows the last entry: the padding of the archive, and nothing else."""
        self._left = limits.MAX_HEADER_BYTES
        while self.read(_PIECE):
            pass

    def read(self, size: int) -> bytes:
        """Read some of it."""
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ConfigError("the backup has too much between two files, or after the last one")
        return data


class _Unpacking:
    def __init__(self, home: Home, files: Path, progress: Any) -> None:
        self._files = files
        self._progress = progress
        self._rules = Rules.of(home)
        self._manifest: dict[str, Any] | None = None
        self._names: set[str] = set()
        self._folders: set[str] = set()
        self._bytes = 0

    def take(self, archive: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        """Unpack one entry."""
        content = archive.extractfile(entry) if entry.isreg() and not entry.issparse() else None
        if content is None:
            raise ConfigError("the backup holds {name!r}, which is no file", name=entry.name[:200])
        if self._manifest is None:
            self._manifest = _manifest(entry, content.read(_PIECE))
            return
        path = self._checked(entry.name)
        if path.name.endswith(_READ_WHOLE) and entry.size > limits.MAX_CHECKED_BYTES:
            raise ConfigError("the backup holds {name!r}, which is too large", name=entry.name[:200])
        self._bytes += entry.size
        if shutil.disk_usage(self._files).free < entry.size + limits.FREE_DISK_BYTES:
            raise ConfigError("there is not enough space on the disk to unpack the backup", hint="Free some.")
        mode = 0o700 if entry.mode & 0o100 else 0o600
        try:
            self._write(self._files / path, content, mode)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(
                "the backup holds {name!r}, which cannot be written: {why}", name=entry.name[:200], why=why
            ) from None

    def _write(self, target: Path, content: IO[bytes], mode: int) -> None:
        make_private_directory(target.parent)
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, mode), "wb") as file:
            while piece := content.read(_PIECE):
                file.write(piece)
                self._progress()
            file.flush()
            os.fsync(file.fileno())

    def _checked(self, name: str) -> PurePosixPath:
        """Return the path of an entry, if it is one that a backup writes."""
        path = PurePosixPath(name)
        parts = name.split("/")
        is_plain = (
            0 < len(name) <= limits.MAX_ARCHIVE_NAME
            and len(parts) <= limits.MAX_ARCHIVE_DEPTH
            and all(part not in ("", ".", "..") for part in parts)
            and _NOT_IN_NAMES.isdisjoint(name)
        )
        if not is_plain or self._rules.kind(path) == "none":
            raise ConfigError("the backup holds {name!r}, which is no path of a home", name=name[:200])
        # Where capital letters do not count, the second would be written into the first.
        self._folders.update(str(each).casefold() for each in path.parents)
        if (
            name.casefold() in self._names
            or len(self._names) + len(self._folders) > limits.MOST_ARCHIVE_FILES
        ):
            raise ConfigError("the backup holds {name!r} twice, or too many files", name=name[:200])
        self._names.add(name.casefold())
        return path

    def summary(self) -> BackupContents:
        """Check what was unpacked."""
        if self._manifest is None:
            raise ConfigError("the backup is empty")
        hub = Home(self._files).hub
        if not (hub / "hub.db").exists() or not (hub / "key.pem").exists():
            raise ConfigError("the backup holds no hub: its database or its key is missing")
        KeyPair.load_or_create(hub / "key.pem")
        contents = inspect(hub / "hub.db")
        problems = []
        try:
            check_settings(Home(self._files))
        except StrawberryError as error:
            # Perhaps only on this machine, where a key is missing: it is for a person to decide.
            problems.append(error.message.replace(str(self._files), ""))
        return BackupContents(
            version=str(self._manifest["version"])[:40],
            created_at=str(self._manifest["created_at"])[:40],
            hub_id=contents.hub_id,
            devices=[BackupDevice(id=device, name=name) for device, name in contents.devices.items()],
            people=list(contents.people),
            conversations=contents.conversations,
            files=len(self._names),
            bytes=self._bytes,
            captures=bool(self._manifest.get("captures")),
            problems=problems,
        )


def _manifest(entry: tarfile.TarInfo, text: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(text) if entry.name == MANIFEST else None
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or not {"format", "version", "created_at"} <= manifest.keys():
        raise ConfigError("this is not a backup of Strawberry: it does not begin with its description")
    if manifest["format"] != FORMAT:
        raise ConfigError(
            "the backup has a format that this version does not know ({format!r})",
            format=str(manifest["format"])[:40],
            hint="Update Strawberry, and restore it then.",
        )
    return manifest
