"""Requests that another replica answers: passed on as they are, with a ticket that names who asks."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from pydantic import SecretStr, TypeAdapter
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from chat.http.limits import WITHOUT_TOKEN
from chat.http.requests import read_bytes
from chat.operations import Operation, Stream
from chat.tasks import open_tasks
from contracts.errors import LinkError, NotFound, ProblemDetails, StrawberryError, Unauthorized
from hub_registry.access.bearer import Bearer, Gate
from hub_registry.registry import Registry
from hub_registry.storage.tables import ReplicaRow
from hub_server import limits
from identity.certificates import client_context
from identity.tickets import Ticket, TicketCheck, digest_of, issue_ticket

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

SCHEME: Final = "replica"
_KEPT: Final = ("content-type", "accept", "accept-language", "last-event-id", "user-agent", "x-request-id")
_RETURNED: Final = ("content-type", "content-disposition", "retry-after", "etag", "cache-control")


class Lost(LinkError):
    """A replica did not answer after the request was sent: what became of it is not known."""


class Passing:
    """Passes requests on to other replicas, and takes those that they pass on.

    Args:
        instance: The name of this replica.
        runs: Returns whether another one, by its name, still runs.
    """

    def __init__(self, registry: Registry, gate: Gate, *, instance: str, runs: Callable[[str], bool]) -> None:
        self._registry = registry
        self._gate = gate
        self._runs = runs
        self._check = TicketCheck(registry.key.public, hub_id=registry.hub_id, instance=instance)
        self._transport: httpx.AsyncHTTPTransport | None = None

    async def bearer(self, request: Request, ticket: str) -> Bearer:
        """Return the bearer for whom another replica asks.

        Raises:
            Unauthorized: If the ticket is not for this request, or the token was revoked.
        """
        return await self._bearer(await self._read(request, ticket, "operation"), request)

    async def internal(self, request: Request) -> Any:
        """Return the JSON body of what another replica itself asks.

        Raises:
            Unauthorized: If its ticket is not for this request.
        """
        scheme, _, ticket = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != SCHEME:
            raise Unauthorized("only a replica of the hub may ask that")
        await self._read(request, ticket, "internal")
        body = await request.body()
        return from_json(body) if body else None

    async def _read(self, request: Request, ticket: str, purpose: str) -> Ticket:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        found = self._check.read(
            ticket, purpose=purpose, request=_asked(request.method, path, request.url.query)
        )
        # Only a request with a valid ticket has its body read.
        found.check(await request.body())
        return found

    async def _bearer(self, ticket: Ticket, request: Request) -> Bearer:
        if self._registry.authority.is_revoked(ticket.claims.jti):
            raise Unauthorized("the token has been revoked")
        try:
            user = await self._registry.accounts.get(ticket.claims.own)
        except NotFound:
            raise Unauthorized("the user of this token no longer exists") from None
        return Bearer(ticket.claims, user, ticket.may_confirm, self._gate, From(request, ticket))

    async def asked(self, request: Request) -> Request:
        """Return a request that needs no token as it was asked, whether or not another replica passed it on.

        Raises:
            Unauthorized: If the ticket is not for this request.
        """
        scheme, _, ticket = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != SCHEME:
            return request
        return From(request, await self._read(request, ticket, "open"))

    async def forward(self, to: ReplicaRow, request: Request, asking: Bearer | None) -> Response:
        """Return what another replica answers to a request, as it comes.

        Args:
            asking: None for what needs no token; see `asked`.

        Raises:
            LinkError: If it cannot be reached.
        """
        headers = {name: request.headers[name] for name in _KEPT if name in request.headers}
        purpose = "operation"
        if asking is None:
            headers |= {"dpop": request.headers["dpop"]} if "dpop" in request.headers else {}
            asking, purpose = replace(self._inside(), connection=request), "open"
        body = await (read_bytes(request, WITHOUT_TOKEN) if purpose == "open" else request.body())
        answered = await self._send(to, request.method, _target(request), headers, body, asking, purpose)
        found = {name: answered.headers[name] for name in _RETURNED if name in answered.headers}
        response = _Passed(self._content(to, answered), answered.status_code, found)
        response.answered = answered
        for cookie in answered.headers.get_list("set-cookie"):
            response.headers.append("set-cookie", cookie)
        return response

    async def call(
        self, to: ReplicaRow, operation: Operation[Any, Any], asking: Bearer, given: Mapping[str, Any]
    ) -> Any:
        """Call an operation at another replica.

        Raises:
            StrawberryError: As the operation raises it there.
            LinkError: If it cannot be reached.
        """
        answered = await self._asked(to, operation, asking, given, {})
        content = await self._whole(to, answered)
        if operation.is_raw:
            found = {name: answered.headers[name] for name in _RETURNED if name in answered.headers}
            response = Response(content, answered.status_code, found)
            for cookie in answered.headers.get_list("set-cookie"):
                response.headers.append("set-cookie", cookie)
            return response
        return TypeAdapter(operation.answer).validate_json(content) if content else None

    @asynccontextmanager
    async def follow(
        self, to: ReplicaRow, stream: Stream[Any, Any], asking: Bearer, given: Mapping[str, Any]
    ) -> AsyncIterator[AsyncGenerator[Any, None]]:
        """Open a stream at another replica; yield its answers until the block is left."""
        answered = await self._asked(to, stream, asking, given, {"accept": "text/event-stream"})
        kind = TypeAdapter(stream.answer)

        async def answers() -> AsyncGenerator[Any, None]:
            async with aclosing(_lines(self._content(to, answered))) as lines:
                async for line in lines:
                    if line.startswith(b"data: ") and line != b"data: [DONE]":
                        yield kind.validate_json(line[6:])

        found = answers()
        try:
            yield found
        finally:
            await found.aclose()
            # A generator that was never started closes nothing.
            await _close(answered)

    async def tell(self, to: ReplicaRow, path: str, body: Any = None) -> Any:
        """Return the JSON that another replica answers to this one."""
        content = b"" if body is None else to_json(body)
        method = "GET" if body is None else "POST"
        answered = await self._send(to, method, path, {}, content, self._inside(), "internal")
        content = await self._whole(to, answered)
        if answered.status_code >= 400:
            raise _error(answered.status_code, content)
        return from_json(content) if content else None

    async def lines(self, to: ReplicaRow, path: str, body: Any) -> AsyncGenerator[bytes, None]:
        """Yield what another replica answers to this one, line by line as it comes.

        Raises:
            StrawberryError: As it is raised there.
            LinkError: If it cannot be reached, or does not run any more.
        """
        answered = await self._send(to, "POST", path, {}, to_json(body), self._inside(), "internal")
        if answered.status_code >= 400:
            raise _error(answered.status_code, await self._whole(to, answered))
        async with aclosing(_lines(self._content(to, answered))) as lines:
            async for line in lines:
                yield line

    def _inside(self) -> Bearer:
        return Bearer.inside(self._registry.hub_id, SCHEME, self._registry.admin)

    async def _asked(
        self,
        to: ReplicaRow,
        operation: Operation[Any, Any],
        asking: Bearer,
        given: Mapping[str, Any],
        headers: dict[str, str],
    ) -> "httpx.Response":
        path = operation.path
        for part, name in zip(operation.parts_in_path, operation.in_path, strict=True):
            safe = "/" if part.endswith(":path}") else ""
            path = path.replace(part, quote(str(given[name]), safe=safe))
        fields: Any = {each.name: given[each.name] for each in operation.fields if each.name in given}
        if len(operation.fields) == 1 and operation.fields[0].is_model:
            fields = given.get(operation.fields[0].name)
            fields = fields.model_dump(exclude_unset=True, warnings=False) if fields is not None else {}
        fields = {name: _plain(each) for name, each in fields.items()}
        body = b""
        if operation.is_in_query:
            query = urlencode({name: _word(each) for name, each in fields.items() if each is not None})
            path += f"?{query}" if query else ""
        elif operation.body is not None:
            body = to_json(fields, inf_nan_mode="constants", fallback=str)
            headers = {**headers, "content-type": "application/json"}
        answered = await self._send(to, operation.method, path, headers, body, asking)
        if answered.status_code >= 400:
            raise _error(answered.status_code, await self._whole(to, answered))
        return answered

    async def _send(
        self,
        to: ReplicaRow,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes,
        asking: Bearer,
        purpose: Any = "operation",
    ) -> "httpx.Response":
        import httpx

        if self._transport is None:
            # It would log the headers of each answer, and a cookie is in some.
            logging.getLogger("httpcore").setLevel(logging.INFO)
            # By default streams would take all hundred connections. What waits has limits where it comes in.
            pool = httpx.Limits(max_connections=None, max_keepalive_connections=20)
            self._transport = httpx.AsyncHTTPTransport(verify=self._tls(), trust_env=False, limits=pool)
        request = httpx.Request(
            method,
            f"{to.url}{target}",
            headers=headers,
            content=body,
            extensions={"timeout": {"connect": limits.REPLICA_CONNECT_S}},
        )
        path, _, query = request.url.raw_path.decode("ascii").partition("?")
        path = unquote(path).removeprefix(urlsplit(to.url).path)
        if path != unquote(target.partition("?")[0]):
            # It has dots as a part, which lead to another path.
            raise NotFound("there is nothing named {name!r}", name=target[:100])
        ticket = Ticket(
            purpose=purpose,
            to=to.instance,
            request=_asked(method, path, query),
            body=digest_of(body),
            claims=asking.claims,
            may_confirm=asking.may_confirm,
            source=asking.source,
            base=str(asking.connection.base_url),
        )
        signed = issue_ticket(self._registry.key, self._registry.hub_id, ticket)
        request.headers["authorization"] = f"{SCHEME} {signed}"
        try:
            return await self._while_there(to, self._transport.handle_async_request(request))
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise LinkError(
                "the replica {name} cannot be reached", name=to.instance, hint="Try again in a moment."
            ) from None
        except httpx.HTTPError:
            raise _lost(to) from None

    async def _while_there(self, to: ReplicaRow, work: Coroutine[Any, Any, T]) -> T:
        """Return what work on another replica returns, for as long as that one runs.

        Raises:
            LinkError: If it does not run any more; what became of the work is not known.
        """
        async with open_tasks() as tasks:
            working = tasks.create_task(work, name=f"request to {to.instance}")
            while not (await asyncio.wait([working], timeout=limits.REPLICA_LOOK_S))[0]:
                if not self._runs(to.instance):
                    raise _lost(to)
            return working.result()

    async def _content(self, to: ReplicaRow, answered: "httpx.Response") -> AsyncGenerator[bytes, None]:
        import httpx

        chunks = answered.aiter_raw()
        try:
            while (chunk := await self._while_there(to, _next(chunks))) is not None:
                yield chunk
        except httpx.HTTPError:
            raise _lost(to) from None
        finally:
            await _close(answered)

    async def _whole(self, to: ReplicaRow, answered: "httpx.Response") -> bytes:
        return b"".join([chunk async for chunk in self._content(to, answered)])

    def _tls(self) -> ssl.SSLContext:
        return client_context(self._registry.settings.bus.ca)

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()


class _Passed(StreamingResponse):
    """What another replica answers; its connection ends also where the client left before any of it came."""

    answered: "httpx.Response"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await _close(self.answered)


class From(Request):
    """A request that was passed on: it counts as of where it came from first, and where it was asked."""

    def __init__(self, request: Request, ticket: Ticket) -> None:
        base = urlsplit(ticket.base)
        others = [each for each in request.scope["headers"] if each[0] != b"host"]
        asked = {"scheme": base.scheme, "headers": [(b"host", base.netloc.encode()), *others]}
        # A part of the hub asks through no connection.
        super().__init__(
            {**request.scope, "client": (ticket.source, 0), **(asked if base.netloc else {})}, request.receive
        )
        self._body = request._body


def _asked(method: str, path: str, query: str) -> str:
    # Quoted, so that no path looks like one with a query.
    return f"{method} {quote(path)}?{query}"


def _target(request: Request) -> str:
    scope = request.scope
    path = quote(scope["path"].removeprefix(scope.get("root_path", "")))
    return f"{path}?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else path


async def _close(answered: "httpx.Response") -> None:
    with suppress(RuntimeError):  # a request that was cancelled still reads
        await asyncio.shield(answered.aclose())


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _lines(content: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    rest = b""
    async with aclosing(content) as chunks:
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line


def _lost(to: ReplicaRow) -> Lost:
    return Lost(
        "the replica {name} did not answer: what became of this is not known",
        name=to.instance,
        hint="Look whether it was done before you try again.",
    )


def _error(status: int, content: bytes) -> StrawberryError:
    try:
        problem = ProblemDetails.read(from_json(content))
    except ValueError:
        problem = None
    if problem is None:
        return StrawberryError("this request failed; the log says more")
    kind: Callable[..., StrawberryError] = problem.kind(status) or (
        LinkError if status == 503 else StrawberryError
    )
    return kind(problem.message, hint=problem.hint)


def _plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _word(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value, fallback=str).decode().strip('"')
