"""The record of conversations at the hub: what is recorded, and who reads, hands in and deletes what."""

import ast
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlmodel import col, select, update

from chat.tasks import open_tasks
from chat.turns import Turn
from contracts.chat.messages import MAX_PUSHED, ChatRequest, PushedTurns, TurnFinal, TurnRecord
from contracts.errors import Conflict, Forbidden, NotFound, TooManyRequests
from hub_agent.calls.rate import DailyVolume
from hub_agent.chat.record import ConversationRecord
from hub_agent.tables import TurnRow
from hub_registry.storage.store import Store, open_store
from hub_registry.storage.tables import now
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import LampSkill
from tests.hub_registry.spokes import eventually
from tests.model_server import Hangs, ScriptedModel
from tests.proofs import proof_of

ANN, BOB = "ann", "bob"
KITCHEN, HALL = "key_of_the_kitchen_pi", "key_of_the_hall_pi"
C = "c" * 32
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(tmp_path / "hub.db") as opened:
        yield opened


@pytest.fixture
def record(store: Store) -> ConversationRecord:
    return ConversationRecord(store, instance="main")


def asks(name: str, *, user: str = ANN, conversation: str = C, through: str | None = None) -> Turn:
    request = ChatRequest(message=f"{name}?", turn=name, conversation=conversation)
    return Turn(request, user=user, through=through)


async def answered(record: ConversationRecord, turn: Turn) -> None:
    """Run a turn at the hub."""
    await record.begin(turn)
    turn.emit(TurnFinal(answer=f"{turn.id}!", mode="online"))
    await record.end(turn)


def test_a_new_row_has_lists_of_its_own_for_which_no_source_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[str] = []
    parse = ast.parse
    with monkeypatch.context() as patched:
        patched.setattr(ast, "parse", lambda source: parsed.append(source) or parse(source))
        one, two = (TurnRow(user=ANN, turn=name, state="running", instance="main", at=NOON) for name in "ab")
    one.did.append("rang the bell")
    one.files.append({"name": "bell.txt"})

    assert (two.did, two.files, parsed) == ([], [], [])


async def test_a_row_that_was_altered_does_not_make_a_page_of_history_short(
    store: Store, record: ConversationRecord
) -> None:
    for name in ("one", "two", "three"):
        await answered(record, asks(name))
    await store.write(
        lambda session: session.exec(update(TurnRow).where(col(TurnRow.turn) == "two").values(mode="dream"))
    )
    assert [each.turn for each in await record.turns(ANN, C, limit=2)] == ["one", "three"]


def offline(name: str, *, at: int = 0, conversation: str = C, **more: Any) -> TurnRecord:
    """A turn that a device answered without the hub."""
    given: dict[str, Any] = {"question": f"{name}?", "answer": f"{name}!", "mode": "offline"}
    given |= {"state": "finished", "at": NOON + timedelta(seconds=at)} | more
    return TurnRecord(turn=name, conversation=conversation, **given)


async def push(record: ConversationRecord, *turns: TurnRecord, key: str = KITCHEN) -> list[str]:
    return await record.take(ANN, "kitchen", key, turns)


async def shown(record: ConversationRecord, **more: Any) -> list[tuple[str, str | None]]:
    turns = await record.turns(ANN, C, **{"limit": 9, **more})
    return [(turn.question, turn.answer) for turn in turns]


async def test_the_last_turns_are_read_oldest_first(record: ConversationRecord) -> None:
    for name in "abc":
        await answered(record, asks(name))
    await record.begin(asks("d"))
    assert await shown(record, limit=2) == [("c?", "c!"), ("d?", None)]


async def test_pushed_turns_are_recorded_once_with_the_device_that_pushed(record: ConversationRecord) -> None:
    turn = offline("a", device="somewhere", did=("devices.tv.Tv.off: done",), untrusted=True)
    for _ in range(2):
        assert await push(record, turn) == ["a"]
    (recorded,) = await record.turns(ANN, C, limit=9)
    assert recorded == turn.model_copy(
        update={"device": "kitchen", "ended_at": turn.at, "origin": "device", "outcome": "answered"}
    )


async def test_a_pushed_turn_stands_where_it_was_said(record: ConversationRecord) -> None:
    await answered(record, asks("later", through=KITCHEN))
    await push(record, offline("second", at=2), offline("first", at=1))
    assert [question for question, _ in await shown(record)] == ["first?", "second?", "later?"]


