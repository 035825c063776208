"""The base of every message: frozen, versioned, tolerant of fields it does not know."""

import hashlib
import json
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from contracts import WIRE_VERSION
from contracts.errors import Conflict
from contracts.phrases import Phrase, read_phrases, with_phrases

Json = Any
"""A JSON value: null, bool, number, string, list, or object with string keys."""


def rfc3339(moment: datetime) -> str:
    """Format a moment as RFC 3339 in UTC with milliseconds, as all times on the wire are."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Counter = Annotated[int, Field(ge=0, lt=2**53)]
"""A count that every JSON reader and every database keeps exact."""


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("no calendar has this moment in UTC") from None


Timestamp = Annotated[
    AwareDatetime, AfterValidator(_in_utc), PlainSerializer(rfc3339, return_type=str, when_used="json")
]
"""A moment; RFC 3339 UTC on the wire."""


T = TypeVar("T")


def _is_none(value: object) -> bool:
    return value is None


def _never_null(schema: dict[str, Any]) -> None:
    schema.pop("default", None)
    ways = [way for way in schema.pop("anyOf", ()) if way != {"type": "null"}]
    schema |= ways[0] if len(ways) == 1 else {"anyOf": ways} if ways else {}


OrAbsent = Annotated[T | None, Field(exclude_if=_is_none, json_schema_extra=_never_null)]
"""A member that JSON does not have where it is None."""


class Part(BaseModel):
    """A piece of a message."""

    # Built at first use: a process reads a few kinds of message, and imports them all.
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


def _kept(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, Phrase) else read(value)


PhraseText = Annotated[str, WrapValidator(_kept)]
"""A text for people; one that is a `Phrase` stays one."""


_WITHOUT_PHRASES: Final = ContextVar("without_phrases", default=False)


def _is_left_out(phrases: object) -> bool:
    return phrases is None or _WITHOUT_PHRASES.get()


class Phrased(Part):
    """A piece of a message with phrases for people: JSON has what they were made of beside them."""

    phrases: Annotated[OrAbsent[dict[str, Json]], Field(exclude_if=_is_left_out)] = None

    @model_validator(mode="before")
    @classmethod
    def _with_phrases(cls, said: Any) -> Any:
        if not isinstance(said, dict):  # a row of a database
            said = {name: getattr(said, name) for name in cls.model_fields if hasattr(said, name)}
        return with_phrases(read_phrases(dict(said)))


def json_for_models(answer: BaseModel) -> dict[str, Json]:
    """Return an answer as JSON without what its texts were made of: that is for translating them."""
    token = _WITHOUT_PHRASES.set(True)
    try:
        return answer.model_dump(mode="json", by_alias=True)
    finally:
        _WITHOUT_PHRASES.reset(token)


class Strict(BaseModel):
    """A piece of a request, or of a file that people write: an unknown field is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Wire(Part):
    """A whole message. The hub serves this version and the one before it."""

    v: int = Field(default=WIRE_VERSION, ge=max(1, WIRE_VERSION - 1), le=WIRE_VERSION)


def shown_digest(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def check_shown(given: str, present: str, *, name: str, hint: str) -> None:
    """Check that what is approved is what was shown.

    Args:
        given: Digest that the client was shown.
        present: Digest of what would be approved now.

    Raises:
        Conflict: If it is something else by now.
    """
    if given != present:
        raise Conflict("{name} was changed meanwhile", name=name, hint=hint)
