"""What spokes and hub count on, on each broker that can be the bus."""

import asyncio
import shutil
from typing import Any
from urllib.parse import urlsplit

import pytest

from broker.probe import ProbeLogin, open_probe
from bus.link import Message, open_link
from bus.link.connection import Connection, SubscriptionRefused
from contracts import topics
from contracts.access import Principal
from contracts.errors import Forbidden
from tests.brokers import INSTANCE, Bus
from tests.requirements import require

LAMP = Principal("device", "lamp_pi", "anna")
HUB = Principal("hub", INSTANCE)
STATUS = topics.STATUS.build(device="lamp_pi")
EVENT = topics.EVENT.build(device="lamp_pi", name="pressed")
STATE = topics.STATE.build(device="lamp_pi", skill="LampSkill", property="on")
CALL = topics.CALL.build(device="lamp_pi", skill="LampSkill", method="turn_on")
READER = Principal("client", "explorer", "anna")


async def test_the_last_will_of_a_device_that_vanishes_is_published_and_retained(any_bus: Bus) -> None:
    if any_bus.kind == "nats":
        pytest.skip("NATS publishes no last will of a client whose id connects again")
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    login = await any_bus.link_settings(LAMP)
    async with open_link(await any_bus.link_settings(HUB)) as hub:
        await hub.subscribe(topics.STATUS.filter(), inbox.put_nowait)
        will = Message(STATUS, b"offline", 1, True)
        async with (
            open_link(login, will=lambda: will),
            # The same client id again: the broker lets go of the first without a farewell.
            open_link(login, will=lambda: None),
        ):
            assert (await inbox.get()).payload == b"offline"


async def test_a_subscription_that_is_refused_is_not_asked_for_at_the_next_connection(
    any_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    left, back = asyncio.Event(), asyncio.Event()

    async def came_back() -> None:
        back.set()

    async with open_link(await any_bus.link_settings(LAMP)) as lamp:
        with pytest.raises(Forbidden):
            await lamp.subscribe(topics.STATUS.filter(), print)
        lamp.on_disconnected(left.set)
        lamp.on_connected(came_back)
        lamp.pause()
        await left.wait()
        lamp.resume()
        await back.wait()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_two_hundred_publications_in_flight_all_arrive_in_order(any_bus: Bus) -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    async with (
        open_link(await any_bus.link_settings(HUB)) as hub,
        open_link(await any_bus.link_settings(LAMP)) as lamp,
    ):
        await hub.subscribe(topics.EVENT.filter(), inbox.put_nowait)
        for number in range(200):
            await lamp.publish(EVENT, str(number).encode())
        assert [int((await inbox.get()).payload) for _ in range(200)] == list(range(200))


def _all_that_is_heard(bus: Bus) -> list[str]:
    # NATS refuses a filter of which a reader may not see all.
    return ["devices/+/state/+/+", "devices/+/events/+"] if bus.kind == "nats" else ["#"]


async def test_mosquitto_sub_sees_the_house_and_no_calls(any_bus: Bus) -> None:
    program = shutil.which("mosquitto_sub")
    require(program is not None, "mosquitto_sub is not installed: apt-get install mosquitto-clients")
    assert program is not None
    where, login = urlsplit(any_bus.url), await any_bus.credentials(READER)
    options = ["-h", where.hostname, "-p", where.port, "-i", login.client_id, "-u", login.username]
    async with open_link(await any_bus.link_settings(HUB)) as hub:
        await hub.publish(CALL, b"kept, which no call should be", retain=True, confirmed=True)
        await hub.publish(STATE, b"true", retain=True, confirmed=True)
        filters = [option for each in _all_that_is_heard(any_bus) for option in ("-t", each)]
        everything = [*map(str, options), "-P", login.password.get_secret_value(), *filters, "-v"]
        watching = await asyncio.create_subprocess_exec(program, *everything, stdout=asyncio.subprocess.PIPE)
        assert watching.stdout is not None
        # What is retained comes first, and says that it listens.
        assert await watching.stdout.readline() == f"{STATE} true\n".encode()
        await hub.publish(CALL, b"secret arguments")
        await hub.publish(EVENT, b"pressed")
        assert await watching.stdout.readline() == f"{EVENT} pressed\n".encode()
        watching.terminate()
        await watching.communicate()


async def test_a_reader_sees_the_same_over_a_websocket(any_bus: Bus) -> None:
    login = await any_bus.credentials(READER)
    probe = ProbeLogin(any_bus.web, login.client_id, login.username, login.password)
    async with open_link(await any_bus.link_settings(HUB)) as hub, open_probe(probe) as reader:
        assert reader.accepted
        for each in _all_that_is_heard(any_bus):
            assert await reader.subscribe(each)
        await hub.publish(CALL, b"secret arguments")
        await hub.publish(EVENT, b"pressed")
        assert (await reader.next())[:2] == (EVENT, b"pressed")


async def test_a_subscription_that_a_cluster_refuses_for_a_moment_is_there_before_the_link_is_back(
    any_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe, refusals = Connection.subscribe, iter([True, True])

    async def refused(self: Connection, filters: list[tuple[str, int]], **more: Any) -> None:
        if next(refusals, False):
            raise SubscriptionRefused({name: "Unspecified error" for name, _ in filters})
        await subscribe(self, filters, **more)

    inbox, back = asyncio.Queue[Message](), asyncio.Event()
    async with (
        open_link(await any_bus.link_settings(HUB)) as hub,
        open_link(await any_bus.link_settings(LAMP)) as lamp,
    ):
        await hub.subscribe(topics.EVENT.filter(), inbox.put_nowait)

        async def came_back() -> None:
            back.set()

        hub.on_connected(came_back)
        monkeypatch.setattr(Connection, "subscribe", refused)
        hub.reconnect()
        await back.wait()
        await lamp.publish(EVENT, b"heard")
        assert (await asyncio.wait_for(inbox.get(), 30)).payload == b"heard"
    assert next(refusals, False) is False
