"""State and events that skills publish."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime

from agent_core.skills.results import Publication
from bus.link import Link, Message
from contracts import topics
from contracts.devices.presence import Emitted, State
from contracts.errors import Disconnected
from contracts.rates import TokenBucket, TokenBuckets

_log = logging.getLogger(__name__)

_STATES = 512
"""Different values of all skills together: the hub refuses a device that fills the broker with more."""
_WAITING_EVENTS = 256
"""Events that wait to be sent; the next one is dropped."""
_RATE, _BURST = 20.0, 100.0
"""Messages a second on average, and at once."""


class SkillOutlet:
    """Publishes state and events of skills, from any thread, at a bounded rate.

    Only the latest value of a state is sent, and every state again after a reconnect. An event that cannot
    be sent now is dropped. Nothing is sent for a skill that is not offered, so that a removed skill does
    not restore topics that the hub has cleared.
    """

    def __init__(self, *, device: str) -> None:
        self._device = device
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._offered: frozenset[str] | None = None
        self._values: dict[str, bytes] = {}
        self._due: dict[str, None] = {}
        self._events: deque[Message] = deque()
        self._woken = asyncio.Event()
        self._is_waking = False
        # A skill that publishes too much is logged once a minute, not once a message.
        self._complaints = TokenBuckets(burst=1, per_second=1 / 60)

    def serve(self, skills: Iterable[str]) -> None:
        """Accept only these skills from now on, and drop what others have published.

        Until then every skill is accepted: it may publish during a set-up that fails later.
        """
        with self._lock:
            self._offered = frozenset(skills)
            for topic in [topic for topic in self._values if not self._is_offered(_skill_of(topic))]:
                del self._values[topic]
                self._due.pop(topic, None)

    def publish(self, publication: Publication) -> None:
        """Publish what a skill says; a ``SkillSink``."""
        if publication.kind == "event":
            self._publish_event(publication)
            return
        topic = topics.STATE.build(device=self._device, skill=publication.skill, property=publication.name)
        payload = b""
        if publication.kind == "state":
            value, unit, device_class = publication.value, publication.unit, publication.device_class
            state = State(value=value, unit=unit, device_class=device_class, at=datetime.now(UTC))
            payload = state.model_dump_json().encode()
        with self._lock:
            if not self._is_offered(publication.skill):
                return
            is_full = payload and topic not in self._values and len(self._values) >= _STATES
            if not is_full:
                self._values[topic] = payload
                self._due[topic] = None
        if is_full:
            self._complain(publication.skill, f"more than {_STATES} values", publication.name)
        else:
            self._wake()

    def _publish_event(self, publication: Publication) -> None:
        topic = topics.EVENT.build(device=self._device, name=publication.name)
        event = Emitted(skill=publication.skill, data=publication.value, at=datetime.now(UTC))
        message = Message(topic, event.model_dump_json().encode(), topics.EVENT.qos)
        if not self._is_offered(publication.skill):
            return
        if not self._is_connected:
            self._complain(publication.skill, "events while there is no connection", publication.name)
            return
        with self._lock:
            is_full = len(self._events) >= _WAITING_EVENTS
            if not is_full:
                self._events.append(message)
        if is_full:
            self._complain(publication.skill, "events come too fast", publication.name)
        else:
            self._wake()

    async def run(self, link: Link) -> None:
        """Send until cancelled."""
        self._link, self._loop = link, asyncio.get_running_loop()
        forget = link.on_connected(self._send_all_again)
        try:
            pace = TokenBucket(burst=_BURST, per_second=_RATE)
            while True:
                message = self._next()
                if message is None:
                    await self._woken.wait()
                    self._woken.clear()
                    continue
                if wait_s := pace.reserve():
                    await asyncio.sleep(wait_s)
                await self._send(link, message)
        finally:
            forget()
            self._link = None

    @property
    def _is_connected(self) -> bool:
        return self._link is not None and self._link.connected

    def _is_offered(self, skill: str) -> bool:
        return self._offered is None or skill in self._offered

    def _next(self) -> Message | None:
        with self._lock:
            self._is_waking = False
            if self._events:
                return self._events.popleft()
            if self._due and self._is_connected:
                topic = next(iter(self._due))
                del self._due[topic]
                return Message(topic, self._values[topic], topics.STATE.qos, retain=True)
            return None

    async def _send(self, link: Link, message: Message) -> None:
        try:
            await link.send(message)
            with self._lock:
                if not message.payload and self._values.get(message.topic) == b"":
                    del self._values[message.topic]
                    self._due.pop(message.topic, None)
        except Disconnected:
            # A state is sent again after the reconnect; an event is dropped.
            _log.info("not sent because the connection is lost: %s", message.topic)

    async def _send_all_again(self) -> None:
        with self._lock:
            self._due = dict.fromkeys(self._values)
        self._woken.set()

    def _wake(self) -> None:
        with self._lock:
            if self._is_waking or self._loop is None:
                return
            self._is_waking = True
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:
            _log.debug("something was published after the spoke had stopped")

    def _complain(self, skill: str, problem: str, name: str) -> None:
        with self._lock:
            is_due = self._complaints.take(f"{skill} {problem}")
        if is_due:
            _log.warning("%s: %s; %r is dropped", skill, problem, name)


def _skill_of(topic: str) -> str:
    values = topics.STATE.match(topic)
    assert values is not None
    return values["skill"]
