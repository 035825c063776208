"""Contracts of methods, made from signatures and type hints, and arguments read by them."""

import enum
import functools
import inspect
import types
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, Final, Literal, Optional, Union, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError
from pydantic_core import to_json as encode_json

from agent_core.schemas.arguments import bad_arguments, bind, secret_arguments, with_members
from agent_core.sentences.responses import BadResponse, check_response
from agent_core.skills.skill import MethodOptions
from contracts.devices.registration import Method
from contracts.errors import StrawberryError
from contracts.validation import explain
from contracts.wire import Json

_ADAPTER_CONFIG: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_EMPTY: Final = inspect.Parameter.empty
_TYPES_HINT: Final = "docs/skills.md of Strawberry lists the types"
_GENERATORS: Final = (Generator, Iterator, Iterable, AsyncGenerator, AsyncIterator, AsyncIterable)


class SchemaError(StrawberryError):
    """A method whose signature cannot be expressed as JSON."""


class _PlainJsonSchema(GenerateJsonSchema):
    """JSON Schema without titles: they repeat the names, and a model pays for each word."""

    def build_schema_type_to_method(self) -> dict[Any, Callable[[Any], dict[str, Any]]]:
        # pydantic derives this mapping for each schema again, which is slow.
        return {kind: getattr(self, name) for kind, name in _generator_methods().items()}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def enum_schema(self, schema: Any) -> dict[str, Any]:
        """Add the names of the members, which are accepted as well as the values."""
        made = super().enum_schema(schema)
        names = [member.name for member in schema["members"]]
        if len(made.get("enum", ())) == len(names) and made["enum"] != names:
            made["names"] = names
        return made

    def _update_class_schema(self, json_schema: dict[str, Any], cls: type[Any], config: Any) -> None:
        super()._update_class_schema(json_schema, cls, config)
        json_schema.pop("title", None)


@functools.cache
def _generator_methods() -> dict[Any, str]:
    """Return the name of the method that generates each kind of schema."""
    methods = GenerateJsonSchema().build_schema_type_to_method()
    return {kind: method.__name__ for kind, method in methods.items()}


@dataclass(frozen=True)
class MethodSchema:
    """A method's contract and the readers of its arguments.

    Attributes:
        contract: What is registered.
        adapters: How the value of each parameter is read.
        positional_only: Parameters that Python takes by position only, with their defaults.
    """

    contract: Method
    adapters: Mapping[str, TypeAdapter[Any]]
    positional_only: Mapping[str, Any]

    def coerce(self, args: Sequence[Json], kwargs: Mapping[str, Json]) -> tuple[list[Any], dict[str, Any]]:
        """Turn JSON arguments into the Python values that the method's hints ask for.

        Returns:
            Arguments by position and by name, ready for the call; defaults are left to the method.

        Raises:
            CallError: ``bad_arguments``, in one line that names the parameter.
        """
        bound = with_members(self.contract, bind(self.contract, args, kwargs))
        values = {name: self._read(name, value) for name, value in bound.items()}
        by_position: list[Any] = []
        if any(name in values for name in self.positional_only):
            # One that was left out before one that was given cannot be left to Python.
            by_position = [values.pop(name, default) for name, default in self.positional_only.items()]
        return by_position, values

    def _read(self, name: str, value: Json) -> Any:
        try:
            return self.adapters[name].validate_json(encode_json(value, inf_nan_mode="constants"))
        except ValidationError as error:
            is_shown = name not in secret_arguments(self.contract)
            message = explain(error, what="field", root=name, show_value=is_shown)
            # The error of pydantic quotes the value, too.
            raise bad_arguments(self.contract, message) from (error if is_shown else None)
        except PydanticSerializationError as error:
            raise bad_arguments(self.contract, f"{name} is no JSON value") from error


def method_schema(function: Callable[..., Any], name: str, options: MethodOptions) -> MethodSchema:
    """Read the contract of a method.

    A parameter without a hint takes any JSON value; a method without a return hint promises nothing.

    Args:
        function: The method, bound: its signature has no ``self``.
        name: The name under which it is offered.
        options: What the decorator says.

    Raises:
        SchemaError: It has ``*args`` or ``**kwargs``, or a hint that JSON cannot express.
    """
    signature = inspect.signature(function)
    hints = _hints(function)
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind == parameter.VAR_POSITIONAL else "**"
            raise SchemaError(
                f"{stars}{parameter.name} cannot be described", hint="name every parameter, or take a list"
            )
    adapters = {each: _adapter(each, hints.get(each, Any)) for each in signature.parameters}
    parameters = list(signature.parameters.values())
    schema = _object_schema(signature, adapters)
    defaults = {each: part["default"] for each, part in schema["properties"].items() if "default" in part}
    contract = Method(
        name=name,
        signature=signature_text(name, signature, hints, defaults)[:2_000],
        doc=(inspect.getdoc(function) or "")[:8_000],
        parameters=schema,
        positional=[each.name for each in parameters if each.kind != each.KEYWORD_ONLY],
        result=_result_schema(hints),
        flags=options.flags,
        timeout_ms=round(options.timeout_s * 1000),
        progress=inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function),
        sentences={language: list(templates) for language, templates in options.sentences.items()},
        responses=dict(options.responses),
    )
    for template in options.responses.values():
        try:
            check_response(template, contract)
        except BadResponse as error:
            raise SchemaError(
                error.message, hint="docs/skills.md of Strawberry lists what a response may hold"
            ) from None
    return MethodSchema(
        contract=contract,
        adapters=adapters,
        positional_only={each.name: each.default for each in parameters if each.kind == each.POSITIONAL_ONLY},
    )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except Exception as error:
        # A hint is an expression of the author's and may raise anything.
        raise SchemaError(f"a type hint cannot be resolved: {error}") from error


