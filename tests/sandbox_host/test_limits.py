"""The clock of a run."""

import asyncio

from sandbox_host import Deadline


async def test_a_deadline_does_not_run_before_it_is_started() -> None:
    deadline = Deadline(0.01)
    await asyncio.sleep(0.03)
    assert deadline.left == 0.01
    deadline.start()
    await deadline.expired()
    assert deadline.left == 0


async def test_pauses_may_overlap() -> None:
    deadline = Deadline(60)
    deadline.start()
    with deadline.paused():
        with deadline.paused():
            await asyncio.sleep(0.01)
        left = deadline.left
        await asyncio.sleep(0.01)
        assert deadline.left == left
    await asyncio.sleep(0.01)
    assert deadline.left < left


async def test_who_waits_for_the_end_also_waits_through_a_pause() -> None:
    deadline = Deadline(0.02)
    async with asyncio.TaskGroup() as tasks:
        with deadline.paused():
            deadline.start()
            waiting = tasks.create_task(deadline.expired())
            await asyncio.sleep(0.06)
            assert not waiting.done()
    assert deadline.left == 0


async def test_a_deadline_of_no_time_expires_at_once() -> None:
    deadline = Deadline(0)
    deadline.start()
    await deadline.expired()
