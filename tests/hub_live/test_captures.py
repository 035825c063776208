"""Captures of a running hub: over HTTP, as a skill and on the bus, over restarts, without room."""

import asyncio
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bus.link import Message
from contracts import topics
from contracts.errors import NotFound
from contracts.wire import Json
from hub_live.captures import TopicChoice, read_capture
from hub_live.captures.files.formats import Missing
from hub_live.captures.files.series import Series
from hub_live.captures.files.writer import FileLimits, Writer
from hub_live.captures.recording import Recording, Shared
from hub_live.captures.spec import CaptureSpec
from hub_live.captures.tables import CaptureRow
from hub_live.topics import Gap, Sample
from hub_registry.access.accounts import UserChange
from hub_registry.storage.tables import now
from tests.deploy.strawberry import environment_of, run
from tests.hub_agent.home import Home, open_home
from tests.hub_registry.spokes import eventually

DISK = "devices/nas/state/SystemSkill/disk"


def folder_of(home: Home) -> Path:
    return home.directory / "captures"


async def start(home: Home, *, token: str | None = None, status: int = 201, **body: Json) -> Any:
    given = {"topics": [DISK], "path": "disk.jsonl", **body}
    async with home.client(token) as client:
        response = await client.post("/api/captures", json=given)
        assert response.status_code == status, response.text
        return response.json()


async def send(home: Home, *values: Json, topic: str = DISK) -> None:
    await home.hub.live.feed.settled()
    if "nas" not in home.hub.registry.directory:
        await home.hub.registry.devices.add("NAS", owner="admin", shared=True)
    for value in values:
        await home.hub.link.publish(topic, json.dumps(value).encode(), qos=1)


async def followed_states(home: Home) -> Callable[[], list[tuple[str, int]]]:
    """State and number of messages of the only capture, as they are published."""
    heard: list[Message] = []
    await home.hub.link.subscribe(topics.CAPTURE.filter(), heard.append)

    def states() -> list[tuple[str, int]]:
        found = [topics.CAPTURE.parse(each.payload) for each in heard]
        return [(each.state, each.messages) for each in found]

    return states


async def heard(home: Home, value: Json) -> None:
    """Wait until this is the last value."""

    def last() -> Json:
        sample = home.hub.live.feed.latest(DISK)
        return sample and sample.value

    await eventually(lambda: last() == value)


async def nothing(_: object) -> None:
    """Do nothing."""


def values(file: Path) -> list[Json]:
    """Return what was recorded since the capture began; nothing while its file is not there yet."""
    try:
        return [each.value for each in read_capture(file) if isinstance(each, Sample) and not each.retained]
    except NotFound:
        return []


async def recorded(home: Home, count: int, name: str = "disk.jsonl") -> list[Json]:
    """What is in a file, once there are so many messages in it."""
    file = folder_of(home) / name
    await eventually(lambda: len(values(file)) >= count)
    return values(file)


async def test_a_capture_is_started_listed_and_stopped(home: Home) -> None:
    async with home.client() as client:
        started = await start(home)
        assert (started["id"], started["state"], started["path"]) == ("disk", "active", "disk.jsonl")
        await send(home, 1, {"free": 2}, "three")
        assert await recorded(home, 3) == [1, {"free": 2}, "three"]
        stopped = (await client.delete("/api/captures/disk")).json()
        assert {name: stopped[name] for name in ("state", "messages", "gaps", "files")} == {
            "state": "stopped",
            "messages": 3,
            "gaps": 0,
            "files": 1,
        }
        assert stopped["bytes"] == (folder_of(home) / "disk.jsonl").stat().st_size
        await send(home, 4)
        assert (await client.get("/api/captures")).json() == [stopped]
        assert (await client.get("/api/captures/disk")).json() == stopped
        assert (await client.get("/api/captures/dusk")).status_code == 404
        # Started again, it goes on in its file.
        assert (await start(home))["messages"] == 3
        await send(home, 5)
        assert await recorded(home, 4) == [1, {"free": 2}, "three", 5]
    events = await home.hub.live.events.after(0, user="admin", kinds=["capture"])
    assert [(each.subject, each.data["event"]) for each in events] == [
        ("disk", "started"),
        ("disk", "stopped"),
        ("disk", "started"),
    ]


