"""The web UI's place in the hub's application: it is loaded late, and requests wait for it."""

import asyncio
from typing import Final

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

_API: Final = ("/api/", "/v1/", "/ollama/", "/.well-known/")
"""Paths that programs ask for: where there is no such route, they get an error that they can read."""


class Pages:
    """Answers every request that no route of the API takes.

    Attributes:
        app: What answers; None before `serve`.
    """

    def __init__(self) -> None:
        self.app: ASGIApp | None = None
        self._coming: asyncio.Future[ASGIApp] | None = None
        self._missing: ASGIApp | None = None

    def enter(self, app: Starlette) -> None:
        # It answers in place of an application's "not found".
        self._missing, app.router.default = app.router.default, self

    def expect(self) -> None:
        """Hold requests until `serve` brings the pages; until this is called there are none."""
        self._coming = asyncio.get_running_loop().create_future()

    def serve(self, app: ASGIApp) -> None:
        """Mount the application that answers pages, in place of the one before."""
        if self._coming is None or self._coming.done():
            self.expect()
        assert self._coming is not None
        self.app = app
        self._coming.set_result(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._coming is None or path_in_app(scope).startswith(_API):
            assert self._missing is not None
            await self._missing(scope, receive, send)
            return
        app = await asyncio.shield(self._coming)
        await app(scope, receive, send)


def path_in_app(scope: Scope) -> str:
    """Return the path of a request without the base path, which a proxy may or may not have taken off."""
    path, base = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(base) :] if base and path.startswith(f"{base}/") else path
