"""Topics that devices are known to have published, so that they are emptied when they no longer hold."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Any

from bus.link import Link, Message
from contracts import topics
from contracts.errors import Disconnected
from hub_registry import limits
from hub_registry.devices.directory import Directory

_log = logging.getLogger(__name__)


class PublishedTopics:
    """What the broker retains of devices, as far as the hub has heard it; `run` it while the hub lives.

    Registrations and values of skills that left the manifest are emptied, and everything of a device that was
    removed. What cannot be emptied while the broker is away is emptied when it is back.

    Args:
        complain: Called with a device that has too many topics, one of them, and the reason.

    Attributes:
        is_on: Whether topics are emptied here, and not by another hub.
    """

    def __init__(
        self,
        link: Link,
        directory: Directory,
        *,
        complain: Callable[[str, str, str], None],
    ) -> None:
        self._link = link
        self._directory = directory
        # A skill that goes and one that comes have both their topic for a moment.
        self._most: dict[topics.Topic[Any], int] = {
            topics.SKILL: 2 * limits.SKILLS,
            topics.STATE: limits.STATES,
        }
        self._complain = complain
        self._retired: set[str] = set()
        # With the size of each.
        self._known: defaultdict[str, defaultdict[topics.Topic[Any], dict[str, int]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        self._sizes: Counter[str] = Counter()
        self._outdated: dict[str, None] = {}
        self.is_on = True
        self._work = asyncio.Event()

    def hear(self, message: Message) -> bool:
        """Remember the topic of a message; return whether it is of a removed device, and to be ignored."""
        topic = message.topic
        device = topic.split("/")[1]
        if device in self._retired:
            if message.payload:
                self.empty([topic])
            return True
        row = next((row for row in self._most if row.place(topic)), None)
        if row is None or self._directory.get(device) is None:
            return False
        known = self._known[device][row]
        before, size = known.pop(topic, 0), len(topic) + len(message.payload)
        self._sizes[device] -= before
        if not message.payload:
            return False
        if not before and row.match(topic) is None:
            # Its names may be a thousand times as long as those that we have.
            refusal = "a retained topic with a name that is not allowed"
        elif len(known) >= self._most[row]:
            refusal = f"more than the {self._most[row]} retained topics allowed"
        elif self._sizes[device] + size > limits.RETAINED_BYTES:
            refusal = f"more than the {limits.RETAINED_BYTES} retained bytes allowed"
        else:
            known[topic] = size
            self._sizes[device] += size
            return False
        self._complain(device, topic, refusal)
        self.empty([topic])
        return False

    def keep(self, device: str, skills: Collection[str]) -> None:
        """Empty what is known of skills of a device besides these."""
        known = chain.from_iterable(self._known[device].values())
        self.empty([topic for topic in known if topic.split("/")[3] not in skills])

    def retire(self, devices: Iterable[str]) -> None:
        """Empty what is known of devices that were removed, and whatever is still heard of them."""
        for device in devices:
            self._retired.add(device)
            self._sizes.pop(device, None)
            self.empty(chain.from_iterable(self._known.pop(device, {}).values()))

    def empty(self, outdated: Iterable[str]) -> None:
        """Empty these retained topics on the broker."""
        if self.is_on:
            self._outdated.update(dict.fromkeys(outdated))
        if self._outdated:
            self._work.set()

    async def run(self) -> None:
        """Empty topics as they become outdated, until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            await self.flush()

    async def flush(self) -> None:
        """Empty the outdated topics; to be called after each connect, too."""
        while self._outdated:
            topic = next(iter(self._outdated))
            try:
                await self._link.publish(topic, b"", qos=1, retain=True)
            except Disconnected:
                _log.info("%d retained topics are emptied when the broker is back", len(self._outdated))
                return
            except ValueError as error:
                # A device that publishes by a filter must not end the task that serves all of them.
                _log.warning("cannot empty %.200r: %.200s", topic, error)
            self._outdated.pop(topic, None)
