"""What skills return and publish, as JSON.

Dataclasses and pydantic models become objects; enums their values; dates, times and durations ISO 8601
text; tuples and sets lists; ``Decimal``, ``Path`` and ``UUID`` text. ``bytes`` become URL-safe base64 text,
and a parameter of type ``bytes`` takes that text back. Numbers that JSON does not have (NaN, infinities)
become null.
"""

import re
from collections.abc import Callable
from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticSerializationError, to_jsonable_python
from pydantic_core import to_json as encode_json

from contracts.errors import CallError, ErrorCode
from contracts.names import SkillName, Token
from contracts.wire import Json


@dataclass(frozen=True)
class Publication:
    """A state of a skill, the end of one, or an event.

    Attributes:
        kind: A ``state`` is retained until the next one, or until it is cleared; an ``event`` is not.
    """

    kind: Literal["state", "clear", "event"]
    skill: SkillName
    name: Token
    value: Json = None
    unit: Annotated[str, Field(max_length=64)] | None = None
    device_class: Annotated[str, Field(max_length=64)] | None = None


SkillSink = Callable[[Publication], None]
"""Publishes what skills say. Called from any thread; it neither blocks nor raises for a bus that is away."""

MAX_RESULT_BYTES: Final = 256 * 1024
"""What one result may have: well below the packet limit of the brokers (1 MiB), and far more than a
program in the sandbox can show a model."""


def to_json(value: object, *, max_bytes: int = MAX_RESULT_BYTES, what: str = "the value") -> Json:
    """Convert a Python value to a JSON value.

    Args:
        value: What a skill returned, yielded or published.
        max_bytes: Refuse what is longer as JSON text.
        what: How an error names the value.

    Raises:
        CallError: ``skill_error`` if it holds something that JSON cannot express, ``too_large``.
    """
    try:
        plain = to_jsonable_python(
            value, by_alias=True, bytes_mode="base64", inf_nan_mode="null", timedelta_mode="iso8601"
        )
        text = encode_json(plain)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise CallError(
            ErrorCode.SKILL_ERROR,
            f"{what} cannot be sent: {_reason(error)}",
            hint="return plain data, a dataclass or a pydantic model",
        ) from error
    if len(text) > max_bytes:
        raise CallError(
            ErrorCode.TOO_LARGE,
            f"{what} has {len(text):,} bytes, more than the {max_bytes:,} that can be sent",
            hint="ask for less, or in parts",
        )
    return plain


def _reason(error: Exception) -> str:
    """Return what JSON cannot express, in our words."""
    if isinstance(error, RecursionError) or "ircular" in str(error):
        return "it contains itself"
    unknown = re.search(r"<class '([\w.]+)'>", str(error))
    if unknown is None:
        return "it holds what JSON cannot express"
    return f"it holds a value of type {unknown[1].rpartition('.')[2]}"
