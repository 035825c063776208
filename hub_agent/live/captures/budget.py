"""Budgets of captures: what each one, each folder and all together may keep, and what is removed for it."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.errors import Forbidden
from hub_agent.live.captures.files.series import Series, first_of
from hub_agent.settings import CaptureSettings

_log = logging.getLogger(__name__)

MB: Final = 1024 * 1024
_DAY_S: Final = 24 * 60 * 60


@dataclass(frozen=True)
class Kept:
    """What one capture keeps.

    Attributes:
        active: Whether it writes: its last file stays then.
        max_files: None for any number.
        keep_days: None for what the settings say.
    """

    series: Series
    active: bool
    max_files: int | None = None
    keep_days: float | None = None


@dataclass(frozen=True)
class Usage:
    """What a capture has on the disk.

    Attributes:
        changed: When it last wrote, Unix seconds; 0 without files.
    """

    files: int = 0
    bytes: int = 0
    changed: float = 0


@dataclass(frozen=True)
class CleanUp:
    """What is there after a clean-up.

    Attributes:
        usage: By capture.
        full: The folders with more than they may keep, although nothing more can be removed.
    """

    usage: Mapping[str, Usage]
    full: frozenset[Path]


@dataclass(frozen=True)
class _File:
    capture: str
    name: str
    size: int
    changed: float
    removable: bool


def clean_up(captures: Mapping[str, Kept], settings: CaptureSettings, *, now: float) -> CleanUp:
    """Remove the oldest files of captures until all limits are kept; blocks.

    Only files of these captures are touched, and never the one that is written.

    Args:
        captures: All there are, by id.
        now: Unix seconds.
    """
    files: list[_File] = []
    for capture, found in _files(captures).items():
        kept = captures[capture]
        days = settings.keep_days if kept.keep_days is None else kept.keep_days
        oldest = None if days is None else now - days * _DAY_S
        files += _shrink(captures, found, max_files=kept.max_files, oldest=oldest)
    full = set()
    for root in {kept.series.root for kept in captures.values()}:
        own = [file for file in files if captures[file.capture].series.root == root]
        left = _shrink(captures, own, max_mb=settings.folder_mb, max_files=settings.folder_files)
        if settings.folder_mb is not None and _size(left) > settings.folder_mb * MB:
            full.add(root)
        gone = {*own} - {*left}
        files = [file for file in files if file not in gone]
    files = _shrink(captures, files, max_mb=settings.total_mb)
    if _size(files) > settings.total_mb * MB:
        full.update(kept.series.root for kept in captures.values())
    by_capture: dict[str, list[_File]] = {capture: [] for capture in captures}
    for file in files:
        by_capture[file.capture].append(file)
    return CleanUp({capture: _usage(own) for capture, own in by_capture.items()}, frozenset(full))


def usages(captures: Mapping[str, Series]) -> dict[str, Usage]:
    """Return what captures have on the disk, by id; blocks."""
    found = _files({capture: Kept(series, active=False) for capture, series in captures.items()})
    return {capture: _usage(files) for capture, files in found.items()}


def usage_of(series: Series) -> Usage:
    """Return what one capture has on the disk; blocks."""
    return usages({"": series})[""]


def _files(captures: Mapping[str, Kept]) -> dict[str, list[_File]]:
    """Return the files of captures, oldest first; each folder is looked through once for all of them."""
    folders: dict[tuple[Path, tuple[str, ...]], dict[str, str]] = {}
    for capture, kept in captures.items():
        series = kept.series
        firsts = folders.setdefault((series.root, series.parts[:-1]), {})
        firsts[series.file(1).casefold()] = capture
    files: dict[str, list[_File]] = {capture: [] for capture in captures}
    for firsts in folders.values():
        try:
            with captures[next(iter(firsts.values()))].series.directory() as directory:
                found = directory.files()
        except (Forbidden, OSError):
            # Not made yet, or away for now.
            continue
        names: dict[str, list[str]] = {}
        for name in found:
            capture = firsts.get(name.casefold()) or firsts.get(first_of(name).casefold(), "")
            names.setdefault(capture, []).append(name)
        for capture in firsts.values():
            kept = captures[capture]
            numbers = kept.series.numbers(names.get(capture, ()))
            last = max(numbers, default=0)
            files[capture] = [
                _File(
                    capture,
                    name,
                    found[name].st_size,
                    found[name].st_mtime,
                    not (kept.active and number == last),
                )
                for number, name in numbers.items()
            ]
    return files


def _shrink(
    captures: Mapping[str, Kept],
    files: Iterable[_File],
    *,
    max_mb: float | None = None,
    max_files: int | None = None,
    oldest: float | None = None,
) -> list[_File]:
    """Remove the oldest files until the limits are kept; return those that are left, oldest first."""
    files = sorted(files, key=lambda file: file.changed)
    size, count = _size(files), len(files)
    left = []
    for file in files:
        exceeds = (
            (max_mb is not None and size > max_mb * MB)
            or (max_files is not None and count > max_files)
            or (oldest is not None and file.changed < oldest)
        )
        if exceeds and file.removable and _remove(captures[file.capture].series, file.name):
            size -= file.size
            count -= 1
        else:
            left.append(file)
    return left


def _remove(series: Series, name: str) -> bool:
    try:
        with series.directory() as directory:
            directory.remove(name)
    except (Forbidden, OSError) as error:
        _log.warning("%s cannot be removed: %s", series.path.with_name(name), error)
        return False
    _log.info("removed the old capture %s", series.path.with_name(name))
    return True


def _size(files: Iterable[_File]) -> int:
    return sum(file.size for file in files)


def _usage(files: Iterable[_File]) -> Usage:
    found = list(files)
    return Usage(len(found), _size(found), max((file.changed for file in found), default=0))
