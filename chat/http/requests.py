"""Bodies, parameters and answers of HTTP requests as pydantic models."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from chat.http import limits
from chat.http.limits import WITH_TOKEN, Budget
from contracts.errors import InvalidMessage
from contracts.names import Token
from contracts.validation import check_numbers, explain, first_mistake, location
from contracts.wire import Part

Model = TypeVar("Model", bound=BaseModel)
Answered = TypeVar("Answered")
Answers = TypeVar("Answers", covariant=True)
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_TOKEN: TypeAdapter[str] = TypeAdapter(Token)
_ENVELOPE: Final = ("v", "kind")
"""What bodies that are also messages of the bus have and no request needs."""


class Answer(Response, Generic[Answers]):
    """JSON of a declared type: what an endpoint that returns it answers in the OpenAPI document.

    An error is an ``Answer[Never]``, which is compatible with any of them.
    """

    media_type = "application/json"


class NoBody(Response):
    """A response without a body: what an endpoint that returns it answers in the OpenAPI document."""

    def __init__(self) -> None:
        super().__init__(status_code=204)


Download = Annotated[Response, "application/octet-stream"]
"""The type of an endpoint that answers with a file; other media types are declared likewise."""


def reads(kind: type[BaseModel]) -> Callable[[Endpoint], Endpoint]:
    """Return the decorator of an endpoint that reads a body: the OpenAPI document says so."""

    def declare(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)["reads"] = kind
        return endpoint

    return declare


class Uploaded(Part):
    """How many bytes of an upload there are."""

    bytes: int


async def read_bytes(request: Request, budget: Budget) -> bytes:
    """Return the body of a request as it is.

    Raises:
        HTTPException: If it has too many bytes.
    """
    pieces = bytearray()
    async for piece in request.stream():
        pieces += piece
        if len(pieces) > budget.size:
            raise HTTPException(413, f"a request without a token may have {budget.size:,} bytes")
    return bytes(pieces)


async def read(
    request: Request,
    kind: type[Model],
    *,
    optional: bool = False,
    any_type: bool = False,
    budget: Budget = WITH_TOKEN,
) -> Model:
    """Return the body of a request.

    Args:
        kind: What it must be.
        optional: Whether the body may be missing; every field then has its default.
        any_type: Whether its media type may be another, as ``curl -d`` sends it. A cookie needs the hub's
            own Origin anyway.
        budget: How large it may be.

    Raises:
        HTTPException: If it has too many bytes.
        InvalidMessage: If it has too many values, is anything else, or not sent as JSON: a form of a foreign
            page can send text.
    """
    body = await read_bytes(request, budget)
    if optional and body in (b"", b"null"):
        return kind()
    sent_as = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent_as != "application/json" and not any_type:
        raise InvalidMessage(
            "the body is not sent as JSON", hint="Send it with 'Content-Type: application/json'."
        )
    budget.check(body)
    try:
        read = kind.model_validate_json(body)
        check_numbers(body)
    except ValidationError as error:
        raise _wrong(error, kind, "field") from None
    except ValueError as error:
        hint = "Numbers must be finite, and no larger than a double."
        raise InvalidMessage(f"the body is not valid JSON: {error}", hint=hint) from None
    return read


def read_query(request: Request, kind: type[Model], *, without: str = "") -> Model:
    """Return the query parameters of a request.

    Args:
        without: A parameter that has been read.

    Raises:
        InvalidMessage: If one is missing, wrong or unknown.
    """
    try:
        given = {name: each for name, each in request.query_params.items() if name != without}
        return kind.model_validate(given)
    except ValidationError as error:
        raise _wrong(error, kind, "parameter") from None


def checked_token(value: str, name: str) -> str:
    """Return the value of a header, or of a part of a path, that must be a token.

    Raises:
        InvalidMessage: If it is none.
    """
    try:
        return _TOKEN.validate_python(value)
    except ValidationError:
        raise InvalidMessage(
            f"{name}: 1 to 64 letters, digits, dots, hyphens and underscores, not {value[:64]!r}"
        ) from None


def answer(
    value: Answered, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Answer[Answered]:
    return Answer(to_json(value), status_code=status, headers=headers)


def download(content: bytes | AsyncIterator[bytes], name: str, *, size: int | None = None) -> Response:
    """Make the response with a file that is saved, and never shown as a page of the hub.

    Args:
        size: How many bytes come, where they come piece by piece.
    """
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    kind = "application/octet-stream"
    if isinstance(content, bytes):
        return Response(content, media_type=kind, headers=headers)
    if size is not None:
        headers["content-length"] = str(size)
    return StreamingResponse(content, media_type=kind, headers=headers)


async def answer_each(values: Iterable[Answered]) -> Answer[list[Answered]]:
    return Answer(b"[" + b",".join(await paced(map(to_json, values))) + b"]")


async def paced(values: Iterable[Answered]) -> list[Answered]:
    """Return a list of values that are made one after the other; others have their turn in between.

    Args:
        values: Made as they are needed: hundreds of devices with all their problems take long.
    """
    made: list[Answered] = []
    until = time.monotonic() + limits.ANSWER_SLICE_S
    for value in values:
        made.append(value)
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + limits.ANSWER_SLICE_S
    return made


def _wrong(error: ValidationError, kind: type[BaseModel], what: str) -> InvalidMessage:
    mistakes = error.errors(include_url=False)
    first = mistakes[0]
    if first["type"] == "json_invalid":
        return InvalidMessage("the body is not valid JSON", hint=f"{first['msg']}.")
    if not first["loc"] and first["type"] != "value_error":
        return InvalidMessage("the body must be a JSON object", hint=_takes(kind, what))
    errors = [
        {"field": location(each["loc"]), "detail": explain(each, kind, what=what)}
        for each in mistakes[: limits.MOST_MISTAKES]
    ]
    message = explain(first_mistake(mistakes), kind, what=what)
    return InvalidMessage(message, hint=_takes(kind, what), errors=errors)


def _takes(kind: type[BaseModel], what: str) -> str:
    """Return the hint that lists the fields of a request, those that it must have first."""
    fields = sorted(kind.model_fields.items(), key=lambda each: not each[1].is_required())
    names = [
        f"{name} (required)" if field.is_required() else name
        for name, field in fields
        if what == "parameter" or name not in _ENVELOPE
    ]
    if not names:
        return f"There are no {what}s here."
    more = ", … (GET /api/openapi.json lists all)" if len(names) > limits.MOST_NAMES_HINTED else ""
    return f"The {what}s are {', '.join(names[: limits.MOST_NAMES_HINTED])}{more}."
