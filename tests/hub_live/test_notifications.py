"""Notifications outside of the web UI, sent to a real receiver over HTTP."""

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_core.times import local_time
from chat.tasks import open_tasks
from contracts.phrases import Phrase
from hub_agent.settings import NotificationSettings
from hub_agent.tables import EventRow
from hub_live.events.kinds import NotificationData, PresenceData
from hub_live.notifications import Notifications, announce_ends, home_assistant_notifier
from hub_live.push import Notice
from hub_registry.storage.tables import now
from hub_web.parts.notices.notices import push_text
from tests.hub_agent.home import open_home
from tests.hub_agent.skills import LampSkill
from tests.hub_live.conftest import Receiver
from tests.hub_registry.spokes import eventually


def notice(subject: str, text: str) -> Notice:
    data = {"text": text}
    return Notice(EventRow(user="anna", kind="notification", subject=subject, data=data, at=now()))


async def next_of(receiver: Receiver) -> tuple[str, str, str]:

    return await asyncio.to_thread(receiver.next)


async def test_each_person_is_told_where_they_want_it(tmp_path: Path, receiver: Receiver) -> None:
    settings = NotificationSettings(urls=("${PHONE}",), people={"anna": (f"{receiver.url}/annas",)})
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".env").write_text(f"PHONE={receiver.url}/hush\n")
    async with open_home(tmp_path / "home", notifications=settings) as home:
        events, admin = home.hub.live.events, home.hub.registry.admin.id
        await events.publish("anna", NotificationData(subject="disk", text="The disk is full."))
        assert await next_of(receiver) == ("annas", "disk", "The disk is full.")
        await events.publish(admin, PresenceData(subject="PC"))
        await events.publish(admin, NotificationData(subject="tea", text="Tea is ready."))
        assert await next_of(receiver) == ("hush", "tea", "Tea is ready.")


async def test_it_is_in_the_language_and_the_time_of_its_person(tmp_path: Path, receiver: Receiver) -> None:
    settings = NotificationSettings(urls=(f"{receiver.url}/hush",))
    async with open_home(tmp_path / "home", notifications=settings) as home, home.client() as client:
        home.hub.live.push.words = push_text
        await client.patch("/api/users/admin", json={"language": "de", "time_zone": "Asia/Tokyo"})
        missed = local_time(datetime(2020, 3, 4, 12, 5, tzinfo=UTC), "UTC")
        text = Phrase("the evaluation of {time} was missed", time=missed)
        data = NotificationData(subject="tank", text=text, sender="watcher")
        await home.hub.live.events.publish(home.hub.registry.admin.id, data)
        told = await next_of(receiver)
    assert told == ("hush", "tank", "die Prüfung von 4. März 2020, 21:05 wurde verpasst")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.sqlite
