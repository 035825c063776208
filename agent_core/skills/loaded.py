"""A skill that is ready to be offered: its instance, its methods and what is registered of them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from agent_core.skills.schema import MethodSchema, SchemaError, method_schema
from agent_core.skills.skill import FRAMEWORK_NAMES, HOOKS, Skill, options_of
from contracts.errors import ConfigError
from contracts.registration import MAX_METHODS, Method, Registration
from contracts.validation import explain


@dataclass(frozen=True)
class LoadProblem:
    """Something of a skill that could not be loaded; everything else was.

    Attributes:
        path: The file, or the file and the method.
        message: One line: what is wrong.
        hint: What to do about it; may be empty.
    """

    path: str
    message: str
    hint: str = ""


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
        """What is registered of it."""
        return self.schema.contract


@dataclass(frozen=True)
class LoadedSkill:
    """A skill that can be called.

    Attributes:
        name: The name of its class.
        instance: The one instance.
        methods: What is offered, by name.
        registration: What is told to the hub.
        concurrency: How many calls of it run at the same time.
    """

    name: str
    instance: object
    methods: Mapping[str, LoadedMethod]
    registration: Registration
    concurrency: int


def expose(instance: object, *, source: str = "") -> tuple[LoadedSkill, list[LoadProblem]]:
    """Read what an instance offers.

    Offered is each public method that its class itself defines; methods of base classes are not. A method
    that cannot be described is a problem of its own, and the others are offered.

    Args:
        instance: A skill; it need not inherit from ``Skill``.
        source: The file it comes from, for the problems.

    Returns:
        The skill, and what of it is not offered.

    Raises:
        ConfigError: It offers no method, or more than a registration may hold, or its attributes are wrong.
    """
    owner = type(instance)
    methods: dict[str, LoadedMethod] = {}
    problems: list[LoadProblem] = []
    for name, member in vars(owner).items():
        if not _is_offered(owner, name, member):
            continue
        where = f"{source}: {owner.__name__}.{name}" if source else f"{owner.__name__}.{name}"
        if issubclass(owner, Skill) and name in FRAMEWORK_NAMES:
            problems.append(LoadProblem(where, f"hides Skill.{name}", "give the method another name"))
            continue
        options = options_of(owner, name)
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
    if not methods:
        reason = f" ({problems[0].message})" if problems else ""
        raise ConfigError(f"{owner.__name__} offers no method{reason}", hint="write a public method in it")
    if len(methods) > MAX_METHODS:
        raise ConfigError(
            f"{owner.__name__} has {len(methods)} methods, more than {MAX_METHODS}", hint="split it"
        )
    return _loaded(instance, methods), problems


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
            methods=[method.contract for method in methods.values()],
        )
    except ValidationError as error:
        reason = explain(error, Registration, what="field")
        raise ConfigError(f"{owner.__name__} cannot be registered: {reason}") from error
    return LoadedSkill(owner.__name__, instance, dict(methods), registration, concurrency)


def _is_offered(owner: type, name: str, member: object) -> bool:
    if name.startswith("_") or isinstance(member, type):
        return False
    if issubclass(owner, Skill) and name in HOOKS:
        return False
    # What binds to an instance and can be called is a method, also under a decorator such as lru_cache.
    return isinstance(member, (staticmethod, classmethod)) or (
        callable(member) and hasattr(member, "__get__")
    )
