"""A spoke's outbox and cache with the genuine hub, over HTTP that is cut anywhere."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from pydantic import SecretStr

from chat.tasks import open_tasks
from chat.turns import Turn
from contracts.chat.messages import ChatRequest, TurnFinal
from contracts.devices.joining import DeviceProfile
from contracts.errors import HubBroken, InvalidMessage, Unauthorized
from hub_agent.chat.record import ConversationRecord
from identity.keys import KeyPair
from spoke.chat.hub_health import HubHealth
from spoke.chat.record import SpokeRecord, open_record
from spoke.chat.sync import Sync
from spoke.membership.enrolment import Enrolment
from spoke.membership.refreshing import find_hub
from spoke.settings import ChatSettings
from tests.hub_agent.home import Device, Home, open_home
from tests.hub_agent.skills import LampSkill
from tests.hub_registry.spokes import eventually
from tests.spoke.home import wait_for

C: Final = "c" * 32
LONG: Final = "a long text 🍓 " * 1200


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    """A home without a model."""
    async with open_home(tmp_path / "home") as opened:
        yield opened


@dataclass
class Spoke:
    """What a spoke records and syncs with."""

    record: SpokeRecord
    sync: Sync

    async def says(self, name: str, *, conversation: str = C, answer: str = "") -> None:
        """Answer something without the hub."""
        request = ChatRequest(message=f"{name}?", turn=name, conversation=conversation)
        turn = Turn(request, user="here", device="kitchen")
        await self.record.begin(turn)
        turn.emit(TurnFinal(answer=answer or f"{name}!", mode="offline"))
        await self.record.end(turn)


def enrolment(home: Home, device: Device, url: str = "") -> Enrolment:
    key = KeyPair.load_or_create(home.directory / "hub" / "key.pem")
    return Enrolment(
        hub_url=url or home.hub.url,
        hub_id=home.hub.registry.hub_id,
        device=device.id,
        profile=DeviceProfile(name=device.id, key=device.id),
        key_id=device.key.kid,
        token=SecretStr(device.token),
        bus_token=SecretStr(device.token),
        hub_key=key.public,
        brokers=(home.broker_url,),
        authentication="proof",
        prefix="",
        invitation="",
    )


@asynccontextmanager
async def spoke_of(directory: Path, known: Enrolment, key: KeyPair) -> AsyncIterator[Spoke]:
    async with open_tasks() as tasks, AsyncExitStack() as stack:
        opening = open_record(directory, home="home", clock=time.time, recorded=lambda: None)
        record = await stack.enter_async_context(opening)
        health = HubHealth(lambda: known, key=key, settings=ChatSettings(), tasks=tasks)
        stack.callback(health.close)
        yield Spoke(record, Sync(record, health))


async def at_hub(home: Home, conversation: str = C) -> list[tuple[str, str | None]]:
    record = ConversationRecord(home.hub.registry.store, instance="reader")
    turns = await record.turns(home.hub.registry.admin.id, conversation, limit=1_000)
    return [(turn.question, turn.answer) for turn in turns]


async def test_the_outbox_is_pushed_in_order_and_empty_afterwards(home: Home, tmp_path: Path) -> None:
    device = await home.device("Kitchen")
    async with spoke_of(tmp_path / "spoke", enrolment(home, device), device.key) as spoke:
        for number in range(250):
            await spoke.says(f"t{number}")
        await spoke.sync.push()
        assert await spoke.record.outbox() == []
        assert await at_hub(home) == [(f"t{number}?", f"t{number}!") for number in range(250)]
        await spoke.sync.push()
        assert len(await at_hub(home)) == 250


async def test_a_turn_that_the_hub_cannot_take_keeps_back_no_other(
    home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = await home.device("Kitchen")
    async with spoke_of(tmp_path / "spoke", enrolment(home, device), device.key) as spoke:
        await spoke.says("before")
        await spoke.says("huge", answer="x" * 2_000_000)
        await spoke.says("after")
        await spoke.sync.push()
        assert [question for question, _ in await at_hub(home)] == ["before?", "after?"]
        assert "does not take turn huge" in caplog.text
        assert len(await spoke.record.turns(C, limit=9)) == 3


async def test_a_hub_that_refuses_the_token_says_why_and_what_was_said_is_still_to_be_pushed(
    home: Home, tmp_path: Path
) -> None:
    device = await home.device("Kitchen")
    await home.hub.registry.revoke_device(device.id)
    async with spoke_of(tmp_path / "spoke", enrolment(home, device), device.key) as spoke:
        await spoke.says("kept")
        with pytest.raises(Unauthorized, match="revoked"):
            await spoke.sync.push()
        assert [turn.turn for turn in await spoke.record.outbox()] == ["kept"]


async def test_a_hub_with_the_key_of_the_old_one_and_another_database_is_another_hub(home: Home) -> None:
    device = await home.device("Kitchen")
    known = enrolment(home, device).model_copy(update={"hub_id": "before"})
    with pytest.raises(InvalidMessage, match="is now the hub"):
        await find_hub(known, key=device.key)


async def test_what_was_said_elsewhere_comes_into_the_cache_and_what_was_deleted_leaves_it(
    home: Home, tmp_path: Path
) -> None:
    device = await home.device("Kitchen", LampSkill())
    async with (
        spoke_of(tmp_path / "spoke", enrolment(home, device), device.key) as spoke,
        home.client() as owner,
    ):
        await spoke.says("here")
        await spoke.says("gone", conversation="d")
        await spoke.sync.push()
        said = {"message": "turn on the lamp", "conversation": C}
        assert (await owner.post("/api/chat", json=said)).status_code == 200
        assert (await owner.post("/api/chat", json=said | {"conversation": "secret"})).status_code == 200
        assert (await owner.delete("/api/conversations/d")).status_code == 204
        await spoke.sync.refresh()
        shown = await spoke.record.turns(C, limit=9)
        assert [turn.question for turn in shown] == ["here?", "turn on the lamp"]
        assert [each.id for each in await spoke.record.conversations(limit=9)] == [C]


async def test_after_the_hub_was_met_everything_goes_over_one_connection(home: Home, tmp_path: Path) -> None:
    device = await home.device("Kitchen")
    async with (
        Wire(home.hub.http_port).open() as wire,
        spoke_of(tmp_path / "spoke", enrolment(home, device, wire.url), device.key) as spoke,
    ):
        await spoke.sync.conversations(limit=1)
        met = wire.opened
        for name in "abc":
            await spoke.says(name)
            await spoke.sync.push()
        await spoke.sync.refresh()
        assert await spoke.sync._hub.is_alive()
        assert wire.opened == met


async def test_the_task_pushes_at_its_start_when_woken_and_again_after_a_failure(
    home: Home, tmp_path: Path
) -> None:
    device = await home.device("Kitchen")
    async with (
        Wire(home.hub.http_port).open() as wire,
        spoke_of(tmp_path / "spoke", enrolment(home, device, wire.url), device.key) as spoke,
        open_tasks() as tasks,
    ):
        wire.down = 0
        await spoke.says("a")
        tasks.create_task(spoke.sync.run())

        async def has(count: int) -> bool:
            return len(await at_hub(home)) == count

        await wait_for(lambda: wire.cut, "the first attempt to fail")
        await eventually(partial(has, 1))
        await spoke.says("b")
        spoke.sync.wake()
        await eventually(partial(has, 2))


@dataclass
class Wire:
    """Passes bytes on to the hub and back, so many of them on the next connection, and then cuts it.

    Attributes:
        up: Bytes to the hub that still pass; None for all.
        down: Bytes from the hub that still pass.
        cut: Connections that were cut.
        opened: Connections that were opened.
    """

    behind: int
    up: int | None = None
    down: int | None = None
    port: int = 0
    cut: int = 0
    opened: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Wire"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        (up, self.up), (down, self.down) = (self.up, None), (self.down, None)
        there, back = await asyncio.open_connection("127.0.0.1", self.behind)
        try:
            async with asyncio.TaskGroup() as tasks:
                ways = [
                    tasks.create_task(self._pass_on(reader, back, up)),
                    tasks.create_task(self._pass_on(there, writer, down)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
        finally:
            for end in (writer, back):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, left: int | None
    ) -> None:
        with suppress(OSError):
            while data := await source.read(64 * 1024):
                passed = data if left is None else data[:left]
                target.write(passed)
                await target.drain()
                if left is not None:
                    left -= len(passed)
                    if len(passed) < len(data) or left <= 0:
                        self.cut += 1
                        return


async def test_a_wire_that_is_cut_at_any_byte_loses_nothing_and_doubles_nothing(
    home: Home, tmp_path: Path
) -> None:
    device = await home.device("Kitchen")
    async with Wire(home.hub.http_port).open() as wire:
        said: list[str] = []
        for number, passes in enumerate((1, 40, 150, 400, 5_000, 16_000, 17_500)):
            for up in (True, False):
                # Another process each time: what is in the file is all that it knows.
                async with spoke_of(
                    tmp_path / "spoke", enrolment(home, device, wire.url), device.key
                ) as spoke:
                    if number % 2:
                        await spoke.sync.push()
                    said.append(f"{number}-{up}")
                    await spoke.says(said[-1], answer=LONG)
                    hub = await spoke.sync._hub.hub()
                    hub.http.drop()
                    wire.up, wire.down = (passes, None) if up else (None, min(passes, 100))
                    before = wire.cut
                    with pytest.raises(HubBroken):
                        await spoke.sync.push()
                    assert wire.cut == before + 1
        async with spoke_of(tmp_path / "spoke", enrolment(home, device, wire.url), device.key) as spoke:
            await spoke.sync.push()
            assert await spoke.record.outbox() == []
    assert await at_hub(home) == [(f"{name}?", LONG) for name in said]


SPEAKER: Final = """
import asyncio, sys
from pathlib import Path

