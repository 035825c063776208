"""Folders of skills, loaded, and loaded again where their files change."""

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import cache_from_source
from itertools import islice
from pathlib import Path
from typing import Final

from agent_core.skills.loading.exposure import LoadedSkill, LoadProblem, sentence_problems_of
from agent_core.skills.loading.loader import (
    ContextFactory,
    LoadedSkills,
    holds_skills,
    is_isolated,
    is_skill,
    load_into,
)
from contracts.devices.registration import Unavailable

_MOST_FILES: Final = 1_000
"""Files of one skill that are looked at for changes."""
_OTHERS: Final = ("__pycache__", "node_modules", "site-packages", "tests")

GOES_ON: Final = "not loaded, and {} goes on as before"

Stamp = Mapping[str, tuple[int, int]]
"""Time of change and size of each Python file of a skill, by path."""


@dataclass
class _Entry:
    """A file or folder as it was loaded last; it keeps the skills of its last good version."""

    stamp: Stamp
    found: LoadedSkills
    replaced: set[str]


@dataclass(frozen=True)
class Changes:
    """What is different after the folders were loaded again.

    Attributes:
        put: Skills that are new, or take the place of the one of their name.
        removed: Names of skills that are no more.
        problems: What is wrong now and was not before.
    """

    put: list[LoadedSkill]
    removed: list[str]
    problems: list[LoadProblem]


class SkillFolders:
    """The skills of some folders. A name that two define belongs to the first.

    Its methods read files and run the code of skills, so they block.

    Args:
        samples: Returns files and folders that come last; asked each time. A skill takes the place of a
            sample of its name.
        make_context: Called for each class that inherits from ``Skill``, before its constructor.
    """

    def __init__(
        self,
        directories: Iterable[Path],
        *,
        samples: Callable[[], Sequence[Path]] = tuple,
        make_context: ContextFactory,
    ) -> None:
        self._directories = tuple(directories)
        self._samples = samples
        self._make_context = make_context
        self._entries: dict[Path, _Entry] = {}
        self._seen: dict[Path, Stamp] = {}
        self.found = LoadedSkills([], [])

    def has_changed(self) -> bool:
        """Return whether files have changed since they were loaded, and rest since this was last asked."""
        before, self._seen = self._seen, self._stamps()
        loaded = {path: entry.stamp for path, entry in self._entries.items()}
        return self._seen == before and self._seen != loaded

    def load(self) -> Changes:
        """Load what is new or has changed, at first everything.

        Where the present version of a skill does not load, the last good one stays.
        """
        importlib.invalidate_caches()
        before, old = self._entries, self.found
        stamps = self._stamps()
        due = {path for path, stamp in stamps.items() if path not in before or before[path].stamp != stamp}
        # A name that another file had may be free now.
        free = {
            each.name
            for path in before
            if path in due or path not in stamps
            for each in before[path].found.skills
        }
        due |= {path for path in stamps if path in before and before[path].replaced & free}
        self._entries = {
            path: self._loaded(path, stamp, before.get(path)) if path in due else before[path]
            for path, stamp in stamps.items()
        }
        self.found = self._resolved()
        known = {id(skill) for skill in old.skills}
        return Changes(
            [skill for skill in self.found.skills if id(skill) not in known],
            sorted({skill.name for skill in old.skills} - {skill.name for skill in self.found.skills}),
            [problem for problem in self.found.problems if problem not in old.problems],
        )

    def _loaded(self, path: Path, stamp: Stamp, before: _Entry | None) -> _Entry:
        for file in stamp if before is not None else ():
            # Python takes two versions for the same that were saved in one second with one size.
            with suppress(OSError, NotImplementedError):
                Path(cache_from_source(file)).unlink()
        found = LoadedSkills([], [])
        if is_isolated(path):
            found.isolated.append(path)
            return _Entry(stamp, found, set())
        declared = load_into(found, path, make_context=self._make_context)
        for skill in found.skills:
            found.problems.extend(sentence_problems_of(skill, str(path)))
        loaded = {skill.name for skill in found.skills}
        last_good = [
            skill
            for skill in (before.found.skills if before is not None else ())
            if skill.name not in loaded and (not declared or skill.name in declared)
        ]
        for skill in last_good:
            why = found.unavailable.get(skill.name) or next(iter(found.unavailable.values()), None)
            reason = why.reason if why is not None else ""
            found.outdated[skill.name] = Unavailable(kind="saved", reason=reason)
        if last_good:
            found.skills.extend(last_good)
            what = GOES_ON.format(", ".join(each.name for each in last_good))
            found.problems[:] = [replace(each, what=what) for each in found.problems]
        return _Entry(stamp, found, set())

    def _resolved(self) -> LoadedSkills:
        """Return what is offered: of each name the first skill."""
        found = LoadedSkills([], [])
        origins: dict[str, Path] = {}
        samples = self._samples()
        for directory in self._directories:
            if not directory.is_dir():
                found.problems.append(LoadProblem(str(directory), "there is no such folder"))
        for path, entry in self._entries.items():
            found.problems.extend(entry.found.problems)
            found.isolated.extend(entry.found.isolated)
            found.outdated.update(entry.found.outdated)
            entry.replaced = {skill.name for skill in entry.found.skills if skill.name in origins}
            for skill in entry.found.skills:
                if skill.name not in origins:
                    origins[skill.name] = path
                    found.skills.append(skill)
                elif path in samples:
                    message = f"{skill.name} of {origins[skill.name]} takes its place"
                    found.problems.append(LoadProblem(str(path), message, what="sample left out"))
                else:
                    message = f"{skill.name} is there already, from {origins[skill.name]}"
                    found.problems.append(LoadProblem(str(path), message, "give one of them another name"))
        for entry in self._entries.values():
            for name, why in entry.found.unavailable.items():
                found.refuse([name], why)
        return found

    def _stamps(self) -> dict[Path, Stamp]:
        entries = [
            entry
            for directory in self._directories
            if directory.is_dir()
            for entry in sorted(directory.iterdir())
            if holds_skills(entry)
        ]
        return {entry: stamp_of(entry) for entry in (*entries, *self._samples())}


def folders_at(path: Path, *, make_context: ContextFactory) -> SkillFolders:
    """Return the skills of one file or folder, or those of a folder of several."""
    if is_skill(path):
        return SkillFolders((), samples=lambda: [path], make_context=make_context)
    return SkillFolders([path], make_context=make_context)


def stamp_of(entry: Path) -> Stamp:
    """Return what tells whether a skill has changed."""
    stamp = {}
    for file in islice(_files(entry), _MOST_FILES):
        with suppress(OSError):
            status = Path(file).stat()
            stamp[file] = (status.st_mtime_ns, status.st_size)
    return stamp


def _files(entry: Path) -> Iterator[str]:
    if entry.is_file():
        yield str(entry)
    for folder, folders, files in os.walk(entry):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _OTHERS]
        for name in files:
            if name.endswith(".py") and not name.startswith("test_") and name != "conftest.py":
                yield f"{folder}{os.sep}{name}"
