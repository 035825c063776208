"""The loader of skills: instances read for what they offer, and folders searched for them.

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, ValidationError

from agent_core import limits
from agent_core.skills.availability import explained, unavailable
from agent_core.skills.schema import MethodSchema, SchemaError, method_schema
from agent_core.skills.skill import (
    FRAMEWORK_NAMES,
    HOOKS,
    MethodOptions,
    Skill,
    SkillContext,
    Trigger,
    attach,
    options_of,
    triggered,
    triggers_of,
)
from agent_core.skills.skill_loop import SkillLoop
from contracts.devices.registration import MAX_METHODS, Method, MethodFlags, Registration, Unavailable
from contracts.errors import ConfigError
from contracts.names import HUB_SKILLS
from contracts.validation import explain

_HOOK: Final = ("(self)", "(self) -> None", "(self) -> 'None'")
_READ: Final = MethodOptions(MethodFlags(read_only=True))
_CHANGE: Final = MethodOptions(MethodFlags(idempotent=True, confirm=True))
_CLASS: Final = re.compile(r"^class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?", re.MULTILINE)
_MOST_DECLARED: Final = 20
REQUIREMENTS: Final = ("requirements.txt", "pyproject.toml")
"""Files of a skill's folder that name its packages."""
_CLASS_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")

_T = TypeVar("_T")

ContextFactory = Callable[[str], SkillContext]
"""Makes the context of a skill from the name of its class."""


@dataclass(frozen=True)
class LoadProblem:
    """Something of a skill that could not be loaded; everything else was.

    Attributes:
        path: The file, or the file and the method.
        message: One line: what is wrong.
        hint: What to do about it; may be empty.
        what: What came of it.
    """

    path: str
    message: str
    hint: str = ""
    what: str = "not loaded"


@dataclass(frozen=True)
class LoadedMethod:
    """A method that can be called.

    Attributes:
        schema: Its contract, and how its arguments are read.
        function: The method, bound to its skill.
        concurrency: How many calls of it run at the same time; None leaves it to the skill.
    """

    schema: MethodSchema
    function: Callable[..., Any]
    concurrency: int | None

    @property
    def contract(self) -> Method:
        return self.schema.contract

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function)


@dataclass(frozen=True)
class LoadedSkill:
    """A skill that can be called.

    Attributes:
        name: The name of its class.
        instance: The one instance.
        methods: What is offered, by name.
        registration: What is registered at the hub.
        concurrency: How many calls of it run at the same time.
        triggers: What runs by itself.
        loop: Where its coroutines run; None for the loop of the caller.
    """

    name: str
    instance: object
    methods: Mapping[str, LoadedMethod]
    registration: Registration
    concurrency: int
    triggers: tuple[tuple[Trigger, LoadedMethod], ...] = ()
    loop: SkillLoop | None = field(default=None, compare=False)


def expose(instance: object, *, source: str = "") -> tuple[LoadedSkill, list[LoadProblem]]:
    """Read what an instance offers.

    Offered is each public method that its class itself defines; methods of base classes are not. A method
    that cannot be described is a problem of its own, and the others are offered. Sentences are not looked at.

    Args:
        instance: A skill; it need not inherit from ``Skill``.
        source: The file it comes from, for the problems.

    Returns:
        The skill, and what of it is not offered.

    Raises:
        ConfigError: It offers no method, or more than a registration may hold, or its attributes or its hooks
            are wrong.
    """
    owner = type(instance)
    if issubclass(owner, Skill):
        _check_hooks(owner)
    methods: dict[str, LoadedMethod] = {}
    if isinstance(instance, Skill) and instance.Settings is not None:
        for name, (described, function) in _settings_methods(instance).items():
            methods[name] = LoadedMethod(described, function, None)
    problems: list[LoadProblem] = []
    for name, member in vars(owner).items():
        if not _is_offered(owner, name, member):
            continue
        where = f"{source}: {owner.__name__}.{name}" if source else f"{owner.__name__}.{name}"
        if name in methods or (issubclass(owner, Skill) and name in FRAMEWORK_NAMES):
            problems.append(LoadProblem(where, f"hides Skill.{name}", "give the method another name"))
            continue
        options = options_of(owner, name)
        if options.flags.unknown and triggers_of(member):
            continue  # it runs by itself, and nobody said that it may be called, too
        function = getattr(instance, name)
        try:
            schema = method_schema(function, name, options)
        except SchemaError as error:
            problems.append(LoadProblem(where, error.message, error.hint))
        except ValidationError as error:
            problems.append(LoadProblem(where, explain(error, Method, what="field")))
        except (ValueError, TypeError) as error:
            problems.append(LoadProblem(where, str(error).partition("\n")[0]))
        else:
            methods[name] = LoadedMethod(schema, function, options.concurrency)
    triggers = _triggers(instance, source, problems)
    if not methods and not triggers:
        reason = f" ({problems[0].message})" if problems else ""
        raise ConfigError(f"{owner.__name__} has no public method{reason}", hint="add a public method")
    if len(methods) > MAX_METHODS:
        raise ConfigError(
            f"{owner.__name__} has {len(methods)} methods, more than {MAX_METHODS}", hint="split it"
        )
    skill = replace(_loaded(instance, methods), triggers=triggers)
    if problems:
        left_out = "; ".join(f"{each.path.rpartition('.')[2]}: {each.message}" for each in problems)
        part = unavailable("part", left_out)
        skill = replace(skill, registration=skill.registration.model_copy(update={"unavailable": part}))
    return skill, problems


