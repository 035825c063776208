"""A spoke's history and the genuine hub, over HTTP, over a wire that is cut at any byte."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from pydantic import SecretStr

from agent_core.conversation import Words, ordered
from contracts.errors import Forbidden, StrawberryError, Unauthorized
from contracts.history import Entry, SyncRequest
from hub_agent.chat.history import History as HubHistory
from hub_registry.storage.store import open_store
from identity.keys import KeyPair
from spoke.chat.history import FILE_NAME, History, open_history
from spoke.chat.store import open_spoke_store
from spoke.chat.sync import HistorySync, HubSyncClient
from spoke.membership.enrolment import Enrolment
from tests.hub_agent.home import Device, Home, open_home, says
from tests.model_server import Says, ScriptedModel


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    """A home without a model."""
    async with open_home(tmp_path / "home") as opened:
        yield opened


LONG: Final = "a long text 🍓 " * 1200


@dataclass
class Wire:
    """Hands bytes on to the hub and back, so many of them on the next connection, and then cuts it.

    Attributes:
        up: Bytes to the hub that still pass; None for all.
        down: Bytes from the hub that still pass.
    """

    behind: int
    up: int | None = None
    down: int | None = None
    port: int = 0
    cut: int = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Wire"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (up, self.up), (down, self.down) = (self.up, None), (self.down, None)
        there, back = await asyncio.open_connection("127.0.0.1", self.behind)
        try:
            async with asyncio.TaskGroup() as tasks:
                ways = [
                    tasks.create_task(self._hand_on(reader, back, up)),
                    tasks.create_task(self._hand_on(there, writer, down)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
        finally:
            for end in (writer, back):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    async def _hand_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, left: int | None
    ) -> None:
        with suppress(OSError):
            while data := await source.read(64 * 1024):
                passed = data if left is None else data[:left]
                target.write(passed)
                await target.drain()
                if left is not None:
                    left -= len(passed)
                    if len(passed) < len(data) or left == 0:
                        self.cut += 1
                        return


def enrolment(home: Home, device: Device, url: str) -> Enrolment:
    key = KeyPair.load_or_create(home.directory / "hub" / "key.pem")
    return Enrolment(
        hub_url=url,
        hub_id=home.hub.registry.hub_id,
        device=device.id,
        key_id=device.key.kid,
        token=SecretStr(device.token),
        hub_key=key.public,
        brokers=(home.broker_url,),
        prefix="",
        invitation="",
    )


@asynccontextmanager
async def history_of(directory: Path, device: str) -> AsyncIterator[History]:
    async with open_history(directory, home="home", device=device, clock=time.time) as opened:
        yield opened


async def at_hub(home: Home, device: Device) -> list[Entry]:
    """All that the hub has for a device, in order."""
    async with open_store(home.directory / "hub" / "hub.db") as store:
        found: list[Entry] = []
        request, more = SyncRequest(), True
        while more:
            answer = await HubHistory(store).sync(home.hub.registry.admin.id, device.id, request)
            found += answer.entries
            request, more = SyncRequest(after=answer.place), answer.more
    return ordered(found)


async def on_spoke(directory: Path) -> list[Entry]:
    """All that a spoke has, in order."""
    async with open_spoke_store(directory / FILE_NAME) as store:
        bodies = await store.read(lambda connection: connection.execute("SELECT body FROM entry").fetchall())
    return ordered(Entry.model_validate_json(body) for (body,) in bodies)


async def test_a_conversation_goes_on_at_the_hub_after_it_was_offline(
    tmp_path: Path, sandbox_files: Path
) -> None:
    async with AsyncExitStack() as stack:
        model = stack.enter_context(ScriptedModel([Says(text="As I said: dark.")]))
        opening = open_home(tmp_path / "home", model_url=model.base_url, sandbox=sandbox_files)
        home = await stack.enter_async_context(opening)
        device = await home.device("Kitchen")
        history = await stack.enter_async_context(history_of(tmp_path / "spoke", device.id))
        sync = HistorySync(history, HubSyncClient(lambda: enrolment(home, device, home.hub.url)))
        await history.append(Words("c", "t1", "question", "And in the hall?"))
        await history.append(Words("c", "t1", "answer", "Dark.", mode="offline"))
        await sync.sync_now()
        async with home.client(device.token) as http:
            header = {"x-strawberry-conversation": "c"}
            answer = await http.post("/v1/chat/completions", json=says("Again?"), headers=header)
        assert answer.status_code == 200, answer.text
        (asked,) = model.requests
        assert asked.said("user")[0] == f"[Asked and answered on {device.id}, offline]\nAnd in the hall?"
        assert asked.said("assistant") == ["Dark."]
        assert "hall" not in "".join(asked.said("system"))
        await sync.sync_now()
        shown = [(each.question, each.answer, each.mode) for each in await history.read("c")]
        assert shown == [
            ("And in the hall?", "Dark.", "offline"),
            ("Again?", "As I said: dark.", "online"),
        ]


async def test_a_wire_that_is_cut_at_any_byte_loses_nothing_and_doubles_nothing(
    home: Home, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        device = await home.device("Kitchen")
        wire = await stack.enter_async_context(Wire(home.hub.http_port).open())
        history = await stack.enter_async_context(history_of(tmp_path / "spoke", device.id))
        other = await stack.enter_async_context(history_of(tmp_path / "lost", device.id))
        client = HubSyncClient(lambda: enrolment(home, device, f"http://127.0.0.1:{wire.port}"))
        sync, fresh = HistorySync(history, client), HistorySync(other, client)
        await sync.sync_now()
        said: list[str] = []
        for number, passes in enumerate((1, 40, 150, 400, 5_000, 16_000, 17_500)):
            for up in (True, False):
                said.append(f"{number} {up} {LONG}")
                await history.append(Words("c", f"t{len(said)}", "question", said[-1]))
                wire.up, wire.down = (passes, None) if up else (None, min(passes, 300))
                before = wire.cut
                with pytest.raises(StrawberryError):
                    await sync.sync_now()
                assert wire.cut == before + 1
                if number % 2:
                    await sync.sync_now()
                else:
                    # Finds the hub anew, and nothing else: what was cut is still to be brought.
                    await client.exchange(SyncRequest())
        for down in (200, 20_000, 100_000):
            wire.down = down
            with pytest.raises(StrawberryError):
                await fresh.sync_now()
            await client.exchange(SyncRequest())
        await sync.sync_now()
        await fresh.sync_now()
        everything = await at_hub(home, device)
        assert [exchange.question for exchange in await history.read("c")] == said
        assert await on_spoke(tmp_path / "spoke") == await on_spoke(tmp_path / "lost") == everything


async def test_a_token_that_is_revoked_syncs_no_more(home: Home, tmp_path: Path) -> None:
    device = await home.device("Kitchen")
    async with history_of(tmp_path / "spoke", device.id) as history:
        sync = HistorySync(history, HubSyncClient(lambda: enrolment(home, device, home.hub.url)))
        await sync.sync_now()
        await home.hub.registry.revoke_device(device.id)
        with pytest.raises((Unauthorized, Forbidden)):
            await sync.sync_now()


SPEAKER: Final = """
import asyncio, sys, time
from pathlib import Path

