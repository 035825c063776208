"""Calls out of the sandbox: how they look inside, and how they are bounded outside."""

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from contracts.errors import CallError, ErrorCode
from sandbox_host import Deadline, PoolSettings, RunLimits, RunStatus, Session, open_pool
from sandbox_host.calls import Calls
from sandbox_host.messages import Call
from tests.sandbox_host.house import House, deadline_from, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHO = "devices.pc.EchoSkill.echo"


async def test_a_call_looks_like_any_function(session: Session, house: House) -> None:
    result = await run(session, house, f"{ECHO}(1, 'ü', to=[None, {{'a': 1.5}}])")
    assert result.value == [[1, "ü"], {"to": [None, {"a": 1.5}]}]


async def test_every_name_of_the_seeds_leads_to_its_path(session: Session, house: House) -> None:
    paths = [
        "devices.hub.MemorySkill.recall",
        "devices.search_skills",
        "devices.get_function_info",
        "device.TimeSkill.now",
        "device.search_skills",
        "device.get_function_info",
        "device.get_skill_info",
    ]
    for path in paths:
        house.knows(path, path)
    house.knows("devices.pc.TimeSkill.now", "by its other name")
    calls = ", ".join(f"{path}()" for path in [*paths, "device_manager.pc.TimeSkill.now"])
    result = await run(session, house, f"[{calls}]")
    assert result.value == [*paths, "by its other name"]
    assert house.paths == [*paths, "devices.pc.TimeSkill.now"]


async def test_results_are_plain_data_with_attributes(session: Session, house: House) -> None:
    house.knows("device.MusicSkill.songs", [{"title": "a", "by": {"name": "b"}}])
    program = """
songs = device.MusicSkill.songs()
song = songs[0]
song.rating = 5
print(song.title == song["title"], song.by.name, isinstance(song, dict), song)
song.colour
"""
    result = await run(session, house, program)
    assert result.stdout == "True b True {'title': 'a', 'by': {'name': 'b'}, 'rating': 5}\n"
    assert result.traceback.endswith("AttributeError: no field 'colour'; there are: title, by, rating")


async def test_calls_work_wherever_python_calls_functions(session: Session, house: House) -> None:
    program = f"""
def one(n):
    return {ECHO}(n)[0][0]
def gen():
    yield one(1)
    yield one(2)
class Box:
    @property
    def value(self):
        return one(9)
async def inner():
    return one(10)
[sorted([3, 1, 2], key=one), [one(n) for n in range(2)], list(gen()), Box().value, await inner()]
"""
    result = await run(session, house, program)
    assert result.value == [[1, 2, 3], [0, 1], [1, 2], 9, 10]


async def test_await_may_stand_before_a_call_that_needs_none(session: Session, house: House) -> None:
    result = await run(session, house, f"(await {ECHO}(1))[0] + (await {ECHO}.aio(2))[0]")
    assert result.value == [1, 2]


async def test_calls_under_gather_run_at_the_same_time(session: Session, house: House) -> None:
    everybody = asyncio.Barrier(8)

    async def meet(number: int) -> int:
        await everybody.wait()
        return number

    house.answers["devices.pc.MeetSkill.meet"] = meet
    program = "await asyncio.gather(*[devices.pc.MeetSkill.meet.aio(n) for n in range(8)])"
    result = await run(session, house, program)
    assert result.value == list(range(8))


async def test_a_plain_call_lets_other_tasks_go_on_and_takes_no_answer_of_theirs(
    session: Session, house: House
) -> None:
    called = asyncio.Event()

    async def last() -> str:
        await called.wait()
        return "last"

    async def free() -> None:
        called.set()

    house.answers |= {"devices.pc.MeetSkill.last": last, "devices.pc.MeetSkill.free": free}
    program = f"""
async def others():
    free = devices.pc.MeetSkill.free.aio()
    return [await {ECHO}.aio(1), await free]
task = asyncio.create_task(others())
mine = [devices.pc.MeetSkill.last(), {ECHO}(2)[0]]
mine, await task, {ECHO}(3)[0]
"""
    result = await run(session, house, program)
    assert result.value == [["last", [2]], [[[1], {}], None], [3]]


