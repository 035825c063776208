"""Every right of the protocol, tried on each broker: what is listed works, and nothing else does.

The table below says what `protocol.md` says, on its own: it is not computed from the code it tries.
"""

import itertools
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from pydantic import SecretStr

from broker.trials import Trial, TrialLogin, open_trial
from bus.link.message import Message
from contracts import topics
from contracts.access import Principal
from contracts.topics import (
    CALL,
    CAPTURE,
    CHAT_REPLY,
    CHAT_REQUEST,
    CONTROL,
    EVENT,
    HEARTBEAT,
    HUB_STATUS,
    RESULT,
    SKILL,
    STATE,
    STATUS,
    TOPICS,
    USER_EVENT,
    WATCHER,
    Topic,
)
from tests.brokers import INSTANCE, KINDS, Bus, Credentials, open_bus

pytestmark = pytest.mark.asyncio(loop_scope="module")

HUB: Final = Principal("hub", INSTANCE)
DEVICE: Final = Principal("device", "lamp_pi", "anna")
READER: Final = Principal("client", "explorer", "anna")
CHATTER: Final = Principal("client", "nodered", "anna", chat=True)
USER: Final = Principal("user", "anna", "anna")
PRINCIPALS: Final = (HUB, DEVICE, READER, CHATTER, USER)


@dataclass(frozen=True)
class May:
    """What one may do.

    Attributes:
        publish: On topics that carry its own name.
        publish_others: On topics that carry another's name.
        hear: Delivered where it asks for a topic that carries its own name, or nobody's.
        hear_others: The same with another's name.
        wide: Delivered where it asks for the topic with every name at once.
        all: Delivered where it asks for everything.
    """

    publish: Collection[Topic] = ()
    publish_others: Collection[Topic] = ()
    hear: Collection[Topic] = ()
    hear_others: Collection[Topic] = ()
    wide: Collection[Topic] = ()
    all: Collection[Topic] = ()


_PRESENCE: Final = (STATUS, HEARTBEAT, SKILL, STATE, EVENT)
_HUBS: Final = (HUB_STATUS, WATCHER, CAPTURE)
_READS: Final = May(
    hear=(*_PRESENCE, *_HUBS, USER_EVENT),
    hear_others=_PRESENCE,
    wide=(*_PRESENCE, *_HUBS, USER_EVENT),
    all=(*_PRESENCE, *_HUBS, USER_EVENT),
)
TABLE: Final = {
    HUB: May(publish=TOPICS, publish_others=TOPICS, hear=TOPICS, hear_others=TOPICS, wide=TOPICS),
    DEVICE: May(
        publish=(STATUS, HEARTBEAT, SKILL, STATE, EVENT, RESULT, CHAT_REQUEST),
        hear=(STATUS, SKILL, CALL, CONTROL, CHAT_REPLY, HUB_STATUS),
        wide=(HUB_STATUS,),
    ),
    READER: _READS,
    USER: _READS,
    CHATTER: May(
        publish=(CHAT_REQUEST,),
        hear=(*_READS.hear, CHAT_REPLY),
        hear_others=_READS.hear_others,
        wide=(*_READS.wide, CHAT_REPLY),
        all=(*_READS.all, CHAT_REPLY),
    ),
}

_CALL_ID: Final = "0190a6c8-4d3a-7b6e-8f00-000000000000"
_VALUES: Final = {
    "skill": "LampSkill",
    "method": "turn_on",
    "property": "brightness",
    "name": "pressed",
    "call": _CALL_ID,
    "instance": INSTANCE,
    "request": "r1",
    "watcher": "w1",
    "capture": "c1",
    "kind": "turn",
}
_MARK: Final = HUB_STATUS.build(instance="mark")


def own(topic: Topic, principal: Principal) -> str:
    device = principal.id if principal.kind == "device" else "lamp_pi"
    return topic.build(device=device, principal=principal.id, user="anna", **_VALUES)


