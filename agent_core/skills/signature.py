"""Signatures as text that a person, and a model, can read."""

import enum
import inspect
import types
from collections.abc import Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin

EMPTY: Final = inspect.Parameter.empty


def signature_text(name: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> str:
    """Write a signature as Python does, without the modules that types live in.

    Args:
        name: The method's name.
        signature: Its parameters, without ``self``.
        hints: Resolved annotations by parameter; ``return`` for the result.

    Returns:
        For example ``set_volume(level: int = 30, *, player: str | None = None) -> None``.
    """
    parts: list[str] = []
    previous: Any = None
    for parameter in signature.parameters.values():
        if previous is not None and previous == inspect.Parameter.POSITIONAL_ONLY != parameter.kind:
            parts.append("/")
        if parameter.kind == inspect.Parameter.KEYWORD_ONLY != previous:
            parts.append("*")
        parts.append(_parameter_text(parameter, hints))
        previous = parameter.kind
    if previous == inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    returns = f" -> {type_text(hints['return'])}" if "return" in hints else ""
    return f"{name}({', '.join(parts)}){returns}"


def _parameter_text(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> str:
    text = parameter.name
    if parameter.name in hints:
        text += f": {type_text(hints[parameter.name])}"
    if parameter.default is not EMPTY:
        equals = " = " if parameter.name in hints else "="
        text += f"{equals}{_default_text(parameter.default)}"
    return text


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
