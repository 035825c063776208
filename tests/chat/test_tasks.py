"""Tasks that end with their block."""

import asyncio
from contextlib import AsyncExitStack

from chat.tasks import open_tasks


async def test_what_ends_after_the_tasks_of_a_cancelled_block_is_not_cancelled_again() -> None:
    entered, cleaned = asyncio.Event(), []

    async def clean() -> None:
        await asyncio.sleep(0)
        cleaned.append(True)

    async def work() -> None:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(clean)
            tasks = await stack.enter_async_context(open_tasks())
            tasks.create_task(asyncio.Event().wait())
            entered.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(work())
        await entered.wait()
        task.cancel()
    assert cleaned == [True]


async def test_of_contained_tasks_one_that_fails_is_logged_and_the_others_go_on(
    failed_tasks: list[str],
) -> None:
    async def work(left: int) -> float:
        return 1 / left

    async with open_tasks(contained=True) as tasks:
        await tasks.create_task(work(0), name="first")
        tasks.create_task(work(0), name="never begun").cancel()
        assert await tasks.create_task(work(1)) == 1
    assert failed_tasks == ["the task 'first' failed"]
    failed_tasks.clear()
