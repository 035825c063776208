"""Operations over HTTP, and in this process for pages: the rights, the limits and the audit are the same."""

import inspect
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import replace
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from chat import limits
from chat.http.limits import WITH_TOKEN
from chat.http.requests import NoBody, answer, answer_each, read, read_query
from chat.http.streams import DONE, HEARTBEAT, Connections, Streams, event, farewell
from chat.operations.operation import Answer, Needs, Operation, P, Resource, Service, Stream
from chat.tasks import finished
from contracts.claims import Claims
from contracts.errors import InvalidMessage, LinkError, NotFound, StrawberryError
from contracts.validation import check_numbers, validated

_log = logging.getLogger(__name__)

_SWITCH: Final = TypeAdapter(bool)
_PART: Final = re.compile(r"[^/]+")


class Asker(Protocol):
    """Who asks."""

    @property
    def claims(self) -> Claims:
        """The claims of the token."""


AskerT = TypeVar("AskerT", bound=Asker)
AskerIn = TypeVar("AskerIn", bound=Asker, contravariant=True)


class Door(Protocol[AskerT]):
    """Knows who asks, and what they may."""

    async def admit(self, request: Request, needs: Needs, what: str) -> AskerT:
        """Return who makes a request, whose rights suffice for what is named.

        Raises:
            Unauthorized: If there is no valid token.
            Forbidden: If it lacks a right.
            TooManyRequests: If there were too many requests with it.
        """

    def recording(self, what: str, asking: AskerT) -> AbstractContextManager[None]:
        """Return a context that records in the audit when what is in it is forbidden."""


Admit = Callable[[Needs, str], Awaitable[AskerT]]
"""Returns who asks in this process, whose rights suffice for what is named; see `Door.admit`."""


