"""A token is renewed, and whatever is lost or killed on the way, the spoke gets in afterwards."""

import asyncio
import errno
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import SecretStr

from bus.link import Message
from contracts import topics
from contracts.devices.presence import DeviceStatus
from contracts.errors import Unauthorized
from contracts.wire import Json
from hub_agent.settings import BusKind
from identity import tokens
from identity.files import write_private
from identity.keys import KeyPair
from spoke.app import Spoke, open_spoke
from spoke.membership.enrolment import Enrolment
from spoke.membership.joining import join
from spoke.membership.refreshing import due_at, find_hub, renewed
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings
from tests.hub_agent.home import Home, open_home
from tests.hub_registry.spokes import aged
from tests.ports import free_port
from tests.spoke.home import DEVICE, Place, wait_for
from tests.spoke.hub import BUS, RENEW
from tests.spoke.talk import Fault, Line


@dataclass
class House:
    """A genuine hub behind a line, and a device that has joined it, with a token that is to be renewed.

    Attributes:
        statuses: What the device said of itself.
    """

    home: Home
    line: Line
    settings: SpokeSettings
    place: Place
    statuses: list[DeviceStatus] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.settings.directory / "enrolment.json"

    @property
    def device_key(self) -> KeyPair:
        return KeyPair.load(self.settings.directory / "key.pem")

    @property
    def journal(self) -> list[str]:
        return self.place.journal

    @property
    def stored(self) -> Enrolment:
        stored = Enrolment.load(self.path)
        assert stored is not None
        return stored

    def asked(self, path: str) -> int:
        """How often the hub was asked for a path."""
        return self.line.seen.count(path)

    def is_settled_after(self, token: SecretStr) -> bool:
        """Whether another token is stored by now, and is the only one."""
        return self.stored.token != token and self.stored.renewed is None

    async def enrolled(self) -> Enrolment:
        """Let the device in, with a token that is to be renewed."""
        async with self.home.client() as client:
            added = (await client.post("/api/devices", json={"name": "Garage PC", "trusted": True})).json()
        await join(self.settings, token=SecretStr(added["token"]), clock=HubClock())
        await aged(self.home.hub.registry, DEVICE, self.path)
        return self.stored

    async def pending(self) -> tuple[Enrolment, SecretStr]:
        """Have a renewed token stored that was not used yet; give what was stored before, and the token."""
        stored = await self.enrolled()
        made = await renewed(stored, await find_hub(stored, key=self.device_key), clock=HubClock())
        made.save(self.path)
        assert made.renewed is not None
        return stored, made.renewed

    @asynccontextmanager
    async def spoke(self) -> AsyncIterator[Spoke]:
        """A spoke that the hub knows to be there."""
        async with open_spoke(self.settings) as spoke:
            await wait_for(lambda: spoke.epoch in {one.epoch for one in self.statuses}, "the spoke")
            yield spoke

    async def back(self) -> None:
        """Wait until the hub hears of the spoke's second connection."""
        await wait_for(lambda: any(status.connection > 1 for status in self.statuses), "the spoke to be back")

    async def call(self, method: str, *args: Json, skill: str = "JournalSkill") -> Json:
        """Call as soon as the spoke is there.

        The first connection may be cut by the renewal before it was announced: then its will is heard
        before anything else.
        """
        body = {"device": DEVICE, "skill": skill, "method": method, "args": list(args)}
        async with asyncio.timeout(60), self.home.client() as client:
            while (answer := await client.post("/api/skills/call", json=body)).status_code != 200:
                assert answer.json()["code"] in ("offline", "unknown_skill"), answer.text
                await asyncio.sleep(0.01)
        return answer.json()["result"]

    async def crash(self, happened: Callable[[], object]) -> None:
        """Start a spoke, and end it when something has happened."""

        async def run() -> None:
            async with open_spoke(self.settings):
                await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(run())
            await wait_for(happened, "the moment of the crash")
            running.cancel()

    async def disturb_first_use(self, fault: Fault) -> None:
        """Have the answer to the first use of the renewed token held or lost."""
        await wait_for(lambda: self.line.holds(RENEW), "the renewal")
        self.line.faults[BUS] = [fault]
        self.line.let_go()


