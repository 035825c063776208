"""Decision which device answers where several heard the same wake word: the loudest."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bus.link import Message
from chat.tasks import open_tasks
from contracts import topics
from contracts.devices.voice import COLLECT_S, WakeHeard, WakeVerdict
from contracts.errors import BadSignature, Disconnected
from contracts.rates import TokenBuckets
from hub_agent import limits
from hub_agent.bus.connection import Bus
from hub_registry.devices.directory import Directory, Entry
from identity.envelope import unseal


@dataclass(frozen=True)
class _Heard:
    entry: Entry
    id: str
    loudness: float

    def yields_to(self, other: "_Heard") -> bool:
        """Return whether the other is louder, and one of those that may keep this one from answering."""
        if other.entry.audience not in (None, self.entry.device.owner):
            return False
        return (other.loudness, other.entry.id) > (self.loudness, self.entry.id)


@dataclass
class _Contest:
    """Devices that heard one wake word.

    Attributes:
        decided: When, by the monotonic clock; None while it is open.
    """

    heard: list[_Heard] = field(default_factory=list)
    decided: float | None = None

    @property
    def is_over(self) -> bool:
        return self.decided is not None and time.monotonic() - self.decided > limits.DECISION_SETTLED_S


@asynccontextmanager
async def open_wake_words(directory: Directory, bus: Bus) -> AsyncIterator[None]:
    """Decide for as long as the context is open.

    Raises:
        Forbidden: If the broker refuses the subscription.
    """
    async with open_tasks(contained=True) as tasks:
        words = WakeWords(directory, bus, tasks)
        unsubscribe = await bus.link.subscribe(topics.WAKE_HEARD.filter(), words.arrived, qos=0)
        try:
            yield
        finally:
            await unsubscribe()


class WakeWords:
    """Decides; made by `open_wake_words`."""

    def __init__(self, directory: Directory, bus: Bus, tasks: asyncio.TaskGroup) -> None:
        self._directory = directory
        self._link = bus.link
        self._seal = bus.seal
        self._tasks = tasks
        self._contests: dict[str, _Contest] = {}
        self._rates = TokenBuckets(burst=limits.WAKE_WORDS_AT_ONCE, per_second=1)

    def arrived(self, message: Message) -> None:
        """Handle a question; for `Link.subscribe`.

        Raises:
            InvalidMessage: If it is none, or not signed by the device.
        """
        values = topics.WAKE_HEARD.match(message.topic)
        if values is None or message.retain or not message.payload:
            return
        entry, key = self._directory.get(values["device"]), self._directory.public_key(values["device"])
        if entry is None or key is None:
            raise BadSignature(f"{values['device']} is no device of this home")
        if not self._rates.take(entry.id):
            return
        document = unseal(self._seal.hub_id, message.topic, message.payload, key)
        asked = topics.WAKE_HEARD.parse(document)
        if abs((datetime.now(UTC) - asked.at).total_seconds()) <= limits.QUESTION_AGE_S:
            self._enter(entry, asked)

    def _enter(self, entry: Entry, asked: WakeHeard) -> None:
        heard = _Heard(entry, asked.id, asked.loudness)
        for word in [word for word, contest in self._contests.items() if contest.is_over]:
            del self._contests[word]
        contest = self._contests.get(asked.word)
        if contest is not None and contest.decided is not None:
            # It was heard and is being answered already, by a device that may do so for this one.
            others = (each.entry for each in contest.heard if each.entry.id != entry.id)
            late = any(other.audience in (None, entry.device.owner) for other in others)
            self._tasks.create_task(self._tell(heard, answer=not late), name="wake word: late")
        elif contest is not None:
            contest.heard.append(heard)
        elif len(self._contests) < limits.MOST_WAKE_WORDS:
            contest = self._contests[asked.word] = _Contest([heard])
            self._tasks.create_task(self._decide(contest), name=f"wake word {asked.word}")

    async def _decide(self, contest: _Contest) -> None:
        await asyncio.sleep(COLLECT_S)
        contest.decided = time.monotonic()
        for heard in contest.heard:
            await self._tell(heard, answer=not any(heard.yields_to(other) for other in contest.heard))

    async def _tell(self, heard: _Heard, *, answer: bool) -> None:
        topic = topics.WAKE_VERDICT.build(device=heard.entry.id)
        with suppress(Disconnected):  # it answers by itself then
            payload = self._seal.seal(topic, WakeVerdict(id=heard.id, answer=answer))
            await self._link.publish(topic, payload, qos=topics.WAKE_VERDICT.qos)
