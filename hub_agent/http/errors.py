"""Errors of the hub's application as JSON; see ``chat.http.errors`` for their shape."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from chat.http.errors import error_response, expected, refused
from contracts.errors import StrawberryError

_log = logging.getLogger(__name__)


def install(app: FastAPI) -> None:
    """Make the app answer every error in this shape."""
    app.add_exception_handler(StrawberryError, _expected)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _unexpected)


async def _expected(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StrawberryError)
    return expected(request.url.path, error)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    # The first step says body, query or header; a wrong body as a whole has no further one.
    where = ".".join(str(step) for step in first["loc"][1:]) or str(first["loc"][0])
    return error_response(request.url.path, 422, "invalid", f"{where}: {first['msg']}")


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return refused(request.url.path, error)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(request.url.path, 500, "internal", "the hub failed; its log says more")