class Elsewhere(Protocol[AskerIn]):
    """Knows what another process of the same program does, and passes that on."""

    def passes(self, operation: Operation[Any, Any]) -> bool:
        """Return whether an operation is passed on whatever its arguments are."""

    async def place(
        self,
        operation: Operation[Any, Any],
        asking: AskerIn,
        given: Mapping[str, Any],
        request: Request | None = None,
    ) -> Any:
        """Return where an operation is done; None for here.

        Raises:
            LinkError: If no process does it right now.
        """

    def doing(self, operation: Operation[Any, Any]) -> AbstractContextManager[None]:
        """Return a context in which an operation is done here, and refused once another process does it."""

    async def forward(self, place: Any, request: Request, asking: AskerIn) -> Response:
        """Return what is answered to a request there."""

    async def call(
        self, place: Any, operation: Operation[Any, Any], asking: AskerIn, given: Mapping[str, Any]
    ) -> Any:
        """Call an operation there."""

    def follow(
        self, place: Any, stream: Stream[Any, Any], asking: AskerIn, given: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a stream there."""


class Operations(Generic[AskerT]):
    """The operations of a program, each with the service that it works on.

    Args:
        connections: The clients that wait.

    Attributes:
        elsewhere: Other processes of the same program, where there are some.
    """

    def __init__(self, door: Door[AskerT], connections: Connections) -> None:
        self._door = door
        self._connections = connections
        self._services: dict[str, Any] = {}
        self.elsewhere: Elsewhere[AskerT] | None = None

    def put(self, resource: Resource[Service, AskerT], service: Service | None) -> None:
        """Set or remove the service of a mounted resource."""
        self._services[resource.name] = service

    def mount(self, resource: Resource[Service, AskerT], service: Service | None) -> list[BaseRoute]:
        """Mount a resource on a service; return its routes.

        Args:
            service: None where it comes later, by `put`.
        """
        self._services[resource.name] = service
        found: dict[str, Operation[Any, Any]] = {}
        streams: dict[str, Stream[Any, Any]] = {}
        for each in resource.operations:
            # A stream follows the operation whose path it shares.
            if isinstance(each, Stream) and each.label in found:
                streams[each.label] = each
            else:
                found[each.label] = each
        return [
            Route(each.path, self._endpoint(each, streams.get(each.label)), methods=[each.method])
            for each in found.values()
        ]

    async def call(
        self, operation: Operation[P, Answer], admit: Admit[AskerT], /, *args: P.args, **kwargs: P.kwargs
    ) -> Answer:
        """Call an operation in this process.

        Args:
            admit: Returns who asks.

        Raises:
            StrawberryError: As the operation raises it, or because of a right or a limit.
        """
        needs = self._needs(operation)
        asking = await admit(needs, operation.label)
        arguments = _checked(operation, args, kwargs)
        if self.elsewhere is not None:
            place = await self.elsewhere.place(operation, asking, arguments)
            if place is not None:
                given = _bound(operation, args, kwargs)
                passed: Answer = await self.elsewhere.call(place, operation, asking, given)
                return passed
        _check_admitted(operation, needs)
        service = self._service(operation)

        async def run() -> Answer:
            with _expected(operation), self._doing(operation, asking):
                return await operation(service, asking, **arguments)  # type: ignore[call-arg]

        if operation.method == "GET" or operation.is_held:
            return await run()
        # As over HTTP: what changes something is not left in the middle because its page is gone.
        return await finished(run(), within_s=limits.OPERATION_END_S, name=operation.label)

    @asynccontextmanager
    async def follow(
        self, stream: Stream[P, Answer], admit: Admit[AskerT], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[AsyncIterator[Answer]]:
        """Open a stream in this process; yield its answers, until the block is left. See `call`."""
        needs = self._needs(stream)
        asking = await admit(needs, stream.label)
        if self.elsewhere is not None:
            given = _checked(stream, args, kwargs)
            if (place := await self.elsewhere.place(stream, asking, given)) is not None:
                async with self.elsewhere.follow(
                    place, stream, asking, _bound(stream, args, kwargs)
                ) as passed:
                    yield passed
                return
        _check_admitted(stream, needs)
        service = self._service(stream)
        with _expected(stream), self._doing(stream, asking):
            answers = await stream.function(service, asking, **_checked(stream, args, kwargs))
        async with aclosing(_answers(stream, answers)) as found:
            yield found

    def _needs(self, operation: Operation[Any, Any]) -> Needs:
        if self.elsewhere is None or not self.elsewhere.passes(operation):
            return operation.needs
        # The process that does it knows which passwords were typed.
        return replace(operation.needs, password=False)

    def _service(self, operation: Operation[Any, Any]) -> Any:
        service = self._services[operation.resource.name]
        if service is None:
            raise LinkError("no replica of the hub leads right now", hint="Try again in a moment.")
        return service

    @contextmanager
    def _doing(self, operation: Operation[Any, Any], asking: AskerT) -> Iterator[None]:
        label = operation.label
        recording = nullcontext() if operation.notes_refusals else self._door.recording(label, asking)
        doing = nullcontext() if self.elsewhere is None else self.elsewhere.doing(operation)
        with recording, doing:
            yield

    def _endpoint(
        self, declared: Operation[Any, Any], switched: Stream[Any, Any] | None
    ) -> Callable[[Request], Awaitable[Response]]:
        stream = declared if isinstance(declared, Stream) else switched
        streams = Streams(self._connections, most=stream.most) if stream is not None else None

        async def endpoint(request: Request) -> Response:
            is_on = switched is not None and _is_on(switched, request)
            operation = switched if switched is not None and is_on else declared
            needs = self._needs(operation)
            asking = await self._door.admit(request, needs, operation.label)
            if self.elsewhere is not None:
                place = await self.elsewhere.place(operation, asking, request.path_params, request)
                if place is not None:
                    return await self.elsewhere.forward(place, request, asking)
            _check_admitted(operation, needs)
            service = self._service(operation)
            with self._doing(operation, asking):
                if switched is not None and is_on is None:
                    raise InvalidMessage("{switch} must be true or false", switch=switched.switch)
                arguments = {**request.path_params, **await _given(operation, request, switched)}
                if operation.is_held:
                    hold = self._connections.hold(request.receive, token=asking.claims.jti)
                    async with hold as client:
                        return await _respond(operation, service, asking, arguments)
                    return farewell(client)
                if isinstance(operation, Stream) and streams is not None:
                    answers = await operation.function(service, asking, **arguments)
                    return streams.answer(asking.claims.jti, _events(operation, answers))
                return await _respond(operation, service, asking, arguments)

        endpoint.operation = declared  # type: ignore[attr-defined]
        endpoint.switched = switched  # type: ignore[attr-defined]
        return endpoint


def _check_admitted(operation: Operation[Any, Any], needs: Needs) -> None:
    # The client was admitted for another replica, which asks for the password: this process leads by now.
    if needs != operation.needs:
        raise LinkError("another replica of the hub leads by now", hint="Try again.")


def _bound(operation: Operation[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    given = inspect.signature(operation.function).bind(None, None, *args, **kwargs).arguments
    _, _, *names = given
    return {name: given[name] for name in names}


def _checked(operation: Operation[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call in this process: what a person typed is checked like what is sent."""
    arguments = _bound(operation, args, kwargs)
    for part, name in zip(operation.parts_in_path, operation.in_path, strict=True):
        # A route has no other names, and its path no place for them.
        if not part.endswith(":path}") and not _PART.fullmatch(str(arguments[name])):
            raise NotFound("there is nothing named {name!r}", name=arguments[name])
    if operation.body is None:
        return arguments
    fields = {each.name: arguments[each.name] for each in operation.fields if each.name in arguments}
    sent = next((each for each in fields.values() if isinstance(each, operation.body)), None)
    if sent is not None:
        fields = sent.model_dump(exclude_unset=True, warnings=False)
    if not operation.is_in_query:
        body = to_json(fields, inf_nan_mode="constants", fallback=str)
        WITH_TOKEN.check(body)
        try:
            check_numbers(body)
        except ValueError as error:
            raise InvalidMessage(str(error)) from None
    return arguments | operation.arguments(validated(operation.body, fields, what="field"))


def _is_on(stream: Stream[Any, Any], request: Request) -> bool | None:
    """Return whether a request asks for the stream of its path; None where its switch is another word."""
    if not stream.switch:
        return "text/event-stream" in request.headers.get("accept", "")
    try:
        return _SWITCH.validate_python(request.query_params.get(stream.switch, False))
    except ValidationError:
        return None


@contextmanager
def _expected(operation: Operation[Any, Any]) -> Iterator[None]:
    """Log what an operation did not raise on purpose, as a server does; the caller learns that it failed."""
    try:
        yield
    except StrawberryError:
        raise
    except Exception:  # noqa: BLE001 - whatever it is, a page goes on
        _log.exception("%s failed", operation.label)
        raise StrawberryError("this request failed; the log says more") from None


async def _answers(
    stream: Stream[Any, Answer], answers: AsyncIterator[Answer | None]
) -> AsyncGenerator[Answer, None]:
    with _expected(stream):
        async with aclosing(answers) as found:  # type: ignore[type-var]
            async for each in found:
                if each is not None:
                    yield each


async def _given(
    operation: Operation[Any, Any], request: Request, switched: Stream[Any, Any] | None
) -> dict[str, Any]:
    """Return what a request gives beside its path."""
    whole = {} if operation.takes_request is None else {operation.takes_request: request}
    if operation.body is None:
        return whole
    if not operation.is_in_query:
        optional = operation.may_be_empty
        return operation.arguments(await read(request, operation.body, optional=optional))
    switch = switched.switch if switched is not None else ""
    arguments = whole | operation.arguments(read_query(request, operation.body, without=switch))
    last = request.headers.get("last-event-id") if isinstance(operation, Stream) and operation.ids else None
    if last is not None:
        if not (last.isascii() and last.isdecimal() and len(last) < 19):
            raise InvalidMessage(
                "last-event-id: a number, not {text!r}", text=last[:40], hint="Send the id of an event."
            )
        arguments["after"] = int(last)
    return arguments


async def _respond(
    operation: Operation[Any, Any], service: Any, asking: Any, arguments: dict[str, Any]
) -> Response:
    made = await operation.function(service, asking, **arguments)
    if isinstance(made, Response):
        return made
    if made is None:
        return NoBody()
    if isinstance(made, list):
        return await answer_each(made)
    return answer(made, status=operation.status)


async def _events(operation: Stream[Any, Any], answers: AsyncIterator[Any]) -> AsyncGenerator[bytes, None]:
    # A client that waits for the stream to open waits for this.
    yield f": {operation.resource.name}\n\n".encode()
    async with aclosing(answers) as found:  # type: ignore[type-var]
        async for each in found:
            if each is None:
                yield HEARTBEAT
                continue
            if operation.ids:
                yield f"id: {getattr(each, operation.ids)}\n".encode()
            yield event(each)
    if operation.marks_end:
        yield DONE
