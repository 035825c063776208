"""The lines between this program and a sandbox process: one JSON object each.

What comes from the process is hostile. ``read`` is the only way in, and checks all of it.
"""

import json
import re
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic_core import from_json

from contracts.errors import CallError, InvalidMessage
from contracts.wire import Json
from sandbox_host import limits

_T = TypeVar("_T")
_DOTTED: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*){1,5}")
_MAX_ID: Final = 2**53 - 1


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Ready(_Line):
    """The process can run programs now."""

    type: Literal["ready"]


class Output(_Line):
    """A piece of what the run printed."""

    type: Literal["output"]
    run: str
    text: str
    cut: bool


class Call(_Line):
    """The program calls a method; the run and the id say which answer is its own."""

    type: Literal["call"]
    run: str
    id: int = Field(ge=1, le=_MAX_ID)
    path: str
    given: str
    """JSON of ``[positional, named]``, as text: how deep it goes is looked at apart from the line."""

    @property
    def names_a_method(self) -> bool:
        """Return whether the path has the form of one: two to six dotted names, none of them private."""
        return len(self.path) <= limits.MAX_PATH and _DOTTED.fullmatch(self.path) is not None

    def arguments(self) -> tuple[list[Json], dict[str, Json]]:
        """Return the positional and the named arguments.

        Raises:
            InvalidMessage: If they cannot be read.
        """
        return _read_text(_GIVEN, self.given)


class Done(_Line):
    """The run came to its end."""

    type: Literal["done"]
    run: str
    status: Literal["ok", "error", "memory"]
    value: str | None
    """JSON of the last expression, as text; None where it has none or is too large."""
    repr: str
    traceback: str
    cut: bool
    left_over: int = Field(ge=0)

    def plain_value(self) -> Json:
        """Return the last expression.

        Raises:
            InvalidMessage: If it is not plain data, or nested too deep.
        """
        if self.value is None:
            raise InvalidMessage("the value is not plain data")
        return _read_text(_VALUE, self.value)


FromGuest = Annotated[Ready | Output | Call | Done, Field(discriminator="type")]
_GIVEN: Final = TypeAdapter(tuple[list[Json], dict[str, Json]])
_VALUE: Final[TypeAdapter[Json]] = TypeAdapter(Json)
_FROM_GUEST: Final[TypeAdapter[FromGuest]] = TypeAdapter(FromGuest)


def read(line: bytes) -> FromGuest:
    """Check one line of a sandbox process.

    Raises:
        InvalidMessage: If honest code could not have sent it.
    """
    return _read_text(_FROM_GUEST, line)


def _read_text(adapter: TypeAdapter[_T], text: str | bytes) -> _T:
    try:
        return adapter.validate_python(from_json(text, allow_inf_nan=False))
    except ValueError as error:
        raise InvalidMessage(f"it cannot be read: {str(error)[:200]}") from None


class Run(_Line):
    """Start a program. The numbers are bounds that the process keeps for honest code."""

    type: Literal["run"] = "run"
    run: str
    code: str
    output: int
    value: int
    arguments: int


class CallAnswer(_Line):
    """What a call gave; ``body`` is JSON of ``{"value": …}`` or ``{"error": {…}}``."""

    type: Literal["answer"] = "answer"
    id: int
    body: str


ToGuest = Run | CallAnswer


def write(message: ToGuest) -> bytes:
    """Return a message as the line that goes to the process; half of a surrogate pair becomes ``?``."""
    return json.dumps(message.model_dump(), ensure_ascii=False).encode(errors="replace") + b"\n"


def error_body(error: CallError) -> str:
    """Return the body of an answer that says why a call gave no result."""
    fields = {"code": error.code.value, "message": error.detail, "hint": error.hint, "device": error.device}
    return json.dumps({"error": fields}, ensure_ascii=False)