async def test_turns_of_a_clock_that_is_ahead_keep_their_order_and_come_before_what_follows(
    record: ConversationRecord,
) -> None:
    ahead = datetime.now(UTC) + timedelta(days=9_000)
    await push(record, *(offline(name, at=0).model_copy(update={"at": ahead}) for name in ("b", "a")))
    await push(record, offline("c").model_copy(update={"at": ahead - timedelta(days=1)}))
    await answered(record, asks("d"))
    turns = await record.turns(ANN, C, limit=9)
    assert [turn.turn for turn in turns] == ["b", "a", "c", "d"]
    assert max(turn.at for turn in turns) < datetime.now(UTC) + timedelta(minutes=1)


async def test_a_turn_that_was_taken_back_is_recorded_as_the_device_answered_it_and_never_runs(
    record: ConversationRecord,
) -> None:
    assert await record.state(ANN, "a", through=KITCHEN) == "not_started"
    assert await shown(record) == []
    assert await push(record, offline("a")) == ["a"]
    assert await shown(record) == [("a?", "a!")]
    with pytest.raises(Conflict, match="was used before"):
        await record.begin(asks("a", through=KITCHEN))


@pytest.mark.parametrize(
    ("at_hub", "pushed", "kept"),
    [
        # The hub was killed; the device saw a part, or answered itself.
        (None, {"answer": "It is f", "mode": None, "state": "cancelled"}, ("It is f", None)),
        (None, {"answer": "Mine.", "mode": "offline"}, ("Mine.", "offline")),
        # It went on after the device had given up.
        ("It is four.", {"answer": "It is f", "mode": None, "state": "cancelled"}, ("It is four.", "online")),
        ("It is four.", {"answer": "Mine.", "mode": "offline"}, ("It is four.", "online")),
    ],
)
async def test_of_a_turn_that_both_sides_have_the_better_answer_is_kept(
    record: ConversationRecord, at_hub: str | None, pushed: dict[str, Any], kept: tuple[str, str | None]
) -> None:
    for order in ("a" * 32, "b" * 32):
        turn = asks(order, conversation=order, through=KITCHEN)
        await record.begin(turn)
        if order[0] == "b":
            await push(record, offline(turn.id, conversation=order, **pushed))
        if at_hub is not None:
            turn.emit(TurnFinal(answer=at_hub, mode="online"))
        else:
            turn.state = "cancelled"
        await record.end(turn)
        if order[0] == "a":
            await push(record, offline(turn.id, conversation=order, **pushed))
        (recorded,) = await record.turns(ANN, order, limit=9)
        assert (recorded.answer, recorded.mode) == kept
        assert recorded.origin == ("device" if at_hub is None else "person")


async def test_text_from_outside_at_either_side_counts_for_the_turn(record: ConversationRecord) -> None:
    await answered(record, asks("a", through=KITCHEN))
    await push(record, offline("a", untrusted=True))
    (recorded,) = await record.turns(ANN, C, limit=9)
    assert recorded.untrusted


async def test_a_device_changes_and_cancels_no_turn_of_anybody_else(record: ConversationRecord) -> None:
    await record.begin(asks("hall", through=HALL))
    await record.begin(asks("person"))
    await record.state(ANN, "cancelled", through=HALL)
    pushed = await push(record, offline("hall"), offline("person"), offline("cancelled"), offline("own"))
    assert pushed == ["own"]
    assert await shown(record) == [("hall?", None), ("person?", None)]
    for turn in ("hall", "person", "cancelled"):
        with pytest.raises(NotFound):
            await record.state(ANN, turn, through=KITCHEN)


async def test_conversations_are_found_by_what_was_said_in_them_and_by_their_title(
    record: ConversationRecord,
) -> None:
    await answered(record, asks("garden.lights"))
    await answered(record, asks("tea", conversation="d"))
    await answered(record, asks("gardens", conversation="e", user=BOB))
    await record.rename(ANN, "d", "100% Oolong")
    for words, expected in (
        ("gard LIGH", [C]),
        ("garden tea", []),
        ("00% ool", ["d"]),
        ("_", []),
        ('"*) OR (', []),
    ):
        found = await record.conversations(ANN, limit=9, words=words)
        assert [each.id for each in found] == expected, words


