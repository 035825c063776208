import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chat.tasks import open_tasks
from chat.turns import Turn, Turns
from contracts.chat.messages import ChatRequest, TextDelta, TurnFinal
from contracts.errors import Conflict, DiskFull, GatewayError
from contracts.rates import Slots
from hub_agent.calls.rate import DailyVolume
from hub_agent.chat.record import ConversationRecord
from hub_registry.storage.store import open_store
from tests.hub_registry.spokes import eventually

ANN, BOB = "ann", "bob"


@asynccontextmanager
async def open_record(database: Path, *, instance: str) -> AsyncIterator[ConversationRecord]:
    async with open_store(database) as store:
        opened = ConversationRecord(store, instance=instance)
        await opened.clean_up()
        yield opened


@pytest.fixture
async def record(tmp_path: Path) -> AsyncIterator[ConversationRecord]:
    async with open_record(tmp_path / "hub.db", instance="main") as opened:
        yield opened


@pytest.fixture
async def turns(record: ConversationRecord) -> AsyncIterator[Turns]:
    async with running(record) as opened:
        yield opened


@asynccontextmanager
async def running(record: ConversationRecord) -> AsyncIterator[Turns]:
    async with open_tasks() as tasks:
        yield Turns(record, tasks=tasks, slots=Slots(each=8))


def asks(
    turn: str, *, user: str = ANN, conversation: str = "c", token: str = "t", message: str = "hi"
) -> Turn:
    request = ChatRequest(message=message, turn=turn, conversation=conversation)
    return Turn(request, user=user, token=token)


async def said(record: ConversationRecord, user: str) -> list[tuple[str, str | None]]:
    return [(turn.question, turn.answer) for turn in await record.turns(user, "c", limit=5)]


async def kinds(turn: Turn) -> list[str]:
    return [event.kind async for event in turn.events()]


@dataclass
class Work:
    """A turn's work that says a piece, waits to be let go, and ends."""

    begun: list[str] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, turn: Turn) -> None:
        self.begun.append(turn.id)
        self.started.set()
        try:
            turn.emit(TextDelta(text="half "))
            await self.go.wait()
            turn.emit(TextDelta(text="whole"))
            turn.emit(TurnFinal(answer="half whole", mode="online"))
        except asyncio.CancelledError:
            self.stopped.set()
            raise


async def test_a_turn_is_told_as_it_happens_and_remembered(turns: Turns, record: ConversationRecord) -> None:
    work = Work()
    turn = await turns.open(asks("1", message="how much?"), work.run)
    work.go.set()
    assert await kinds(turn) == ["text", "text", "final"]
    assert await said(record, ANN) == [("how much?", "half whole")]
    assert await turns.cancel(ANN, "1") == "finished"


async def test_a_cancel_reaches_the_work_and_says_so(turns: Turns, record: ConversationRecord) -> None:
    work = Work()
    turn = await turns.open(asks("1"), work.run)
    turn.release()
    await work.started.wait()
    assert await turns.cancel(ANN, "1") == "cancelled"
    assert work.stopped.is_set()
    assert await kinds(turn) == ["text", "error"]
    assert await said(record, ANN) == [("hi", "half ")]


async def test_of_a_turn_and_its_cancel_that_come_together_exactly_one_wins(
    turns: Turns, record: ConversationRecord
) -> None:
    for number in range(40):
        work = Work()

        async def begin(work: Work = work, number: int = number) -> Turn | None:
            try:
                return await turns.open(asks(str(number)), work.run)
            except Conflict:
                return None

        order: list[Callable[[], object]] = [begin, lambda n=number: turns.cancel(ANN, str(n))]
        if number % 2:
            order.reverse()
        results = await asyncio.gather(*(step() for step in order))  # type: ignore[call-overload]
        turn = next((result for result in results if isinstance(result, Turn)), None)
        state = next(result for result in results if isinstance(result, str))
        if turn is None:
            assert (state, work.begun) == ("not_started", [])
        else:
            assert state == "cancelled"
            assert (await kinds(turn))[-1] == "error"
            assert await record.state(ANN, str(number), through=None) == "cancelled"


async def test_a_turn_whose_client_left_while_it_was_being_recorded_is_stopped(tmp_path: Path) -> None:
    recording, go_on = threading.Event(), threading.Event()

    class Slow(DailyVolume):
        def spend(self, key: str, *, rows: int, size: int) -> None:
            recording.set()
            go_on.wait()

    async with (
        open_store(tmp_path / "hub.db") as store,
        running(ConversationRecord(store, instance="main", volume=Slow())) as turns,
        asyncio.TaskGroup() as tasks,
    ):
        work, turn = Work(), asks("1")
        opening = tasks.create_task(turns.open(turn, work.run))
        await asyncio.to_thread(recording.wait)
        opening.cancel()
        await asyncio.wait([opening])
        go_on.set()
        assert turn.cancelled
        await turn.ended.wait()
        assert await turns.cancel(ANN, "1") == "cancelled"
        assert (turns.open_count, work.begun) == (0, [])


async def test_a_turn_id_runs_once(turns: Turns) -> None:
    work = Work()
    work.go.set()
    first = await turns.open(asks("1"), work.run)
    with pytest.raises(Conflict, match="was used before"):
        await turns.open(asks("1"), work.run)
    await kinds(first)
    with pytest.raises(Conflict, match="was used before"):
        await turns.open(asks("1"), work.run)
    assert work.begun == ["1"]


