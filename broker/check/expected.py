"""Who may publish and hear what on a bus of our own: one table, read by ``broker check`` and by every test.

It says what ``docs/protocol.md`` says. It is not computed from `contracts.access`, because it is there to try
what is rendered from that.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

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
    Topic,
)

__all__ = ["EXPECTED", "Row", "Way", "rows"]

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
_READ: Final = (*_PRESENCE, HUB_STATUS, WATCHER, CAPTURE, USER_EVENT)
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


def rows(who: Principal, *, device: str, other: str) -> Iterator[Row]:
    """Return every line for a principal.

    Args:
        device: Name of a device in the topics that are not another's, where it is none itself.
        other: The other's name: of a device, a principal and a user.
    """
    more = " for home assistant" if who.home_assistant else " with chat" if who.chat else ""
    may = EXPECTED[who.kind + (more if who.kind == "client" else "")]
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