def others(topic: Topic) -> str | None:
    """The topic with another's name; None where it carries no name."""
    if not {"device", "principal", "user"} & set(topic.names):
        return None
    return topic.build(device="lock_pi", principal="another", user="berta", **_VALUES)


@dataclass
class Home:
    """A broker, the hub on it, and everybody's login."""

    bus: Bus
    hub: Trial
    logins: dict[Principal, Credentials]
    _number: itertools.count = field(default_factory=itertools.count)

    @asynccontextmanager
    async def log_in(self, principal: Principal) -> AsyncIterator[Trial]:
        async with open_trial(trial_login(self.bus, self.logins[principal])) as trial:
            assert trial.accepted, trial.refusal
            yield trial

    async def gets_through(self, principal: Principal, topic: str) -> bool:
        """Whether what one publishes reaches the hub."""
        payload = f"{next(self._number)}".encode()
        # By its own connection each: a broker may hang up on who publishes what is forbidden.
        async with self.log_in(principal) as trial:
            await trial.publish(topic, payload)
        return any(message.payload == payload for message in await self.heard(self.hub))

    async def hears(self, principal: Principal, filters: Collection[str], topic: str) -> set[str]:
        """How a message on the topic reaches one who subscribes: as retained, as it comes."""
        number = next(self._number)
        kept, live = f"kept {number}".encode(), f"live {number}".encode()
        await self.hub.publish(topic, kept, retain=True)
        async with self.log_in(principal) as trial:
            for filter_ in filters:
                await trial.subscribe(filter_)
            await trial.subscribe(_MARK)
            await self.hub.publish(topic, live)
            messages = await self.heard(trial)
        await self.hub.publish(topic, b"", retain=True)
        strays = [message for message in messages if message.payload not in (kept, live)]
        assert not strays
        assert all(message.topic == topic for message in messages)
        ways = {kept: "as retained", live: "as it comes"}
        return {ways[message.payload] for message in messages}

    async def heard(self, trial: Trial) -> list[Message]:
        """All that was delivered before a mark that the hub sets now."""
        mark = f"mark {next(self._number)}".encode()
        await self.hub.publish(_MARK, mark)
        messages = [Message(_MARK, b"")]
        while messages[-1].payload != mark:
            received = await trial.next()
            messages.append(Message(received.topic, received.payload))
        return [message for message in messages if message.topic != _MARK]


def trial_login(bus: Bus, login: Credentials, **changes: object) -> TrialLogin:
    known = {"client_id": login.client_id, "username": login.username, "password": login.password}
    protocol = 4 if bus.kind == "embedded" else 5
    return TrialLogin(bus.url, protocol=protocol, **{**known, **changes})  # type: ignore[arg-type]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Home]:
    directory: Path = tmp_path_factory.mktemp("rights")
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(open_bus(request.param, directory / "broker"))
        logins = {each: await bus.credentials(each) for each in PRINCIPALS}
        watching = await bus.credentials(HUB, suffix="-watching")
        hub = await stack.enter_async_context(open_trial(trial_login(bus, watching)))
        for branch in topics.BRANCHES:
            assert await hub.subscribe(branch)
        yield Home(bus, hub, logins)


def _name(principal: Principal) -> str:
    return f"{principal.kind} {principal.id}"


CASES: Final = [
    pytest.param(principal, topic, id=f"{_name(principal)}: {topic.template}")
    for principal in PRINCIPALS
    for topic in TOPICS
]
BOTH: Final = {"as retained", "as it comes"}


@pytest.mark.parametrize(("principal", "topic"), CASES)
async def test_who_publishes_what_is_theirs_gets_through_and_nobody_else(
    home: Home, principal: Principal, topic: Topic
) -> None:
    may, mine, foreign = TABLE[principal], own(topic, principal), others(topic)
    assert await home.gets_through(principal, mine) == (topic in may.publish)
    if foreign is not None:
        assert await home.gets_through(principal, foreign) == (topic in may.publish_others)


