"""Schedules, timers and reminders: when they come next, and that they come after a restart."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlmodel import Session, select

from agent_core.prompt import Household
from agent_core.skills.skill import Skill, skill_method
from contracts.errors import InvalidMessage, NotFound, StorageError
from hub_live import limits
from hub_live.watchers.decisions.store import WatcherStore
from hub_live.watchers.schedule import Schedule
from hub_live.watchers.tables import TimerRow
from hub_registry.storage.store import open_store
from hub_registry.storage.tables import now
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import LampSkill, LockSkill
from tests.hub_live.watchers.watching import Watching, decides, script
from tests.hub_registry.spokes import eventually
from tests.hub_server.test_http_direct_calls import call, post
from tests.model_server import ScriptedModel

BERLIN = Household(time_zone="Europe/Berlin", latitude=52.5, longitude=13.4)
FRIDAY = datetime(2026, 3, 27, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("every weekday at 7", "2026-03-30T07:00+02:00"),
        ("every day at 18:30", "2026-03-27T18:30+01:00"),
        ("weekends at 9", "2026-03-28T09:00+01:00"),
        ("mondays at 7pm", "2026-03-30T19:00+02:00"),
        ("every 15 minutes", "2026-03-27T13:15+01:00"),
        ("every hour", "2026-03-27T14:00+01:00"),
        ("0 7 1 * *", "2026-04-01T07:00+02:00"),
        # The clocks change in the night to Sunday: 2:30 does not exist then.
        ("30 2 29 3 *", "2026-03-29T03:00+02:00"),
    ],
)
def test_words_and_cron_give_local_times(text: str, expected: str) -> None:
    assert Schedule.parse(text).next(FRIDAY, BERLIN) == datetime.fromisoformat(expected)


def test_times_of_the_sun_need_coordinates_and_take_an_offset() -> None:
    sunset = Schedule.parse("sunset").next(FRIDAY, BERLIN)
    assert sunset.strftime("%H:%M") == "18:31"
    before = Schedule.parse("30 min before sunset").next(FRIDAY, BERLIN)
    assert sunset - before == timedelta(minutes=30)
    after = Schedule.parse("2 h after sunrise")
    assert after.next(FRIDAY, BERLIN).date() > FRIDAY.date()
    with pytest.raises(InvalidMessage, match="where the household is"):
        after.next(FRIDAY, Household())
    # The sun does not set in the far north in May: the next time is in summer.
    north = Household(latitude=71, longitude=25.8)
    assert Schedule.parse("sunset").next(datetime(2026, 5, 20, tzinfo=UTC), north).month in (7, 8)


@pytest.mark.parametrize(
    "text",
    ["", "every foo at 3", "every 45 minutes", "at 25:00", "* * * * * *", "0 0 31 2 *", "x" * 99],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(InvalidMessage, match="is not a schedule"):
        Schedule.parse(text)


async def notified(home: Home) -> list[dict[str, Any]]:
    events = await home.hub.live.events.after(0, user=None, kinds=["notification"])
    return [dict(event.data) for event in events]


async def test_timers_end_with_a_notification_and_are_cancelled_by_their_text(home: Home) -> None:
    async with home.client() as client:
        status, made = await post(client, call("hub", "WatcherSkill.set_timer", minutes=0.002, text="tea"))
        assert (status, made["text"]) == (200, "tea")
        await eventually(lambda: notified(home))
        assert [each["text"] for each in await notified(home)] == ["tea"]
        at = (now() + timedelta(days=1)).isoformat()
        assert (await post(client, call("hub", "WatcherSkill.remind", text="bins", at=at)))[0] == 200
        assert (await post(client, call("hub", "WatcherSkill.remind", text="milk", every="every day at 8")))[
            0
        ] == 200
        times = ("tomorrow", "2020-01-01T08:00", "9999-12-31T23:59-10:00", "0001-01-01T00:00+10:00")
        for wrong in (*({"at": time} for time in times), {"every": "now and then"}, {}):
            assert (await post(client, call("hub", "WatcherSkill.remind", text="no", **wrong)))[0] == 422
        _, timers = await post(client, call("hub", "WatcherSkill.timers"))
        assert {each["text"] for each in timers} == {"bins", "milk"}
        assert (await post(client, call("hub", "WatcherSkill.cancel_timer", timer="Bins")))[0] == 200
        _, timers = await post(client, call("hub", "WatcherSkill.timers"))
        assert [(each["text"], each["schedule"]) for each in timers] == [("milk", "every day at 8")]
        events = await home.hub.live.events.after(0, user=None, kinds=["timer"])
        assert [(event.subject, event.data["event"]) for event in events] == [
            ("tea", "set"),
            ("tea", "ended"),
            ("bins", "set"),
            ("milk", "set"),
            ("bins", "removed"),
        ]

        async def is_set() -> bool:
            # Right after a start, sentences are still being indexed.
            said = await client.post("/api/chat", json={"message": "set a timer for 5 minutes"})
            return said.is_success and said.json()["answer"] == "Timer set for 5 min."

        await eventually(is_set)


async def test_what_ended_while_the_hub_was_stopped_is_given_late_or_told_as_missed(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home"):
        pass
    past = now() - timedelta(hours=2)
    async with open_store(tmp_path / "home" / "hub" / "hub.db") as store:
        for id_, missed, schedule in (
            ("tea", "run", None),
            ("bins", "tell", "every day at 8"),
            # The household has no coordinates any more.
            ("lamps", "run", "sunset"),
        ):
            row = TimerRow(
                id=id_,
                instance="main",
                owner="admin",
                text=id_,
                due=past,
                missed=missed,
                schedule=schedule,
            )
            await store.write(partial(Session.add, instance=row))
    async with open_home(tmp_path / "home") as home:
        await eventually(lambda: _three(home))
        texts = sorted(each["text"] for each in await notified(home))
        assert texts[0] == "Missed while the hub was stopped: bins"
        assert texts[1].startswith("lamps: sunset depends on where the household is")
        assert texts[2] == "tea"
        left = home.hub.live.timers.of(home.hub.registry.admin)
        assert sorted(each.text for each in left) == ["bins", "lamps"]
        assert all(each.due > now() for each in left)


async def test_a_timer_makes_its_call_once_and_tells_what_failed(home: Home) -> None:
    lamp, door = LampSkill(), LockSkill()
    await home.device("PC", lamp, door)
    async with home.client() as client:
        later = partial(call, "hub", "WatcherSkill.call_later", minutes=0.002)
        made = await post(client, later(call="devices.pc.LampSkill.turn_on", arguments={"level": 30}))
        assert (made[0], made[1]["text"]) == (200, "pc.LampSkill.turn_on")
        await eventually(lambda: _no_rows(home))
        assert lamp.level == 30
        [turned_on] = (await client.get("/api/audit?q=turn_on")).json()["entries"]
        assert turned_on["actor"] == {"user": "admin", "timer": "pc.LampSkill.turn_on"}
        assert (await post(client, later(call="devices.pc.LampSkill.fail")))[0] == 200
        assert (await post(client, later(call="devices.pc.LampSkill.turn_off")))[0] == 404
        unlock = later(call="devices.pc.LockSkill.unlock")
        status, asked = await post(client, unlock)
        assert status == 409, asked
        assert (await post(client, {**unlock, "confirmation": asked["confirmation"]}))[0] == 200
        await eventually(lambda: _no_rows(home))
    assert door.opened == ["front"]
    [told] = [each["text"] for each in await notified(home)]
    assert told.startswith("Not done: pc.LampSkill.fail (")


async def test_a_timer_of_a_program_that_was_revoked_meanwhile_calls_nothing(home: Home) -> None:
    lamp, timers, token = LampSkill(), home.hub.live.timers, await home.token()
    await home.device("PC", lamp)
    async with home.client(token) as client:
        turn_on = {"call": "devices.pc.LampSkill.turn_on", "arguments": {"level": 30}}
        made = await post(client, call("hub", "WatcherSkill.call_later", minutes=60, **turn_on))
    await home.hub.registry.authority.revoke([home.hub.registry.authority.check(token).jti])
    await timers._begin(timers._rows[made[1]["id"]])
    await eventually(lambda: notified(home))
    assert lamp.level == 0
    assert [each["text"] for each in await notified(home)] == [
        "Not done: pc.LampSkill.turn_on (the program with which it was asked for was revoked)"
    ]


async def test_a_timer_that_is_removed_as_it_ends_calls_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    lamp, timers, admin = LampSkill(), home.hub.live.timers, home.hub.registry.admin
    await home.device("PC", lamp)
    async with home.client() as client:
        turn_on = {"call": "devices.pc.LampSkill.turn_on", "arguments": {"level": 30}}
        made = await post(client, call("hub", "WatcherSkill.call_later", minutes=60, text="lamp", **turn_on))
    publish_all = timers.events.publish_all

    async def removed_meanwhile(*given: Any, **more: Any) -> None:
        monkeypatch.undo()
        await publish_all(*given, **more)
        await timers.remove(admin, "lamp")

    monkeypatch.setattr(timers.events, "publish_all", removed_meanwhile)
    await timers._begin(timers._rows[made[1]["id"]])
    assert (timers.of(admin), lamp.level) == ([], 0)


async def test_a_paused_timer_ends_only_once_it_goes_on(home: Home) -> None:
    timers, admin = home.hub.live.timers, home.hub.registry.admin
    soon = partial(timers.add, admin, schedule=None, missed="run")
    tea = await soon("tea", due=now() + timedelta(seconds=60))
    assert (await timers.pause(admin, "tea")).left_s == pytest.approx(60, abs=30)
    timers._rows[tea.id].due = now()
    await soon("egg", due=now() + timedelta(seconds=0.1))
    await eventually(lambda: notified(home))
    assert [each["text"] for each in await notified(home)] == ["egg"]
    timers._rows[tea.id].left_s = 0.1
    await timers.resume(admin, "Timer")
    await eventually(lambda: _no_rows(home))
    assert [each["text"] for each in await notified(home)] == ["egg", "tea"]


async def test_the_time_left_is_told_of_timers_that_are_called_so(home: Home) -> None:
    timers, admin = home.hub.live.timers, home.hub.registry.admin
    for text in ("noodle", "Egg timer", "egg"):
        await timers.add(admin, text, due=now() + timedelta(hours=1), schedule=None, missed="run")
    async with home.client() as client:
        status = partial(call, "hub", "WatcherSkill.timer_status")
        assert len((await post(client, status(timer="egg")))[1]["running"]) == 2
        assert len((await post(client, status(timer="Noodle-Timer")))[1]["running"]) == 1
        assert (await post(client, status(timer="rice")))[0] == 422
        assert (await client.post("/api/timers/noodle/pause")).json()["left_s"] > 3_000
        assert (await client.post("/api/timers/noodle/resume")).json()["left_s"] is None


async def test_a_timer_that_rings_cannot_be_prolonged(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    lamp, timers, admin = LampSkill(), home.hub.live.timers, home.hub.registry.admin
    await home.device("PC", lamp)
    publish_all, refused = timers.events.publish_all, list[str]()

    async def moved_meanwhile(*given: Any, **more: Any) -> None:
        monkeypatch.undo()
        with pytest.raises(NotFound) as error:
            await timers.move(admin, "lamp", timedelta(minutes=5))
        refused.append(error.value.message)
        await publish_all(*given, **more)

    async with home.client() as client:
        turn_on = {"call": "devices.pc.LampSkill.turn_on", "arguments": {"level": 30}}
        made = await post(client, call("hub", "WatcherSkill.call_later", minutes=60, text="lamp", **turn_on))
    monkeypatch.setattr(timers.events, "publish_all", moved_meanwhile)
    timers._rows[made[1]["id"]].due = now()
    timers._changed.set()
    await eventually(lambda: _no_rows(home))
    assert (refused, lamp.level) == (["the timer 'lamp' has ended"], 30)


class WifiSkill(Skill):
    """A network for guests."""

    @skill_method(idempotent=True, destructive=False, open_world=False)
    def open(self, key: SecretStr) -> None:
        """Open the network."""


async def test_neither_a_timer_nor_a_watcher_keeps_a_secret(home: Home) -> None:
    await home.device("PC", WifiSkill())
    arguments = {"key": "correct horse"}
    async with home.client() as client:
        path = "devices.pc.WifiSkill.open"
        later = call("hub", "WatcherSkill.call_later", minutes=60, call=path, arguments=arguments)
        status, told = await post(client, later)
        assert (status, "is a secret" in told["detail"]) == (422, True), told
        step = {"call": path, "arguments": arguments}
        wanted = {"name": "night", "schedule": "every day at 22:00", "then": [step]}
        answer = await client.post("/api/watchers", json=wanted)
        assert (answer.status_code, "is a secret" in answer.json()["detail"]) == (422, True)
    assert home.hub.live.timers.of(home.hub.registry.admin) == []


async def test_a_call_whose_time_the_hub_missed_is_told_and_not_made(tmp_path: Path) -> None:
    values = {"path": "devices.pc.LampSkill.turn_on", "arguments": {}, "device": "pc", "confirmed": False}
    values |= {"untrusted": False, "has_read": False, "by_sentence": True, "token": "t", "through": None}
    async with open_home(tmp_path / "home"):
        pass
    async with open_store(tmp_path / "home" / "hub" / "hub.db") as store:
        for text, begun in (("lamp on", False), ("lamp off", True)):
            row = TimerRow(id=text, instance="main", owner="admin", text=text, due=now() - timedelta(hours=2))
            row.missed, row.call = "tell", {**values, "begun": begun}
            await store.write(partial(Session.add, instance=row))
    async with open_home(tmp_path / "home") as home:
        await eventually(lambda: _no_rows(home))
        told = sorted(each["text"] for each in await notified(home))
        assert told == [
            "Missed while the hub was stopped: lamp on",
            "The hub stopped while it did this: lamp off",
        ]


async def _no_rows(home: Home) -> bool:
    return not await home.hub.registry.store.read(lambda session: session.exec(select(TimerRow)).all())


async def test_an_end_that_cannot_be_stored_is_told_once_it_can(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STORE_AGAIN_S", 0.01)
    timers, store, failed = home.hub.live.timers, home.hub.registry.store, asyncio.Event()
    due = now() + timedelta(hours=1)
    made = await timers.add(home.hub.registry.admin, "tea", due=due, schedule=None, missed="run")

    async def write(_: object) -> None:
        failed.set()
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "write", write)
        timers._rows[made.id].due = now()
        timers._changed.set()
        await failed.wait()
        failed.clear()
        await failed.wait()
    await eventually(lambda: notified(home))
    assert [each["text"] for each in await notified(home)] == ["tea"]
    stored = await store.read(lambda session: session.exec(select(TimerRow)).all())
    assert (timers.of(home.hub.registry.admin), stored) == ([], [])


async def _three(home: Home) -> bool:
    return len(await notified(home)) == 3


async def test_a_scheduled_watcher_is_evaluated_at_its_time_only(
    watching: Watching, model: ScriptedModel
) -> None:
    model.script = script(decides("notify", "It is time."))
    made = await watching.add("morning", on_change=None, schedule="every weekday at 7", allow=[], topics=[])
    assert (made["state"], made["next_at"], made["note"]) == ("draft", None, "")
    shown = await watching.ask("POST", "/morning/approve")
    assert datetime.fromisoformat(shown["next_at"]) > now()
    engine_row = watching.home.hub.live.watchers.rows["morning"]
    engine_row.next_at = now()
    [entry] = await watching.decided(1, "morning")
    assert (entry["decision"], entry["reason"]) == ("notify", "It is time.")
    assert datetime.fromisoformat((await watching.show("morning"))["next_at"]) > now()
    # The computer slept.
    engine_row.next_at = now() - timedelta(hours=1)

    async def is_told() -> bool:
        return (await watching.notes())[-1].endswith("was missed")

    await eventually(is_told)
    engine_row.next_at = now()
    await watching.decided(2, "morning")
    assert len(model.requests) == 2


@pytest.mark.parametrize("missed", ["tell", "run"])
async def test_a_scheduled_time_that_was_missed_is_told_or_run(
    tmp_path: Path, model: ScriptedModel, missed: str
) -> None:
    model.script = script(decides("notify", "It is time."))
    body = {"name": "morning", "instruction": "Wake me.", "schedule": "every day at 7", "missed": missed}
    async with open_home(tmp_path / "home", model_url=model.base_url) as home, home.client() as client:
        made = (await client.post("/api/watchers", json=body)).json()
        assert made["state"] == "draft"
        await client.post("/api/watchers/morning/approve", json={"digest": made["digest"]})
    async with open_store(tmp_path / "home" / "hub" / "hub.db") as store:
        rows = WatcherStore(store, instance="main")
        [row] = await rows.watchers()
        row.next_at = now() - timedelta(hours=2)
        await rows.save(row)
    async with open_home(tmp_path / "home", model_url=model.base_url) as home:
        await eventually(lambda: notified(home))
        [note] = await notified(home)
        assert note["text"].endswith("was missed" if missed == "tell" else "It is time")
        assert len(model.requests) == (missed == "run")