@pytest.mark.slow
async def test_on_a_full_disk_sentences_go_on_and_its_owner_is_told_once(
    disk: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub_live.limits.DISK_LOOK_S", 0.05)
    settings = NotificationSettings(urls=(receiver.url,))
    async with open_home(disk / "home", notifications=settings) as home, home.client() as client:
        await home.device("Lamp", LampSkill())

        async def listed() -> list[int]:
            query = {"kind": "notification", "last": "20", "follow": "false"}
            lines = (await client.get("/api/events", params=query)).text.splitlines()
            return [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]

        with (disk / "filling").open("wb", buffering=0) as filling, suppress(OSError):
            while True:
                filling.write(bytes(4096))
        for _ in range(3):
            answer = await client.post("/api/chat", json={"message": "turn on the lamp"})
            assert answer.json()["answer"] == "The lamp is at 100 percent."
        assert (await next_of(receiver))[2].startswith("The disk is full")
        (full,) = await listed()
        (disk / "filling").unlink()
        assert (await next_of(receiver))[2].startswith("The disk has room again")
        again = await listed()
        assert (again[0], len(again)) == (full, 2)
    assert receiver.taken.empty()


async def test_the_end_of_a_token_or_login_is_told_once_a_month_before(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home") as home, home.client() as client:
        for name, days in (("grafana", 365), ("week", 7)):
            body = {"name": name, "scopes": ["chat"], "lifetime_s": days * 86_400}
            assert (await client.post("/api/tokens", json=body)).status_code == 200
        for name in ("explorer", "house"):
            body = {"name": name, "home_assistant": name == "house"}
            assert (await client.post("/api/clients", json=body)).status_code == 200
        authority, events = home.hub.registry.authority, home.hub.live.events
        for days in (330, 336, 340, 366):
            await announce_ends(authority, events, at=now() + timedelta(days=days))
        told = await events.after(0, user=home.hub.registry.admin.id, kinds=["notification"])
        assert sorted(each.subject for each in told) == ["explorer", "grafana"]
        assert "ends on 20" in told[0].data["text"]


async def test_too_many_are_left_out_and_counted(tmp_path: Path, receiver: Receiver) -> None:
    async with open_home(tmp_path / "home", notifications=NotificationSettings(urls=(receiver.url,))) as home:
        admin = home.hub.registry.admin.id
        notifications = home.hub.live.notifications
        await home.hub.live.events.publish_all(
            [(admin, NotificationData(subject="w", text=str(number))) for number in range(14)]
        )
        assert [(await next_of(receiver))[2] for _ in range(10)] == [str(number) for number in range(10)]
        notifications._buckets.of(admin).charge(-5)
        await home.hub.live.events.publish(admin, NotificationData(subject="w", text="next"))
        assert (await next_of(receiver))[2] == "next\n(4 more came in a short time and were not sent.)"


async def test_a_test_says_what_does_not_work_and_no_secret(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    broken = ("${NOT_THERE}", "nothing://hush", "hush")
    urls = (f"{receiver.url}/fine", f"{receiver.url}/broken/hush", *broken)
    async with (
        open_home(tmp_path / "home", notifications=NotificationSettings(urls=urls)) as home,
        home.client() as http,
    ):
        answer = await http.post("/api/notifications/test")
        problems = [(each["sent"], each["problem"]) for each in answer.json()]
        await home.hub.live.events.publish(
            home.hub.registry.admin.id, NotificationData(subject="w", text="x")
        )
        for _ in range(4):
            await next_of(receiver)
        await eventually(lambda: "not sent by an address without" in caplog.text)
    assert problems[0] == (True, "")
    assert [sent for sent, _ in problems[1:]] == [False] * 4
    assert "did not take" in problems[1][1]
    assert "NOT_THERE=…" in problems[2][1]
    assert "apprise" in problems[3][1]
    assert "hush" not in answer.text
    assert "hush" not in caplog.text


async def test_a_service_that_hangs_delays_no_other() -> None:
    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    slow = home_assistant_notifier("notify.slow", hang, lambda _: True)
    told: asyncio.Queue[Any] = asyncio.Queue()

    async def tell(*given: Any) -> None:
        told.put_nowait(given[1]["message"])

    quick = home_assistant_notifier("notify.quick", tell, lambda _: True)
    async with open_tasks() as tasks:
        settings = NotificationSettings()
        notifications = Notifications(lambda _: [slow, quick], settings, tasks=tasks)
        for text in ("first", "second"):
            notifications.note(EventRow(at=now(), user="anna", kind="notification", subject=text, data={}))
            assert await told.get() == text


async def test_who_has_nothing_set_up_is_told_how_and_what_is_added_counts_at_once(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with open_home(tmp_path / "home") as home, home.client() as http:
        answer = await http.post("/api/notifications/test")
        home.hub.live.notifications.use(NotificationSettings(urls=(receiver.url,)))
        assert (await http.post("/api/notifications/test")).json()[0]["sent"]
    assert answer.status_code == 404
    assert "[notifications]" in answer.json()["hint"]


async def test_a_service_of_home_assistant_is_called_and_one_that_is_away_is_told(tmp_path: Path) -> None:
    called: list[Any] = []

    async def call(name: str, data: Any) -> None:
        called.append((name, data))

    notifier = home_assistant_notifier("notify.phone", call, "anna".__eq__)
    assert (notifier.reaches("anna"), notifier.reaches("ben")) == (True, False)
    await notifier.send(notice("tea", "Tea is ready."))
    assert called == [("notify.phone", {"title": "tea", "message": "Tea is ready."})]
    await notifier.send(notice("{# a", "{{ states('x') }} {% for {{{ {a}"))
    assert not re.search(r"\{[{%#]", "".join(called[-1][1].values()))
    assert called[-1][1]["message"].replace("\u2060", "") == "{{ states('x') }} {% for {{{ {a}"
    settings = NotificationSettings(urls=("notify.phone",))
    async with open_home(tmp_path / "home", notifications=settings) as home, home.client() as http:
        (found,) = (await http.post("/api/notifications/test")).json()
    assert (found["name"], found["sent"]) == ("notify.phone", False)
    assert "Home Assistant" in found["problem"]