async def test_the_state_is_retained_on_the_bus(home: Home) -> None:
    states = await followed_states(home)
    await start(home, path="in/the deep/disk.jsonl")
    await send(home, 1, 2)
    await recorded(home, 2, "in/the deep/disk.jsonl")
    async with home.client() as client:
        await client.delete("/api/captures/in_the_deep_disk")
    await eventually(lambda: states()[-1:] == [("stopped", 2)])


async def test_the_assistant_starts_and_stops_captures(home: Home) -> None:
    async def call(method: str, **arguments: Json) -> Any:
        body = {"device": "hub", "skill": "CaptureSkill", "method": method, "kwargs": arguments}
        async with home.client() as client:
            response = await client.post("/api/skills/call", json=body)
            return response.json()

    started = await call("save_stream", topics=[DISK], path="disk.csv", format="csv")
    assert started["result"]["state"] == "active", started
    await send(home, {"used": 95, "unit": "%"})
    file = folder_of(home) / "disk.csv"
    await eventually(lambda: file.read_text().count("\n") == 2)
    assert file.read_text().splitlines()[0] == "at,topic,link,used,unit"
    assert [each["id"] for each in (await call("list_captures"))["result"]] == ["disk"]
    assert (await call("stop_capture", capture="disk"))["result"]["state"] == "stopped"
    wrong = await call("save_stream", topics=["a/+", "b"], path="x.h264", format="h264")
    assert "one topic" in wrong["detail"], wrong


@pytest.mark.parametrize("path", ["../out.jsonl", "/etc/cron.d/out", "in/link/out.jsonl", "linked.jsonl"])
async def test_paths_that_lead_out_are_refused_and_logged(home: Home, path: str, caplog) -> None:
    outside = home.directory / "outside"
    outside.mkdir()
    (outside / "file").write_text("untouched")
    (folder_of(home) / "in").mkdir(parents=True)
    if os.name == "posix":
        (folder_of(home) / "in/link").symlink_to(outside)
        (folder_of(home) / "linked.jsonl").symlink_to(outside / "file")
    refused = await start(home, path=path, status=403)
    assert refused["detail"]
    assert "refused a capture of admin" in caplog.text
    assert [each.read_text() for each in outside.iterdir()] == ["untouched"]
    async with home.client() as client:
        assert (await client.get("/api/captures")).json() == []


async def test_two_captures_do_not_share_a_file(home: Home) -> None:
    folder_of(home).mkdir()
    (folder_of(home) / "mine.jsonl").write_text("of a person\n")
    await start(home, path="mine.jsonl", status=409)
    await start(home)
    for path in ("disk.jsonl", "DISK.jsonl", "disk.000002.jsonl", "disk.jsonl.zst"):
        await start(home, path=path, status=409)
    await start(home, path="disk2.jsonl")


