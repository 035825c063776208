"""The hub's HTTP API as the pages use it: in this process, with the rights of one session."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

from starlette.types import ASGIApp, Message, Scope

from chat.tasks import open_tasks
from contracts.errors import (
    Conflict,
    Forbidden,
    InvalidMessage,
    NotFound,
    PasswordNeeded,
    StrawberryError,
    TooManyRequests,
    Unauthorized,
)
from contracts.problems import ProblemDetails

_KINDS: Final[dict[int, type[StrawberryError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidMessage,
    422: InvalidMessage,
    429: TooManyRequests,
}
_REFUSED: Final = 400
_UNREAD: Final = 64
"""Chunks of a stream that wait for a page; the route waits then."""


class ApiError(StrawberryError):
    """An answer that has no error of its own kind.

    Attributes:
        status: Of HTTP.
        code: The error's name, see docs/http.md.
        more: Further members of the error.
    """

    def __init__(
        self, message: str, *, hint: str = "", status: int = 500, code: str = "", more: dict[str, Any]
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.more = more


class ConfirmationNeeded(ApiError):
    """A call that a person must confirm first; `more` has what to show, and ``confirmation``."""


@dataclass(frozen=True)
class ApiResponse:
    """A whole answer.

    Attributes:
        headers: With names in small letters.
    """

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON; None where there is none."""
        return json.loads(self.body) if self.body else None


@dataclass(frozen=True)
class Api:
    """Makes requests with a session's token, so that what a page may do is what its person may do.

    Args:
        app: The hub's application.
        token: None asks as anybody.
        client: The browser's address, for limits that count by it.
        message: Puts what the hub says into the language of the person.
        host: What the browser calls this hub, which some answers tell to others.
        base_path: See `hub_agent.settings.HttpSettings`.
    """

    app: ASGIApp
    token: str | None = None
    client: tuple[str, int] | None = None
    message: Callable[[str], str] = str
    host: str = "localhost"
    scheme: str = "http"
    base_path: str = ""

    def using(self, token: str) -> "Api":
        """Return the same with another token."""
        return replace(self, token=token)

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON answer to ``GET``.

        Args:
            path: From the root, each part of it quoted (see `part`).
            query: Parameters; those that are None are left out.

        Raises:
            StrawberryError: As the route says it.
        """
        return (await self.request("GET", path, query=query)).json()

    async def post(self, path: str, body: Any = None, **query: Any) -> Any:
        """Send a JSON body; see `get`."""
        return (await self.request("POST", path, body, query=query)).json()

    async def put(self, path: str, body: Any = None) -> Any:
        """Send a JSON body; see `get`."""
        return (await self.request("PUT", path, body)).json()

    async def patch(self, path: str, body: Any) -> Any:
        """Send a JSON body; see `get`."""
        return (await self.request("PATCH", path, body)).json()

    async def delete(self, path: str) -> Any:
        """Delete what is at a path; see `get`."""
        return (await self.request("DELETE", path)).json()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> ApiResponse:
        """Make a request and return the whole answer.

        Args:
            body: Bytes are sent as they are, anything else as JSON.

        Raises:
            StrawberryError: As the route says it.
        """
        async with self._open(method, path, body, query or {}, headers or {}) as answer:
            status, given, chunks = answer
            return ApiResponse(status, given, b"".join([chunk async for chunk in chunks]))

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> AsyncIterator[tuple[dict[str, str], AsyncIterator[Any]]]:
        """Open a stream of server-sent events; yield its headers and the JSON of each event.

        Leaving the block ends it, as a client does that leaves. The end mark of chat completions is left out.

        Raises:
            StrawberryError: As the route says it.
        """
        accept = {"accept": "text/event-stream", **(headers or {})}
        async with self._open(method, path, body, query, accept) as (_, given, chunks):
            yield given, _events(chunks)

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Any, query: dict[str, Any], headers: dict[str, str]
    ) -> AsyncIterator[tuple[int, dict[str, str], AsyncIterator[bytes]]]:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"host": self.host, "content-length": str(len(content)), **headers}
        if self.token is not None:
            sent["authorization"] = f"Bearer {self.token}"
        if body is not None:
            sent.setdefault("content-type", "application/json")
        exchange = _Exchange(content)
        async with open_tasks() as tasks:
            running = tasks.create_task(
                exchange.run(self.app, self._scope(method, path, query, sent)), name=f"{method} {path}"
            )
            try:
                status, given = await exchange.start()
                if status >= _REFUSED:
                    raise _refusal(
                        status, b"".join([chunk async for chunk in exchange.chunks()]), self.message
                    )
                yield status, given, exchange.chunks()
            finally:
                # A route may end what it began when its client leaves; it is not cancelled for that.
                exchange.leave()
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([running], timeout=5)

    def _scope(
        self, method: str, path: str, query: dict[str, Any], headers: dict[str, str]
    ) -> dict[str, Any]:
        given = {name: _parameter(value) for name, value in query.items() if value is not None}
        path, _, more = path.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": self.scheme,
            "path": unquote(self.base_path + path),
            "raw_path": (self.base_path + path).encode(),
            "root_path": self.base_path,
            "query_string": "&".join(filter(None, (more, urlencode(given)))).encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": self.client,
            "server": ("localhost", 80),
            "state": {},
        }


class _Exchange:
    """One request, from the side of its client."""

    def __init__(self, content: bytes) -> None:
        self._content: bytes | None = content
        self._gone = asyncio.Event()
        self._started: asyncio.Future[tuple[int, dict[str, str]]] = asyncio.get_running_loop().create_future()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_UNREAD)

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            # What the application raises it has logged, and it has sent what there is to say.
            with suppress(Exception):
                await app(scope, self._receive, self._send)
        finally:
            if not self._started.done():
                self._started.set_exception(
                    ApiError("this request failed; the log says more", code="internal", more={})
                )
            await self._put(None)

    async def start(self) -> tuple[int, dict[str, str]]:
        return await self._started

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk

    def leave(self) -> None:
        """Want nothing more; a route that waits for room goes on."""
        self._gone.set()
        while not self._chunks.empty():
            self._chunks.get_nowait()

    async def _receive(self) -> Message:
        if self._content is not None:
            content, self._content = self._content, None
            return {"type": "http.request", "body": content, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]}
            if not self._started.done():
                self._started.set_result((message["status"], headers))
        elif message.get("body"):
            await self._put(message["body"])

    async def _put(self, chunk: bytes | None) -> None:
        if not self._gone.is_set():
            await self._chunks.put(chunk)


def part(text: object) -> str:
    """Quote a name as one part of a path."""
    return quote(str(text), safe="")


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            name, _, data = line.strip().partition(b":")
            if name == b"data" and (text := data.strip()) != b"[DONE]":
                yield json.loads(text)


def _refusal(status: int, body: bytes, said: Callable[[str], str]) -> StrawberryError:
    try:
        problem = ProblemDetails.read(json.loads(body))
    except ValueError:
        problem = None
    if problem is None:
        return ApiError(f"the hub answered with status {status}", status=status, more={})
    kind = PasswordNeeded if problem.code == "password_needed" else _KINDS.get(status)
    if kind is not None and not problem.more.get("confirmation"):
        return kind(said(problem.message), hint=said(problem.hint))
    refused = ConfirmationNeeded if problem.more.get("confirmation") else ApiError
    message, hint = said(problem.message), said(problem.hint)
    return refused(message, hint=hint, status=status, code=problem.code, more=problem.more)


def _parameter(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
