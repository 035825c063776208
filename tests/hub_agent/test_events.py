"""Events: stored, streamed to those whom they concern, resumed, bounded."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from bus.link import Message
from chat.http.streams import STREAMS
from contracts import topics
from contracts.claims import Scope
from hub_agent.settings import HttpSettings
from hub_live.events.kinds import (
    CaptureData,
    NodeData,
    NotificationData,
    PresenceData,
    TimerData,
    WatcherData,
)
from hub_registry.devices.presence import PresenceState
from tests.hub_agent.home import Home, open_home, within_patience
from tests.hub_registry.spokes import eventually

URL = "/api/events"


@asynccontextmanager
async def streaming(
    client: httpx.AsyncClient, query: str = "", **headers: str
) -> AsyncIterator[AsyncIterator[Any]]:
    """The events of a stream as they come; entered, the hub sends it."""
    async with client.stream("GET", f"{URL}{query}", headers=headers, timeout=60) as response:
        assert response.status_code == 200, await response.aread()
        lines = response.aiter_lines()
        assert (await anext(lines)).startswith(":")
        yield (json.loads(line.removeprefix("data: ")) async for line in lines if line.startswith("data: "))


async def subjects(
    client: httpx.AsyncClient, query: str = "?last=1000&follow=false", **headers: str
) -> list[str]:
    async with streaming(client, query, **headers) as events:
        return [event["subject"] async for event in events]


async def test_a_stream_gives_what_happens_and_resumes_where_it_broke_off(home: Home) -> None:
    publish = home.hub.live.events.publish
    await publish("admin", WatcherData(subject="before"))
    async with home.client() as client:
        async with streaming(client) as events:
            await publish("admin", WatcherData(subject="disk", decision="act"))
            first = await anext(events)
        assert (first["kind"], first["user"], first["data"]["decision"]) == ("watcher", "admin", "act")
        await publish("admin", CaptureData(subject="weather"))
        await publish("admin", TimerData(subject="tea"))
        missed = {"Last-Event-ID": str(first["id"])}
        assert await subjects(client, "?follow=false", **missed) == ["weather", "tea"]
        assert await subjects(client, "?last=1&follow=false&kind=watcher") == ["disk"]
        for wrong in ({"Last-Event-ID": "x"}, {"Last-Event-ID": "9" * 40}):
            assert (await client.get(URL, headers=wrong)).status_code == 422


async def test_a_person_sees_their_own_and_an_admin_all(home: Home) -> None:
    bo = await home.hub.registry.accounts.add("Bo", role="member")
    for user in ("admin", bo.id):
        await home.hub.live.events.publish(user, NotificationData(subject=f"for {user}"))
    some: tuple[Scope, ...] = ("chat",)
    for token, seen in (
        (await home.token(bo), ["for bo"]),
        (await home.token(), ["for admin", "for bo"]),
        (await home.token(scopes=some), ["for admin"]),
    ):
        async with home.client(token) as client:
            assert await subjects(client) == seen
            # The bell of an admin is not filled with what others are told.
            own = await subjects(client, "?kind=notification&last=1&own=true&follow=false")
            assert own == seen[:1]


async def test_a_stream_ends_with_its_token_and_there_are_few_of_each(home: Home) -> None:
    token = await home.token()
    claims = home.hub.registry.authority.check(token)
    async with home.client(token) as client, asyncio.TaskGroup() as tasks:
        started, ended = asyncio.Barrier(STREAMS + 1), []

        async def follow() -> None:
            async with streaming(client) as events:
                await started.wait()
                ended.append([event async for event in events])

        for _ in range(STREAMS):
            tasks.create_task(follow())
        await within_patience(started.wait())
        refused = await client.get(URL)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        await home.hub.registry.authority.revoke([claims.jti])
    assert ended == [[]] * STREAMS


async def test_a_body_that_is_too_large_ends_its_stream_and_not_the_hub(home: Home) -> None:
    url = httpx.URL(home.hub.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"GET {URL} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {home.admin_token}"
    writer.write(f"{head}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    await within_patience(reader.readuntil(b": events\n\n\r\n"))
    size = HttpSettings().max_body_bytes + 1
    writer.write(b"%x\r\n%s\r\n" % (size, bytes(size)))
    await within_patience(reader.readuntil(b"0\r\n\r\n"))
    writer.close()
    async with home.client() as client:
        assert await subjects(client) == []


async def test_events_are_on_the_bus_of_their_person(home: Home) -> None:
    heard: asyncio.Queue[Message] = asyncio.Queue()
    await home.hub.link.subscribe(topics.USER_EVENT.filter(), heard.put_nowait)
    await home.hub.live.events.publish("admin", NodeData(subject="camera", state="failed"))
    message = await asyncio.wait_for(heard.get(), 30)
    assert message.topic == "users/admin/events/node"
    assert topics.USER_EVENT.parse(message.payload).data == {"subject": "camera", "state": "failed"}


async def test_devices_that_come_and_go_are_events_and_a_restart_of_the_hub_is_none(tmp_path: Path) -> None:
    async def told(home: Home, *expected: tuple[str, bool]) -> None:
        async def is_told() -> bool:
            found = await home.hub.live.events.after(0, user="admin", kinds=["presence"])
            return [(event.subject, event.data["online"]) for event in found] == list(expected)

        await eventually(is_told)

    came, went = ("Bedroom PC", True), ("Bedroom PC", False)
    async with open_home(tmp_path / "home") as home:
        device = await home.device("Bedroom PC")
        await told(home, came)
        await device.spoke.status("offline")
        await told(home, came, went)
    async with open_home(tmp_path / "home") as home:
        entry = home.hub.registry.directory.get(device.id)
        await eventually(lambda: entry.presence.state is PresenceState.OFFLINE)
        await home.device("Kitchen Pi")
        await told(home, came, went, ("Kitchen Pi", True))


async def test_only_so_many_of_a_kind_are_kept_and_none_is_too_large(home: Home) -> None:
    events = home.hub.live.events
    await events.publish("admin", WatcherData(subject="a decision", reason="x" * 100_000))
    await events.publish_all([("admin", PresenceData(subject=str(number))) for number in range(600)])
    kept = await events.after(0, user="admin", limit=1_000)
    assert [kept[0].subject, kept[0].data] == ["a decision", {"subject": "a decision"}]
    assert [event.subject for event in kept[1:]] == [str(number) for number in range(100, 600)]
