"""Every right of the protocol, tried on each broker: what the table lists works, and nothing else does."""

import itertools
import socket
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from pydantic import SecretStr

from broker.probe import Probe, ProbeLogin, open_probe
from bus.link.message import Message
from contracts import topics
from contracts.access import Principal
from contracts.topics import EVENT, HUB_STATUS, STATUS
from tests.broker.rights_table import Row, rows, try_rights
from tests.brokers import INSTANCE, KINDS, Bus, Credentials, open_bus

pytestmark = pytest.mark.asyncio(loop_scope="module")

HUB: Final = Principal("hub", INSTANCE)
HOME_ASSISTANT: Final = Principal("client", "home_assistant", "anna", home_assistant=True)
DEVICE: Final = Principal("device", "lamp_pi", "anna")
READER: Final = Principal("client", "explorer", "anna")
CHATTER: Final = Principal("client", "nodered", "anna", chat=True)
USER: Final = Principal("user", "anna", "anna")
PRINCIPALS: Final = (HUB, DEVICE, READER, CHATTER, USER)


LOCK: Final = "lock_pi"
_MARK: Final = HUB_STATUS.build(instance="mark")


@dataclass
class Home:
    """A broker, the hub on it, and everybody's login."""

    bus: Bus
    hub: Probe
    logins: dict[Principal, Credentials]
    _number: itertools.count = field(default_factory=itertools.count)

    @asynccontextmanager
    async def log_in(self, principal: Principal) -> AsyncIterator[Probe]:
        async with open_probe(probe_login(self.bus, self.logins[principal])) as probe:
            assert probe.accepted, probe.refusal
            yield probe

    async def delivered(self, principal: Principal, filters: Collection[str]) -> set[str]:
        """Topics of the retained messages that one gets who subscribes."""
        async with self.log_in(principal) as probe:
            for filter_ in filters:
                await probe.subscribe(filter_)
            await probe.subscribe(_MARK)
            return {message.topic for message in await self.heard(probe)}

    async def heard(self, probe: Probe) -> list[Message]:
        """All that was delivered before a mark that the hub sets now."""
        mark = f"mark {next(self._number)}".encode()
        await self.hub.publish(_MARK, mark)
        messages = [Message(_MARK, b"")]
        while messages[-1].payload != mark:
            received = await probe.next()
            messages.append(Message(received.topic, received.payload))
        return [message for message in messages if message.topic != _MARK]


def probe_login(bus: Bus, login: Credentials, **changes: object) -> ProbeLogin:
    known = {"client_id": login.client_id, "username": login.username, "password": login.password}
    protocol = 5 if bus.kind in ("mosquitto", "container") else 4
    return ProbeLogin(bus.url, protocol=protocol, **{**known, **changes})  # type: ignore[arg-type]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Home]:
    directory: Path = tmp_path_factory.mktemp("rights")
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(open_bus(request.param, directory / "broker"))
        logins = {each: await bus.credentials(each) for each in PRINCIPALS}
        watching = await bus.credentials(HUB, suffix="-watching")
        hub = await stack.enter_async_context(open_probe(probe_login(bus, watching)))
        for branch in topics.BRANCHES:
            assert await hub.subscribe(branch)
        yield Home(bus, hub, logins)


def _name(principal: Principal) -> str:
    return f"{principal.kind} {principal.id}"


@pytest.mark.parametrize("principal", PRINCIPALS, ids=_name)
async def test_each_may_publish_and_hear_what_the_table_says_and_nothing_else(
    home: Home, principal: Principal
) -> None:
    login = probe_login(home.bus, home.logins[principal])
    wrong = await try_rights(
        principal, login, home.hub, device=DEVICE.id, other=LOCK, exact=home.bus.kind == "nats"
    )
    assert wrong == []


async def test_home_assistant_hears_and_commands_what_is_exposed_and_nothing_else(home: Home) -> None:
    home.logins[HOME_ASSISTANT] = await home.bus.credentials(HOME_ASSISTANT)
    last, order = "strawberry/main/availability", "strawberry/main/lamp_pi/set/LampSkill-turn_on"
    async with home.log_in(HOME_ASSISTANT) as probe:
        for filter_ in topics.HOME_BRANCHES:
            assert await probe.subscribe(filter_)
        assert not await probe.subscribe("#")
        for topic in ("homeassistant/light/x/y/config", STATUS.build(device=DEVICE.id), last):
            await home.hub.publish(topic, b"x")
        assert (await probe.next()).topic == "homeassistant/light/x/y/config"
        assert (await probe.next()).topic == last
    as_hub = await home.bus.credentials(HUB, suffix="-hears")
    async with open_probe(probe_login(home.bus, as_hub)) as hears:
        for filter_ in ("strawberry/#", STATUS.filter()):
            assert await hears.subscribe(filter_)
        for topic in (last, STATUS.build(device=DEVICE.id), order):
            # Mosquitto may disconnect a client that publishes what it may not.
            async with home.log_in(HOME_ASSISTANT) as probe:
                await probe.publish(topic, b"x")
        assert (await hears.next()).topic == order


