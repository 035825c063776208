"""Who may do what on the bus; rendered for each kind of broker. What is not listed is denied."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from contracts import topics
from contracts.claims import Claims, ClientScope, PrincipalKind

Action = Literal["publish", "subscribe", "receive"]


@dataclass(frozen=True)
class Principal:
    """Someone who has logged in.

    Attributes:
        id: Device id, user id, client name or hub instance.
        owner: Id of the user whose events, watchers and captures it may see; empty for none.
        chat: Whether it was granted chat over MQTT (``client`` only; a device always has it).
        home_assistant: Whether it is Home Assistant (``client`` only), which has rights of its own.
    """

    kind: PrincipalKind
    id: str
    owner: str = ""
    chat: bool = False
    home_assistant: bool = False

    @classmethod
    def of(cls, claims: Claims) -> "Principal":
        """Make the principal a valid token stands for."""
        chat, home_assistant = (each in claims.scopes for each in ("chat", "home_assistant"))
        return cls(claims.kind, claims.sub, claims.own, chat, home_assistant)

    @property
    def scopes(self) -> tuple[ClientScope, ...]:
        """Return the scopes that the token of a client lists."""
        given: dict[ClientScope, bool] = {"chat": self.chat, "home_assistant": self.home_assistant}
        return tuple(scope for scope, is_given in given.items() if is_given)


@dataclass(frozen=True)
class Right:
    """Permission to do one thing on what one topic filter covers."""

    action: Action
    filter: str


_VISIBLE: Final = (
    topics.STATUS.filter(),
    topics.HEARTBEAT.filter(),
    topics.ALL_SKILLS,
    topics.STATE.filter(),
    topics.EVENT.filter(),
    topics.HUB_STATUS.filter(),
)
"""What a reader may see: presence and values, never the arguments and results of calls."""
_OWN: Final = (topics.USER_EVENT, topics.WATCHER, topics.WATCHER_VALUE, topics.CAPTURE)
"""What a reader may see of one person, its owner, alone."""


def whole_rights(principal: Principal) -> Iterator[tuple[Literal["publish", "subscribe"], str]]:
    """Yield the rights on a broker that delivers all of what it lets a client subscribe to.

    The filter ``#`` of a reader, of whom our own brokers then filter what is delivered, is not among them.
    """
    given = rights(principal)
    for each in given:
        # Topics of a broker's own are none of another make.
        if each.filter.startswith("$"):
            continue
        if each.action == "publish":
            yield "publish", each.filter
        elif each.action == "receive" and allowed(given, "subscribe", each.filter):
            yield "subscribe", each.filter


def rights(principal: Principal) -> tuple[Right, ...]:
    """List all that a principal may do."""
    match principal.kind:
        case "hub":
            return (
                *(
                    Right(action, each)
                    for each in (*topics.BRANCHES, *topics.HOME_BRANCHES)
                    for action in _ALL_ACTIONS
                ),
                Right("publish", topics.BROKER_CONTROL.template),
            )
        case "device":
            return _device_rights(principal.id)
        case "client" if principal.home_assistant:
            return _HOME_ASSISTANT_RIGHTS
        case "client" | "user":
            return _reader_rights(principal)


_ALL_ACTIONS: Final[tuple[Action, ...]] = ("publish", "subscribe", "receive")


def _device_rights(device: str) -> tuple[Right, ...]:
    sends = (
        topics.STATUS.build(device=device),
        topics.HEARTBEAT.build(device=device),
        topics.SKILL.filter(device=device),
        topics.STATE.filter(device=device),
        topics.EVENT.filter(device=device),
        topics.RESULT.filter(device=device),
        topics.WAKE_HEARD.build(device=device),
        topics.CHAT_REQUEST.filter(principal=device),
    )
    hears = (
        topics.STATUS.build(device=device),
        topics.SKILL.filter(device=device),
        topics.CALL.filter(device=device),
        topics.CONTROL.filter(device=device),
        topics.WAKE_VERDICT.build(device=device),
        topics.CHAT_REPLY.filter(principal=device),
        topics.HUB_STATUS.filter(),
    )
    return (
        *(Right("publish", each) for each in sends),
        *(Right(action, each) for each in hears for action in _HEARING),
    )


_HEARING: Final[tuple[Action, ...]] = ("subscribe", "receive")


_HOME_ASSISTANT_RIGHTS: Final = (
    *(Right(action, each) for each in topics.HOME_BRANCHES for action in _HEARING),
    Right("publish", topics.HOME_ASSISTANT_STATUS),
    Right("publish", topics.home_topic("+", "+", "set", "#")),
)
"""Devices as they are announced, with their states; its own birth message, and commands."""


def _reader_rights(principal: Principal) -> tuple[Right, ...]:
    sees = list(_VISIBLE)
    if principal.owner:
        sees += (each.filter(user=principal.owner) for each in _OWN)
    granted: list[Right] = []
    if principal.chat:
        sees.append(topics.CHAT_REPLY.filter(principal=principal.id))
        granted.append(Right("publish", topics.CHAT_REQUEST.filter(principal=principal.id)))
    return (
        # Tools subscribe to everything; what is delivered is filtered.
        Right("subscribe", topics.EVERYTHING),
        *(Right("receive", each) for each in sees),
        *granted,
    )


def covers(pattern: str, filter_: str) -> bool:
    """Return whether everything that ``filter_`` (a topic or a filter) matches is matched by ``pattern``.

    Topics whose first level starts with ``$`` are covered only by a pattern that names that level
    (MQTT 3.1.1, section 4.7.2).
    """
    ours, theirs = pattern.split("/"), filter_.split("/")
    if theirs[0].startswith("$") and ours[0] != theirs[0]:
        return False
    for position, level in enumerate(ours):
        if level == "#":
            return True
        if position >= len(theirs) or theirs[position] == "#":
            return False
        if level not in ("+", theirs[position]):
            return False
    return len(ours) == len(theirs)


def overlaps(one: str, other: str) -> bool:
    """Return whether a topic can match both of these filters."""
    ours, theirs = one.split("/"), other.split("/")
    if (theirs[0].startswith("$") or ours[0].startswith("$")) and ours[0] != theirs[0]:
        return False
    for position, level in enumerate(ours):
        if level == "#" or theirs[position : position + 1] == ["#"]:
            return True
        if position >= len(theirs) or (level != theirs[position] and "+" not in (level, theirs[position])):
            return False
    return len(ours) == len(theirs) or theirs[len(ours) :] == ["#"]


def is_for_people(topic: str) -> bool:
    """Return whether people can read a topic of the bus at all; of other topics nothing is kept."""
    return any(covers(each, topic) for each in (*_VISIBLE, *(each.filter() for each in _OWN)))


def allowed(given: tuple[Right, ...], action: Action, topic: str) -> bool:
    """Return whether one of these rights permits the action on a topic or, to subscribe, on a filter."""
    return any(right.action == action and covers(right.filter, topic) for right in given)