async def test_an_error_of_a_skill_can_be_caught_by_its_kind(session: Session, house: House) -> None:
    async def fail() -> None:
        raise CallError(ErrorCode.OFFLINE, "kitchen_pc is offline", hint="try pc", device="kitchen_pc")

    house.answers["devices.kitchen_pc.LampSkill.on"] = fail
    program = """
try:
    devices.kitchen_pc.LampSkill.on()
except DeviceOffline as error:
    print(isinstance(error, SkillError), error.code, error.message, error.hint, error.device)
try:
    await devices.kitchen_pc.LampSkill.on.aio()
except SkillError as error:
    print(type(error).__name__)
devices.pc.Nothing.here()
"""
    result = await run(session, house, program)
    assert result.stdout == "True offline kitchen_pc is offline try pc kitchen_pc\nDeviceOffline\n"
    assert result.status is RunStatus.ERROR
    assert result.traceback.count("File ") == 1
    assert "UnknownSkill: nothing is called devices.pc.Nothing.here (search for it)" in result.traceback


async def test_every_error_code_arrives(session: Session, house: House) -> None:
    async def fail(code: str) -> None:
        raise CallError(ErrorCode(code), "no")

    house.answers["device.A.fail"] = fail
    codes = [code.value for code in ErrorCode]
    program = f"""
arrived = []
for code in {codes}:
    try:
        device.A.fail(code)
    except SkillError as error:
        arrived.append(error.code)
arrived
"""
    assert (await run(session, house, program)).value == codes


async def test_a_handler_that_fails_by_mistake_is_an_error_of_the_call(
    session: Session, house: House
) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("a secret of the handler")

    async def odd() -> Any:
        return object()

    house.answers["device.A.b"] = fail
    house.answers["device.A.c"] = odd
    result = await run(session, house, "device.A.b()")
    assert "SkillError: device.A.b failed inside Strawberry" in result.traceback
    assert "secret" not in result.traceback
    result = await run(session, house, "device.A.c()")
    assert "SkillError: the result of device.A.c is not plain data" in result.traceback


async def test_private_and_dunder_names_never_become_calls(session: Session, house: House) -> None:
    program = """
import copy
names = []
for name in ("_secret", "__len__", "__wrapped__", "_repr_html_"):
    try:
        getattr(device.LampSkill, name)
    except AttributeError:
        names.append(name)
repr(device), dir(device), hasattr(devices, "__iter__")
names
"""
    result = await run(session, house, program)
    assert result.value == ["_secret", "__len__", "__wrapped__", "_repr_html_"]
    assert house.calls == []


async def test_names_that_are_no_methods_are_refused_and_never_asked_for(
    session: Session, house: House
) -> None:
    program = f"""
refused = []
for path in ("device", "device.ü.x", "device.{"x" * 300}.y", "a.b.c.d.e.f.g", "device..x", "device._x.y",
             "device.x-y", "os.system('x')", "device.A.b\\n"):
    try:
        type(device)(path)()
    except SkillError as error:
        refused.append(error.code)
refused
"""
    result = await run(session, house, program)
    assert result.value == ["unknown_skill"] * 9
    assert house.calls == []


async def test_arguments_that_are_no_plain_data_are_the_programs_error(
    session: Session, house: House
) -> None:
    program = f"""
errors = []
deep = []
for _ in range(300): deep = [deep]
for argument in (object(), float("nan"), deep, "x" * 2000):
    try:
        {ECHO}(argument)
    except SkillError as error:
        errors.append(error.code)
errors
"""
    result = await run(session, house, program, limits=RunLimits(argument_bytes=1000))
    assert result.value == ["bad_arguments", "bad_arguments", "bad_arguments", "too_large"]
    assert house.calls == []


async def test_arguments_count_as_they_are_and_not_as_they_are_sent(session: Session, house: House) -> None:
    # Each quote takes one more byte on the way.
    assert (await run(session, house, f"len({ECHO}(['a'] * 40_000)[0][0])")).value == 40_000


async def test_what_no_message_can_hold_is_replaced(session: Session, house: House) -> None:
    house.knows("device.A.name", "caf\udce9")
    assert (await run(session, house, "device.A.name()")).value == "caf?"


async def test_a_result_that_is_too_large_is_an_error_of_the_call(session: Session, house: House) -> None:
    house.knows("device.A.b", "x" * 2000)
    result = await run(session, house, "device.A.b()", limits=RunLimits(answer_bytes=1000))
    assert "TooLarge: the result of device.A.b has 2013 bytes; 1000 are the limit" in result.traceback


async def test_thousands_of_calls_at_once_all_get_their_own_answer(session: Session, house: House) -> None:
    program = f"""
results = await asyncio.gather(*[{ECHO}.aio(n, "x" * 300) for n in range(5000)])
[result[0][0] for result in results] == list(range(5000))
"""
    assert (await run(session, house, program)).value is True


async def test_only_so_many_calls_are_worked_on_at_once(session: Session, house: House) -> None:
    now, most = 0, 0

    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1

    house.answers["device.A.work"] = work
    program = "len(await asyncio.gather(*[device.A.work.aio() for _ in range(50)]))"
    result = await run(session, house, program, limits=RunLimits(calls_in_flight=4))
    assert result.value == 50
    assert most == 4