@asynccontextmanager
async def retained(home: Home, table_rows: Iterable[Row]) -> AsyncIterator[None]:
    """Keep a message on every topic of the table."""
    kept = {row.topic for row in table_rows}
    for topic in kept:
        await home.hub.publish(topic, b"kept", retain=True)
    yield
    for topic in kept:
        await home.hub.publish(topic, b"", retain=True)


@pytest.mark.parametrize("principal", PRINCIPALS, ids=_name)
async def test_what_is_retained_is_delivered_by_the_same_table(home: Home, principal: Principal) -> None:
    table = list(rows(principal, device=DEVICE.id, other=LOCK, exact=home.bus.kind == "nats"))
    async with retained(home, table):
        for way in ("by name", "by wildcard", "everything"):
            asked = [row for row in table if row.way == way]
            heard = await home.delivered(principal, {row.filter for row in asked})
            assert heard == {row.topic for row in asked if row.allowed}, way


_BROAD: Final = ("+/#", "+/broker/#", "devices/#", "hub/#", "users/#", "$SYS/#", "$CONTROL/#", "$share/g/#")


@pytest.mark.parametrize("principal", [DEVICE, READER, CHATTER], ids=_name)
async def test_broad_filters_and_those_of_the_broker_deliver_nothing_else(
    home: Home, principal: Principal
) -> None:
    table = list(rows(principal, device=DEVICE.id, other=LOCK))
    async with retained(home, table):
        heard = await home.delivered(principal, _BROAD)
    assert heard <= {row.topic for row in table if row.way == "by name" and row.allowed}


@pytest.mark.parametrize("principal", [DEVICE, READER, CHATTER], ids=_name)
@pytest.mark.parametrize("filter_", ["$SYS/#", "$CONTROL/#", "$share/g/#", "$share/g/devices/#"])
async def test_asking_for_what_the_broker_keeps_for_itself_is_refused(
    home: Home, principal: Principal, filter_: str
) -> None:
    async with home.log_in(principal) as probe:
        assert not await probe.subscribe(filter_)


@pytest.mark.parametrize("principal", [DEVICE, READER, CHATTER], ids=_name)
async def test_nobody_but_the_hub_lets_others_in(home: Home, principal: Principal) -> None:
    intruder = b'{"commands":[{"command":"createClient","username":"mallory","password":"x"}]}'
    async with home.log_in(principal) as probe:
        await probe.publish(topics.DYNAMIC_SECURITY, intruder)
    async with open_probe(
        probe_login(home.bus, Credentials("mallory", "mallory", SecretStr("x")))
    ) as mallory:
        assert not mallory.accepted


async def test_a_last_will_on_anothers_topic_is_never_published(home: Home) -> None:
    false, true = STATUS.build(device=LOCK), STATUS.build(device=DEVICE.id)

    async def vanish(topic: str) -> None:
        async with open_probe(
            probe_login(home.bus, home.logins[DEVICE], will=Message(topic, b"offline"))
        ) as probe:
            if probe.accepted:
                # Without a farewell: the broker publishes the will, if it let it in.
                with socket.fromfd(
                    probe._client.socket().fileno(), socket.AF_INET, socket.SOCK_STREAM
                ) as own:
                    own.shutdown(socket.SHUT_RDWR)
                await probe.gone.wait()

    await home.heard(home.hub)
    await vanish(false)
    # This says that the scene would have shown it.
    await vanish(true)
    assert (await home.hub.next()).topic == true


@pytest.mark.parametrize("principal", [HUB, DEVICE, READER], ids=_name)
async def test_only_the_right_login_gets_in(home: Home, principal: Principal) -> None:
    login = home.logins[principal]
    password = login.password.get_secret_value()
    stranger = home.logins[CHATTER]
    wrong: dict[str, dict[str, object]] = {
        "one letter changed": {"password": SecretStr(password[:-2] + ("A" if password[-2] != "A" else "B"))},
        "cut off": {"password": SecretStr(password[:-1])},
        "no password": {"password": None},
        "nobody": {"username": None, "password": None},
        "another's password": {"password": stranger.password},
        "another's name": {"username": stranger.username, "client_id": stranger.client_id},
    }
    for what, change in wrong.items():
        async with open_probe(probe_login(home.bus, login, **change)) as probe:
            assert not probe.accepted, what
    async with open_probe(probe_login(home.bus, login)) as probe:
        assert probe.accepted


@pytest.mark.parametrize("principal", [READER, CHATTER, USER], ids=_name)
async def test_nobody_takes_a_devices_place_by_its_client_id(home: Home, principal: Principal) -> None:
    async with home.log_in(DEVICE) as device:
        taken = probe_login(home.bus, home.logins[principal], client_id=DEVICE.id)
        async with open_probe(taken) as thief:
            assert not thief.accepted
        assert await device.publish(EVENT.build(device=DEVICE.id, name="pressed"), b"still here")
        assert not device.gone.is_set()
