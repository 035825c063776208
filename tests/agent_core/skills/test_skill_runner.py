"""Calls executed: threads and tasks, progress, limits, cancellation."""

import asyncio
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import replace

import pytest

from agent_core.skills.running.runner import NotCancelled, RunnerSettings, SkillRunner
from agent_core.skills.skill import Skill, skill_method
from contracts.errors import CallError, ConfigError, ErrorCode


class ProbeSkill(Skill):
    """Methods of every kind."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.release = threading.Event()
        self.log_of_calls: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def add(self, a: int, b: int = 1) -> int:
        return a + b

    @skill_method(timeout_s=0.05)
    def add_soon(self, a: int) -> int:
        return a + 1

    async def add_async(self, a: int) -> int:
        await asyncio.sleep(0)
        return a + 1

    def thread(self) -> bool:
        return threading.current_thread() is threading.main_thread()

    def count(self, to: int) -> Iterator[int]:
        yield from range(to)

    def count_and_return(self, to: int) -> Generator[int, None, str]:
        yield from range(to)
        return "done"

    async def count_async(self, to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    def fail(self) -> None:
        raise ValueError("no such lamp: caf\udce9")

    async def fail_ours(self) -> None:
        raise ConfigError("no key", hint="set one")

    def give_up(self) -> None:
        raise CallError(ErrorCode.REFUSED, "not today")

    def large(self) -> str:
        return "x" * 2_000

    @skill_method(confirm=True, destructive=True)
    def erase(self) -> str:
        self.log_of_calls.append("erase")
        return "erased"

    @skill_method(timeout_s=0.05)
    async def sleep_async(self) -> None:
        await asyncio.sleep(60)

    @skill_method(timeout_s=0.05)
    def polite(self) -> None:
        self.started.set()
        while True:
            self.check_cancelled(wait_s=0.01)

    @skill_method(timeout_s=0.05)
    def stubborn(self) -> str:
        self.started.set()
        self.release.wait(30)
        return "came to its end"

    def patient(self) -> str:
        self.started.set()
        self.release.wait(30)
        return "came to its end"

    def until_told(self) -> None:
        self.started.set()
        while True:
            self.check_cancelled(wait_s=0.01)

    async def hang(self) -> None:
        self.started.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.log_of_calls.append("cleaned up")

    def drip(self) -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            self.log_of_calls.append("closed")

    @skill_method(concurrency=1)
    async def one_at_a_time(self) -> None:
        await self._counted()

    async def several(self) -> None:
        await self._counted()

    async def _counted(self) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        for _ in range(3):
            await asyncio.sleep(0)
        self._at_once -= 1

    def publish(self) -> None:
        self.state("temperature", 21.5, unit="°C", device_class="temperature")
        self.emit("rang", {"times": 2})

    def publish_badly(self) -> None:
        self.emit("a/b")


PATIENT = RunnerSettings(max_result_bytes=1_000, stop_grace_s=30, max_waiting=3)
QUICK = replace(PATIENT, stop_grace_s=0.2)
"""For methods that do not stop."""


@pytest.fixture
def probe() -> ProbeSkill:
    return ProbeSkill()


@pytest.fixture
async def runner(probe, host):
    async with SkillRunner([host(probe)], settings=PATIENT) as runner:
        yield runner
        probe.release.set()


async def error_of(call) -> CallError:
    with pytest.raises(CallError) as caught:
        await call
    return caught.value


async def started(probe: ProbeSkill) -> None:
    await asyncio.to_thread(probe.started.wait, 30)


async def test_plain_and_async_methods_return_their_value(runner):
    assert await runner.run("ProbeSkill", "add", ["2"], {"b": 3}) == 5
    assert await runner.run("ProbeSkill", "add_async", [1]) == 2


async def test_a_plain_method_does_not_run_in_the_event_loop(runner):
    assert await runner.run("ProbeSkill", "thread") is False


@pytest.mark.parametrize(
    ("method", "result"), [("count", 2), ("count_and_return", "done"), ("count_async", 2)]
)
async def test_generators_report_progress_and_end_with_a_result(method, result, runner):
    seen: list[int] = []

    async def progress(value: int) -> None:
        seen.append(value)

    assert await runner.run("ProbeSkill", method, [3], progress=progress) == result
    assert seen == [0, 1, 2]


async def test_a_generator_that_yields_nothing_gives_null(runner):
    assert await runner.run("ProbeSkill", "count", [0]) is None


async def test_unknown_names_run_nothing_and_list_the_nearest(runner):
    error = await error_of(runner.run("ProbSkill", "add"))
    assert (error.code, error.hint) == (ErrorCode.UNKNOWN_SKILL, "nearest: ProbeSkill")
    error = await error_of(runner.run("ProbeSkill", "ad"))
    assert error.hint.startswith("nearest: add")
    assert (await error_of(runner.run("ProbeSkill", "log"))).code is ErrorCode.UNKNOWN_SKILL


async def test_an_error_of_the_skill_crosses_as_one_line(runner, caplog):
    error = await error_of(runner.run("ProbeSkill", "fail"))
    assert (error.code, error.message) == (ErrorCode.SKILL_ERROR, "no such lamp: caf\ufffd")
    assert error.detail == "ValueError: no such lamp: caf\ufffd"
    assert "Traceback" in caplog.text


async def test_errors_of_ours_keep_message_and_hint(runner):
    error = await error_of(runner.run("ProbeSkill", "fail_ours"))
    assert (error.code, error.message, error.hint) == (ErrorCode.SKILL_ERROR, "no key", "set one")
    assert (await error_of(runner.run("ProbeSkill", "give_up"))).code is ErrorCode.REFUSED


async def test_a_result_beyond_the_bound_is_too_large(runner):
    assert (await error_of(runner.run("ProbeSkill", "large"))).code is ErrorCode.TOO_LARGE


async def test_a_confirm_method_runs_only_when_confirmed(runner, probe):
    assert (await error_of(runner.run("ProbeSkill", "erase"))).code is ErrorCode.NEEDS_CONFIRMATION
    assert probe.log_of_calls == []
    assert await runner.run("ProbeSkill", "erase", confirmed=True) == "erased"


@pytest.mark.parametrize("method", ["sleep_async", "polite"])
async def test_a_method_that_takes_too_long_is_stopped(method, runner):
    error = await error_of(runner.run("ProbeSkill", method))
    assert error.code is ErrorCode.TIMEOUT
    assert "was stopped" in error.message


@pytest.mark.slow
async def test_a_method_that_cannot_be_stopped_times_out_and_keeps_its_place(probe, host):
    probe_skill = host(probe)
    async with SkillRunner([probe_skill], settings=QUICK) as runner:
        for _ in range(probe_skill.concurrency):
            error = await error_of(runner.run("ProbeSkill", "stubborn"))
            assert error.code is ErrorCode.TIMEOUT
            assert "still runs" in error.message
        assert (await error_of(runner.run("ProbeSkill", "add_soon", [1]))).code is ErrorCode.BUSY
        probe.release.set()
        assert await runner.run("ProbeSkill", "add", [1]) == 2


@pytest.mark.parametrize("method", ["hang", "until_told"])
async def test_a_cancelled_call_stops_the_method(method, runner, probe):
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(runner.run("ProbeSkill", method))
        await started(probe)
        call.cancel()
    assert call.cancelled()
    assert probe.log_of_calls == (["cleaned up"] if method == "hang" else [])


async def test_a_generator_stops_at_its_next_yield(runner, probe):
    ticks = asyncio.Event()

    async def progress(_: int) -> None:
        ticks.set()

    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(runner.run("ProbeSkill", "drip", progress=progress))
        await ticks.wait()
        call.cancel()
    assert call.cancelled()
    assert probe.log_of_calls == ["closed"]


async def test_a_method_that_came_to_its_end_all_the_same_is_not_called_cancelled(runner, probe):
    answers: list[object] = []

    async def answer() -> None:
        try:
            await runner.run("ProbeSkill", "patient")
        except NotCancelled as late:
            answers.append(late.result())
            raise

    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(answer())
        await started(probe)
        call.cancel()
        await asyncio.sleep(0)
        probe.release.set()
    assert answers == ["came to its end"]


async def test_a_method_that_still_runs_is_not_called_cancelled_either(probe, host):
    running: list[bool] = []

    async def answer(runner: SkillRunner) -> None:
        try:
            await runner.run("ProbeSkill", "patient")
        except NotCancelled as late:
            running.append(late.is_running)
            with pytest.raises(CallError, match="still runs"):
                late.result()
            raise

    async with SkillRunner([host(probe)], settings=QUICK) as runner:
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(answer(runner))
            await started(probe)
            call.cancel()
        probe.release.set()
    assert running == [True]
    assert call.cancelled()


@pytest.mark.parametrize(("method", "most"), [("one_at_a_time", 1), ("several", 3)])
async def test_calls_beyond_the_concurrency_wait_for_their_turn(method, most, runner, probe):
    await asyncio.gather(*(runner.run("ProbeSkill", method) for _ in range(3)))
    assert probe.most_at_once == most


async def test_calls_beyond_the_waiting_ones_are_busy_and_do_not_run(runner):
    calls = [runner.run("ProbeSkill", "one_at_a_time") for _ in range(6)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, CallError)]
    assert [error.code for error in errors] == [ErrorCode.BUSY] * 2


async def test_states_and_events_reach_the_sink(runner, sink):
    await runner.run("ProbeSkill", "publish")
    assert sink.states == [("ProbeSkill", "temperature", 21.5, "°C", "temperature")]
    assert sink.events == [("ProbeSkill", "rang", {"times": 2})]


async def test_a_name_that_cannot_stand_in_a_topic_is_refused(runner, sink):
    assert "'a/b' cannot be a name" in (await error_of(runner.run("ProbeSkill", "publish_badly"))).message
    assert sink.events == []


async def test_skills_are_set_up_and_closed_and_one_that_fails_is_left_out(host):
    happened: list[str] = []

    class GoodSkill(Skill):
        async def setup(self) -> None:
            happened.append("setup")

        async def close(self) -> None:
            happened.append("close")

        def ping(self) -> str:
            return "pong"

    class BadSkill(GoodSkill):
        async def setup(self) -> None:
            raise OSError("no GPIO here")

        def ping(self) -> str:
            return "pong"

    async with SkillRunner([host(BadSkill()), host(GoodSkill())]) as runner:
        assert await runner.run("GoodSkill", "ping") == "pong"
        assert (await error_of(runner.run("BadSkill", "ping"))).code is ErrorCode.OFFLINE
        why = runner.unavailable["BadSkill"]
        assert why.text.startswith("its set-up failed: test_skill_runner.py, line ")
        assert "no GPIO here" in runner.problems[0].message
    assert happened == ["setup", "close"]


async def test_closing_stops_what_runs(probe, host):
    async with asyncio.TaskGroup() as tasks, SkillRunner([host(probe)], settings=PATIENT) as runner:
        call = tasks.create_task(error_of(runner.run("ProbeSkill", "hang")))
        await started(probe)
    assert call.result().code is ErrorCode.CANCELLED
    assert probe.log_of_calls == ["cleaned up"]


class LiarSkill(Skill):
    """Returns other things than it declares."""

    def __init__(self) -> None:
        self.ran = 0

    def plain(self) -> int:
        self.ran += 1
        return "three"  # type: ignore[return-value]

    async def waits(self) -> list[int]:
        self.ran += 1
        return {"three": 3}  # type: ignore[return-value]

    def nothing(self) -> None:
        self.ran += 1
        return "something"  # type: ignore[return-value]


@pytest.mark.parametrize("method", ["plain", "waits", "nothing"])
async def test_a_result_that_is_not_what_was_declared_is_an_error_of_the_skill(method, host):
    skill = LiarSkill()
    async with SkillRunner([host(skill)]) as runner:
        error = await error_of(runner.run("LiarSkill", method))
    assert error.code is ErrorCode.SKILL_ERROR
    assert error.message.startswith(f"{method} ran, but its result does not fit its declaration: ")
    assert skill.ran == 1
