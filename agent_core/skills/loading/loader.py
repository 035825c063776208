"""The loader of skills: folders searched for them, and their files imported.

Each of these is a skill, in any of the folders given::

    skills/lamp.py
    skills/Lamp/__init__.py
    skills/Lamp/lamp.py         also skills/LampSkill/lamp_skill.py
    skills/Lamp/skill.py
    skills/Lamp/main.py
    skills/strawberry-lamp/lamp.py      any file that defines a skill, where none is called so

Names that begin with ``_`` or ``.`` are left alone, so helpers may lie beside skills. A file may hold
several skills. What is broken is reported, and everything else loads.
"""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

from agent_core.skills.availability import explained, unavailable
from agent_core.skills.loading.exposure import LoadedSkill, LoadProblem, expose
from agent_core.skills.skill import Skill, SkillContext, attach
from agent_core.skills.skill_loop import SkillLoop
from contracts.devices.registration import Unavailable
from contracts.errors import ConfigError
from contracts.names import HUB_SKILLS

_CLASS: Final = re.compile(r"^class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?", re.MULTILINE)
_MOST_DECLARED: Final = 20
REQUIREMENTS: Final = ("requirements.txt", "pyproject.toml")
"""Files of a skill's folder that name its packages."""
_CLASS_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")

_T = TypeVar("_T")

ContextFactory = Callable[[str], SkillContext]
"""Makes the context of a skill from the name of its class."""


@dataclass(frozen=True)
class LoadedSkills:
    """What the folders gave.

    Attributes:
        skills: In the order of the folders, then by name of their files.
        problems: What did not load.
        unavailable: By name of a skill that did not load, what is registered of it.
        outdated: By name of a skill whose last good version stays, why the saved one does not load.
        isolated: Files and folders that run in a process of their own; they are not imported here.
    """

    skills: list[LoadedSkill]
    problems: list[LoadProblem]
    unavailable: dict[str, Unavailable] = field(default_factory=dict)
    outdated: dict[str, Unavailable] = field(default_factory=dict)
    isolated: list[Path] = field(default_factory=list)

    def refuse(self, names: Iterable[str], why: Unavailable) -> None:
        """Register skills as unavailable, unless another file provides one of their name."""
        there = {skill.name for skill in self.skills}
        for name in names:
            if name not in there and name not in HUB_SKILLS:
                self.unavailable[name] = why


def load_into(found: LoadedSkills, entry: Path, *, make_context: ContextFactory) -> list[str] | None:
    """Load the skills of one file or folder; return the names of its classes, None if its import fails.

    Their sentences are not looked at.
    """
    try:
        owners = _classes(entry.resolve())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an import runs the author's code
        found.problems.append(LoadProblem(str(entry), explained(error, entry)))
        found.refuse(declared_skills(entry), unavailable("load", error, folder=entry))
        return None
    if not owners:
        hint = "a skill inherits from Skill, or its name ends in Skill; '_' in front hides a helper"
        found.problems.append(LoadProblem(str(entry), "defines no skill", hint))
        found.refuse(declared_skills(entry), unavailable("load", f"{entry.name} defines no skill; {hint}"))
    for owner in owners:
        _add(found, owner, entry, make_context=make_context)
    return [owner.__name__ for owner in owners]


def load_entry(entry: Path, *, make_context: ContextFactory) -> LoadedSkills:
    """Load the skills of one file or folder; their sentences are not looked at."""
    found = LoadedSkills([], [])
    load_into(found, entry, make_context=make_context)
    return found


def is_isolated(entry: Path) -> bool:
    """Return whether an entry declares packages of its own and therefore runs in a process of its own."""
    return any((entry / name).is_file() for name in REQUIREMENTS)


def _add(found: LoadedSkills, owner: type, entry: Path, *, make_context: ContextFactory) -> None:
    name, path = owner.__name__, str(entry)
    if not _CLASS_NAME.match(name):
        hint = "letters, digits and '_', at most 64, a letter first"
        found.problems.append(LoadProblem(path, f"{name} cannot be the name of a skill", hint))
        return
    if name in HUB_SKILLS:
        hint = "give the class another name"
        found.problems.append(LoadProblem(path, f"{name} is the name of a skill of the hub", hint))
        return
    try:
        if issubclass(owner, Skill) and not owner.can_run():
            return
        skill, problems = expose(instance_of(owner, make_context), source=path)
    except ConfigError as error:
        found.problems.append(LoadProblem(path, error.message, error.hint))
        found.refuse([name], unavailable("load", f"{entry.name}: {error.message}"))
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a constructor is the author's code
        found.problems.append(LoadProblem(path, f"{name}() failed: {explained(error, entry)}"))
        found.refuse([name], unavailable("load", error, folder=entry))
        return
    found.unavailable.pop(name, None)
    found.skills.append(replace(skill, loop=SkillLoop(f"skill {name}")))
    found.problems.extend(problems)