async def test_a_device_reads_and_joins_what_it_began_and_nothing_else(record: ConversationRecord) -> None:
    await answered(record, asks("secret", conversation="d"))
    await answered(record, asks("bobs", user=BOB, through=KITCHEN))
    assert await record.conversations(ANN, limit=9, through=KITCHEN) == []
    for device in (KITCHEN, HALL):
        with pytest.raises(NotFound):
            await record.begin(asks("joins", conversation="d", through=device))
    await answered(record, asks("here", through=KITCHEN))
    await answered(record, asks("owner"))
    assert await shown(record, through=KITCHEN) == [("here?", "here!"), ("owner?", "owner!")]
    (known,) = await record.conversations(ANN, limit=9, through=KITCHEN)
    assert (known.id, known.asked) == (C, "here?")
    with pytest.raises(NotFound):
        await record.begin(asks("hall", through=HALL))
    assert await record.conversations(ANN, limit=9, through=HALL) == []
    assert await shown(record, through=HALL) == []
    assert [each.id for each in await record.conversations(ANN, limit=9)] == [C, "d"]


@pytest.mark.parametrize("name", [C, "kitchen"])
async def test_what_a_device_says_of_a_conversation_that_others_began_is_kept_apart(
    record: ConversationRecord, name: str
) -> None:
    await answered(record, asks("person", conversation=name))
    # However long ago it claims to have been there.
    assert await push(record, offline("a", at=-9, conversation=name), offline("b", conversation=name))
    assert [each.turn for each in await record.turns(ANN, name, limit=9)] == ["person"]
    assert [each.turn for each in await record.turns(ANN, name, limit=9, through=KITCHEN)] == ["a", "b"]
    assert [each.id for each in await record.conversations(ANN, limit=9, through=KITCHEN)] == [name]
    recorded = await record.recorded_as(ANN, name, through=KITCHEN)
    assert recorded != name
    assert await record.recorded_as(ANN, recorded, through=KITCHEN) == recorded
    await answered(record, asks("long", conversation="x" * 64))
    assert len(await record.recorded_as(ANN, "x" * 64, through=KITCHEN)) == 64


async def test_a_device_that_was_first_under_a_name_reads_nothing_of_the_person_who_chooses_it_too(
    record: ConversationRecord,
) -> None:
    await push(record, offline("a", conversation="kitchen"))
    await answered(record, asks("person", conversation="kitchen"))
    assert [each.turn for each in await record.turns(ANN, "kitchen", limit=9)] == ["a", "person"]
    mine = await record.turns(ANN, "kitchen", limit=9, through=KITCHEN)
    assert [each.turn for each in mine] == ["a"]


async def test_a_deleted_conversation_stays_deleted_whatever_comes_again(record: ConversationRecord) -> None:
    await answered(record, asks("a", through=KITCHEN))
    await push(record, offline("b"))
    running = asks("c", through=KITCHEN)
    await record.begin(running)
    await record.delete(ANN, C, through=KITCHEN)
    await record.end(running)
    assert await push(record, offline("b")) == ["b"]
    with pytest.raises(Conflict):
        await record.begin(asks("a"))
    await record.clean_up()
    assert await shown(record) == []
    assert await record.conversations(ANN, limit=9) == []
    with pytest.raises(NotFound):
        await record.delete(ANN, C)


