"""Captures over HTTP: ``/api/captures``."""

import asyncio
from threading import Event
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, Download, answer, download, read, read_query
from contracts.wire import Strict
from hub_live.captures.captures import Captures
from hub_live.captures.files.downloads import CapturedFile, listed, opened, pieces
from hub_live.captures.files.numbers import Numbers, plotted
from hub_live.captures.files.series import Series
from hub_live.captures.spec import CaptureInfo, CaptureSpec
from hub_registry.access.bearer import Bearer, Gate


class _Numbers(Strict):
    """Which numbers are wanted: fields of the payloads with commas between them; all where none."""

    field: Annotated[str, Field(max_length=1_000)] = ""


def capture_routes(captures: Captures, gate: Gate) -> list[BaseRoute]:
    """Make the routes."""
    may_look, may_change = gate.require_user("chat"), gate.require_user("call")

    def series_of(bearer: Bearer, request: Request) -> Series:
        return captures.series_of(bearer.user, request.path_params["capture"], of_all=bearer.is_admin)

    async def list_captures(request: Request) -> Answer[list[CaptureInfo]]:
        bearer = await may_look(request)
        return answer(await captures.list(bearer.user, of_all=bearer.is_admin))

    async def start(request: Request) -> Answer[CaptureInfo]:
        bearer = await may_change(request)
        return answer(await captures.start(bearer.user, await read(request, CaptureSpec)), status=201)

    async def get(request: Request) -> Answer[CaptureInfo]:
        bearer = await may_look(request)
        name = request.path_params["capture"]
        return answer(await captures.get(bearer.user, name, of_all=bearer.is_admin))

    async def stop(request: Request) -> Answer[CaptureInfo]:
        bearer = await may_change(request)
        name = request.path_params["capture"]
        return answer(await captures.stop(bearer.user, name, of_all=bearer.is_admin))

    async def list_files(request: Request) -> Answer[list[CapturedFile]]:
        bearer = await may_look(request)
        series = series_of(bearer, request)
        return answer(await asyncio.to_thread(listed, series))

    async def file(request: Request) -> Download:
        bearer = await may_look(request)
        series = series_of(bearer, request)
        name = request.path_params["name"]
        content, size = await asyncio.to_thread(opened, series, name)
        return download(pieces(content, size), name, size=size)

    async def numbers(request: Request) -> Answer[Numbers]:
        bearer, query = await may_look(request), read_query(request, _Numbers)
        series, cancelled = series_of(bearer, request), Event()
        fields = tuple(filter(None, query.field.split(",")))
        try:
            return answer(await asyncio.to_thread(plotted, series.path, fields=fields, cancelled=cancelled))
        finally:
            cancelled.set()

    return [
        Route("/api/captures", list_captures),
        Route("/api/captures", start, methods=["POST"]),
        Route("/api/captures/{capture}", get),
        Route("/api/captures/{capture}", stop, methods=["DELETE"]),
        Route("/api/captures/{capture}/files", list_files),
        Route("/api/captures/{capture}/files/{name}", file),
        Route("/api/captures/{capture}/numbers", numbers),
    ]
