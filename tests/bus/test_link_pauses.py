"""A link that is told to leave, to wait, or to go by other settings."""

import asyncio
from dataclasses import replace

from pydantic import SecretStr

from bus.link import LinkSettings, Message, open_link
from tests.mosquitto import Mosquitto

WILL = Message("status", b"gone", 1, retain=True)


async def test_a_paused_link_leaves_no_will_and_comes_back_when_it_is_resumed(mosquitto: Mosquitto) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    settings = LinkSettings(urls=(mosquitto.url,), client_id="spoke")
    watching = open_link(replace(settings, client_id="watch"))
    async with watching, open_link(settings, will=lambda: WILL) as link:
        await watching.subscribe("#", lambda message: heard.put_nowait(message.payload))
        left, back = asyncio.Event(), asyncio.Event()
        link.on_disconnected(left.set)
        link.pause()
        await asyncio.wait_for(left.wait(), 30)

        async def came_back() -> None:
            back.set()

        link.on_connected(came_back)
        assert not link.connected
        link.resume()
        await asyncio.wait_for(back.wait(), 30)
        await link.publish("said", b"here", confirmed=True)
        await watching.publish("said", b"last", confirmed=True)
        assert [await heard.get(), await heard.get()] == [b"here", b"last"]


async def test_other_settings_count_at_once_also_while_a_refusal_is_waited_out(mosquitto: Mosquitto) -> None:
    nowhere = LinkSettings(
        urls=("mqtt://127.0.0.1:1",), client_id="spoke", backoff_s=3600, backoff_max_s=3600
    )
    async with open_link(nowhere, wait_s=0.1) as link:
        assert not link.connected
        link.use(replace(nowhere, urls=(mosquitto.url,)))
        await asyncio.wait_for(link.wait_connected(), 30)
        assert link.connected


async def test_a_new_password_never_goes_to_the_old_broker() -> None:
    # Settings change between the two versions in which a broker is tried.
    at_old: list[bytes] = []
    at_new: asyncio.Queue[bytes] = asyncio.Queue()

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_old.append(await reader.read(1000))
        link.use(replace(before, urls=(url_of(second),), username="two", password=SecretStr("new")))
        writer.close()

    async def new(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_new.put_nowait(await reader.read(1000))
        writer.close()

    first = await asyncio.start_server(old, "127.0.0.1", 0)
    second = await asyncio.start_server(new, "127.0.0.1", 0)
    before = LinkSettings(urls=(url_of(first),), client_id="a", username="one", password=SecretStr("old"))
    async with first, second:
        link = open_link(before, wait_s=0)
        async with link, asyncio.timeout(60):
            assert b"new" in await at_new.get()
    assert len(at_old) == 1
    assert b"old" in at_old[0]
    assert b"new" not in at_old[0]


def url_of(server: asyncio.Server) -> str:
    return f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