def instance_of(owner: type[_T], make_context: ContextFactory) -> _T:
    """Make an instance that has its folder and its sink already in its constructor."""
    if not issubclass(owner, Skill):
        return owner()
    # In two steps, so that a constructor has its folder without having to pass anything on.
    skill = owner.__new__(owner)
    attach(skill, make_context(owner.__name__))
    owner.__init__(skill)
    return skill


def declared_skills(entry: Path) -> list[str]:
    """Return the names of the skills that a file or folder seems to define, without importing it."""
    files = [entry] if entry.is_file() else sorted(entry.glob("*.py"))
    names = [name for file in files for name in _declared_in(file)]
    words = re.split(r"[^A-Za-z0-9]+", entry.stem)
    guess = "".join(word[:1].upper() + word[1:] for word in words).removesuffix("Skill") + "Skill"
    return [name for name in dict.fromkeys(names or [guess]) if _CLASS_NAME.match(name)][:_MOST_DECLARED]


def _declared_in(file: Path) -> list[str]:
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return []
    classes = _CLASS.findall(text)
    return [name for name, bases in classes if name.endswith("Skill") or re.search(r"\bSkill\b", bases)]


def holds_skills(entry: Path) -> bool:
    """Return whether a file or folder may define skills; tests beside a skill do not."""
    if entry.name.startswith(("_", ".", "test_")) or entry.name in ("conftest.py", "tests"):
        return False
    return any(entry.glob("*.py")) if entry.is_dir() else entry.suffix == ".py"


def import_file(file: Path) -> ModuleType:
    """Import a file by itself, as it is now. This runs its code, which may raise anything."""
    name = _module_name(file)
    _forget(name)
    importlib.invalidate_caches()
    try:
        return _executed(importlib.util.spec_from_file_location(name, file))
    except BaseException:
        _forget(name)
        raise


def _module_name(entry: Path) -> str:
    # The path is part of the name: two folders may both have a lamp.py.
    digest = hashlib.sha256(str(entry).encode()).hexdigest()[:12]
    return f"_skill_{digest}_{re.sub(r'[^A-Za-z0-9_]', '_', entry.stem)}"


def _classes(entry: Path) -> list[type]:
    """Import a file or a folder and return the skills it defines."""
    name = _module_name(entry)
    before = _forget(name)
    try:
        for module in _modules(entry, name):
            if owners := list(_skills_of(module, name)):
                return owners
    except BaseException:
        _forget(name)
        # What was loaded before goes on, and may import its own modules later.
        sys.modules.update(before)
        raise
    return []


def _modules(entry: Path, name: str) -> Iterator[ModuleType]:
    """Import the modules of an entry that may hold its skills, one by one, most likely first."""
    if entry.is_file():
        yield _executed(importlib.util.spec_from_file_location(name, entry))
        return
    init = entry / "__init__.py"
    if init.is_file():
        locations = [str(entry)]
        spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=locations)
        yield _executed(spec)
    else:
        package = ModuleSpec(name, None, is_package=True)
        package.submodule_search_locations = [str(entry)]
        sys.modules[name] = importlib.util.module_from_spec(package)
    wanted = _usual_stems(entry)
    present = {path.stem: path for path in sorted(entry.glob("*.py")) if holds_skills(path)}
    # The folder of a repository is rarely called like its file.
    wanted += [stem for stem, path in present.items() if _declared_in(path)]
    for stem in dict.fromkeys(wanted):
        if stem in present:
            yield importlib.import_module(f"{name}.{stem}")


def _usual_stems(entry: Path) -> list[str]:
    """Return how the module of a folder's skill may be called."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", entry.name).lower()
    return [entry.name, entry.name.lower(), snake, snake.removesuffix("_skill"), "skill", "main"]


def is_skill(path: Path) -> bool:
    """Return whether a path is a skill itself, and not a folder with several."""
    if path.is_file() or any((path / f"{stem}.py").is_file() for stem in _usual_stems(path)):
        return True
    init = path / "__init__.py"
    return init.is_file() and bool(_declared_in(init))


def _executed(spec: ModuleSpec | None) -> ModuleType:
    if spec is None or spec.loader is None:
        raise ImportError("it cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Relative imports, dataclasses and pickling look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _skills_of(module: ModuleType, name: str) -> Iterator[type]:
    classes = dict.fromkeys(value for value in vars(module).values() if isinstance(value, type))
    for value in classes:
        if value.__name__.startswith("_") or inspect.isabstract(value):
            continue
        is_own = value.__module__ == name or value.__module__.startswith(f"{name}.")
        if is_own and (issubclass(value, Skill) or value.__name__.endswith("Skill")):
            yield value


def _forget(name: str) -> dict[str, ModuleType]:
    names = [each for each in sys.modules if each == name or each.startswith(f"{name}.")]
    return {each: sys.modules.pop(each) for each in names}
