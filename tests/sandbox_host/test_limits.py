"""The clock of a run."""

import asyncio

import pytest

from sandbox_host import Deadline


async def test_a_clock_ends_its_block_and_no_other_one() -> None:
    deadline = Deadline(0)
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with deadline.enforced():
            await asyncio.Event().wait()


async def test_the_clock_stands_still_until_the_last_of_several_pauses_ends() -> None:
    deadline = Deadline(0)
    passed: list[int] = []

    async def overlap() -> None:
        async with deadline.enforced():
            with deadline.paused(), deadline.paused():
                await asyncio.sleep(0.01)
                passed.append(1)
            await asyncio.Event().wait()

    with deadline.paused():
        running = asyncio.get_running_loop().create_task(overlap())
        await asyncio.sleep(0.02)
        assert not running.done()
    with pytest.raises(TimeoutError):
        await running
    assert passed


async def test_a_pause_that_outlives_the_clock_does_no_harm() -> None:
    deadline = Deadline(0)
    async with deadline.enforced():
        pause = deadline.paused()
        pause.__enter__()
    pause.__exit__(None, None, None)
    with pytest.raises(TimeoutError):
        async with deadline.enforced():
            await asyncio.Event().wait()