from pydantic import SecretStr

from agent_core.conversation import Words
from identity.keys import PublicKey
from spoke.membership.enrolment import Enrolment
from spoke.chat.history import open_history
from spoke.chat.sync import HistorySync, HubSyncClient
import json

given = json.loads(sys.argv[1])
given["token"] = SecretStr(sys.stdin.readline().strip())
given["hub_key"] = PublicKey.from_jwk(given["hub_key"])
given["brokers"] = tuple(given["brokers"])
enrolment = Enrolment(**given)


async def main(directory: Path, first: int) -> None:
    async with open_history(directory, home="home", device=enrolment.device, clock=time.time) as history:
        sync = HistorySync(history, HubSyncClient(lambda: enrolment))
        for number in range(first, first + 100_000):
            await history.append(Words("c", f"t{number}", "question", f"{number}"))
            print(number, flush=True)
            if number % 3 == 0:
                await sync.sync_now()


asyncio.run(main(Path(sys.argv[2]), int(sys.argv[3])))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no such kill")
async def test_a_spoke_that_is_killed_while_it_talks_and_syncs_loses_no_word(
    home: Home, tmp_path: Path
) -> None:
    device = await home.device("Kitchen")
    place = enrolment(home, device, home.hub.url)
    given = {
        "hub_url": place.hub_url,
        "hub_id": place.hub_id,
        "device": place.device,
        "key_id": place.key_id,
        "hub_key": place.hub_key.jwk(),
        "brokers": list(place.brokers),
        "prefix": "",
        "invitation": "",
    }
    written = 0
    for lines in (4, 9, 15):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            SPEAKER,
            json.dumps(given),
            str(tmp_path / "spoke"),
            str(written + 1),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{device.token}\n".encode())
        await process.stdin.drain()
        for _ in range(lines):
            written = int(await process.stdout.readline())
        process.kill()
        # What it still said before it was killed counts too.
        rest = (await process.communicate())[0].split()
        written = int(rest[-1]) if rest else written
    async with history_of(tmp_path / "spoke", device.id) as history:
        await HistorySync(history, HubSyncClient(lambda: place)).sync_now()
        entries = await at_hub(home, device)
        assert await on_spoke(tmp_path / "spoke") == entries
    words = [int(entry.text) for entry in entries]
    assert words == sorted(words)
    # The very last one may have been stored and not told.
    assert set(words) - {written + 1} >= set(range(1, written + 1))
