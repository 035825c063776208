"""What an instance of a skill offers: its methods, what runs by itself, and its settings."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from agent_core import limits
from agent_core.skills.availability import unavailable
from agent_core.skills.schema import MethodSchema, SchemaError, method_schema
from agent_core.skills.skill import (
    FRAMEWORK_NAMES,
    HOOKS,
    MethodOptions,
    Skill,
    Trigger,
    options_of,
    triggered,
    triggers_of,
)
from agent_core.skills.skill_loop import SkillLoop
from contracts.devices.registration import MAX_METHODS, Method, MethodFlags, Registration, Unavailable
from contracts.errors import ConfigError
from contracts.validation import explain

_HOOK: Final = ("(self)", "(self) -> None", "(self) -> 'None'")
_READ: Final = MethodOptions(MethodFlags(read_only=True))
_CHANGE: Final = MethodOptions(MethodFlags(idempotent=True, confirm=True))


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
    methods = _settings_methods(instance) if isinstance(instance, Skill) else {}
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
            continue  # it runs by itself and is not declared as callable
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
    left_out = "; ".join(f"{each.path.rpartition('.')[2]}: {each.message}" for each in problems)
    registration = _registration(instance, methods, unavailable("part", left_out) if problems else None)
    concurrency = getattr(instance, "concurrency", Skill.concurrency)
    if not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigError(f"{owner.__name__}.concurrency is a number of at least 1, not {concurrency!r}")
    return LoadedSkill(owner.__name__, instance, methods, registration, concurrency, triggers), problems


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


def _registration(
    instance: object, methods: Mapping[str, LoadedMethod], why: Unavailable | None
) -> Registration:
    owner = type(instance)
    try:
        return Registration(
            skill=owner.__name__,
            doc=inspect.cleandoc(owner.__doc__ or "")[:8_000],
            device_agnostic=getattr(instance, "device_agnostic", False),
            area=getattr(instance, "area", None),
            uses=list(owner.uses) if issubclass(owner, Skill) else [],
            thing=owner.kind if issubclass(owner, Skill) else None,
            labels=getattr(owner, "labels", {}) if issubclass(owner, Skill) else {},
            methods=[method.contract for method in methods.values()],
            homeassistant=getattr(instance, "homeassistant", {}),
            unavailable=why,
        )
    except ValidationError as error:
        reason = explain(error, Registration, what="field")
        raise ConfigError(f"{owner.__name__} cannot be registered: {reason}") from error


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


def _settings_methods(skill: Skill) -> dict[str, LoadedMethod]:
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
        name: LoadedMethod(_partial(method_schema(function, name, options)), function, None)
        for name, function, options in (
            ("get_settings", get_settings, _READ),
            ("change_settings", change_settings, _CHANGE),
        )
    }


def _partial(schema: MethodSchema) -> MethodSchema:
    """Return a method's schema with all its fields optional: required settings may be set one by one."""
    kept = {
        name: {key: each for key, each in (part or {}).items() if key != "required"}
        for name, part in (("parameters", schema.contract.parameters), ("result", schema.contract.result))
    }
    return replace(schema, contract=schema.contract.model_copy(update=kept))
