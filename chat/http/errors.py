"""Errors as JSON: ``{"error": {"code", "message", "hint"}}``, with the status that fits.

Under ``/v1`` the object also has the ``type`` and ``param`` that OpenAI's clients read.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from contracts.errors import (
    CallError,
    ConfigError,
    Conflict,
    ErrorCode,
    Forbidden,
    GatewayError,
    InvalidMessage,
    LinkError,
    NotFound,
    SandboxError,
    StaleProof,
    StorageError,
    StrawberryError,
    TooManyRequests,
    Unauthorized,
)

_log = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST: Final = 499
"""nginx's number for it; only logs show it."""

_KINDS: Final[tuple[tuple[type[StrawberryError], int, str], ...]] = (
    (StaleProof, 401, "stale_proof"),
    (Unauthorized, 401, "unauthorized"),
    (Forbidden, 403, "forbidden"),
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (InvalidMessage, 422, "invalid"),
    (TooManyRequests, 429, "rate_limited"),
    (LinkError, 503, "bus_unavailable"),
    (SandboxError, 503, "sandbox_unavailable"),
    (GatewayError, 503, "no_model"),
    (StorageError, 503, "storage_unavailable"),
    (ConfigError, 500, "configuration"),
)

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

_STATUS_CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


def error_response(
    path: str,
    status: int,
    code: str,
    message: str,
    hint: str = "",
    *,
    headers: dict[str, str] | None = None,
    more: dict[str, Any] | None = None,
) -> JSONResponse:
    """Make the response for an error.

    Args:
        path: Of the request; decides about the shape.
        more: Further members of the error.
    """
    error: dict[str, Any] = {"code": code, "message": message, "hint": hint, **(more or {})}
    if "/v1/" in path:
        kind = "invalid_request_error" if status < 500 else "server_error"
        error |= {"type": kind, "param": None}
    return JSONResponse({"error": error}, status_code=status, headers=headers)


def expected(path: str, error: StrawberryError) -> JSONResponse:
    """Make the response for an error that was raised on purpose."""
    if isinstance(error, CallError):
        more = {"device": error.device} if error.device else None
        return error_response(
            path, CALL_STATUS[error.code], error.code.value, error.message, error.hint, more=more
        )
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            return error_response(path, status, code, error.message, error.hint, headers=_headers(error))
    return error_response(path, 500, "internal", error.message, error.hint)


async def _expected(request: Request, error: Exception) -> Response:
    assert isinstance(error, StrawberryError)
    return expected(request.url.path, error)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer where Starlette refuses a request."""
    assert isinstance(error, HTTPException)
    code = _STATUS_CODES.get(error.status_code, "refused")
    return error_response(request.url.path, error.status_code, code, str(error.detail))


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(request.url.path, 500, "internal", "this request failed; the log says more")


async def _left(request: Request, error: Exception) -> Response:
    """Answer a client that disconnected while it sent its request; nothing failed here."""
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
