"""Models taken over by a running hub or spoke when ``strawberry.toml`` or ``.env`` changes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from agent_core.models.entries import KEYS_FILE, SETTINGS_FILE, GatewayKind, Models
from chat.tasks import open_tasks
from contracts.errors import ConfigError
from deploy import limits
from deploy.directory import Home
from deploy.home.running import Reporter
from deploy.settings.settings import read_gateway, read_models

_log = logging.getLogger(__name__)


_Stamp = tuple[tuple[int, int] | None, ...]


class _Server(Protocol):
    def reload_models(self, models: Models, *, kind: GatewayKind) -> bool: ...


@asynccontextmanager
async def reloaded_models(
    home: Home,
    server: _Server,
    report: Reporter,
    *,
    then: Callable[[Models], None] = lambda _: None,
    also: Callable[[], None] = lambda: None,
) -> AsyncIterator[None]:
    """Keep the models of a hub or spoke as the settings say, for as long as the context is open.

    Args:
        then: Called with other models once they are in use.
        also: Called whenever the files changed; takes over other settings of them.
    """

    async def watch(seen: _Stamp) -> None:
        while True:
            await asyncio.sleep(limits.MODEL_FILES_LOOK_S)
            stamp = _stamp(home)
            if stamp == seen:
                continue
            seen = stamp
            try:
                models, kind = read_models(home), read_gateway(home)
                also()
            except ConfigError as error:
                # Perhaps half edited; the models that are asked now stay.
                _log.warning("changed settings cannot be used: %s. %s", error.message, error.hint)
                continue
            if server.reload_models(models, kind=kind):
                names = [model.entry.name for model in models.usable]
                report.state(
                    "models",
                    f"  model    now {', '.join(names) or 'none'}",
                    *(f"           left out: {problem}" for problem in models.problems),
                    usable=names,
                    problems=models.problems,
                )
                then(models)

    async with open_tasks() as tasks:
        tasks.create_task(watch(_stamp(home)), name="settings of models")
        yield


def _stamp(home: Home) -> _Stamp:
    """Return what changes with the files: size and time of each, None for one that is missing."""
    stamps: list[tuple[int, int] | None] = []
    for name in (SETTINGS_FILE, KEYS_FILE):
        try:
            status = (home.directory / name).stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((status.st_mtime_ns, status.st_size))
    return tuple(stamps)