def _triggers(
    instance: object, source: str, problems: list[LoadProblem]
) -> tuple[tuple[Trigger, LoadedMethod], ...]:
    found: list[tuple[Trigger, LoadedMethod]] = []
    for name, triggers in triggered(type(instance)):
        function, message, hint = getattr(instance, name), "", ""
        try:
            schema = method_schema(function, name.strip("_") or "run", options_of(type(instance), name))
        except SchemaError as error:
            message, hint = error.message, error.hint
        else:
            if len(schema.contract.parameters.get("required", ())) > all(each.source for each in triggers):
                message = "it needs more arguments than it is given"
        if message:
            where = f"{source}: {type(instance).__name__}.{name}" if source else name
            problems.append(LoadProblem(where, message, hint, "does not run"))
        else:
            found += ((trigger, LoadedMethod(schema, function, 1)) for trigger in triggers)
    return tuple(found[: limits.MOST_TRIGGERS])


def _loaded(instance: object, methods: Mapping[str, LoadedMethod]) -> LoadedSkill:
    owner = type(instance)
    concurrency = getattr(instance, "concurrency", Skill.concurrency)
    if not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigError(f"{owner.__name__}.concurrency is a number of at least 1, not {concurrency!r}")
    try:
        registration = Registration(
            skill=owner.__name__,
            doc=inspect.cleandoc(owner.__doc__ or "")[:8_000],
            device_agnostic=getattr(instance, "device_agnostic", False),
            area=getattr(instance, "area", None),
            uses=list(owner.uses) if issubclass(owner, Skill) else [],
            thing=owner.kind if issubclass(owner, Skill) else None,
            labels=getattr(owner, "labels", {}) if issubclass(owner, Skill) else {},
            methods=[method.contract for method in methods.values()],
            homeassistant=getattr(instance, "homeassistant", {}),
        )
    except ValidationError as error:
        reason = explain(error, Registration, what="field")
        raise ConfigError(f"{owner.__name__} cannot be registered: {reason}") from error
    return LoadedSkill(owner.__name__, instance, dict(methods), registration, concurrency)


def _check_hooks(owner: type[Skill]) -> None:
    """Refuse methods that would run at the start and the end of the skill without being meant for it.

    Blinds that have ``open`` and ``close`` would close whenever their device stops.
    """
    for name, when in (("setup", "starts"), ("close", "stops")):
        hook = getattr(owner, name)
        if not inspect.iscoroutinefunction(hook) or str(inspect.signature(hook)) not in _HOOK:
            raise ConfigError(
                f"{owner.__name__}.{name} would run when the skill {when}",
                hint=f"rename it, or make it `async def {name}(self) -> None`",
            )


def _is_offered(owner: type, name: str, member: object) -> bool:
    if name.startswith("_") or isinstance(member, type):
        return False
    if issubclass(owner, Skill) and name in HOOKS:
        return False
    # What binds to an instance and can be called is a method, also under a decorator such as lru_cache.
    return isinstance(member, (staticmethod, classmethod)) or (
        callable(member) and hasattr(member, "__get__")
    )


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
    """Return whether an entry names packages of its own, and so runs in a process of its own."""
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


def sentence_problems_of(skill: LoadedSkill, source: str) -> Iterator[LoadProblem]:
    """Yield what of the sentences of a skill cannot be used."""
    for name, method in skill.methods.items():
        if method.contract.sentences:
            # A spoke without sentences loads nothing that reads them.
            from agent_core.sentences.templates import sentence_problems

            for message in sentence_problems(method.contract):
                yield LoadProblem(
                    f"{source}: {skill.name}.{name}",
                    f"the sentence {message}",
                    "the method works without it",
                    "not used",
                )


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


def _settings_methods(skill: Skill) -> dict[str, tuple[MethodSchema, Callable[..., Any]]]:
    """Make the methods of a skill that declares settings; none for another.

    Raises:
        SchemaError: A field cannot be expressed as JSON.
    """
    model, stored = skill.Settings, skill.stored_settings
    if model is None or stored is None:
        return {}

    def get_settings() -> Any:
        """Return the settings of this skill."""
        return stored.shown

    def change_settings(**given: Any) -> Any:
        """Change settings of this skill; what is left out stays as it is."""
        return stored.change(given)

    get_settings.__annotations__ = {"return": model}
    hints = {
        name: Annotated[field.annotation, *field.metadata, Field(description=field.description)]
        for name, field in model.model_fields.items()
    }
    change_settings.__annotations__ = {**hints, "return": model}
    change_settings.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty
                if field.is_required()
                else field.get_default(call_default_factory=True),
            )
            for name, field in model.model_fields.items()
        ]
    )
    return {
        "get_settings": (_partial(method_schema(get_settings, "get_settings", _READ)), get_settings),
        "change_settings": (
            _partial(method_schema(change_settings, "change_settings", _CHANGE)),
            change_settings,
        ),
    }


def _partial(schema: MethodSchema) -> MethodSchema:
    """Let a method take and return some of its fields: those that are needed may be set one by one."""
    kept = {
        name: {key: each for key, each in (part or {}).items() if key != "required"}
        for name, part in (("parameters", schema.contract.parameters), ("result", schema.contract.result))
    }
    return replace(schema, contract=schema.contract.model_copy(update=kept))
