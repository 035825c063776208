"""A token is renewed, and whatever is lost or killed on the way, the spoke gets in afterwards."""

import asyncio
import errno
import json
import logging
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from broker.embedded.logins import EmbeddedLogins
from broker.logins import BusLogin
from contracts.access import Principal
from contracts.errors import CallError, ErrorCode
from contracts.wire import Json
from identity import tokens
from identity.files import write_private
from identity.keys import KeyPair
from spoke.app import Spoke, open_spoke
from spoke.membership.enrolment import Enrolment
from spoke.membership.joining import join
from spoke.membership.refreshing import due_at, find_hub, renewed
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings
from tests.ports import free_port
from tests.spoke.home import BusSide, Place, on_bus, wait_for
from tests.spoke.hub import BUS, DEVICE, RENEW, StandInHub, serving

OLD_S = 90_000
"""Of a token of 100,000 s: nine tenths of its life are over."""


@dataclass
class House:
    """A hub whose renewals change the password on a real broker, as the genuine one's do."""

    hub: StandInHub
    bus: BusSide
    settings: SpokeSettings
    place: Place

    @property
    def device_key(self) -> KeyPair:
        return KeyPair.load(self.settings.directory / "key.pem")

    @property
    def journal(self) -> list[str]:
        return self.place.journal

    @property
    def stored(self) -> dict[str, Any]:
        stored: dict[str, Any] = json.loads((self.settings.directory / "enrolment.json").read_text())
        return stored

    def is_settled_after(self, token: SecretStr) -> bool:
        """Whether another token is stored by now, and is the only one."""
        stored = self.stored
        return stored["token"] != token.get_secret_value() and stored["renewed"] is None

    async def enrolled(self, *, age_s: float = OLD_S, **claims: Any) -> Enrolment:
        """Let the device in, with a token that has lain there for so long."""
        first = await join(self.settings, token=self.hub.invite(), clock=HubClock())
        token = self.hub.token(DEVICE, first.key.public, age_s=age_s, **claims)
        path = self.settings.directory / "enrolment.json"
        path.write_text(json.dumps(self.stored | {"token": token}))
        stored = Enrolment.load(path)
        assert stored is not None
        return stored

    @asynccontextmanager
    async def spoke(self) -> AsyncIterator[Spoke]:
        """A spoke that the hub knows to be there."""
        async with open_spoke(self.settings) as spoke:
            await wait_for(lambda: spoke.epoch in {one.epoch for one in self.bus.statuses}, "the spoke")
            yield spoke

    async def back(self) -> None:
        """Wait until the hub hears of the spoke's second connection."""
        await wait_for(
            lambda: any(status.connection > 1 for status in self.bus.statuses), "the spoke to be back"
        )

    async def call(self, method: str, *args: Json) -> Json:
        """Call as soon as the spoke is there.

        The first connection may be cut by the renewal before it was announced: then its will is heard
        before anything else.
        """
        async with asyncio.timeout(60):
            while True:
                try:
                    return await self.bus.call(method, *args)
                except CallError as error:
                    if error.code is not ErrorCode.OFFLINE:
                        raise
                await asyncio.sleep(0.01)

    async def crash(self, happened: threading.Event) -> None:
        """Start a spoke, and end it when something has happened."""

        async def run() -> None:
            async with open_spoke(self.settings):
                await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(run())
            await wait_for(happened.is_set, "the moment of the crash")
            running.cancel()


@pytest.fixture
async def house(embedded: str, hub_key: KeyPair, place: Place) -> AsyncIterator[House]:
    loop = asyncio.get_running_loop()
    with serving(StandInHub(brokers=[embedded], key=hub_key)) as hub:
        async with on_bus(hub, embedded) as bus:
            logins = EmbeddedLogins(bus.link)

            def allow(device: str, token: str) -> None:
                login = BusLogin(Principal("device", device), SecretStr(token), int(time.time()) + 1000)
                asyncio.run_coroutine_threadsafe(logins.allow(login), loop).result(30)

            hub.on_used = allow
            yield House(hub, bus, place.settings(hub), place)


