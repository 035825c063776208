"""The entities of the home broker, kept up to date while it is heard."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from itertools import islice
from typing import Final

from pydantic_core import from_json

from chat.tasks import open_tasks, supervise
from contracts.errors import InvalidMessage
from contracts.rates import complaint_limit
from contracts.wire import Json
from hub_live import limits
from hub_live.topics import Feed, Sample
from hub_live.world.discovery import (
    HOME_ASSISTANT,
    MAX_CONFIG,
    ZIGBEE2MQTT,
    discovered,
    zigbee_devices,
)
from hub_live.world.thing import Thing

_log = logging.getLogger(__name__)

MAX_ENTITIES: Final = 4_000
"""Twice a large home. Each takes about 1 kB, and its state a subscription."""

_Reader = Callable[[str, Json], Iterator[Thing | InvalidMessage]]


class Entities:
    """Entities that are announced on the home broker.

    Args:
        on_change: Called with each topic whose state is new, and with an empty text where there may be other
            entities.
    """

    def __init__(self, feed: Feed, *, on_change: Callable[[str], None] = lambda topic: None) -> None:
        self._feed = feed
        self._on_change = on_change
        self._announced: dict[str, tuple[Thing, ...]] = {}
        self._imported: tuple[Thing, ...] | None = None
        self._beyond: dict[str, int] = {}
        self._count = 0
        self._listed: tuple[Thing, ...] | None = None
        self._states: dict[str, ExitStack] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._large: dict[str, tuple[_Reader, Sample]] = {}
        self._has_large = asyncio.Event()
        self._complaints = complaint_limit()

    @property
    def left_out(self) -> int:
        return sum(self._beyond.values())

    def put(self, imported: tuple[Thing, ...] | None) -> None:
        """Replace what is announced on the home broker by entities from Home Assistant.

        Args:
            imported: None where there is no Home Assistant.
        """
        is_other = (imported is None) != (self._imported is None)
        self._imported = imported
        if is_other:
            self._changed()
        self._on_change("")

    def of_zigbee(self) -> Iterator[Thing]:
        return (each for topic in self._zigbee_topics() for each in self._announced[topic])

    def _zigbee_topics(self) -> set[str]:
        return {topic for topic in self._announced if not topic.endswith("/config")}

    def list(self) -> tuple[Thing, ...]:
        """List all; what Zigbee2MQTT says of its devices only where discovery does not say it, too."""
        if self._imported is not None:
            return self._imported
        if self._listed is None:
            of_zigbee = self._zigbee_topics()
            made = [
                each for topic, all_ in self._announced.items() if topic not in of_zigbee for each in all_
            ]
            places = {(entity.topic, entity.field) for entity in made}
            for topic in of_zigbee:
                made += [each for each in self._announced[topic] if (each.topic, each.field) not in places]
            self._listed = tuple(made)
        return self._listed

    @asynccontextmanager
    async def heard(self) -> AsyncIterator[None]:
        """Keep up with the home broker while the context is open."""
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(open_tasks(contained=True))
            supervise(tasks, self._read_large, name="large announcements")
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
        self._large.pop(sample.topic, None)
        if len(sample.payload) <= limits.LARGE_ANNOUNCEMENT:
            self.take(read, sample)
            self._changed()
        elif sum(len(each.payload) for _, each in self._large.values()) > limits.ANNOUNCEMENTS_WAITING:
            self._refuse(sample.topic, "too many large ones came at once")
        else:
            self._large[sample.topic] = read, sample
            self._has_large.set()

    async def _read_large(self) -> None:
        """Read large announcements in a thread, one at a time, until cancelled."""
        while True:
            await self._has_large.wait()
            self._has_large.clear()
            for topic, (read, sample) in list(self._large.items()):
                try:
                    found = await asyncio.to_thread(_read, read, sample)
                except Exception:  # noqa: BLE001 - other announcements are read all the same
                    _log.exception("the announcement on %.200r cannot be read", topic)
                    found = []
                # What came on this topic meanwhile is newer.
                if self._large.get(topic) == (read, sample):
                    del self._large[topic]
                    self._replace(topic, found)
                    self._changed()

    def _changed(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(
                limits.ANNOUNCED_SETTLE_S, self._follow_states
            )

    def take(self, read: _Reader, sample: Sample) -> None:
        """Replace what one announcement described; an empty one removes it."""
        self._replace(sample.topic, _read(read, sample))

    def _replace(self, topic: str, found: Iterable[Thing | InvalidMessage]) -> None:
        self._count -= len(self._announced.pop(topic, ()))
        self._beyond.pop(topic, None)
        self._listed = None
        kept, beyond = list[Thing](), 0
        for entity in found:
            if isinstance(entity, InvalidMessage):
                self._refuse(topic, entity.message)
            elif self._count + len(kept) < MAX_ENTITIES:
                kept.append(entity)
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
            if len(self._beyond) < limits.MOST_LEFT_OUT:
                self._beyond[topic] = beyond
        self._on_change("")

    def _refuse(self, topic: str, reason: str) -> None:
        if self._complaints.take("home"):
            _log.warning("an entity announced on %.200r is refused: %.300s", topic, reason)

    def _follow_states(self) -> None:
        """Hear the states of the entities that there are, and no others any more."""
        self._timer = None
        wanted = {each.topic for each in self.list() if each.topic is not None and each.link == "home"}
        for topic in self._states.keys() - wanted:
            self._states.pop(topic).close()
        for topic in wanted - self._states.keys():
            state = self._states[topic] = ExitStack()
            state.enter_context(self._feed.follow(topic, self.hear_state, link="home"))

    def hear_state(self, sample: Sample) -> None:
        # The feed keeps the last sample of each topic that is followed.
        self._on_change(sample.topic)


def _read(read: _Reader, sample: Sample) -> list[Thing | InvalidMessage]:
    """Read what an announcement says, and why parts of it are refused; touches nothing else."""
    payload = sample.payload
    if not payload:
        return []
    if len(payload) > MAX_CONFIG:
        return [InvalidMessage("it has more than {most} bytes", most=MAX_CONFIG)]
    if payload.count(b"{") + payload.count(b"[") > limits.MOST_ANNOUNCED_PARTS:
        return [InvalidMessage("it has more than {most} lists and objects", most=limits.MOST_ANNOUNCED_PARTS)]
    try:
        # Not `Sample.value`: the list of two hundred Zigbee devices has too many parts for it.
        announced = from_json(payload)
    except ValueError:
        return [InvalidMessage("the payload is not JSON")]
    found = list(islice(read(sample.topic, announced), limits.MOST_ENTITIES + 1))
    if len(found) > limits.MOST_ENTITIES:
        found[limits.MOST_ENTITIES] = InvalidMessage(
            "what comes after the first {most} is not read", most=limits.MOST_ENTITIES
        )
    for each in found:
        if isinstance(each, Thing):
            _ = each.words  # now, so that the first question does not wait for those of thousands
    return found