from identity.keys import KeyPair
from spoke.membership.enrolment import Enrolment
from tests.spoke.test_sync import spoke_of


async def main(directory: Path, first: int) -> None:
    known, key = Enrolment.load(directory / "enrolment.json"), KeyPair.load(directory / "key.pem")
    async with spoke_of(directory, known, key) as spoke:
        for number in range(first, first + 100_000):
            await spoke.says(str(number))
            print(number, flush=True)
            if number % 3 == 0:
                await spoke.sync.push()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no such kill")
async def test_a_spoke_that_is_killed_while_it_answers_and_pushes_loses_no_turn(
    home: Home, tmp_path: Path
) -> None:
    device = await home.device("Kitchen")
    known = enrolment(home, device)
    known.save(tmp_path / "enrolment.json")
    device.key.save(tmp_path / "key.pem")
    answered: list[int] = []
    for lines in (4, 9, 15):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            SPEAKER,
            str(tmp_path),
            # Of the one after the last a question may be recorded.
            str(answered[-1] + 2 if answered else 1),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        answered += [int(await process.stdout.readline()) for _ in range(lines)]
        process.kill()
        # What it still answered before it was killed counts too.
        answered += map(int, (await process.communicate())[0].split())
    async with spoke_of(tmp_path, known, device.key) as spoke:
        await spoke.sync.push()
        assert await spoke.record.outbox() == []
    turns = [(int(question.rstrip("?")), answer) for question, answer in await at_hub(home)]
    numbers = [number for number, _ in turns]
    assert numbers == sorted(set(numbers)), "each is there once, and in order"
    assert {number for number, answer in turns if answer == f"{number}!"} >= set(answered)