def _adapter(name: str, hint: Any) -> TypeAdapter[Any]:
    try:
        try:
            return TypeAdapter(hint, config=_ADAPTER_CONFIG)
        except PydanticUserError as error:
            if error.code != "type-adapter-config-unused":
                raise
            return TypeAdapter(hint)  # a model has its own configuration
    except (PydanticUserError, TypeError, NameError) as error:
        if getattr(error, "code", "") == "typed-dict-version":
            raise SchemaError(
                f"{name}: before Python 3.12 it must be a typing_extensions.TypedDict"
            ) from error
        raise SchemaError(f"{name}: its type cannot be expressed as JSON", hint=_TYPES_HINT) from error


def _object_schema(signature: inspect.Signature, adapters: Mapping[str, TypeAdapter[Any]]) -> dict[str, Json]:
    try:
        schemas, shared = TypeAdapter.json_schemas(
            [(name, "validation", adapter) for name, adapter in adapters.items()],
            schema_generator=_PlainJsonSchema,
        )
    except PydanticUserError as error:
        raise SchemaError("a parameter cannot be expressed as JSON", hint=_TYPES_HINT) from error
    properties: dict[str, Json] = {}
    for name, parameter in signature.parameters.items():
        properties[name] = dict(schemas[name, "validation"])
        if parameter.default is not _EMPTY:
            try:
                properties[name]["default"] = adapters[name].dump_python(
                    parameter.default, mode="json", warnings="error"
                )
            except (PydanticSerializationError, UnicodeDecodeError):
                # A default that its own hint does not cover still works in Python; it is just not shown.
                continue
    required = [name for name, each in signature.parameters.items() if each.default is _EMPTY]
    schema: dict[str, Json] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    if "$defs" in shared:
        schema["$defs"] = shared["$defs"]
    return schema


def _result_schema(hints: Mapping[str, Any]) -> dict[str, Json] | None:
    if "return" not in hints:
        return None
    hint = _result_hint(hints["return"])
    if hint is Any:
        return None
    adapter = _adapter("the result", hint)
    try:
        return adapter.json_schema(mode="serialization", schema_generator=_PlainJsonSchema)
    except PydanticUserError as error:
        raise SchemaError("the result cannot be expressed as JSON", hint=_TYPES_HINT) from error


def _result_hint(hint: Any) -> Any:
    """Return the type of a call's result: for a generator what it returns, else what it yields last."""
    if get_origin(hint) not in _GENERATORS:
        return hint
    arguments = get_args(hint)
    if len(arguments) == 3 and arguments[2] not in (None, type(None)):
        return arguments[2]
    # It may have yielded nothing at all.
    return Optional[arguments[0]]  # noqa: UP045 - built at run time, from any type


def signature_text(
    name: str,
    signature: inspect.Signature,
    hints: Mapping[str, Any],
    defaults: Mapping[str, Json] | None = None,
) -> str:
    """Write a signature as Python does, without the modules that types live in.

    Args:
        name: The method's name.
        signature: Its parameters, without ``self``.
        hints: Resolved annotations by parameter; ``return`` for the result.
        defaults: Defaults as a caller would give them, where that is another way than Python's.

    Returns:
        For example ``set_volume(level: int = 30, *, player: str | None = None) -> None``.
    """
    shown = [
        each.replace(
            annotation=_Shown(type_text(hints[each.name])) if each.name in hints else _EMPTY,
            default=_EMPTY if each.default is _EMPTY else _Shown(_default_text(_given(each, defaults or {}))),
        )
        for each in signature.parameters.values()
    ]
    returns = _Shown(type_text(hints["return"])) if "return" in hints else _EMPTY
    return f"{name}{inspect.Signature(shown, return_annotation=returns)}"


@dataclass(frozen=True)
class _Shown:
    text: str

    def __repr__(self) -> str:
        return self.text


def _given(parameter: inspect.Parameter, defaults: Mapping[str, Json]) -> object:
    """Return a default as a caller would give it."""
    default = parameter.default
    is_member = isinstance(default, enum.Enum) and not isinstance(default, str)
    return default.name if is_member else defaults.get(parameter.name, default)


def type_text(hint: Any) -> str:
    """Write a type without its module: ``list[Song]``, ``Literal['on', 'off']``, ``int | None``."""
    if hint is None or hint is type(None):
        return "None"
    if hint is Ellipsis:
        return "..."
    if isinstance(hint, list):
        return f"[{', '.join(map(type_text, hint))}]"
    if hasattr(hint, "__metadata__"):
        return type_text(hint.__origin__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union or origin is types.UnionType:
        return " | ".join(map(type_text, arguments))
    if origin is Literal:
        return f"Literal[{', '.join(map(_default_text, arguments))}]"
    name = getattr(origin or hint, "__name__", None) or str(hint).rpartition(".")[2]
    return f"{name}[{', '.join(map(type_text, arguments))}]" if arguments else str(name)


def _default_text(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple, set, frozenset, dict)) and len(repr(value)) <= 60:
        return repr(value)
    return "..."
