"""Sessions, and the processes that they share."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.errors import SandboxError
from sandbox_host import Deadline, PoolSettings, RunStatus, Session, find, open_pool
from sandbox_host.client import Interpreter
from tests.sandbox_host.house import House
from tests.sandbox_host.processes import sandbox_processes

pytestmark = pytest.mark.slow


async def wait_for_processes(number: int) -> None:
    async with asyncio.timeout(60):
        while len(sandbox_processes()) != number:  # noqa: ASYNC110 - the kernel sends no event
            await asyncio.sleep(0.02)


async def value(session: Session, program: str, house: House) -> object:
    return (await session.run(program, house)).value


async def test_conversations_do_not_see_each_others_variables(settings: PoolSettings, house: House) -> None:
    async with open_pool(settings) as pool:
        one, other = await pool.session("one"), await pool.session("other")
        await one.run("a = 1", house)
        assert await value(other, "'a' in globals()", house) is False
        assert await value(one, "a", house) == 1
        assert await pool.session("one") is one


async def test_the_first_run_is_fresh_and_has_lost_nothing(settings: PoolSettings, house: House) -> None:
    async with open_pool(settings) as pool:
        session = await pool.session("one")
        first = await session.run("a = 1", house)
        second = await session.run("a", house)
    assert (first.fresh, first.lost) == (True, "")
    assert (second.fresh, second.lost) == (False, "")


async def test_two_runs_of_one_session_wait_for_each_other(settings: PoolSettings, house: House) -> None:
    async with open_pool(settings) as pool:
        session = await pool.session("one")
        await session.run("log = []", house)
        program = "log.append('in')\nawait asyncio.sleep(0.05)\nlog.append('out')"
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(session.run(program, house))
        assert await value(session, "log", house) == ["in", "out"] * 3


async def test_a_pool_without_room_takes_it_from_who_rests_longest(
    settings: PoolSettings, house: House
) -> None:
    async with open_pool(replace(settings, processes=2)) as pool:
        one, two, three = [await pool.session(name) for name in ("one", "two", "three")]
        await one.run("a = 1", house)
        await two.run("a = 2", house)
        await one.run("a", house)
        await three.run("a = 3", house)
        assert await value(one, "a", house) == 1
        evicted = await two.run("'a' in globals()", house)
        await wait_for_processes(2)
    assert evicted.value is False
    assert evicted.fresh
    assert evicted.lost == "other conversations needed its room"


async def test_a_pool_where_all_are_running_lets_the_next_one_wait(
    settings: PoolSettings, house: House
) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        started.set()
        await may_end.wait()

    house.answers["device.A.hold"] = hold
    async with open_pool(replace(settings, processes=1)) as pool:
        one, two = await pool.session("one"), await pool.session("two")
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(one.run("device.A.hold()", house))
            await started.wait()
            second = tasks.create_task(two.run("1", house))
            await asyncio.sleep(0.1)
            assert len(sandbox_processes()) == 1
            assert not second.done()
            may_end.set()
        assert first.result().ok
        assert second.result().value == 1


async def test_an_owner_leaves_a_process_to_others_and_evicts_its_own_conversations_first(
    settings: PoolSettings, house: House
) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        started.set()
        await may_end.wait()

    house.answers["device.A.hold"] = hold
    async with open_pool(replace(settings, processes=2)) as pool:
        person = await pool.session("person", owner="person")
        await person.run("a = 1", house)
        async with asyncio.TaskGroup() as tasks:
            for number in range(3):
                greedy = await pool.session(f"greedy {number}", owner="greedy")
                tasks.create_task(greedy.run("device.A.hold()", house))
            await started.wait()
            # One of the three runs, two wait, and what the person has was not taken for them.
            assert await value(person, "a", house) == 1
            may_end.set()
        assert await value(person, "a", house) == 1


async def test_an_idle_session_loses_its_process_and_is_told(settings: PoolSettings, house: House) -> None:
    async with open_pool(replace(settings, idle_seconds=0.2)) as pool:
        session, other = await pool.session("one"), await pool.session("other")
        await other.run("a = 2", house)
        other.used += 3600
        await session.run("a = 1", house)
        await wait_for_processes(1)
        assert await value(other, "a", house) == 2
        after = await session.run("'a' in globals()", house)
    assert after.value is False
    assert after.fresh
    assert after.lost == "nothing was run for 0.2 s"


async def test_a_session_that_runs_is_not_idle(settings: PoolSettings, house: House) -> None:
    async with open_pool(replace(settings, idle_seconds=0.1)) as pool:
        session = await pool.session("one")
        result = await session.run("await asyncio.sleep(0.6)\n'done'", house)
    assert result.value == "done"


async def test_a_pool_that_is_closed_while_a_process_starts_logs_no_error(
    settings: PoolSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_pool(replace(settings, spares=1)):
        await wait_for_processes(1)
        # The pool has it a moment after the system, and long before it is ready.
        await asyncio.sleep(0.05)
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


async def test_a_spare_is_kept_and_replaced_when_it_is_taken(settings: PoolSettings, house: House) -> None:
    async with open_pool(replace(settings, spares=1)) as pool:
        await wait_for_processes(1)
        (spare,) = sandbox_processes()
        session = await pool.session("one")
        assert (await session.run("1", house)).ok
        await wait_for_processes(2)
        assert spare in sandbox_processes()


async def test_a_spare_that_died_is_not_given_to_anybody(settings: PoolSettings, house: House) -> None:
    async with open_pool(replace(settings, spares=1)) as pool:
        session = await pool.session("one")
        await session.run("1", house)
        await wait_for_processes(2)
        # Both die: the one of the session, and the spare that would take its place.
        for process in sandbox_processes():
            process.kill()
        async with asyncio.timeout(60):
            while not (await session.run("1", house)).ok:
                pass
        assert (await session.run("2", house)).value == 2


async def test_a_run_cancelled_while_it_waits_for_room_leaves_none_taken(
    settings: PoolSettings, house: House
) -> None:
    async with open_pool(replace(settings, processes=1)) as pool:
        session = await pool.session("one")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await session.run("1", house)
        await wait_for_processes(0)
        assert (await (await pool.session("two")).run("1", house)).value == 1


async def test_closing_the_pool_ends_every_process_and_every_run(
    settings: PoolSettings, house: House
) -> None:
    started = asyncio.Event()

    async def start() -> None:
        started.set()

    house.answers["device.A.start"] = start
    async with asyncio.TaskGroup() as tasks:
        async with open_pool(replace(settings, spares=1)) as pool:
            session = await pool.session("one")
            program = "device.A.start()\nwhile True: pass"
            endless = tasks.create_task(session.run(program, house, deadline=Deadline(60)))
            await started.wait()
            await wait_for_processes(2)
        assert sandbox_processes() == []
    assert endless.result().status is RunStatus.CRASHED
    assert endless.result().problem == "the interpreter died: the pool was closed"


async def test_a_run_that_waits_for_room_is_told_when_the_pool_closes(
    settings: PoolSettings, house: House
) -> None:
    started = asyncio.Event()

    async def hold() -> None:
        started.set()
        await asyncio.Event().wait()

    async def wait_in_vain(session: Session) -> None:
        with pytest.raises(SandboxError, match="the sandbox is closed"):
            await session.run("1", house)

    house.answers["device.A.hold"] = hold
    async with asyncio.TaskGroup() as tasks:
        async with open_pool(replace(settings, processes=1)) as pool:
            one, two = await pool.session("one"), await pool.session("two")
            holding = tasks.create_task(one.run("device.A.hold()", house))
            await started.wait()
            tasks.create_task(wait_in_vain(two))
            await asyncio.sleep(0)
        tasks.create_task(wait_in_vain(one))
    assert holding.result().status is RunStatus.CRASHED


async def test_nothing_of_a_process_is_left_on_disk(settings: PoolSettings, house: House) -> None:
    async with open_pool(settings) as pool:
        await (await pool.session("one")).run("1", house)
        assert len(own_caches(settings)) == 1
    assert own_caches(settings) == []


def own_caches(settings: PoolSettings) -> list[Path]:
    """What processes that were started from here have on disk; other tests may run beside this one."""
    return list((settings.directory / "processes").glob(f"{os.getpid()}-*"))


async def test_a_process_that_is_killed_at_its_start_leaves_nothing_on_disk(
    settings: PoolSettings,
) -> None:
    installed = await find(settings.directory)
    for steps in range(6):
        async with asyncio.TaskGroup() as tasks:
            process = Interpreter(installed)
            process.start(tasks)
            for _ in range(steps):
                await asyncio.sleep(0)
            process.kill("it is not needed")
    assert own_caches(settings) == []


async def test_a_pool_without_installed_files_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="the sandbox is not installed") as caught:
        async with open_pool(PoolSettings(tmp_path)):
            pass
    assert caught.value.hint
