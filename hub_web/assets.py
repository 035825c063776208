"""Our own static files, addressed by their content, so that browsers keep them."""

import asyncio
import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ASSETS: Final = "/_strawberry/"
"""Path of all of them."""

KEPT: Final = "public, max-age=31536000, immutable"
"""``Cache-Control`` of what is addressed by its content or its version."""

COMPRESSED: Final = (".js", ".mjs", ".css")

_OK: Final = 200
_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def _content(name: str) -> bytes:
    return (files("hub_web") / "static" / name).read_bytes()


@cache
def _names() -> frozenset[str]:
    return frozenset(file.name for file in (files("hub_web") / "static").iterdir())


@cache
def asset(name: str, base_path: str = "") -> str:
    """Return the path of a file in a page."""
    return f"{base_path}{ASSETS}{hashlib.sha256(_content(name)).hexdigest()[:16]}/{name}"


def asset_response(path: str) -> Response:
    """Answer a request for one."""
    name = path.rpartition("/")[2]
    if name not in _names():
        return Response(status_code=404)
    kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return Response(_content(name), media_type=kind, headers={"cache-control": KEPT})


class CompressedFiles:
    """Serves the scripts and styles of an application, and compresses each once: together they take 30 ms.

    Args:
        app: Whose files never change as long as it runs.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: dict[str, Response] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for one."""
        if scope["method"] != "GET" or "gzip" not in Headers(scope=scope).get("accept-encoding", ""):
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if path not in self._kept:
            found = await _fetched(self._app, scope, receive)
            if found.status_code != _OK:
                await found(scope, receive, send)
                return
            self._kept[path] = await asyncio.to_thread(_compressed, found)
        await self._kept[path](scope, receive, send)


async def _fetched(app: ASGIApp, scope: Scope, receive: Receive) -> Response:
    started: Message = {}
    body: list[bytes] = []

    async def take(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
        else:
            body.append(message.get("body", b""))

    await app(scope, receive, take)
    found = Response(b"".join(body), status_code=started["status"])
    found.raw_headers = started["headers"]
    return found


def _compressed(found: Response) -> Response:
    headers = {"cache-control": KEPT, "content-encoding": "gzip", "vary": "accept-encoding"}
    return Response(
        gzip.compress(bytes(found.body), 6), headers=headers, media_type=found.headers["content-type"]
    )
