"""The world: ``/api/world``, and what pages follow."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from chat.http.streams import HEARTBEAT_S
from chat.operations import LOOK, Needs, Resource
from chat.tasks import happens
from contracts.errors import NotFound
from contracts.wire import OrAbsent, Part, Strict
from hub_live import limits
from hub_live.world.thing import Thing
from hub_live.world.world import World, WorldView
from hub_registry.access.bearer import Bearer

_Name = Annotated[str, Field(min_length=1, max_length=256)]


class Wanted(Strict):
    """The things that are wanted."""

    area: _Name | None = None
    kind: _Name | None = None
    name: _Name | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 200

    def view(self, world: World, user: str) -> WorldView:
        return world.view(user, area=self.area, kind=self.kind, name=self.name, limit=self.limit)


class WorldEvent(Part):
    """All things, as a `WorldView`, or what is new since.

    Attributes:
        gone: Kind and id of each thing that is no longer there.
    """

    things: list[Thing]
    more: OrAbsent[int] = None
    kinds: OrAbsent[dict[str, int]] = None
    areas: OrAbsent[dict[str, int]] = None
    left_out: OrAbsent[int] = None
    gone: list[tuple[str, str]]


world: Resource[World, Bearer] = Resource("world", "/api/world")


@world.get(Needs(("chat",), devices=True))
async def look(world: World, asking: Bearer, wanted: Wanted) -> WorldView:
    """Return the things of the home, with their states; see [World](live.md#world).

    An unknown area, kind or name is a 404 with the nearest. With `follow=true`, which no device may, it is a
    stream of server-sent events: all of it, then `{"things", "gone": [[kind, id]]}` with what changed,
    gathered for 0.25 s; a token has at most 64.
    """
    return await world.seen(wanted.view(world, asking.user.id))


@world.stream(LOOK, switch="follow")
async def follow(world: World, asking: Bearer, wanted: Wanted) -> AsyncIterator[WorldEvent | None]:
    """Follow the things of the home."""
    first = await world.seen(wanted.view(world, asking.user.id))
    return _following(world, wanted, first, asking)


async def _following(
    world: World, wanted: Wanted, first: WorldView, asking: Bearer
) -> AsyncIterator[WorldEvent | None]:
    """Yield all things, and then those that changed or went; a client that reads slowly misses states."""
    changed: set[str] = set()
    woken = asyncio.Event()

    def note(topic: str) -> None:
        changed.add(topic if len(changed) < limits.MOST_CHANGED_TOPICS else "")
        woken.set()

    stop = world.on_change(note)
    try:
        note("")
        yield WorldEvent(**vars(first), gone=[])
        sent = {(thing.kind, thing.id): replace(thing, age_s=None) for thing in first.things}
        while time.time() < asking.claims.exp:
            if not await happens(woken, within_s=HEARTBEAT_S):
                yield None
                continue
            await asyncio.sleep(limits.WORLD_GATHER_S)
            topics = set(changed)
            changed.clear()
            woken.clear()
            there = await _there(world, wanted, asking.user.id, topics)
            gone = sent.keys() - there.keys()
            news = [
                thing
                for key, thing in there.items()
                if thing is not None and sent.get(key) != replace(thing, age_s=None)
            ]
            sent |= {(thing.kind, thing.id): replace(thing, age_s=None) for thing in news}
            for key in gone:
                del sent[key]
            if news or gone:
                yield WorldEvent(things=news, gone=sorted(gone))
    finally:
        stop()


async def _there(
    world: World, wanted: Wanted, user: str, topics: set[str]
) -> dict[tuple[str, str], Thing | None]:
    """Return the things that there are; only those that may have changed with their states."""
    try:
        view = wanted.view(world, user)
    except NotFound:
        # What was asked for is no longer there, and may come again.
        return {}
    found: dict[tuple[str, str], Thing | None] = {}
    for thing in view.things:
        is_changed = "" in topics or thing.topic in topics
        found[thing.kind, thing.id] = world.current(thing) if is_changed else None
        if is_changed:
            await asyncio.sleep(0)
    return found
