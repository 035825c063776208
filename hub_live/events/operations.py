"""Events: ``/api/events``, and what pages follow."""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from pydantic import Field

from chat.http.streams import HEARTBEAT_S
from chat.operations import LOOK, Resource
from contracts.answers.live import Event, EventKind
from contracts.wire import Json
from hub_live.events.events import Events
from hub_live.events.kinds import KINDS
from hub_registry.access.bearer import Bearer

events: Resource[Events, Bearer] = Resource("events", "/api/events")


@events.stream(LOOK, ids="id")
async def follow(
    events: Events,
    asking: Bearer,
    kind: EventKind | None = None,
    last: Annotated[int, Field(ge=0, le=1_000)] = 0,
    follow: bool = True,
    own: bool = False,
    after: Annotated[int, Field(ge=0, lt=2**63)] | None = None,
) -> AsyncIterator[Event[Json] | None]:
    """Follow what happens.

    A `timer` has ended where its `data.event` is `ended`, else it was `set`, `paused` or `removed`.

    Args:
        kind: Only `watcher`, `capture`, `presence`, `notification`, `timer` or `node`.
        last: So many of the stored events come first; `after` has precedence.
        follow: Whether further events are awaited; without, the stream ends after those that are stored.
        own: Whether an admin, too, gets only their own events.
        after: Id of the event after which it goes on; browsers send it as `Last-Event-ID`.
    """
    user = None if asking.is_admin and not own else asking.user.id
    kinds = KINDS if kind is None else (kind,)
    if after is not None:
        start = min(after, await events.before_last(0, user=user))
    else:
        start = await events.before_last(last, user=user, kinds=kinds)

    async def shown() -> AsyncIterator[Event[Json] | None]:
        idle_s = HEARTBEAT_S if follow else 0
        async with aclosing(events.follow(start, user=user, kinds=kinds, idle_s=idle_s)) as pages:
            async for page in pages:
                if time.time() >= asking.claims.exp or not (page or follow):
                    return
                for each in page:
                    yield Event[Json].model_validate(each, from_attributes=True)
                if not page:
                    yield None

    return shown()
