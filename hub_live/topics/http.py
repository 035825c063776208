"""Topics over HTTP: ``/api/bus/latest``, ``history`` and ``tree``, and the body of ``/api/bus/publish``."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from typing import Annotated, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from agent_core.times import Since
from chat.http.requests import Answer, answer, read_query
from chat.http.streams import HEARTBEAT, HEARTBEAT_S, Connections, EventStream, Streams, event
from chat.tasks import happens
from contracts.topics import EVERYTHING
from contracts.wire import Json, Strict
from hub_live.topics.samples import Gap, LinkName, Sample
from hub_live.topics.tree import MOST_TOPICS, TreeEvent, watching
from hub_live.topics.values import (
    BusValues,
    ShownSamples,
    check_visible,
    described,
    described_all,
    described_gap,
)
from hub_registry.access.bearer import Bearer, Gate

_WAITING: Final = 1_000
"""Messages that wait for a client of a stream that reads too slowly; what is more is counted and dropped."""

_WAITING_BYTES: Final = 4 * 1024 * 1024
"""The same in bytes of payloads, so that a few large ones do not fill the memory."""

_TICK_S: Final = 0.5
"""Between two slices of a tree: a topic is sent at most twice a second, and 400 topics are altogether."""


Topic = Annotated[str, Field(min_length=1, max_length=65_535)]


class _Latest(Strict):
    """Query parameters of ``/api/bus/latest``.

    Attributes:
        topic: A topic or a topic filter.
        follow: Whether each further message follows, as a stream of server-sent events.
    """

    topic: Topic
    link: LinkName = "bus"
    follow: bool = False


class _History(Strict):
    """Query parameters of ``/api/bus/history``.

    Attributes:
        limit: The newest so many.
    """

    topic: Topic
    link: LinkName = "bus"
    since: Since = Field("1h", validate_default=True)
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000


class _Tree(Strict):
    """Query parameters of ``/api/bus/tree``.

    Attributes:
        words: Only topics in which all of these are.
    """

    filter: Topic = EVERYTHING
    words: Annotated[str, Field(max_length=200)] = ""
    link: LinkName = "bus"


class PublishBody(Strict):
    """A message to publish; see `BusSkill.publish`.

    Attributes:
        confirmation: As for ``/api/skills/call``.
    """

    topic: Topic
    payload: Json
    link: LinkName
    retain: bool = False
    qos: Literal[0, 1] = 0
    confirmation: Annotated[str | None, Field(max_length=64)] = None


def topic_routes(values: BusValues, gate: Gate, *, connections: Connections) -> list[BaseRoute]:
    """Make the routes that read."""
    may_read = gate.require_user("chat")
    streams = Streams(connections)

    async def latest(request: Request) -> Answer[ShownSamples] | EventStream:
        bearer, query = await may_read(request), read_query(request, _Latest)
        samples = await values.latest(bearer.user, query.topic, query.link)
        if query.follow:
            return streams.answer(bearer.claims.jti, _following(values, bearer, query))
        # Of the latest values only counts whether they may be out of date.
        gaps = [gap for gap in values.gaps(query.link, since=None) if gap.until is None]
        return answer(ShownSamples(samples=await described_all(samples), gaps=gaps))

    async def history(request: Request) -> Answer[ShownSamples]:
        bearer, query = await may_read(request), read_query(request, _History)
        user, since = bearer.user, query.since
        return answer(await values.history(user, query.topic, query.link, since=since, limit=query.limit))

    async def tree(request: Request) -> EventStream:
        bearer, query = await may_read(request), read_query(request, _Tree)
        values.feed.require(query.link)
        check_visible(bearer.user, query.filter, query.link)
        return streams.answer(bearer.claims.jti, _growing(values, bearer, query))

    return [
        Route("/api/bus/latest", latest),
        Route("/api/bus/history", history),
        Route("/api/bus/tree", tree),
    ]


def _size(item: Sample | Gap) -> int:
    return len(item.payload) if isinstance(item, Sample) else 0


async def _following(values: BusValues, bearer: Bearer, query: _Latest) -> AsyncGenerator[bytes, None]:
    waiting: asyncio.Queue[Sample | Gap] = asyncio.Queue(_WAITING)
    lost = size = 0

    def put(item: Sample | Gap) -> None:
        nonlocal lost, size
        if waiting.full() or size + _size(item) > _WAITING_BYTES:
            lost += 1
        else:
            size += _size(item)
            waiting.put_nowait(item)

    with ExitStack() as stack:
        sees = values.sees(bearer.user, query.link)
        stack.enter_context(values.feed.follow(query.topic, put, link=query.link, sees=sees))
        stack.callback(values.feed.on_gap(lambda gap: put(gap) if gap.link == query.link else None))
        known = await values.latest(bearer.user, query.topic, query.link)
        for sample in known:
            yield event(described(sample))
        while time.time() < bearer.claims.exp:
            if lost and waiting.empty():
                # The client gets them in the order in which they would have come.
                count, lost = lost, 0
                yield event({"lost": count})
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    item = await waiting.get()
            except TimeoutError:
                yield HEARTBEAT
                continue
            size -= _size(item)
            if isinstance(item, Gap):
                yield event({"gap": described_gap(item)})
            elif not any(item is each for each in known):
                yield event(described(item))


async def _growing(values: BusValues, bearer: Bearer, query: _Tree) -> AsyncGenerator[bytes, None]:
    feed, may_see, words = values.feed, values.sees(bearer.user, query.link), query.words.lower().split()

    def sees(topic: str) -> bool:
        return all(word in topic.lower() for word in words) and may_see(topic)

    with ExitStack() as stack:
        tree = stack.enter_context(watching(feed, query.filter, query.link, sees=sees))
        gaps: list[Gap] = [gap for gap in feed.gaps(query.link) if gap.until is None]

        def note(gap: Gap) -> None:
            if gap.link == query.link:
                gaps[:] = [gap]
                tree.changed.set()

        stack.callback(feed.on_gap(note))
        await feed.settled(query.link)
        if (reason := feed.refusal(query.filter, query.link)) is not None:
            yield event(TreeEvent(refused=reason))
            return
        was_full = False
        while time.time() < bearer.claims.exp:
            for gap in gaps:
                yield event(TreeEvent(gap=described_gap(gap)))
            gaps.clear()
            topics, were_known = tree.take()
            # An empty first one says that the stream is there.
            yield event(TreeEvent(topics=topics))
            if tree.is_full and not was_full:
                was_full = True
                yield event(TreeEvent(full=MOST_TOPICS))
            # What a client sees for the first time comes as fast as it reads.
            await asyncio.sleep(_TICK_S if were_known else 0)
            while not await happens(tree.changed, within_s=HEARTBEAT_S):
                yield HEARTBEAT
