"""Two spokes and a hub that are killed at any step of a sync, against a model that only knows who said what.

A kill is what it is for a disk: what lies there in that moment is all that the next start finds.
"""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlmodel import select

from agent_core.conversation import Words, exchanges_of, ordered
from contracts.errors import Disconnected
from contracts.history import Entry, SyncAnswer, SyncRequest
from hub_agent.chat.history import History as HubHistory
from hub_agent.chat.history import HubPen
from hub_agent.tables import EntryRow
from hub_registry.storage.store import Store, open_store
from spoke.chat.history import History
from spoke.chat.store import SpokeStore, open_spoke_store
from spoke.chat.sync import HistorySync

T = TypeVar("T")

ANN: Final = "ann"
HUB: Final = "hub"
DEVICES: Final = ("kitchen", "hall")
CONVERSATIONS: Final = ("c", "d")
LONG: Final = "long text " * 4000
"""Three entries; a page holds eight of them."""

Death = Literal["never", "uncommitted", "committed"]
Cut = Literal["request", "answer", "never"]


class Killed(BaseException):
    """The process is no more."""


class Disk:
    """A store on real files, whose next write can be the last thing that its process does.

    Attributes:
        death: At which moment of the next write the process is killed.
        starts: How often the process was started.
    """

    def __init__(self, directory: Path, opener: Callable[[Path], AbstractAsyncContextManager[Any]]) -> None:
        self.death: Death = "never"
        self.starts = 0
        self._directory = directory
        self._opener = opener
        self._opened: AbstractAsyncContextManager[Any] | None = None
        self._store: Any = None

    async def start(self) -> None:
        self._opened = self._opener(self._path / "store.db")
        self._store = await self._opened.__aenter__()
        self.starts += 1

    async def stop(self) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(None, None, None)

    async def kill(self) -> None:
        """Leave everything as it lies, and start again with that."""
        self._leave()
        await self._begin_again()

    async def back_up(self) -> None:
        await self.stop()
        shutil.copytree(self._path, self._directory / "backup")
        self._opened = None
        shutil.copytree(self._directory / "backup", self._path)
        await self.start()

    async def put_back(self) -> None:
        await self.stop()
        self._opened = None
        shutil.copytree(self._directory / "backup", self._path)
        await self.start()

    async def read(self, work: Callable[[Any], T]) -> T:
        return cast("T", await self._store.read(work))

    async def write(self, work: Callable[[Any], T]) -> T:
        death, self.death = self.death, "never"

        def deadly(connection: Any) -> T:
            result = work(connection)
            if death == "uncommitted":
                self._leave()
                raise Killed
            return result

        try:
            result = cast("T", await self._store.write(deadly))
        except Killed:
            await self._begin_again()
            raise
        if death == "committed":
            await self.kill()
            raise Killed
        return result

    @property
    def _path(self) -> Path:
        return self._directory / str(self.starts - (self._opened is not None))

    def _leave(self) -> None:
        shutil.copytree(self._path, self._directory / str(self.starts))

    async def _begin_again(self) -> None:
        await self.stop()
        self._opened = None
        await self.start()


