"""The entities of the home broker, kept up to date while it is heard."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from pydantic_core import from_json

from contracts.errors import InvalidMessage
from contracts.rates import complaint_limit
from contracts.wire import Json
from hub_agent.live.topics import Feed, Sample
from hub_agent.live.world.discovery import (
    HOME_ASSISTANT,
    MAX_CONFIG,
    ZIGBEE2MQTT,
    discovered,
    zigbee_devices,
)
from hub_agent.live.world.thing import Thing

_log = logging.getLogger(__name__)

MAX_ENTITIES: Final = 4_000
"""Twice a large home. Each takes about 1 kB, and its state a subscription."""
_MOST: Final = 5_000
"""Entities that are read of one announcement, the refused ones included: nothing else runs meanwhile."""
_MAX_LEFT_OUT: Final = 20_000
"""Announcements beyond that are counted one by one, so that they are not counted again when they repeat."""
_SETTLE_S: Final = 0.2
"""How long announcements are awaited before their states are subscribed: brokers send all of them at once."""

_Reader = Callable[[str, Json], Iterator[Thing | InvalidMessage]]


class Entities:
    """What announces itself on the home broker."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._announced: dict[str, tuple[Thing, ...]] = {}
        self._beyond: dict[str, int] = {}
        self._count = 0
        self._listed: tuple[Thing, ...] | None = None
        self._states: dict[str, ExitStack] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._complaints = complaint_limit()

    @property
    def left_out(self) -> int:
        """How many more there are than can be kept."""
        return sum(self._beyond.values())

    def list(self) -> tuple[Thing, ...]:
        """List all; what Zigbee2MQTT says of its devices only where discovery does not say it, too."""
        if self._listed is None:
            of_zigbee = {topic for topic in self._announced if not topic.endswith("/config")}
            made = [
                each for topic, all_ in self._announced.items() if topic not in of_zigbee for each in all_
            ]
            places = {(entity.topic, entity.field) for entity in made}
            for topic in of_zigbee:
                made += [each for each in self._announced[topic] if (each.topic, each.field) not in places]
            self._listed = tuple(made)
        return self._listed

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Keep up with the home broker while the context is open."""
        with ExitStack() as stack:
            for filter_ in HOME_ASSISTANT:
                hear = partial(self._hear, discovered)
                stack.enter_context(self._feed.follow(filter_, hear, link="home"))
            stack.enter_context(
                self._feed.follow(ZIGBEE2MQTT, partial(self._hear, zigbee_devices), link="home")
            )
            stack.callback(self._stop)
            yield

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for state in self._states.values():
            state.close()

    def _hear(self, read: _Reader, sample: Sample) -> None:
        self.take(read, sample)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SETTLE_S, self._follow_states)

    def take(self, read: _Reader, sample: Sample) -> None:
        """Replace what one announcement said; an empty one takes it back."""
        topic = sample.topic
        self._count -= len(self._announced.pop(topic, ()))
        self._beyond.pop(topic, None)
        self._listed = None
        if sample.payload:
            self._keep(topic, self._read(read, sample))

    def _read(self, read: _Reader, sample: Sample) -> Iterator[Thing]:
        if len(sample.payload) > MAX_CONFIG:
            self._refuse(sample.topic, f"it has more than {MAX_CONFIG} bytes")
            return
        try:
            # Not `Sample.value`: the list of two hundred Zigbee devices has too many parts for it.
            announced = from_json(sample.payload)
        except ValueError:
            self._refuse(sample.topic, "the payload is not JSON")
            return
        for number, each in enumerate(read(sample.topic, announced)):
            if number == _MOST:
                self._refuse(sample.topic, f"what comes after the first {_MOST} is not read")
                return
            if isinstance(each, Thing):
                yield each
            else:
                self._refuse(sample.topic, each.message)

    def _keep(self, topic: str, entities: Iterator[Thing]) -> None:
        kept, beyond = list[Thing](), 0
        for entity in entities:
            if self._count + len(kept) < MAX_ENTITIES:
                kept.append(entity)
                _ = entity.words  # now, so that the first question does not wait for those of thousands
            else:
                beyond += 1
        self._count += len(kept)
        if kept:
            self._announced[topic] = tuple(kept)
        if beyond:
            if not self._beyond:
                _log.warning(
                    "the home broker announces more than %d entities; the others are left out", MAX_ENTITIES
                )
            if len(self._beyond) < _MAX_LEFT_OUT:
                self._beyond[topic] = beyond

    def _refuse(self, topic: str, reason: str) -> None:
        if self._complaints.take("home"):
            _log.warning("an entity announced on %.200r is refused: %.300s", topic, reason)

    def _follow_states(self) -> None:
        """Hear the states of the entities that there are, and no others any more."""
        self._timer = None
        wanted = {entity.topic for entity in self.list() if entity.topic is not None}
        for topic in self._states.keys() - wanted:
            self._states.pop(topic).close()
        for topic in wanted - self._states.keys():
            state = self._states[topic] = ExitStack()
            state.enter_context(self._feed.follow(topic, _ignore, link="home"))


def _ignore(_: Sample) -> None:
    """Ignore a sample: the feed keeps the last one of each topic that is followed."""
