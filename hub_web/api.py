"""The hub's HTTP API as the pages use it: in this process, with the rights of one session."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, ParamSpec, TypeVar, overload
from urllib.parse import quote, unquote, urlencode

from pydantic import BaseModel, TypeAdapter
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Scope

from chat.http.errors import expected
from chat.operations import Needs, Operation, Operations, Stream
from chat.tasks import open_tasks
from contracts.errors import (
    ProblemDetails,
    StrawberryError,
)
from contracts.phrases import Phrase
from hub_registry.access.bearer import SESSION_COOKIE, Bearer, Gate
from hub_web import limits
from hub_web.texts import SENTENCES

T = TypeVar("T")
P = ParamSpec("P")
Answered = TypeVar("Answered")

_FOR_PROGRAMS: Final = re.compile(
    r"\bstrawberry (?!spoke)[a-z]|GET /api/|^(The|There are no) (field|parameter)s|own token"
)
"""Sentences of a hint that a page does not show: what to type in a terminal or to send."""
_REFUSED: Final = 400


class ApiError(StrawberryError):
    """An answer that has no error of its own kind.

    Attributes:
        code: The error's name, see docs/http.md.
        more: Further members of the error.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: str = "",
        more: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> None:
        super().__init__(message, hint=hint, **values)
        self.code = code
        self.more = more or {}


class ConfirmationNeeded(ApiError):
    """A call that a person must confirm first; `more` has what to show."""

    @property
    def confirmation(self) -> str:
        """The token that a call with the person's yes must have."""
        return str(self.more["confirmation"])


