"""Where skills of others come from: folders, archives, and commits of git repositories."""

import bz2
import gzip
import lzma
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from contracts.errors import ConfigError
from spoke import limits

_GIT: Final = re.compile(r"git\+(?P<url>(?:https|ssh|file)://\S+)@(?P<commit>[0-9a-f]{40})")
_BROKEN: Final = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError)
_PACKED: Final[dict[bytes, Callable[..., Any]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
"""How files begin that hold a packed tar."""
_TOO_LARGE: Final = (
    f"it has more than {limits.INSTALLED_FILES:,} files or {limits.INSTALLED_BYTES // 2**20} MiB"
)
_SKIPPED: Final = ("__pycache__", "node_modules")
_Member = TypeVar("_Member")
_Files = Generator[tuple[str, IO[bytes]], None, None]


def fetch(source: str, target: Path) -> Path:
    """Copy a skill into an empty folder, bounded and without links; nothing of it runs.

    Returns:
        The folder that has the code: the only one of an archive, or the target itself.

    Raises:
        ConfigError: It cannot be had, or holds what a skill must not hold.
    """
    try:
        with closing(_files_of(source, target)) as files:
            _write(files, target)
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, *_BROKEN) as error:
        raise ConfigError("{source} cannot be read: {reason}", source=source, reason=error) from None
    inside = list(target.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else target


def newest(source: str) -> str:
    """Return a source with the newest commit, where it is a git repository.

    Raises:
        ConfigError: The repository cannot be reached.
    """
    git = _GIT.fullmatch(source)
    if git is None:
        return source
    commit = _git("ls-remote", "--exit-code", "--", git["url"], "HEAD").split()[0].decode()
    return f"git+{git['url']}@{commit}"


def _files_of(source: str, target: Path) -> _Files:
    path = Path(source)
    if git := _GIT.fullmatch(source):
        address = urlsplit(git["url"])
        # Over HTTPS a name alone is a token.
        if address.password is not None or (address.scheme == "https" and address.username):
            raise ConfigError(
                "the address has a password, which would be kept with the skill",
                hint="Leave it out; git asks its credential helper.",
            )
        return _of_commit(git["url"], git["commit"], target.with_name(f"{target.name}.git"))
    if path.is_dir():
        return _of_folder(path)
    if path.is_file() and zipfile.is_zipfile(path):
        return _of_zip(zipfile.ZipFile(path))
    if path.is_file():
        with path.open("rb") as file:
            begin = file.read(6)
        opening = next((each for magic, each in _PACKED.items() if begin.startswith(magic)), open)
        return _of_tar(opening(path, "rb"), source)
    raise _no_source(source)


def _no_source(source: str) -> ConfigError:
    return ConfigError(
        "{source!r} is no folder, archive or commit",
        source=source,
        hint="Give the folder of the skill, a .zip or .tar.gz, or git+URL@COMMIT with all 40 digits.",
    )


def _of_commit(url: str, commit: str, repository: Path) -> _Files:
    where = ("-C", str(repository))
    try:
        _git("init", "--quiet", "--bare", str(repository))
        try:
            # All objects are one file, so that its bound is theirs.
            one = ("-c", "fetch.unpackLimit=1")
            _git(*where, *one, "fetch", "--quiet", "--depth=1", "--no-tags", "--", url, commit)
        except ConfigError:
            if any(each.stat().st_size >= limits.GIT_BYTES for each in repository.rglob("*")):
                raise ValueError(_TOO_LARGE) from None
            raise
        # An archive, not a checkout: that would write links. Filters are programs of the user's settings.
        archive = subprocess.Popen(
            [*_git_program(), *where, "archive", "--format=tar", commit],
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with archive:
            assert archive.stdout is not None
            try:
                yield from _of_tar(archive.stdout, url)
            finally:
                archive.kill()
    finally:
        shutil.rmtree(repository, ignore_errors=True)


def _of_folder(folder: Path) -> _Files:
    for parent, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _SKIPPED]
        for each in (*folders, *names):
            path = Path(parent, each)
            if not stat.S_ISREG(path.lstat().st_mode) and not stat.S_ISDIR(path.lstat().st_mode):
                raise ValueError(f"{each} is a link or a device")
        for each in names:
            path = Path(parent, each)
            yield path.relative_to(folder).as_posix(), path.open("rb")


def _of_zip(archive: zipfile.ZipFile) -> _Files:
    with archive:
        for member in _counted(archive.infolist()):
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ValueError(f"{member.filename} is a link or a device")
            # zipfile unpacks the other ways without a bound: 900 bytes to gigabytes.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{member.filename} is packed in a way that few programs read")
            if not member.is_dir():
                yield member.filename, archive.open(member)


class _Bounded:
    """A stream of which only so much is read until more is allowed: a header of a tar may claim any size."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.left = limits.TAR_HEADER_BYTES
        self._stream = stream

    def read(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0:
            raise ValueError(_TOO_LARGE)
        return self._stream.read(size)


def _of_tar(stream: IO[bytes], source: str) -> _Files:
    with stream:
        bounded = _Bounded(stream)
        try:
            # As a stream, so that nothing is read but headers and what is written.
            archive = tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r|")  # noqa: SIM115
        except tarfile.ReadError:
            raise _no_source(source) from None
        for member in _counted(archive):
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                bounded.left = limits.INSTALLED_BYTES + limits.TAR_HEADER_BYTES
                yield member.name, content
            elif not member.isdir():
                raise ValueError(f"{member.name} is a link or a device")
            bounded.left = limits.TAR_HEADER_BYTES


def _counted(members: Iterable[_Member]) -> Iterable[_Member]:
    for number, member in enumerate(members):
        if number == limits.INSTALLED_FILES:
            raise ValueError(_TOO_LARGE)
        yield member


def _write(files: _Files, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    left = limits.INSTALLED_BYTES
    for name, stream in _counted(files):
        with stream:
            path = PurePosixPath(name)
            # A line feed in a name could imitate another file in the digest.
            if (
                path.is_absolute()
                or ".." in path.parts
                or re.search(r"[\\:]", name)
                or not name.isprintable()
            ):
                raise ValueError(f"{name!r} lies outside, or has a character that no name needs")
            content = stream.read(left + 1)
        left -= len(content)
        if left < 0:
            raise ValueError(_TOO_LARGE)
        if any(each.startswith(".") or each.casefold() in _SKIPPED for each in path.parts):
            continue
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _git_program() -> tuple[str, ...]:
    """Return git with bounds that its children inherit."""
    if os.name == "nt":
        return ("git",)
    # In blocks of 512 bytes, and in kilobytes. Where a bound is lower already, that one holds.
    bounds = f"ulimit -f {limits.GIT_BYTES // 512}; ulimit -d {limits.GIT_MEMORY_BYTES // 1024}"
    return ("sh", "-c", f'{bounds}; exec git "$@"', "git")


def _git(*arguments: str) -> bytes:
    # Files, not pipes: what a server says has no bound.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            subprocess.run(
                [*_git_program(), *arguments],
                env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:file"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                timeout=limits.GIT_S,
                check=True,
            )
        except subprocess.CalledProcessError:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - limits.PACKAGES_REASON))
            reason = errors.read().decode(errors="replace").strip()
            raise ConfigError("git failed: {reason}", reason=reason) from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError("git failed: {reason}", reason=error) from None
        output.seek(0)
        return output.read(limits.PACKAGES_REASON)