async def test_what_was_shown_of_an_answer_is_there_after_a_kill(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.script = [Hangs(text="I think")]
    async with open_home(tmp_path / "home", model_url=model.base_url) as home, home.client() as client:

        async def said() -> list[tuple[str | None, str | None]]:
            found = (await client.get(f"/api/conversations/{C}")).json()
            return [(each["answer"], each["outcome"]) for each in found.get("exchanges", ())]

        async def is_kept() -> bool:
            return await said() == [("I think", None)]

        async with open_tasks() as tasks:
            body = {"message": "why?", "conversation": C}
            tasks.create_task(client.post("/api/chat", json=body), name="chat")
            await eventually(is_kept)
            # As the next process does.
            await ConversationRecord(home.hub.registry.store, instance="main").clean_up()
            assert await said() == [("I think", "interrupted")]


async def test_a_device_deletes_only_what_was_held_through_it_alone(record: ConversationRecord) -> None:
    await answered(record, asks("a", through=KITCHEN))
    with pytest.raises(NotFound):
        await record.delete(ANN, C, through=HALL)
    with pytest.raises(NotFound):
        await record.delete(BOB, C)
    await answered(record, asks("b"))
    with pytest.raises(Forbidden):
        await record.delete(ANN, C, through=KITCHEN)
    assert len(await shown(record)) == 2
    await record.delete(ANN, C)
    assert await shown(record) == []


# Over HTTP


async def say(client: httpx.AsyncClient, message: str, **more: Any) -> None:
    assert (await client.post("/api/chat", json={"message": message, **more})).status_code == 200


async def test_only_a_device_that_may_chat_hands_in_turns(home: Home) -> None:
    device = await home.device("Kitchen")
    body = PushedTurns(turns=(offline("a"),)).model_dump(mode="json")
    async with home.client() as person, home.client(device.token) as kitchen, home.client("x") as stranger:
        assert (await person.post("/api/turns", json=body)).status_code == 403
        assert (await stranger.post("/api/turns", json=body)).status_code == 401
        answer = await kitchen.post("/api/turns", json=body)
        assert (answer.status_code, answer.json()) == (200, {"recorded": ["a"]})
        many = {"turns": body["turns"] * (MAX_PUSHED + 1)}
        assert (await kitchen.post("/api/turns", json=many)).status_code == 422
        (shown,) = (await person.get(f"/api/conversations/{C}")).json()["exchanges"]
        assert (shown["question"], shown["mode"], shown["device"]) == ("a?", "offline", device.id)


async def test_a_conversation_is_deleted_over_http(home: Home) -> None:
    await home.device("Bedroom PC", LampSkill())
    bob = await home.token(await home.hub.registry.accounts.add("Bob", role="member"))
    async with home.client() as client, home.client(bob) as stranger:
        await say(client, "turn on the lamp", conversation=C)
        assert (await stranger.delete(f"/api/conversations/{C}")).status_code == 404
        assert (await client.delete(f"/api/conversations/{C}")).status_code == 204
        assert (await client.get(f"/api/conversations/{C}")).status_code == 404


async def test_a_device_that_was_removed_and_joins_again_with_its_key_has_its_conversations(
    home: Home,
) -> None:
    device = await home.device("Kitchen", LampSkill())
    async with home.client(device.token) as own:
        await say(own, "turn on the lamp", conversation=C)
    async with home.client() as client:
        await client.delete(f"/api/devices/{device.id}")
        added = (await client.post("/api/devices", json={"name": "Kitchen"})).json()
        body = {"token": added["token"], "public_key": device.key.public.jwk()}
        joined = (await client.post("/api/devices/enrol", json=body, auth=proof_of(device.key))).json()
    assert joined["device"] != device.id
    async with home.client(joined["token"]) as again:
        assert [each["id"] for each in (await again.get("/api/conversations")).json()] == [C]


async def test_a_device_has_so_much_recorded_in_a_day_and_others_go_on(store: Store) -> None:
    # Four days' worth at once: 12 rows, 4,000 bytes.
    record = ConversationRecord(store, instance="main", volume=DailyVolume(rows=3, size=1_000))
    await push(record, *(offline(str(number)) for number in range(12)))
    for _ in range(3):
        assert await push(record, offline("0")) == ["0"], "what is recorded already costs nothing"
    with pytest.raises(TooManyRequests):
        await push(record, offline("new"))
    with pytest.raises(TooManyRequests):
        await record.state(ANN, "never sent", through=KITCHEN)
    with pytest.raises(TooManyRequests):
        await record.begin(asks("new", through=KITCHEN))
    with pytest.raises(TooManyRequests):
        await push(record, offline("long", answer="x" * 5_000), key=HALL)
    # A cancelled turn is no way round: what replaces it counts.
    await record.state(ANN, "late", through=HALL)
    with pytest.raises(TooManyRequests):
        await push(record, offline("late", answer="x" * 5_000), key=HALL)
    await record.begin(asks("person"))
    assert await push(record, offline("short"), key=HALL) == ["short"]


async def test_a_cancelled_turn_is_kept_for_a_day(store: Store, record: ConversationRecord) -> None:
    await record.state(ANN, "old", through=KITCHEN)
    await record.state(ANN, "new", through=KITCHEN)
    yesterday = update(TurnRow).where(col(TurnRow.turn) == "old").values(at=now() - timedelta(hours=25))
    await store.write(lambda session: session.exec(yesterday))
    await record.forget_cancelled()
    assert await store.read(lambda session: session.exec(select(TurnRow.turn)).all()) == ["new"]


async def test_a_device_cancels_few_turns_that_never_came(record: ConversationRecord) -> None:
    for number in range(60):
        await record.state(ANN, str(number), through=KITCHEN)
    for number in range(60, 62):
        # One more may have become free meanwhile.
        with suppress(TooManyRequests):
            await record.state(ANN, str(number), through=KITCHEN)
    with pytest.raises(TooManyRequests):
        await record.state(ANN, "one more", through=KITCHEN)
    assert await record.state(ANN, "0", through=KITCHEN) == "not_started", "one that is known is no new one"
    assert await record.state(ANN, "other", through=HALL) == "not_started"
