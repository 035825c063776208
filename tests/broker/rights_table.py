"""Who may publish and hear what on a bus of our own, as ``docs/protocol.md`` says, and how a broker is tried.

The table is not computed from `contracts.access`, because it is there to try what is rendered from that.
"""

import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from broker.probe import Probe, ProbeLogin, Received, open_probe
from contracts import topics
from contracts.access import Principal
from contracts.topics import (
    CALL,
    CAPTURE,
    CHAT_REPLY,
    CHAT_REQUEST,
    CONTROL,
    EVENT,
    EVERYTHING,
    HEARTBEAT,
    HUB_STATUS,
    RESULT,
    SKILL,
    STATE,
    STATUS,
    TOPICS,
    USER_EVENT,
    WAKE_HEARD,
    WAKE_VERDICT,
    WATCHER,
    WATCHER_VALUE,
    Topic,
)

Way = Literal["publish", "by name", "by wildcard", "everything"]
"""To publish on a topic; or to hear it by subscribing to it, to its row of the topics table, or to ``#``."""

Rows = Collection[Topic[Any]]


@dataclass(frozen=True)
class Expected:
    """What one kind of principal may do.

    Attributes:
        publish: On topics that carry its own name, or none.
        hear: Delivered where it subscribes to a topic that carries its own name, or none.
        others: Whether that, and `publish`, hold for every name and not only for its own: for which topics.
        wide: Delivered where it subscribes to the topic with every name at once.
        everything: Delivered where it subscribes to ``#``.
    """

    publish: Rows = ()
    hear: Rows = ()
    others: Rows = ()
    wide: Rows = ()
    everything: Rows = ()


_PRESENCE: Final = (STATUS, HEARTBEAT, SKILL, STATE, EVENT)
_PUBLIC: Final = (*_PRESENCE, HUB_STATUS)
_READ: Final = (*_PUBLIC, WATCHER, WATCHER_VALUE, CAPTURE, USER_EVENT)
_READER: Final = Expected(hear=_READ, others=_PRESENCE, wide=_READ, everything=_READ)
_CHATS: Final = (*_READ, CHAT_REPLY)

