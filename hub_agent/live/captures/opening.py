"""The captures of a hub, put together and kept going."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from bus.link import Link
from chat.tasks import open_tasks
from hub_agent.live.captures.captures import Captures
from hub_agent.live.captures.recording import Shared
from hub_agent.live.events import Events
from hub_agent.live.topics import Feed
from hub_agent.settings import HubSettings
from hub_registry.registry import Registry

_WRITERS: Final = 4
"""Threads: a disk that does not answer keeps three others going."""


@asynccontextmanager
async def open_captures(
    settings: HubSettings, registry: Registry, *, feed: Feed, link: Link, events: Events
) -> AsyncIterator[Captures]:
    """Record what was started, for as long as the context is open.

    Args:
        link: Of the bus, where the states are retained.
    """
    async with AsyncExitStack() as stack:
        thread = stack.enter_context(ThreadPoolExecutor(_WRITERS, thread_name_prefix="captures"))
        tasks = await stack.enter_async_context(open_tasks())
        captures = Captures(
            settings, registry, shared=Shared(feed, thread), link=link, events=events, tasks=tasks
        )
        await captures.resume()
        stack.push_async_callback(captures.close)
        stack.callback(link.on_connected(captures.publish))
        tidying = tasks.create_task(captures.tidy(), name="old captures")
        stack.callback(tidying.cancel)
        await captures.publish()
        yield captures