async def test_a_token_with_a_third_of_its_life_left_is_renewed_and_the_old_one_ends(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    old = (await house.enrolled()).token
    async with house.spoke():
        await wait_for(lambda: house.is_settled_after(old), "the renewal")
        await house.back()
        assert await house.call("write", "renewed") == "wrote renewed"
    assert tokens.token_id(old.get_secret_value()) in house.hub.revoked
    assert house.hub.requests.count(RENEW) == 1
    assert old.get_secret_value() not in caplog.text
    assert house.stored["token"] not in caplog.text


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
    held = house.hub.fault(RENEW).hold = threading.Event()
    async with house.spoke() as spoke:
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(house.bus.call("wait", "through it", skill="GateSkill"))
            watching = tasks.create_task(house.bus.call("watch", skill="GateSkill"))
            await wait_for(lambda: house.journal, "the calls to run")
            held.set()
            await wait_for(lambda: house.is_settled_after(old), "the renewal")
            await house.back()
            assert (writing.done(), watching.done()) == (False, False)
            house.place.open_gate()
            assert await writing == "wrote through it"
            assert await watching == "nothing happened"
        assert {status.epoch for status in house.bus.statuses} == {spoke.epoch}
        # Not for a moment did anybody hear that it is away.
        assert {status.state for status in house.bus.statuses} == {"online"}
    assert house.journal == ["through it begun", "through it done"]


async def test_a_lost_answer_locks_nobody_out(house: House) -> None:
    old, admit = (await house.enrolled()).token, house.hub.on_used

    def allow_and_lose(device: str, token: str) -> None:
        admit(device, token)
        house.hub.fault(BUS).lose = 1

    house.hub.on_used = allow_and_lose
    house.hub.fault(RENEW).lose = 1
    async with house.spoke():
        await wait_for(lambda: house.is_settled_after(old), "the renewal")
        await house.back()
        assert await house.call("write", "renewed") == "wrote renewed"
    assert house.hub.requests.count(RENEW) == 2


async def test_a_spoke_that_ends_before_the_answer_gets_in(house: House) -> None:
    old = (await house.enrolled()).token
    fault = house.hub.fault(RENEW)
    fault.hold = threading.Event()
    await house.crash(fault.held)
    fault.hold.set()
    assert house.stored["token"] == old.get_secret_value()
    await gets_in_and_settles(house, old)


async def test_a_spoke_that_ends_before_it_has_used_what_it_stored_gets_in(house: House) -> None:
    stored = await house.enrolled()
    (await renewed(stored, await find_hub(stored, key=house.device_key), clock=HubClock())).save(
        house.settings.directory / "enrolment.json"
    )
    await gets_in_and_settles(house, stored.token)
    assert house.hub.requests.count(RENEW) == 1


async def test_a_spoke_that_ends_before_it_knows_that_the_hub_has_seen_it_gets_in(house: House) -> None:
    old = (await house.enrolled()).token
    fault, seen = house.hub.fault(BUS), threading.Event()
    admit = house.hub.on_used

    def allow_and_hold(device: str, token: str) -> None:
        admit(device, token)
        fault.hold = threading.Event()
        seen.set()

    house.hub.on_used = allow_and_hold
    await house.crash(seen)
    assert fault.hold is not None
    fault.hold.set()
    assert house.stored["token"] == old.get_secret_value()
    assert house.stored["renewed"] is not None
    await gets_in_and_settles(house, old)


async def gets_in_and_settles(house: House, old: SecretStr) -> None:
    """Start the spoke anew: it is called, and in the end one token is left."""
    async with house.spoke():
        await wait_for(lambda: house.is_settled_after(old), "one token to be left")
        assert await house.call("write", "in") == "wrote in"
    assert house.hub.authenticate(house.stored["token"]).sub == DEVICE


async def test_with_the_hub_away_both_tokens_are_tried_on_the_bus(house: House) -> None:
    stored = await house.enrolled()
    hub = await find_hub(stored, key=house.device_key)
    pending = await renewed(stored, hub, clock=HubClock())
    pending.save(house.settings.directory / "enrolment.json")
    assert pending.renewed is not None
    # The hub has seen it in use, and then nobody could ask it any more.
    await asyncio.to_thread(house.hub.authenticate, pending.renewed.get_secret_value())
    nowhere = house.settings.model_copy(
        update={"hub_url": f"http://127.0.0.1:{free_port()}", "hub_key": house.hub.key.kid, "refused_s": 3600}
    )
    async with open_spoke(nowhere):
        await wait_for(lambda: house.bus.statuses, "the spoke")
        assert await house.call("write", "second") == "wrote second"
    assert house.stored["renewed"] == pending.renewed.get_secret_value()


async def test_a_renewed_token_that_the_hub_forgot_gives_way_to_the_old_one(house: House) -> None:
    stored = await house.enrolled()
    pending = await renewed(stored, await find_hub(stored, key=house.device_key), clock=HubClock())
    pending.save(house.settings.directory / "enrolment.json")
    assert pending.renewed is not None
    # As after a backup of the hub was restored.
    house.hub.revoke(pending.renewed)
    await gets_in_and_settles(house, stored.token)


async def test_a_token_that_has_expired_for_good_says_what_mends_it_and_is_tried_on(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await house.enrolled(age_s=200_000)
    settings = house.settings.model_copy(update={"broker_wait_s": 0.1, "rejected_s": 0.2})
    async with open_spoke(settings) as spoke:
        # A broker that takes its time is a problem as well, which passes.
        refused = "refuses garage_pc: the token has expired"
        await wait_for(lambda: refused in (spoke.problem or ""), "the word of it")
        assert "strawberry spoke join" in (spoke.problem or "")
        await wait_for(lambda: not spoke.connected, "the broker's refusal")
        asked = house.hub.requests.count(BUS)
        await wait_for(lambda: house.hub.requests.count(BUS) > asked, "the next try")
    assert caplog.text.count("refuses garage_pc") == 1