async def test_ids_of_two_users_do_not_meet(turns: Turns) -> None:
    work = Work()
    work.go.set()
    assert await turns.cancel(BOB, "1") == "not_started"
    turn = await turns.open(asks("1"), work.run)
    assert (await kinds(turn))[-1] == "final"


async def test_a_turn_does_nothing_before_its_client_knows_of_it(turns: Turns) -> None:
    work = Work()
    turn = await turns.open(asks("1"), work.run)
    assert await turns.cancel(ANN, "1") == "cancelled"
    assert await kinds(turn) == ["error"]
    assert work.begun == []


async def test_a_turn_whose_client_never_came_back_for_it_does_nothing(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat.limits.RELEASE_S", 0.0)
    work = Work()
    work.go.set()
    turn = await turns.open(asks("1"), work.run)
    await turn.ended.wait()
    assert work.begun == []


async def test_turns_of_one_conversation_run_one_after_another(turns: Turns) -> None:
    work = Work()
    first = await turns.open(asks("1"), work.run)
    second = await turns.open(asks("2"), work.run)
    other = await turns.open(asks("3", conversation="d"), work.run)
    for turn in (second, first, other):
        turn.release()
    await eventually(lambda: len(work.begun) == 2)
    assert sorted(work.begun) == ["1", "3"]
    work.go.set()
    for turn in (first, second, other):
        assert (await kinds(turn))[-1] == "final"
    (waited,) = (span for turn in (first, second, other) for span in turn.trace.spans())
    assert waited.name == "queue"


async def test_a_revoked_token_ends_the_turns_that_it_began(turns: Turns) -> None:
    kept, ended = Work(), Work()
    one = await turns.open(asks("1", token="good"), kept.run)
    two = await turns.open(asks("2", token="bad", conversation="d"), ended.run)
    two.release()
    await ended.started.wait()
    turns.cancel_where(lambda turn: turn.token == "bad")
    assert (await kinds(two))[-1] == "error"
    kept.go.set()
    assert (await kinds(one))[-1] == "final"


async def test_a_turn_that_the_hub_ends_is_interrupted_and_another_one_stopped(
    turns: Turns, record: ConversationRecord
) -> None:
    work = Work()
    for id_ in "12":
        turn = await turns.open(asks(id_, conversation=id_), work.run)
        turn.release()
    await eventually(lambda: len(work.begun) == 2)
    await turns.cancel(ANN, "1")
    turns.interrupt()
    await turn.ended.wait()
    outcomes = [(await record.turns(ANN, id_, limit=1))[0].outcome for id_ in "12"]
    assert outcomes == ["stopped", "interrupted"]


async def test_work_that_fails_is_an_error_event_and_the_next_turn_runs(
    turns: Turns, caplog: pytest.LogCaptureFixture
) -> None:
    async def expected(turn: Turn) -> None:
        turn.emit(TextDelta(text="a"))
        raise GatewayError("no model answered", hint="Start one.")

    async def unexpected(turn: Turn) -> None:
        raise RuntimeError("secret detail")

    events = [event async for event in (await turns.open(asks("1"), expected)).events()]
    assert events[-1].kind == "error"
    assert (events[-1].message, events[-1].hint) == ("no model answered", "Start one.")
    events = [event async for event in (await turns.open(asks("2"), unexpected)).events()]
    assert events[-1].kind == "error"
    assert events[-1].code == "internal"
    assert "secret" not in events[-1].message
    assert "secret detail" in caplog.text
    assert await turns.cancel(ANN, "2") == "finished"
    work = Work()
    work.go.set()
    assert (await kinds(await turns.open(asks("3"), work.run)))[-1] == "final"


async def test_what_a_killed_hub_left_running_counts_as_cancelled(tmp_path: Path) -> None:
    async with open_record(tmp_path / "hub.db", instance="main") as before:
        await before.begin(asks("1"))
    async with open_record(tmp_path / "hub.db", instance="second") as other:
        assert await other.state(ANN, "1", through=None) == "running", "it belongs to another instance"
    async with open_record(tmp_path / "hub.db", instance="main") as after:
        assert await after.state(ANN, "1", through=None) == "cancelled"


class FullOnce(ConversationRecord):
    """A record whose disk is full when the first turn begins, or when it ends."""

    is_full: list[str]

    def check(self, what: str) -> None:
        if what in self.is_full:
            self.is_full.remove(what)
            raise DiskFull("the disk is full")

    async def begin(self, turn: Turn) -> None:
        self.check("begin")
        await super().begin(turn)

    async def end(self, turn: Turn) -> None:
        self.check("end")
        await super().end(turn)


@pytest.mark.parametrize("when", ["begin", "end"])
async def test_a_turn_that_could_not_be_recorded_is_recorded_later(tmp_path: Path, when: str) -> None:
    async with open_store(tmp_path / "hub.db") as store:
        record = FullOnce(store, instance="main")
        record.is_full = [when] * 2
        async with running(record) as turns:
            work = Work()
            work.go.set()
            turn = await turns.open(asks("1"), work.run)
            assert (await kinds(turn))[-1] == "final"
            # It has run, and is not run again; nor is it said that it has not.
            assert await turns.cancel(ANN, "1") == "finished" or when == "end"
            with pytest.raises(Conflict):
                await turns.open(asks("1"), work.run)

            async def is_recorded() -> bool:
                return await said(record, ANN) == [("hi", "half whole")]

            await eventually(is_recorded)