@dataclass(frozen=True)
class Api:
    """Makes requests with a session's token, so that what a page may do is what its person may do.

    Args:
        app: The hub's application.
        operations: Its operations.
        gate: Knows the session.
        token: None asks as anybody.
        client: The browser's address, for limits that count by it.
        host: What the browser calls this hub, which some answers tell to others.
        base_path: See `hub_agent.settings.HttpSettings`.
        hub: Its id and public key, by which a page recognises it; without the key behind a proxy.
    """

    app: ASGIApp
    operations: Operations[Bearer]
    gate: Gate
    token: str | None = None
    client: tuple[str, int] | None = None
    host: str = "localhost"
    scheme: str = "http"
    base_path: str = ""
    hub: str = ""

    async def __call__(
        self, operation: Operation[P, Answered], /, *args: P.args, **kwargs: P.kwargs
    ) -> Answered:
        """Call an operation of the hub.

        Raises:
            StrawberryError: As the operation says it.
        """
        with _refusals():
            return await self.operations.call(operation, self._admit, *args, **kwargs)

    @asynccontextmanager
    async def follow(
        self, stream: Stream[P, Answered], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[AsyncIterator[Answered]]:
        """Open a stream of the hub; yield its answers, until the block is left.

        Raises:
            StrawberryError: As the stream says it.
        """
        async with AsyncExitStack() as stack:
            with _refusals():
                followed = self.operations.follow(stream, self._admit, *args, **kwargs)
                answers = await stack.enter_async_context(followed)
            yield answers

    async def _admit(self, needs: Needs, what: str) -> Bearer:
        connection = HTTPConnection(self._scope("GET", "/", {}, {"host": self.host}))
        return await self.gate.admit_session(self.token or "", connection, needs, what)

    async def get(self, path: str, kind: type[T], /, **query: Any) -> T:
        """Return the answer to ``GET``.

        Args:
            path: From the root, each part of it quoted (see `part`).
            kind: What the answer is: a model, or a list of them.
            query: Parameters; those that are None are left out.

        Raises:
            StrawberryError: As the route says it.
        """
        answer: T = _adapter(kind).validate_json(await self._ask("GET", path, query=query))
        return answer

    @overload
    async def post(self, path: str, body: Any = None, /) -> None: ...

    @overload
    async def post(self, path: str, body: Any, kind: type[T], /) -> T: ...

    async def post(self, path: str, body: Any = None, kind: type[Any] | None = None, /) -> Any:
        """Send a body, JSON or a model, of which the fields are sent that are set; see `get`.

        Without a kind the answer is not read.
        """
        return await self._send("POST", path, body, kind)

    @overload
    async def put(self, path: str, body: Any, /) -> None: ...

    @overload
    async def put(self, path: str, body: Any, kind: type[T], /) -> T: ...

    async def put(self, path: str, body: Any, kind: type[Any] | None = None, /) -> Any:
        return await self._send("PUT", path, body, kind)

    @overload
    async def patch(self, path: str, body: Any, /) -> None: ...

    @overload
    async def patch(self, path: str, body: Any, kind: type[T], /) -> T: ...

    async def patch(self, path: str, body: Any, kind: type[Any] | None = None, /) -> Any:
        return await self._send("PATCH", path, body, kind)

    @overload
    async def delete(self, path: str, /) -> None: ...

    @overload
    async def delete(self, path: str, kind: type[T], /) -> T: ...

    async def delete(self, path: str, kind: type[Any] | None = None, /) -> Any:
        return await self._send("DELETE", path, None, kind)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: Any = None,
        /,
        *,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> AsyncIterator[AsyncIterator[T]]:
        """Open a stream of server-sent events; yield the data of each event as what it is.

        Leaving the block ends it, as a client does that leaves. The end mark of chat completions is left out.

        Raises:
            StrawberryError: As the route says it.
        """
        accept = {"accept": "text/event-stream", **(headers or {})}
        async with self._open(method, path, body, query, accept) as chunks:
            yield _events(chunks, _adapter(kind))

    async def _ask(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None
    ) -> bytes:
        async with self._open(method, path, body, query or {}, {}) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def _send(self, method: str, path: str, body: Any, kind: type[Any] | None) -> Any:
        answer = await self._ask(method, path, body)
        return None if kind is None else _adapter(kind).validate_json(answer)

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Any, query: Mapping[str, Any], headers: dict[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        content = b"" if body is None else _content(body)
        sent = {"host": self.host, "content-length": str(len(content)), **headers}
        if self.token is not None:
            # As a page of this hub sends it; only so a session counts.
            sent |= {"cookie": f"{SESSION_COOKIE}={self.token}", "origin": f"{self.scheme}://{self.host}"}
        if body is not None:
            sent["content-type"] = "application/json"
        exchange = _Exchange(content)
        async with open_tasks() as tasks:
            running = tasks.create_task(
                exchange.run(self.app, self._scope(method, path, query, sent)), name=f"{method} {path}"
            )
            try:
                status = await exchange.status
                if status >= _REFUSED:
                    raise _refusal(status, b"".join([chunk async for chunk in exchange.chunks()]))
                yield exchange.chunks()
            finally:
                # A route may end what it began when its client leaves; it is not cancelled for that.
                exchange.leave()
                await asyncio.wait([running], timeout=5)

    def _scope(
        self, method: str, path: str, query: Mapping[str, Any], headers: dict[str, str]
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
    """One request, from the side of its client.

    Attributes:
        status: Of HTTP, as soon as the answer begins.
    """

    def __init__(self, content: bytes) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._content: bytes | None = content
        self._gone = asyncio.Event()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(limits.CHUNKS_UNREAD)

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            # What the application raises it has logged, and it has sent what there is to say.
            with suppress(Exception):
                await app(scope, self._receive, self._send)
        finally:
            if not self.status.done():
                self.status.set_exception(ApiError("this request failed; the log says more"))
            await self._put(None)

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk

    def leave(self) -> None:
        """Close the stream; a route that waits for room goes on."""
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
            if not self.status.done():
                self.status.set_result(message["status"])
        elif message.get("body"):
            await self._put(message["body"])

    async def _put(self, chunk: bytes | None) -> None:
        if not self._gone.is_set():
            await self._chunks.put(chunk)


def part(name: object) -> str:
    """Quote a name as one part of a path."""
    return quote(str(name), safe="")


_adapter: Final[Callable[[Any], TypeAdapter[Any]]] = cache(TypeAdapter)


def _content(body: Any) -> bytes:
    if isinstance(body, BaseModel):
        return body.model_dump_json(exclude_unset=True).encode()
    return json.dumps(body).encode()


async def _events(chunks: AsyncIterator[bytes], kind: TypeAdapter[T]) -> AsyncIterator[T]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            name, _, data = line.strip().partition(b":")
            if name == b"data" and (told := data.strip()) != b"[DONE]":
                yield kind.validate_json(told)


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise errors of an operation as those of a route: of the kind of its status, with hints for people."""
    try:
        yield
    except StrawberryError as error:
        answer = expected("/api", error)
        raise _refusal(answer.status_code, bytes(answer.body)) from error


def _refusal(status: int, body: bytes) -> StrawberryError:
    try:
        problem = ProblemDetails.read(json.loads(body))
    except ValueError:
        problem = None
    if problem is None:
        return ApiError("the hub answered with status {status}", status=status)
    message = problem.message
    kept = [each for each in SENTENCES.split(Phrase(problem.hint).template) if not _FOR_PROGRAMS.search(each)]
    hint = Phrase(" ".join(kept), **Phrase(problem.hint).values)
    kind = problem.kind(status)
    if kind is not None and not problem.more.get("confirmation"):
        return kind(message, hint=hint)
    refused = ConfirmationNeeded if problem.more.get("confirmation") else ApiError
    return refused(message, hint=hint, code=problem.code, more=problem.more)


def _parameter(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