@pytest.mark.parametrize(("principal", "topic"), CASES)
async def test_who_may_hear_a_topic_does_and_nobody_else(
    home: Home, principal: Principal, topic: Topic
) -> None:
    may, mine, foreign = TABLE[principal], own(topic, principal), others(topic)
    assert await home.hears(principal, [mine], mine) == (BOTH if topic in may.hear else set())
    if foreign is not None:
        assert await home.hears(principal, [foreign], foreign) == (
            BOTH if topic in may.hear_others else set()
        )


@pytest.mark.parametrize(("principal", "topic"), CASES)
async def test_wildcards_deliver_what_may_be_heard_and_nothing_else(
    home: Home, principal: Principal, topic: Topic
) -> None:
    may, mine, foreign = TABLE[principal], own(topic, principal), others(topic)
    assert await home.hears(principal, [topic.filter()], mine) == (BOTH if topic in may.wide else set())
    assert await home.hears(principal, ["#"], mine) == (BOTH if topic in may.all else set())
    if foreign is not None and topic not in may.hear_others:
        wide = [topic.filter(), "#", "+/#", "devices/#", "hub/#", "users/#"]
        assert await home.hears(principal, wide, foreign) == set()


@pytest.mark.parametrize("principal", [DEVICE, READER, CHATTER], ids=_name)
@pytest.mark.parametrize(
    "filter_", ["$SYS/#", "$CONTROL/#", "$share/g/#", "$share/g/devices/#", "+/broker/#"]
)
async def test_what_the_broker_keeps_for_itself_is_not_delivered(
    home: Home, principal: Principal, filter_: str
) -> None:
    call = CALL.build(device="lock_pi", **_VALUES)
    assert await home.hears(principal, [filter_], call) == set()


@pytest.mark.parametrize("principal", [DEVICE, READER, CHATTER], ids=_name)
@pytest.mark.parametrize("filter_", ["$SYS/#", "$CONTROL/#", "$share/g/#", "$share/g/devices/#"])
async def test_asking_for_what_the_broker_keeps_for_itself_is_refused(
    home: Home, principal: Principal, filter_: str
) -> None:
    async with home.log_in(principal) as trial:
        assert not await trial.subscribe(filter_)


@pytest.mark.parametrize("principal", [DEVICE, READER, CHATTER], ids=_name)
async def test_nobody_but_the_hub_lets_others_in(home: Home, principal: Principal) -> None:
    intruder = b'{"commands":[{"command":"createClient","username":"mallory","password":"x"}]}'
    async with home.log_in(principal) as trial:
        await trial.publish(topics.DYNAMIC_SECURITY, intruder)
    async with open_trial(
        trial_login(home.bus, Credentials("mallory", "mallory", SecretStr("x")))
    ) as mallory:
        assert not mallory.accepted


async def test_a_last_will_on_anothers_topic_is_never_published(home: Home) -> None:
    false, true = others(STATUS), own(STATUS, DEVICE)
    assert false is not None

    async def vanish(topic: str) -> list[str]:
        await home.heard(home.hub)
        will = Message(topic, b"offline")
        login = home.logins[DEVICE]
        async with (
            open_trial(trial_login(home.bus, login, will=will)) as first,
            # With the same client id: the broker lets go of the first, if it let it in, without a farewell.
            home.log_in(DEVICE),
        ):
            await first.gone.wait()
            return [message.topic for message in await home.heard(home.hub)]

    assert await vanish(false) == []
    # This says that the scene would have shown it.
    assert await vanish(true) == [true]


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
        async with open_trial(trial_login(home.bus, login, **change)) as trial:
            assert not trial.accepted, what
    async with open_trial(trial_login(home.bus, login)) as trial:
        assert trial.accepted


@pytest.mark.parametrize("principal", [READER, CHATTER, USER], ids=_name)
async def test_nobody_takes_a_devices_place_by_its_client_id(home: Home, principal: Principal) -> None:
    async with home.log_in(DEVICE) as device:
        taken = trial_login(home.bus, home.logins[principal], client_id=DEVICE.id)
        async with open_trial(taken) as thief:
            assert not thief.accepted
        assert await device.publish(own(EVENT, DEVICE), b"still here")
        assert not device.gone.is_set()