class World:
    """A hub, its spokes, and a network between them that carries bytes."""

    def __init__(self, directory: Path) -> None:
        self.hub = Disk(directory / HUB, open_store)
        self.spokes = {device: Disk(directory / device, open_spoke_store) for device in DEVICES}
        self.ahead_s = dict.fromkeys(DEVICES, 0.0)
        self.cut: Cut = "never"
        self._pens: dict[int, HubPen] = {}
        self._histories: dict[tuple[str, int], History] = {}

    @property
    def disks(self) -> list[Disk]:
        return [self.hub, *self.spokes.values()]

    def history(self, device: str) -> History:
        """The history of a device, made once for each start of its process."""
        disk = self.spokes[device]
        key = (device, disk.starts)
        if key not in self._histories:
            store = cast("SpokeStore", disk)
            self._histories[key] = History(
                store, home="home", device=device, clock=lambda: 1_800_000_000 + self.ahead_s[device]
            )
        return self._histories[key]

    async def hub_says(self, words: Words, through: str | None) -> None:
        pen = self._pens.setdefault(self.hub.starts, HubPen.of("main"))
        await self.hub.write(lambda session: pen.write(session, ANN, words, through=through))

    async def sync(self, device: str) -> None:
        await HistorySync(self.history(device), Network(self, device)).sync_now()

    async def entries(self, place: str) -> list[Entry]:
        """Everything that lies at the hub or on a spoke."""
        if place == HUB:
            rows = await self.hub.read(lambda session: session.exec(select(EntryRow)).all())
            return [Entry.model_validate(row, from_attributes=True) for row in rows]
        bodies = await self.spokes[place].read(
            lambda connection: connection.execute("SELECT body FROM entry").fetchall()
        )
        return [Entry.model_validate_json(body) for (body,) in bodies]


class Network:
    """One spoke's way to the hub; see `spoke.chat.sync.SyncClient`."""

    def __init__(self, world: World, device: str) -> None:
        self._world = world
        self._device = device

    async def exchange(self, request: SyncRequest) -> SyncAnswer:
        world, sent = self._world, request.model_dump_json()
        cut, world.cut = world.cut, "never"
        if cut == "request":
            raise Disconnected("the request was lost")
        history = HubHistory(cast("Store", world.hub))
        try:
            answer = await history.sync(ANN, self._device, SyncRequest.model_validate_json(sent))
        except Killed:
            raise Disconnected("the hub was killed") from None
        if cut == "answer":
            raise Disconnected("the answer was lost")
        return SyncAnswer.model_validate_json(answer.model_dump_json())


