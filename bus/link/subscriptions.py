"""Which handler gets which message."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from bus.limits import TOPICS_REMEMBERED
from bus.link.message import Message
from contracts.errors import StrawberryError
from contracts.rates import complaint_limit

Handler = Callable[[Message], None]

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Subscription:
    """A topic filter, and the function that gets what it matches."""

    filter: str
    handler: Handler
    qos: int
    levels: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.levels = self.filter.split("/")

    def matches(self, levels: list[str]) -> bool:
        """Return whether a topic, split into its levels, is one of the filter's (MQTT 3.1.1, section 4.7)."""
        own = self.levels
        for index, level in enumerate(own):
            if level == "#":
                return index > 0 or not levels[0].startswith("$")
            if index >= len(levels) or (level != levels[index] and level != "+"):
                return False
        return len(own) == len(levels)


class Subscriptions:
    """The subscriptions of one link, which outlive its connections.

    Each filter has a number. A broker may send a message once for each filter that matches it (MQTT 5.0,
    section 3.3.4); one that names the number with each copy lets every handler have the message once.
    """

    def __init__(self) -> None:
        self._all: list[Subscription] = []
        self._numbers: dict[str, int] = {}
        # Tuples, because handlers come and go while a message is handed to them.
        self._by_number: dict[int, tuple[Subscription, ...]] = {}
        self._count = 0
        self._matching: dict[str, tuple[Subscription, ...]] = {}
        self._complaints = complaint_limit()

    def add(self, subscription: Subscription) -> bool:
        """Add a subscription; return whether the broker needs it, too."""
        self._matching.clear()
        known = self.covers(subscription.filter, subscription.qos)
        self._all.append(subscription)
        if subscription.filter not in self._numbers:
            self._count += 1
            self._numbers[subscription.filter] = self._count
        number = self._numbers[subscription.filter]
        self._by_number[number] = (*self._by_number.get(number, ()), subscription)
        return not known

    def discard(self, subscription: Subscription) -> bool:
        """Drop one; whether the broker has to be told, because no other has this filter."""
        if subscription not in self._all:
            return False
        self._matching.clear()
        self._all.remove(subscription)
        number = self._numbers[subscription.filter]
        left = tuple(one for one in self._by_number[number] if one is not subscription)
        if left:
            self._by_number[number] = left
            return False
        del self._by_number[number], self._numbers[subscription.filter]
        return True

    def covers(self, filter_: str, qos: int) -> bool:
        """Return whether one with this very filter asks for so much."""
        number = self._numbers.get(filter_)
        return number is not None and any(one.qos >= qos for one in self._by_number[number])

    def number(self, filter_: str) -> int:
        return self._numbers[filter_]

    def wanted(self, *, most: int) -> dict[str, int]:
        """Return each filter once, with the highest QoS that is asked for, up to the one that is allowed."""
        wanted: dict[str, int] = {}
        for one in self._all:
            wanted[one.filter] = max(wanted.get(one.filter, 0), min(one.qos, most))
        return wanted

    def dispatch(self, message: Message) -> None:
        """Call every handler that the message is for; none of them keeps it from the others."""
        if not message.subscriptions:
            known = self._matching.get(message.topic)
            found = known if known is not None else self._match(message.topic)
        elif len(message.subscriptions) == 1:
            found = self._by_number.get(message.subscriptions[0], ())
        else:
            found = tuple(one for each in message.subscriptions for one in self._by_number.get(each, ()))
        for one in found:
            try:
                one.handler(message)
            except StrawberryError as error:
                if self._complaints.take(one.filter):
                    _log.warning("dropped a message on %.200r: %.500s", message.topic, error)
            except Exception:  # noqa: BLE001 - the other handlers get it all the same
                if self._complaints.take(one.filter):
                    _log.exception("a handler failed on a message on %.200r", message.topic)

    def _match(self, topic: str) -> tuple[Subscription, ...]:
        """Return the subscriptions that match a topic; remembered, because hundreds take 75 µs."""
        levels = topic.split("/")
        found = tuple(one for one in self._all if one.matches(levels))
        if len(self._matching) >= TOPICS_REMEMBERED:
            # Each result of a call has a topic of its own.
            self._matching.clear()
        self._matching[topic] = found
        return found
