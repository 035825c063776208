"""Budgets of captures: what each one, each folder and all together may keep, and what is removed for it."""

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.errors import Forbidden
from hub_agent.settings import CaptureSettings
from hub_live.captures.files.series import Series

_log = logging.getLogger(__name__)

MB: Final = 1024 * 1024
_DAY_S: Final = 24 * 60 * 60


@dataclass(frozen=True)
class Kept:
    """The limits of one capture's files.

    Attributes:
        active: Whether it writes: its last file stays then.
        max_files: None for any number.
        keep_days: None for what the settings say.
    """

    series: Series
    active: bool = False
    max_files: int | None = None
    keep_days: float | None = None


@dataclass(frozen=True)
class CaptureFile:
    """A file of a capture.

    Attributes:
        capture: Id of the capture.
        changed: When it was last written, Unix seconds.
        device: The disk that it is on.
        removable: Whether it is not the one that is written.
    """

    capture: str
    series: Series
    name: str
    size: int
    changed: float
    device: int | None
    removable: bool


def capture_files(captures: Mapping[str, Kept]) -> list[CaptureFile]:
    """Return the files of captures, given by id; each folder is looked through once; blocks."""
    folders: dict[tuple[Path, tuple[str, ...]], tuple[int | None, dict[str, os.stat_result]]] = {}
    files: list[CaptureFile] = []
    for capture, kept in captures.items():
        series = kept.series
        folder = (series.root, series.parts[:-1])
        if folder not in folders:
            folders[folder] = series.device(), series.found()
        device, found = folders[folder]
        numbers = series.numbers(found)
        last = max(numbers, default=0) if kept.active else 0
        for number, name in numbers.items():
            size, changed = found[name].st_size, found[name].st_mtime
            files.append(CaptureFile(capture, series, name, size, changed, device, removable=number != last))
    return files


def clean_up(
    captures: Mapping[str, Kept], settings: CaptureSettings, *, now: float
) -> tuple[list[CaptureFile], frozenset[Path]]:
    """Remove the oldest files of captures until all limits are kept; blocks.

    Only files of these captures are touched, and never the one that is written.

    Args:
        captures: All there are, by id.
        now: Unix seconds.

    Returns:
        The files that are left, and the folders with more than they may keep.
    """
    found, files = capture_files(captures), list[CaptureFile]()
    for capture, kept in captures.items():
        days = settings.keep_days if kept.keep_days is None else kept.keep_days
        oldest = None if days is None else now - days * _DAY_S
        own = [file for file in found if file.capture == capture]
        files += _shrink(own, max_files=kept.max_files, oldest=oldest)
    full = set()
    for root in {kept.series.root for kept in captures.values()}:
        others = [file for file in files if file.series.root != root]
        own = [file for file in files if file.series.root == root]
        own = _shrink(own, max_mb=settings.folder_mb, max_files=settings.folder_files)
        if settings.folder_mb is not None and size_of(own) > settings.folder_mb * MB:
            full.add(root)
        files = [*others, *own]
    files = _shrink(files, max_mb=settings.total_mb)
    if size_of(files) > settings.total_mb * MB:
        full.update(kept.series.root for kept in captures.values())
    return files, frozenset(full)


def size_of(files: Iterable[CaptureFile]) -> int:
    return sum(file.size for file in files)


def _shrink(
    files: Iterable[CaptureFile],
    *,
    max_mb: float | None = None,
    max_files: int | None = None,
    oldest: float | None = None,
) -> list[CaptureFile]:
    """Remove the oldest files until the limits are kept; return those that are left, oldest first."""
    files = sorted(files, key=lambda file: file.changed)
    size, count = size_of(files), len(files)
    left = []
    for file in files:
        exceeds = (
            (max_mb is not None and size > max_mb * MB)
            or (max_files is not None and count > max_files)
            or (oldest is not None and file.changed < oldest)
        )
        if exceeds and file.removable and _remove(file):
            size -= file.size
            count -= 1
        else:
            left.append(file)
    return left


def _remove(file: CaptureFile) -> bool:
    path = file.series.path.with_name(file.name)
    try:
        with file.series.directory() as directory:
            directory.remove(file.name)
    except (Forbidden, OSError) as error:
        _log.warning("%s cannot be removed: %s", path, error)
        return False
    _log.info("removed the old capture %s", path)
    return True