class Home(RuleBasedStateMachine):
    """What may happen in a home, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.world = World(self.directory)
        self.said: list[tuple[str, str, str]] = []
        """Who said what in which conversation, once it was written down."""
        self.parts: set[tuple[str, str]] = set()
        """Which device has taken part in which conversation."""
        self.count = 0
        for disk in self.world.disks:
            self.run(disk.start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @rule(
        place=st.sampled_from((HUB, *DEVICES)),
        through=st.sampled_from((None, *DEVICES)),
        conversation=st.sampled_from(CONVERSATIONS),
        long=st.booleans(),
        death=st.sampled_from(("never", "never", "never", "uncommitted", "committed")),
    )
    def somebody_says(
        self, place: str, through: str | None, conversation: str, long: bool, death: Death
    ) -> None:
        self.count += 1
        text = f"{self.count}: {LONG if long else 'word'}"
        words = Words(conversation, f"turn{self.count}", "question", text)
        disk = self.world.hub if place == HUB else self.world.spokes[place]
        disk.death = death
        try:
            if place == HUB:
                self.run(self.world.hub_says(words, through))
            else:
                through = place
                self.run(self.world.history(place).append(words))
        except Killed:
            if death == "uncommitted":
                return
        self.said.append((place, conversation, text))
        if through is not None:
            self.parts.add((through, conversation))

    @rule(
        device=st.sampled_from(DEVICES),
        rounds=st.integers(0, 2),
        cut=st.sampled_from(("never", "request", "answer")),
        hub=st.sampled_from(("never", "uncommitted", "committed")),
        spoke=st.sampled_from(("never", "uncommitted", "committed")),
    )
    def a_spoke_syncs(self, device: str, rounds: int, cut: Cut, hub: Death, spoke: Death) -> None:
        """The two exchange some pages, and then something happens to one of them or on the way."""
        self.world.cut, self.world.hub.death, self.world.spokes[device].death = cut, hub, spoke
        try:
            self.run(self._sync(device, rounds))
        except (Disconnected, Killed):
            pass
        finally:
            self.world.cut = self.world.hub.death = self.world.spokes[device].death = "never"

    async def _sync(self, device: str, rounds: int) -> None:
        world = self.world
        ends = world.cut, world.hub.death, world.spokes[device].death
        world.cut = world.hub.death = world.spokes[device].death = "never"
        network = Network(world, device)
        for _ in range(rounds):
            history = world.history(device)
            request = await history.outgoing()
            await history.take(request, await network.exchange(request))
        world.cut, world.hub.death, world.spokes[device].death = ends
        await world.sync(device)

    @rule(place=st.sampled_from((HUB, *DEVICES)))
    def a_process_is_killed(self, place: str) -> None:
        self.run((self.world.hub if place == HUB else self.world.spokes[place]).kill())

    @rule(device=st.sampled_from(DEVICES), ahead_s=st.sampled_from((-1e6, -60.0, 0.0, 60.0, 1e6)))
    def a_clock_is_set(self, device: str, ahead_s: float) -> None:
        self.world.ahead_s[device] = ahead_s

    @invariant()
    def nothing_is_there_twice_and_nothing_that_nobody_said(self) -> None:
        said = {text for _, _, text in self.said}
        for place in (HUB, *DEVICES):
            counted = Counter(whole(self.run(self.world.entries(place)), complete=False))
            assert set(counted.values()) <= {1}
            assert all(any(text.startswith(found) for text in said) for found in counted)

    def teardown(self) -> None:
        try:
            self.all_is_everywhere_after_two_calm_syncs()
        finally:
            for disk in self.world.disks:
                self.run(disk.stop())
            self.runner.close()
            shutil.rmtree(self.directory)

    def all_is_everywhere_after_two_calm_syncs(self) -> None:
        for device in DEVICES * 2:
            self.run(self.world.sync(device))
        at_hub = self.run(self.world.entries(HUB))
        for conversation in CONVERSATIONS:
            there = [entry for entry in at_hub if entry.conversation == conversation]
            said = [(place, text) for place, where, text in self.said if where == conversation]
            assert sorted(whole(there)) == sorted(text for _, text in said)
            shown = whole(ordered(there))
            for writer in (HUB, *DEVICES):
                mine = [text for place, text in said if place == writer]
                assert [text for text in shown if text in mine] == mine, "a writer's words changed places"
            for device in DEVICES:
                got = [
                    entry
                    for entry in self.run(self.world.entries(device))
                    if entry.conversation == conversation
                ]
                assert ordered(got) == (ordered(there) if (device, conversation) in self.parts else [])


def whole(entries: list[Entry], *, complete: bool = True) -> list[str]:
    """The texts that entries make."""
    conversations = {entry.conversation for entry in entries}
    texts = [
        exchange.question
        for conversation in sorted(conversations)
        for exchange in exchanges_of(entry for entry in entries if entry.conversation == conversation)
    ]
    assert not complete or all(text.endswith(("word", "text ")) for text in texts)
    return texts


# Set by what this machine does in a few seconds.
BOUNDED: Final = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_or_out_of_order_whoever_is_killed() -> None:
    run_state_machine_as_test(Home, settings=BOUNDED)


async def test_a_hub_whose_backup_was_put_back_gets_what_devices_said_since(tmp_path: Path) -> None:
    world = World(tmp_path)
    for disk in world.disks:
        await disk.start()

    async def says(text: str) -> None:
        await world.history("kitchen").append(Words("c", text.split()[0], "question", text))

    await says("before word")
    await world.sync("kitchen")
    await world.hub.back_up()
    await says("since word")
    await world.sync("kitchen")
    await world.hub.put_back()
    # By now its list for the device is as long again, with something else in it.
    await world.hub_says(Words("c", "hub", "question", "later word"), "kitchen")
    await says("last word")
    await world.sync("kitchen")
    everything = ["before word", "since word", "later word", "last word"]
    assert sorted(whole(await world.entries(HUB))) == sorted(everything)
    assert ordered(await world.entries(HUB)) == ordered(await world.entries("kitchen"))
    for disk in world.disks:
        await disk.stop()
