"""Loading of the web UI beside a hub that serves already."""

import asyncio
import gc
import importlib
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse

from agent_core.prompt import Household
from chat.tasks import open_tasks
from hub_server.service import Hub

if TYPE_CHECKING:
    from types import ModuleType

_log = logging.getLogger(__name__)

_MISSING: Final = """Strawberry is running. Its web UI is not installed here:

    pip install 'strawberry-home[web]'

then start it again. Until then: strawberry chat, strawberry devices, and GET /api/openapi.json.
"""
_STORAGE: Final = "NICEGUI_STORAGE_PATH"
_BROKEN: Final = "Strawberry is running, but its web UI cannot be loaded; the log says why.\n"


@asynccontextmanager
async def open_web(hub: Hub, *, household: Household) -> AsyncIterator[None]:
    """Serve the pages of a hub until the block is left.

    They are loaded in the background, as NiceGUI takes 0.6 s to import; requests wait for them where
    ``hub.pages.expect()`` was called before.
    """
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(open_tasks())
        tasks.create_task(_serve(hub, stack, household), name="web: load")
        yield


async def _serve(hub: Hub, stack: AsyncExitStack, household: Household) -> None:
    try:
        server = await asyncio.to_thread(load_server)
    except ModuleNotFoundError as error:
        if error.name != "nicegui":
            raise
        hub.pages.serve(PlainTextResponse(_MISSING))
        return
    except Exception:  # noqa: BLE001  the hub goes on without its pages
        _log.exception("the web UI cannot be loaded")
        hub.pages.serve(PlainTextResponse(_BROKEN, status_code=503))
        return
    hub.pages.serve(await stack.enter_async_context(server.open_server(hub, household=household)))
    # All that is loaded stays; full collections that searched it stopped the event loop for 150 to 240 ms.
    gc.freeze()


def load_server() -> "ModuleType":
    """Import NiceGUI and the pages without what it would read and write in the current directory."""
    before = os.environ.get(_STORAGE)
    os.environ[_STORAGE] = os.devnull
    try:
        server = importlib.import_module("hub_web.server")
        server.load_pages()
        return server
    finally:
        # Not for the processes that are started later: a program of the owner may use NiceGUI as well.
        del os.environ[_STORAGE]
        if before is not None:
            os.environ[_STORAGE] = before
