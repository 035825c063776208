"""The stream of events over HTTP: ``GET /api/events``."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import read_query
from chat.http.streams import HEARTBEAT, HEARTBEAT_S, Connections, EventStream, Streams, event
from contracts.errors import InvalidMessage
from contracts.wire import Json, Strict
from hub_agent.tables import EventRow
from hub_live.events.events import Events
from hub_live.events.kinds import KINDS, Event, Kind
from hub_registry.access.bearer import Gate


class _Query(Strict):
    """Query parameters of the stream.

    Attributes:
        kind: Only events of this kind.
        last: So many of the stored events come first; ``Last-Event-ID`` has precedence.
        follow: Whether further events are awaited; without, the stream ends after those that are stored.
        own: Whether an admin, too, gets only their own events.
    """

    kind: Kind | None = None
    last: Annotated[int, Field(ge=0, le=1_000)] = 0
    follow: bool = True
    own: bool = False


def event_routes(events: Events, gate: Gate, *, connections: Connections) -> list[BaseRoute]:
    """Make the route."""
    may_look = gate.require_user("chat")
    streams = Streams(connections)

    async def stream(request: Request) -> EventStream:
        bearer, query = await may_look(request), read_query(request, _Query)
        user = None if bearer.is_admin and not query.own else bearer.user.id
        kinds = KINDS if query.kind is None else (query.kind,)
        if (resumed := request.headers.get("last-event-id")) is not None:
            start = min(_id(resumed), await events.before_last(0, user=user))
        else:
            start = await events.before_last(query.last, user=user, kinds=kinds)

        async def chunks() -> AsyncGenerator[bytes, None]:
            yield b": events\n\n"
            idle_s = HEARTBEAT_S if query.follow else 0
            async with aclosing(events.follow(start, user=user, kinds=kinds, idle_s=idle_s)) as pages:
                async for page in pages:
                    if time.time() >= bearer.claims.exp or not (page or query.follow):
                        return
                    for each in page:
                        yield _chunk(each)
                    if not page:
                        yield HEARTBEAT

        return streams.answer(bearer.claims.jti, chunks())

    return [Route("/api/events", stream)]


def _id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidMessage(
            "last-event-id: a number, not {text!r}", text=text[:40], hint="Send the id of an event."
        )
    return int(text)


def _chunk(each: EventRow) -> bytes:
    shown = Event[Json].model_validate(each, from_attributes=True)
    return f"id: {each.id}\n".encode() + event(shown)
