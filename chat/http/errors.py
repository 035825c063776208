"""Errors as JSON, with the status that fits: problem details (RFC 9457).

Programs that speak another API get them in its form: OpenAI's under ``/v1``, Ollama's under ``/ollama``.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Never

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from chat.http import limits
from chat.http.requests import Answer
from contracts.errors import (
    PROBLEM_JSON,
    STATUSES,
    CallError,
    ErrorCode,
    StaleProof,
    StrawberryError,
    TooManyRequests,
    Unauthorized,
)
from contracts.phrases import for_people, with_phrases

_log = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST: Final = 499
"""nginx's number for it; only logs show it."""


CALL_STATUS: Final[dict[ErrorCode, int]] = {
    ErrorCode.OFFLINE: 503,
    ErrorCode.UNKNOWN_SKILL: 404,
    ErrorCode.BAD_ARGUMENTS: 422,
    ErrorCode.REFUSED: 403,
    ErrorCode.NEEDS_CONFIRMATION: 409,
    ErrorCode.BUSY: 503,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.EXPIRED: 504,
    ErrorCode.STALE_EPOCH: 503,
    ErrorCode.TIMEOUT: 504,
    ErrorCode.CANCELLED: 409,
    ErrorCode.SKILL_ERROR: 502,
    ErrorCode.OUTCOME_UNKNOWN: 504,
}

_APIS: Final = ("api", "v1", "ollama")

_NO_ADDRESS: Final = "There is no such address; GET /api/openapi.json lists all."
_HINTS: Final = {
    "too_large": "Send less at once.",
    "internal": "Look for the x-request-id of this answer in the hub's log.",
}
"""By code, where the error itself has no hint."""
_STATUS_CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


def error_response(
    path: str,
    status: int,
    code: str,
    message: str,
    hint: str = "",
    *,
    headers: dict[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Answer[Never]:
    """Make the response for an error.

    Args:
        path: Of the request; decides about the shape.
        more: Further members of the error.
    """
    hint = hint or _HINTS.get(code, "")
    # What is in front of it is the base path of a proxy.
    match next((part for part in path.split("/") if part in _APIS), ""):
        case "v1":
            error = openai_error(status, code, message, hint, more=more)
            return Answer(to_json({"error": error}), status_code=status, headers=headers)
        case "ollama":
            # Its clients, such as Home Assistant, show a family this text and nothing else.
            text = f"{message}. {said}" if (said := for_people(hint)) else message
            return Answer(to_json({"error": text}), status_code=status, headers=headers)
    problem = with_phrases(
        {
            "type": f"urn:strawberry:problem:{code}",
            "title": code.replace("_", " ").capitalize(),
            "status": status,
            "detail": message,
            "code": code,
            "hint": hint,
            **(more or {}),
        }
    )
    return Answer(to_json(problem), status_code=status, headers=headers, media_type=PROBLEM_JSON)


def openai_error(
    status: int, code: str, message: str, hint: str = "", *, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Make the ``error`` of an answer, or of a stream, of OpenAI's API; see `error_response`."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code, "hint": hint, **(more or {})}
    return with_phrases(error)


def expected(path: str, error: StrawberryError) -> Answer[Never]:
    """Make the response for an error that was raised on purpose."""
    status, code = status_of(error)
    return error_response(
        path, status, code, error.message, error.hint, headers=_headers(error), more=error.members
    )


def status_of(error: StrawberryError) -> tuple[int, str]:
    """Return the status of HTTP and the code of an error."""
    if isinstance(error, CallError):
        return CALL_STATUS[error.code], error.code.value
    found = ((status, code) for kind, status, code in STATUSES if isinstance(error, kind))
    return next(found, (500, "internal"))


async def _expected(request: Request, error: Exception) -> Response:
    assert isinstance(error, StrawberryError)
    if isinstance(error, TooManyRequests):
        await asyncio.sleep(limits.REFUSAL_PAUSE_S)
    return expected(request.url.path, error)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer where Starlette refuses a request."""
    assert isinstance(error, HTTPException)
    code = _STATUS_CODES.get(error.status_code, "refused")
    headers: dict[str, str] = {}
    hint = _NO_ADDRESS if error.status_code == 404 else ""
    if error.status_code == 405:
        # Starlette names the methods of one route only.
        headers["allow"] = ", ".join(sorted(_methods(request)))
        hint = f"This address takes {headers['allow']}."
    return error_response(request.url.path, error.status_code, code, str(error.detail), hint, headers=headers)


def _methods(request: Request) -> set[str]:
    """Return the methods that an address takes."""
    found = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in found for method in getattr(route, "methods", None) or ()}


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(request.url.path, 500, "internal", "this request failed")


async def _left(request: Request, error: Exception) -> Response:
    # The client disconnected while it sent its request; nothing failed here.
    return Response(status_code=CLIENT_CLOSED_REQUEST)


HANDLERS: Final[Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]]] = {
    StrawberryError: _expected,
    HTTPException: _refused,
    ClientDisconnect: _left,
    Exception: _unexpected,
}
"""``exception_handlers`` of an application that answers every error in this shape."""


def _headers(error: StrawberryError) -> dict[str, str]:
    match error:
        case StaleProof():
            return {"www-authenticate": 'DPoP error="invalid_dpop_proof", algs="EdDSA"'}
        case Unauthorized():
            # RFC 6750, section 3: a client learns from it that a bearer token is what is missing.
            return {"www-authenticate": 'Bearer realm="strawberry"'}
        case TooManyRequests(retry_after_s=int() as seconds):
            return {"retry-after": str(seconds)}
        case _:
            return {}