EXPECTED: Final = {
    "hub": Expected(publish=TOPICS, hear=TOPICS, others=TOPICS, wide=TOPICS),
    "device": Expected(
        publish=(*_PRESENCE, RESULT, WAKE_HEARD, CHAT_REQUEST),
        hear=(STATUS, SKILL, CALL, CONTROL, WAKE_VERDICT, CHAT_REPLY, HUB_STATUS),
        wide=(HUB_STATUS,),
    ),
    "client": _READER,
    "user": _READER,
    "client for home assistant": Expected(),
    "client with chat": Expected(
        publish=(CHAT_REQUEST,), hear=_CHATS, others=_PRESENCE, wide=_CHATS, everything=_CHATS
    ),
}


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        topic: What the message is published on.
        filter: What is subscribed to; empty for `publish`.
        named: The topic as a person reads it.
    """

    way: Way
    topic: str
    filter: str
    allowed: bool
    named: str


def rows(who: Principal, *, device: str, other: str, exact: bool = False) -> Iterator[Row]:
    """Return every line for a principal.

    Args:
        exact: The broker delivers what may be subscribed to, and filters nothing of a wider subscription.
        device: Name of a device in the topics that are not another's, where it is none itself.
        other: The other's name: of a device, a principal and a user.
    """
    more = " for home assistant" if who.home_assistant else " with chat" if who.chat else ""
    may = EXPECTED[who.kind + (more if who.kind == "client" else "")]
    if exact and may.everything:
        may = replace(may, wide=_PUBLIC, everything=())
    values = {"skill": "Check", "method": "check", "property": "check", "name": "check", "call": _CALL_ID}
    values |= {
        "instance": "check",
        "request": "check",
        "watcher": "check",
        "capture": "check",
        "kind": "check",
    }
    own = {
        "device": who.id if who.kind == "device" else device,
        "principal": who.id,
        "user": who.owner or device,
    }
    others = dict.fromkeys(own, other)
    for row in TOPICS:
        for names in (own, others) if {"device", "principal", "user"} & set(row.names) else (own,):
            topic = row.build(**values, **names)
            is_own = names is own
            named = row.template if is_own else f"{row.template} of another"
            ways: tuple[tuple[Way, str, Rows], ...] = (
                ("publish", "", may.publish),
                ("by name", topic, may.hear),
                ("by wildcard", row.filter(), may.wide),
                ("everything", EVERYTHING, may.everything),
            )
            for way, filter_, allowed in ways:
                yield Row(way, topic, filter_, row in allowed and (is_own or row in may.others), named)


_CALL_ID: Final = "0190a6c8-4d3a-7b6e-8f00-000000000000"


async def try_rights(
    who: Principal, login: ProbeLogin, hub: Probe, *, device: str, other: str, exact: bool = False
) -> list[str]:
    """Try every line of the table for a principal, and return what is not as it says.

    Args:
        hub: Logged in as the hub, which may do all of it; it is subscribed to all our topics.
        device: Name of a device that is not the other one.
        other: Name of the other device, principal and user.
        exact: As in `rows`.
    """
    table = list(rows(who, device=device, other=other, exact=exact))
    for branch in topics.BRANCHES:
        await hub.subscribe(branch)
    wrong = await _try_publishing([row for row in table if row.way == "publish"], login, hub)
    ways: tuple[Way, ...] = ("by name", "by wildcard", "everything")
    for way in ways:
        wrong += await _try_hearing([row for row in table if row.way == way], login, hub)
    return wrong


async def _try_publishing(table: list[Row], login: ProbeLogin, hub: Probe) -> list[str]:
    payload = secrets.token_hex(8).encode()
    # Mosquitto may disconnect a client that publishes what it may not: each such try has a login of its own.
    groups = [[row for row in table if row.allowed], *([row] for row in table if not row.allowed)]
    for group in groups:
        async with open_probe(login) as probe:
            for row in group:
                await probe.publish(row.topic, payload)
    return _deviations(table, await _until_now(hub, hub), payload)


async def _try_hearing(table: list[Row], login: ProbeLogin, hub: Probe) -> list[str]:
    payload = secrets.token_hex(8).encode()
    async with open_probe(login) as probe:
        for filter_ in {row.filter for row in table}:
            await probe.subscribe(filter_)
        for row in table:
            await hub.publish(row.topic, payload)
        return _deviations(table, await _until_now(probe, hub), payload)


def _deviations(table: list[Row], messages: list[Received], payload: bytes) -> list[str]:
    heard = {message.topic for message in messages if message.payload == payload}
    return [_as_text(row) for row in table if (row.topic in heard) != row.allowed]


async def _until_now(witness: Probe, hub: Probe) -> list[Received]:
    """Return all that was delivered to one of the two so far."""
    # A device hears the hub's status, and so does everybody else.
    topic, mark = topics.HUB_STATUS.build(instance="check-mark"), secrets.token_hex(8).encode()
    if witness is not hub:
        await witness.subscribe(topic)
    await hub.publish(topic, mark)
    return await _heard_before(witness, topic, mark)


def _as_text(row: Row) -> str:
    can = "cannot" if row.allowed else "can"
    verb = "publish" if row.way == "publish" else "hear"
    how = {"by wildcard": f" by subscribing to {row.filter}", "everything": " by subscribing to #"}.get(
        row.way, ""
    )
    return f"it {can} {verb} {row.named}{how}"


async def _heard_before(probe: Probe, topic: str, mark: bytes) -> list[Received]:
    messages: list[Received] = []
    while not messages or (messages[-1].topic, messages[-1].payload) != (topic, mark):
        messages.append(await probe.next())
    return messages[:-1]