@pytest.fixture
async def house(tmp_path: Path, place: Place) -> AsyncIterator[House]:
    async with open_house(tmp_path, place) as house:
        yield house


@asynccontextmanager
async def open_house(directory: Path, place: Place, kind: BusKind = "embedded") -> AsyncIterator[House]:
    async with open_home(directory / "home", kind=kind) as home, Line(home.hub.url) as line:
        house = House(home, line, place.settings_at(line.url), place)

        def hear(message: Message) -> None:
            house.statuses.append(DeviceStatus.model_validate_json(message.payload))

        await home.hub.link.subscribe(topics.STATUS.build(device=DEVICE), hear)
        yield house


async def test_a_token_with_a_third_of_its_life_left_is_renewed_and_the_old_one_ends(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    old = (await house.enrolled()).token
    async with house.spoke():
        await wait_for(lambda: house.is_settled_after(old), "the renewal")
        await house.back()
        assert await house.call("write", "renewed") == "wrote renewed"
    with pytest.raises(Unauthorized):
        house.home.hub.registry.authority.check(old.get_secret_value())
    assert house.asked(RENEW) == 1
    assert old.get_secret_value() not in caplog.text
    assert house.stored.token.get_secret_value() not in caplog.text


async def test_on_a_shared_broker_a_token_is_renewed_without_leaving_the_bus(
    tmp_path: Path, place: Place
) -> None:
    async with open_house(tmp_path, place, kind="shared") as house:
        old = (await house.enrolled()).token
        async with house.spoke() as spoke:
            await wait_for(lambda: house.is_settled_after(old), "the renewal")
            assert spoke.connected
        await wait_for(lambda: house.statuses[-1].state == "offline", "the goodbye")
    assert {status.connection for status in house.statuses} == {1}


async def test_a_disk_that_is_full_for_a_moment_ends_no_spoke(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = (await house.enrolled()).token
    # By whether there is a token that follows, and whether the old one is gone.
    failing = {(True, False), (False, True)}

    def write(path: Path, content: bytes) -> bool:
        given = json.loads(content)
        step = (given["renewed"] is not None, given["token"] != old.get_secret_value())
        if step in failing:
            failing.remove(step)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_private(path, content)

    monkeypatch.setattr("spoke.membership.enrolment.write_private", write)
    async with house.spoke():
        await wait_for(lambda: not failing and house.is_settled_after(old), "the renewal")
        assert await house.call("write", "renewed") == "wrote renewed"


def test_devices_that_joined_together_do_not_renew_together() -> None:
    claims = tokens.make_claims(
        hub_id="home-1", subject="a", kind="device", owner="anna", scopes=(), lifetime_s=3000, now=0
    )
    assert (due_at(claims, chance=0), due_at(claims, chance=1)) == (2000, 1700)


async def test_no_open_call_fails_by_the_reconnect_of_a_renewal(house: House) -> None:
    house.place.add_gate()
    old = (await house.enrolled()).token
    house.line.faults[RENEW] = "hold request"
    async with house.spoke() as spoke:
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(house.call("wait", "through it", skill="GateSkill"))
            watching = tasks.create_task(house.call("watch", skill="GateSkill"))
            await wait_for(lambda: house.journal, "the calls to run")
            house.line.let_go()
            await wait_for(lambda: house.is_settled_after(old), "the renewal")
            await house.back()
            assert (writing.done(), watching.done()) == (False, False)
            house.place.open_gate()
            assert await writing == "wrote through it"
            assert await watching == "nothing happened"
        assert {status.epoch for status in house.statuses} == {spoke.epoch}
        # Not for a moment did anybody hear that it is away.
        assert {status.state for status in house.statuses} == {"online"}
    assert house.journal == ["through it begun", "through it done"]


async def test_a_lost_answer_locks_nobody_out(house: House) -> None:
    old = (await house.enrolled()).token
    house.line.faults[RENEW] = ["lose answer", "hold answer"]
    async with house.spoke():
        await house.disturb_first_use("lose answer")
        await wait_for(lambda: house.is_settled_after(old), "the renewal")
        await house.back()
        assert await house.call("write", "renewed") == "wrote renewed"
    assert house.asked(RENEW) == 2


async def test_a_spoke_that_ends_before_the_answer_gets_in(house: House) -> None:
    old = (await house.enrolled()).token
    house.line.faults[RENEW] = ["hold answer"]
    await house.crash(lambda: house.line.holds(RENEW))
    house.line.let_go()
    assert house.stored.token == old
    await gets_in_and_settles(house, old)


async def test_a_spoke_that_ends_before_it_has_used_what_it_stored_gets_in(house: House) -> None:
    stored, _ = await house.pending()
    await gets_in_and_settles(house, stored.token)
    assert house.asked(RENEW) == 1


async def test_a_spoke_that_ends_before_it_knows_that_the_hub_has_seen_it_gets_in(house: House) -> None:
    old = (await house.enrolled()).token
    house.line.faults[RENEW] = ["hold answer"]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(house.disturb_first_use("hold answer"))
        await house.crash(lambda: house.line.holds(BUS))
    house.line.let_go()
    assert house.stored.token == old
    assert house.stored.renewed is not None
    await gets_in_and_settles(house, old)


async def gets_in_and_settles(house: House, old: SecretStr) -> None:
    """Start the spoke anew: it is called, and in the end one token is left."""
    async with house.spoke():
        await wait_for(lambda: house.is_settled_after(old), "one token to be left")
        assert await house.call("write", "in") == "wrote in"
    token = house.stored.token.get_secret_value()
    assert house.home.hub.registry.authority.check(token).sub == DEVICE


async def test_with_the_hub_away_both_tokens_are_tried_on_the_bus(house: House) -> None:
    stored, second = await house.pending()
    # The hub has seen it in use, and then nobody could ask it any more.
    house.home.keys[house.device_key.kid] = house.device_key
    async with house.home.client(second.get_secret_value()) as client:
        assert (await client.get(BUS)).status_code == 200
    nowhere = {"hub_url": f"http://127.0.0.1:{free_port()}", "hub_key": stored.hub_key.kid}
    async with open_spoke(house.settings.model_copy(update={**nowhere, "refused_s": 3600})):
        await wait_for(lambda: house.statuses, "the spoke")
        assert await house.call("write", "second") == "wrote second"
    assert house.stored.renewed == second


async def test_a_renewed_token_that_the_hub_forgot_gives_way_to_the_old_one(house: House) -> None:
    stored, forgotten = await house.pending()
    # As after a backup of the hub was restored.
    await house.home.hub.registry.authority.revoke([tokens.token_id(forgotten.get_secret_value())])
    await gets_in_and_settles(house, stored.token)


async def test_a_token_that_has_expired_for_good_says_what_mends_it_and_is_tried_on(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stored, registry = await house.enrolled(), house.home.hub.registry
    old = tokens.make_claims(
        hub_id=registry.hub_id,
        subject=DEVICE,
        kind="device",
        owner="admin",
        scopes=("register", "chat"),
        lifetime_s=60,
        key=house.device_key.public,
        now=0,
    )
    expired = {
        name: SecretStr(tokens.issue(registry.key, old.model_copy(update={"aud": audience})))
        for name, audience in (("token", "http"), ("bus_token", "mqtt"))
    }
    stored.model_copy(update=expired).save(house.path)
    settings = house.settings.model_copy(update={"broker_wait_s": 0.1, "rejected_s": 0.2})
    async with open_spoke(settings) as spoke:
        # A broker that takes its time is a problem as well, which passes.
        refused = "refuses garage_pc: the token has expired"
        await wait_for(lambda: refused in (spoke.problem or ""), "the word of it")
        assert "strawberry spoke join" in (spoke.problem or "")
        await wait_for(lambda: not spoke.connected, "the broker's refusal")
        asked = house.asked(BUS)
        await wait_for(lambda: house.asked(BUS) > asked, "the next try")
    assert caplog.text.count("refuses garage_pc") == 1