async def test_only_so_many_calls_are_begun_in_a_second(house: House) -> None:
    async with asyncio.TaskGroup() as tasks:
        calls = Calls(house, limits=RunLimits(calls_per_second=1), tasks=tasks, answer=lambda _: None)
        for number in range(1, 31):
            calls.accept(Call(type="call", run="", id=number, path=ECHO, given="[[], {}]"), 0)
        await asyncio.sleep(0)
        calls.cancel()
    assert 0 < len(house.calls) < 30


async def test_a_run_makes_only_so_many_calls(session: Session, house: House) -> None:
    program = f"""
made = refused = 0
for n in range(20):
    try:
        {ECHO}(n)
        made += 1
    except DeviceBusy:
        refused += 1
[made, refused]
"""
    result = await run(session, house, program, limits=RunLimits(calls=12))
    assert result.value == [12, 8]
    assert len(house.calls) == 12


async def test_a_program_that_never_stops_calling_is_stopped(session: Session, house: House) -> None:
    program = f"""
while True:
    try:
        {ECHO}()
    except SkillError:
        pass
"""
    result = await run(session, house, program, limits=RunLimits(calls=5))
    assert result.status is RunStatus.ABUSE
    assert len(house.calls) == 5


async def test_calls_are_begun_at_an_even_pace_after_a_burst(session: Session, house: House) -> None:
    loop = asyncio.get_running_loop()
    begun: list[float] = []

    async def note() -> None:
        begun.append(loop.time())

    house.answers["device.A.note"] = note
    program = "for _ in range(30): device.A.note()"
    assert (await run(session, house, program, limits=RunLimits(calls_per_second=20))).ok
    # However fast the machine is: the burst, and what one pace after the other has allowed since.
    for index, moment in enumerate(begun):
        assert index <= 20 + (moment - begun[0]) * 20 + 1


async def test_a_cancelled_run_cancels_its_calls_and_is_killed_before_they_end(
    settings: PoolSettings, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    called, cancelled, killed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await killed.wait()

    house.answers["device.A.wait"] = wait
    program = f"""
a = 1
async def go_on():
    while True:
        await asyncio.sleep(0.01)
        asyncio.ensure_future({ECHO}.aio())
await asyncio.gather(device.A.wait.aio(), go_on())
"""
    others = asyncio.all_tasks()
    async with open_pool(settings) as pool:
        session = await pool.session("conversation")
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(session.run(program, house))
            await called.wait()
            processes = [
                task for task in asyncio.all_tasks() - others if task.get_name() == "sandbox process"
            ]
            running.cancel()
            await asyncio.wait(processes)
            killed.set()
        assert cancelled.is_set()
        after = await session.run("'a' in globals()", house)
    assert (after.value, after.fresh, after.lost) == (False, True, "the last run was cancelled")
    assert not caplog.records


async def test_a_call_that_nobody_waits_for_is_cancelled_with_the_run(
    settings: PoolSettings, house: House
) -> None:
    cancelled = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    house.answers["device.A.wait"] = wait
    program = f"task = asyncio.create_task(device.A.wait.aio())\nawait asyncio.sleep(0)\n{ECHO}()"
    async with open_pool(settings) as pool:
        session = await pool.session("conversation")
        assert (await session.run(program, house)).ok
        assert cancelled.is_set()
        after = await session.run("task.cancelled()", house)
    assert after.value is True
    assert not after.fresh


async def test_the_clock_stands_still_while_a_person_is_asked(session: Session, house: House) -> None:
    deadline = Deadline(0.2)
    # Nor does it run on the way there and back, which is no matter of so little time.
    with ExitStack() as on_the_way:
        on_the_way.enter_context(deadline.paused())

        async def ask() -> str:
            with deadline.paused():
                on_the_way.close()
                await asyncio.sleep(0.4)
                on_the_way.enter_context(deadline.paused())
            return "yes"

        house.answers["device.DoorSkill.unlock"] = ask
        result = await run(session, house, "device.DoorSkill.unlock()", deadline=deadline)
        assert result.value == "yes"


async def test_a_run_that_waits_too_long_for_a_skill_is_stopped(session: Session, house: House) -> None:
    cancelled = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    house.answers["device.A.wait"] = wait
    program = "print('on it')\nawait asyncio.gather(device.A.wait.aio(), device.Clock.start.aio())"
    with deadline_from(house, 0.3) as deadline:
        result = await run(session, house, program, deadline=deadline)
    assert result.status is RunStatus.TIMEOUT
    assert result.stdout == "on it\n"
    assert cancelled.is_set()
