"""What takes a while to open is opened once, and again where it failed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from agent_core.lazy import Lazy
from chat.tasks import open_tasks
from contracts.errors import SandboxError, StrawberryError


@dataclass
class Opener:
    """Opens after as many failures as it is given."""

    failures: list[Exception] = field(default_factory=list)
    opened: int = 0
    closed: int = 0

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[str]:
        if self.failures:
            raise self.failures.pop(0)
        self.opened += 1
        try:
            yield "open"
        finally:
            self.closed += 1


async def test_it_is_opened_once_for_all_and_closed_at_the_end() -> None:
    opener = Opener()
    async with open_tasks() as tasks:
        lazy = Lazy(opener, tasks=tasks, name="thing")
        assert await asyncio.gather(lazy.get(), lazy.get()) == ["open", "open"]
        assert await lazy.get() == "open"
        assert (opener.opened, opener.closed) == (1, 0)
    assert (opener.opened, opener.closed) == (1, 1)


async def test_after_a_failure_the_next_use_tries_again() -> None:
    opener = Opener([SandboxError("not installed", hint="Install it."), RuntimeError("a bug")])
    async with open_tasks() as tasks:
        lazy = Lazy(opener, tasks=tasks, name="thing")
        lazy.start()
        with pytest.raises(SandboxError, match="not installed"):
            await lazy.get()
        with pytest.raises(StrawberryError, match="the thing failed"):
            await lazy.get()
        assert await lazy.get() == "open"


async def test_a_user_who_gives_up_waiting_does_not_stop_it_for_others() -> None:
    go = asyncio.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[str]:
        await go.wait()
        yield "open"

    async with open_tasks() as tasks:
        lazy = Lazy(slow, tasks=tasks, name="thing")
        impatient = tasks.create_task(lazy.get())
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait([impatient])
        go.set()
        assert await lazy.get() == "open"