async def test_a_start_that_fails_or_is_cancelled_leaves_its_path_free(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures, spec = home.hub.live.captures, CaptureSpec(topics=(TopicChoice(topic=DISK),), path="disk.jsonl")
    opened, goes_on, written = asyncio.Event(), threading.Event(), Writer.write
    loop = asyncio.get_running_loop()

    def write(self: Writer, batch: Sequence[Sample | Missing]) -> bool:
        is_new = written(self, batch)
        loop.call_soon_threadsafe(opened.set)
        goes_on.wait(60)
        return is_new

    with monkeypatch.context() as patched:
        patched.setattr("shutil.disk_usage", lambda _: SimpleNamespace(total=1, used=1, free=0))
        await start(home, status=500)
    assert list(folder_of(home).iterdir()) == []
    with monkeypatch.context() as patched:
        patched.setattr(Writer, "write", write)
        starting = loop.create_task(captures.start(home.hub.registry.admin, spec))
        await opened.wait()
        starting.cancel()
        goes_on.set()
        await asyncio.wait([starting])
    assert list(folder_of(home).iterdir()) == []
    await start(home)


async def test_people_have_captures_of_their_own_and_guests_none(home: Home) -> None:
    add = home.hub.registry.accounts.add
    bo, cy = await add("Bo", role="member"), await add("Cy", role="guest")
    await start(home)
    bos = await home.token(bo)
    await start(home, token=bos, path="bo.jsonl")
    await start(home, token=bos, status=409)
    await start(home, token=bos, path="calls.jsonl", topics=["devices/nas/calls/Door/unlock"], status=403)
    await start(home, token=await home.token(cy), path="cy.jsonl", status=403)
    await start(home, token=await home.token(bo, scopes=("chat",)), path="chat.jsonl", status=403)
    async with home.client(bos) as client:
        assert [each["id"] for each in (await client.get("/api/captures")).json()] == ["bo"]
        assert (await client.delete("/api/captures/disk")).status_code == 404
    async with home.client() as client:
        assert [each["id"] for each in (await client.get("/api/captures")).json()] == ["disk", "bo"]


async def test_captures_stop_when_their_owner_may_only_look(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("hub_live.limits.CAPTURES_SAVE_S", 0.05)
    async with open_home(tmp_path / "home") as home:
        people = [await home.hub.registry.accounts.add(name, role="member") for name in ("Anna", "Ben")]
        captures = home.hub.live.captures
        for user in people:
            await start(home, token=await home.token(user), path=f"{user.id}.jsonl")
        async with home.client() as client:
            await client.patch("/api/users/anna", json={"role": "guest"})

        async def states() -> list[tuple[str, str]]:
            return [(each.state, each.problem) for user in people for each in await captures.list(user)]

        refused = "Anna has read-only access; a capture writes files"

        async def is_stopped() -> bool:
            return await states() == [("stopped", refused), ("active", "")]

        await eventually(is_stopped)
        # One that lost the right while the hub did not run.
        await home.hub.registry.accounts.change("ben", UserChange(role="guest"))
        captures._captures["ben"].row.is_stopped = False
        monkeypatch.setattr(captures, "_end_of_guests", lambda: nothing(None))
    async with open_home(tmp_path / "home") as home:
        ben = await home.hub.registry.accounts.get("ben")
        assert [each.state for each in await home.hub.live.captures.list(ben)] != ["active"]


async def test_only_what_a_person_may_read_is_recorded(home: Home) -> None:
    await start(home, topics=["#", "devices/nas/#"])
    await send(home, "secret", topic="devices/nas/calls/Door/unlock")
    await send(home, 1)
    await send(home, 2)
    await eventually(lambda: 2 in values(folder_of(home) / "disk.jsonl"))
    found = values(folder_of(home) / "disk.jsonl")
    assert "secret" not in found
    assert [each for each in found if not isinstance(each, dict)] == [1, 2]


async def test_a_capture_goes_on_after_a_restart_and_names_the_gap(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home") as home:
        await start(home, zstd=True, max_age_s=3600)
        await send(home, 1, 2)
        await recorded(home, 2)
    async with open_home(tmp_path / "home") as home:
        await send(home, 3)
        assert await recorded(home, 3) == [1, 2, 3]
        read = list(read_capture(folder_of(home) / "disk.jsonl"))
        assert [type(each) for each in read] == [Sample, Sample, Gap, Sample]
        _, before, gap, after = read
        assert isinstance(before, Sample) and isinstance(gap, Gap) and isinstance(after, Sample)  # noqa: PT018
        assert before.at <= gap.since <= gap.until <= after.at
        async with home.client() as client:
            stopped = (await client.delete("/api/captures/disk")).json()
        assert (stopped["messages"], stopped["gaps"], stopped["files"]) == (3, 1, 1)
    async with open_home(tmp_path / "home") as home, home.client() as client:
        assert (await client.get("/api/captures")).json()[0]["state"] == "stopped"


async def test_a_hole_in_the_numbers_of_a_sender_is_written_down(home: Home) -> None:
    await start(home, sequence="header.sequence")
    await send(home, *({"header": {"sequence": number}} for number in (1, 2, 4, 1)))
    await recorded(home, 4)
    async with home.client() as client:
        assert (await client.delete("/api/captures/disk")).json()["gaps"] == 1
    lines = [json.loads(line) for line in (folder_of(home) / "disk.jsonl").read_text().splitlines()]
    gap = lines[2]["gap"]
    assert (gap["reason"], gap["messages"], gap["topic"]) == ("sequence", 1, DISK)


async def test_a_capture_that_cannot_write_says_so_and_goes_on_when_it_can(home: Home) -> None:
    states = await followed_states(home)
    folder = folder_of(home) / "in"
    await start(home, path="in/disk.jsonl")
    await send(home, 1)
    await recorded(home, 1, "in/disk.jsonl")
    (folder / "disk.jsonl").unlink()
    folder.rmdir()
    folder.write_text("in the way")
    await send(home, 2)
    await eventually(lambda: states()[-1:] == [("failed", 1)])
    folder.unlink()
    await eventually(lambda: states()[-1:] == [("active", 1)])
    await send(home, 3)
    assert await recorded(home, 1, "in/disk.jsonl") == [3]
    async with home.client() as client:
        stopped = (await client.delete("/api/captures/in_disk")).json()
    assert (stopped["messages"], stopped["gaps"], stopped["problem"]) == (2, 1, "")
    notes = await home.hub.live.events.after(0, user=None, kinds=["notification"])
    texts = [str(each.data["text"]) for each in notes]
    assert [text.split(":")[0] for text in texts] == ["The capture cannot be written", "The capture goes on."]


def counted() -> CaptureRow:
    """Return the row of a capture that is in no database."""
    return CaptureRow(id="disk", instance="main", owner="", spec={}, root="", created_at=now())


class FullDisk(Writer):
    """A writer whose disk is full for a while."""

    is_full = False

    def write(self, batch: Sequence[Sample | Missing]) -> bool:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(batch)


async def test_a_full_disk_is_a_state_and_a_gap(home: Home, tmp_path: Path) -> None:
    changes: asyncio.Queue[str] = asyncio.Queue()
    feed = home.hub.live.feed
    writer = FullDisk(Series.within((tmp_path / "full",), "disk.jsonl"), "jsonl", FileLimits(max_bytes=1_000))
    with ThreadPoolExecutor(1) as thread:
        recording = Recording(
            row := counted(),
            writer,
            Shared(feed, thread, retry_s=(0.01, 0.01)),
            is_over=lambda: False,
            on_change=changes.put,
            on_roll=lambda: None,
        )
        recording.follow([TopicChoice(topic=DISK)], sees=lambda _: None, since=time.time())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(recording.run())
            writer.is_full = True
            await send(home, 1, 2)
            assert await asyncio.wait_for(changes.get(), 60) == "full"
            assert (recording.state, recording.problem) == ("full", "no space left on device")
            await send(home, 3)
            await heard(home, 3)
            writer.is_full = False
            assert await asyncio.wait_for(changes.get(), 60) == "resumed"
            await send(home, 4)
            await heard(home, 4)
            recording.end()
    gap, line = [json.loads(line) for line in (tmp_path / "full/disk.jsonl").read_text().splitlines()]
    assert (gap["gap"]["reason"], gap["gap"]["messages"]) == ("disk", 3)
    assert line["payload"] == 4
    assert (row.messages, row.gaps, recording.state) == (1, 1, "active")


async def test_what_cannot_be_kept_up_with_is_counted(home: Home, tmp_path: Path) -> None:
    feed = home.hub.live.feed
    writer = Writer(Series.within((tmp_path / "slow",), "disk.jsonl"), "jsonl", FileLimits(max_bytes=100_000))
    with ThreadPoolExecutor(1) as thread:
        shared = Shared(feed, thread, room=2_000)
        recording = Recording(
            counted(), writer, shared, is_over=lambda: False, on_change=nothing, on_roll=lambda: None
        )
        recording.follow([TopicChoice(topic=DISK)], sees=lambda _: None, since=time.time())
        # It does not run yet: the queue fills.
        await send(home, *range(20))
        await heard(home, 19)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(recording.run())
            recording.end()
    assert shared.room == 2_000
    found = [json.loads(line) for line in (tmp_path / "slow/disk.jsonl").read_text().splitlines()]
    kept, gap = [each["payload"] for each in found[:-1]], found[-1]["gap"]
    assert kept == list(range(len(kept)))
    assert (gap["reason"], gap["messages"]) == ("overrun", 20 - len(kept))


async def test_recorded_values_come_in_order_and_once(home: Home) -> None:
    captures = home.hub.live.captures
    await start(home)
    await start(home, path="all.jsonl", topics=["devices/+/state/#"], zstd=True)
    await start(home, path="other.csv", format="csv")
    await captures.record("watchers", [TopicChoice(topic=DISK)], keep_days=7, keep_bytes=1_000_000)
    await send(home, 1)
    await send(home, "other", topic="devices/nas/state/SystemSkill/memory")
    await send(home, 2, 2)
    await recorded(home, 4, "all.jsonl")
    own = home.directory / "hub/recordings/watchers.jsonl"
    await eventually(lambda: len(values(own)) == 3)
    async with home.client() as client:
        assert (await client.delete("/api/captures/watchers")).status_code == 403
    found = [each for each in captures.recorded([TopicChoice(topic=DISK)], 0) if isinstance(each, Sample)]
    assert [each.value for each in found] == [1, 2, 2]
    both = [
        TopicChoice(topic="devices/nas/state/+/disk"),
        TopicChoice(topic="devices/nas/state/SystemSkill/memory"),
    ]
    later = captures.recorded(both, found[1].at - 1e-5)
    assert [each.value for each in later if isinstance(each, Sample)][-2:] == [2, 2]
    assert len(list(captures.recorded(both, 0))) == 4
    # Other topics from now on, in the same files.
    await captures.record(
        "watchers", [TopicChoice(topic="devices/nas/state/A/a")], keep_days=7, keep_bytes=1_000_000
    )
    await send(home, 7, topic="devices/nas/state/A/a")
    await eventually(lambda: values(own) == [1, 2, 2, 7])
    await captures.record("watchers", [], keep_days=7, keep_bytes=1_000_000)
    async with home.client() as client:
        assert "watchers" not in [each["id"] for each in (await client.get("/api/captures")).json()]


async def test_people_start_list_plot_and_stop_captures_on_the_command_line(
    home: Home, tmp_path: Path
) -> None:
    environment = environment_of(tmp_path, STRAWBERRY_TOKEN=home.admin_token)

    async def captures(*words: str, hub: bool = True) -> str:
        where = ("--hub", home.hub.url) if hub else ()
        done = await asyncio.to_thread(run, environment, "captures", *words, *where)
        assert done.returncode == 0, done.stderr
        return done.stdout

    started = json.loads(await captures("start", "nas.csv", DISK, "--max-files", "3", "--json"))
    assert (started["format"], started["topics"]) == ("csv", [{"topic": DISK, "link": "bus"}])
    await send(home, *({"used": used, "unit": "%"} for used in (40, 60, 95)))
    await eventually(lambda: Path(started["file"]).read_text().count("\n") == 4)
    assert "active" in await captures("list")
    assert await captures("stop", "nas") == "The capture nas is stopped; it has 3 messages.\n"
    drawn = await captures("plot", started["file"], hub=False)
    assert f"{DISK} used" in drawn
    picture = tmp_path / "nas.png"
    points = json.loads(
        await captures("plot", started["file"], "--png", str(picture), "--field", "used", "--json", hub=False)
    )
    assert [each["value"] for each in points[f"{DISK} used"]] == [40, 60, 95]
    assert picture.read_bytes().startswith(b"\x89PNG")
    points = json.loads(await captures("plot", "nas", "--field", "used", "--json"))
    assert [each["value"] for each in points[f"{DISK} used"]] == [40, 60, 95]
    state = {"at": "2026-11-22T12:00:00.000Z", "topic": DISK, "link": "bus", "payload": {"v": 1, "value": 7}}
    (tmp_path / "one.jsonl").write_text(json.dumps(state))
    drawn = await captures("plot", str(tmp_path / "one.jsonl"), hub=False)
    assert f"{DISK} value" in drawn
    assert f"{DISK} v\n" not in drawn
    assert {len(line) for line in drawn.splitlines() if "|" in line} != {0}


async def test_files_and_numbers_are_read_over_http_by_those_whose_they_are(home: Home) -> None:
    accounts = home.hub.registry.accounts
    stranger = await home.token(await accounts.add("Bob", role="member"))
    started = await start(home, max_bytes=1_000)
    await send(home, *({"value": number} for number in range(3_000)))
    await eventually(lambda: len(values(Path(started["file"]))) == 3_000)
    async with home.client() as client, home.client(stranger) as other:
        path = f"/api/captures/{started['id']}"
        files = (await client.get(f"{path}/files")).json()
        assert files[0]["name"] == "disk.jsonl"
        assert len(files) > 10
        got = await client.get(f"{path}/files/{files[1]['name']}")
        assert got.content == (folder_of(home) / files[1]["name"]).read_bytes()
        assert got.headers["content-disposition"] == f"attachment; filename*=UTF-8''{files[1]['name']}"
        numbers = (await client.get(f"{path}/numbers", params={"field": "value"})).json()
        line = numbers["lines"][f"{DISK} value"]
        # A plot has fewer points, and the lowest and the highest are among them.
        assert len(line) <= 1_200
        assert (line[0][1], line[-1][1], numbers["cut"]) == (0, 2_999, False)
        for wrong in ("disk.000999.jsonl", "..%2Fhub.db", "other.jsonl", "%2Fetc%2Fpasswd"):
            assert (await client.get(f"{path}/files/{wrong}")).status_code == 404
        os.link(folder_of(home) / files[1]["name"], folder_of(home) / "second-name")
        assert (await client.get(f"{path}/files/{files[1]['name']}")).status_code == 404
        for what in ("files", f"files/{files[0]['name']}", "numbers"):
            assert (await other.get(f"{path}/{what}")).status_code == 404


async def test_a_stopped_capture_is_known_until_its_files_are_gone_and_not_only_its_disk(home: Home) -> None:
    await start(home, path="in/disk.jsonl")
    captures, away = home.hub.live.captures, home.directory / "away"

    async def files() -> list[int]:
        captures._rolled.set()
        return [each.files for each in await captures.list(home.hub.registry.admin)]

    async def files_are(count: int) -> bool:
        known = captures._captures.get("in_disk")
        return await files() == [count] and known.published.files == count

    async with home.client() as client:
        await client.delete("/api/captures/in_disk")
    folder_of(home).rename(away)
    await eventually(partial(files_are, 0))
    away.rename(folder_of(home))
    await eventually(partial(files_are, 1))
    capture = captures._captures["in_disk"]
    assert capture.device is not None
    folder_of(home).rename(away)
    # Moved elsewhere, and linked.
    (away / "in").rename(home.directory / "moved")
    (away / "in").symlink_to(home.directory / "moved")
    away.rename(folder_of(home))
    assert not capture.is_gone()
    (folder_of(home) / "in").unlink()
    # What is where its disk was is another one.
    assert not capture.series.is_gone(capture.device + 1)

    async def is_forgotten() -> bool:
        return not await files()

    await eventually(is_forgotten)


async def test_the_last_value_is_in_a_capture_that_others_follow_already(home: Home) -> None:
    await start(home)
    await send(home, 1)
    await recorded(home, 1)
    await start(home, path="later.jsonl", topics=["devices/nas/state/#", DISK])
    await eventually(lambda: (folder_of(home) / "later.jsonl").stat().st_size > 0)
    # Once, although two filters match it.
    [first] = read_capture(folder_of(home) / "later.jsonl")
    assert isinstance(first, Sample)
    assert (first.value, first.retained) == (1, True)
