"""What is published of watchers: states, decisions, notifications."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from contracts import topics
from contracts.answers.watchers import OUTCOMES, Allowed, MadeCall
from contracts.devices.presence import WatcherState
from contracts.errors import Disconnected
from contracts.phrases import Phrase
from contracts.rates import TokenBuckets
from contracts.wire import Json
from hub_live import limits
from hub_live.events import Events, NotificationData
from hub_live.events.kinds import WatcherData
from hub_live.topics import Feed
from hub_live.watchers.decisions.kinds import GAP, KINDS
from hub_live.watchers.tables import DecisionRow, WatcherRow
from hub_registry.storage.tables import now


@dataclass(eq=False)
class Announcer:
    """Publishes states, decisions and notifications of watchers.

    Attributes:
        words: Returns what a call does, in the words of which a person reads it.
    """

    events: Events
    feed: Feed
    tasks: asyncio.TaskGroup
    words: Callable[[str, Allowed], str]
    _notes: TokenBuckets = field(
        default_factory=partial(TokenBuckets, burst=limits.NOTES[0], per_second=limits.NOTES[1])
    )
    # By watcher, texts that are not sent yet.
    _held: dict[str, list[str]] = field(default_factory=dict)

    async def state(self, row: WatcherRow, last: DecisionRow | None = None) -> None:
        """Publish what a watcher is doing, retained. Its reasons are in its owner's events."""
        await self._retain(row, state_of(row, last).model_dump_json().encode())

    async def gone(self, row: WatcherRow) -> None:
        await self._retain(row, b"")

    async def change(self, row: WatcherRow, change: str, *, by: str) -> None:
        """Publish that a person has paused, resumed, snoozed, approved, changed or removed a watcher.

        Args:
            by: Id of that person.
        """
        until = row.snoozed_until if change == "snoozed" else None
        data = WatcherData(subject=row.name, title=row.title, event=change, by=by, until=until)
        await self.events.publish(row.owner, data)

    async def decision(self, row: WatcherRow, entry: DecisionRow, *, tells: bool = True) -> None:
        """Publish a decision; the owner is notified of one that does something.

        Args:
            tells: Whether it is, where it does.
        """
        made = entry.model_dump(exclude={"id", "watcher"})
        await self.events.publish(row.owner, WatcherData(subject=row.name, title=row.title, **made))
        if tells and KINDS[entry.decision].is_told:
            await self.notify(row, self.sentence(row, entry))

    def sentence(self, row: WatcherRow, entry: DecisionRow) -> str:
        """Return what was decided and done, for people."""
        did = [self.action_text(row, each) for each in entry.actions]
        return Phrase.joined(". ", [each for each in (Phrase(entry.reason).unstopped(), *did) if each])

    def action_text(self, row: WatcherRow, action: Mapping[str, Json]) -> str:
        """Return a call with its outcome, for people."""
        made = MadeCall.model_validate(action)
        call = self.words(row.owner, Allowed(path=made.path, arguments=made.arguments))
        said = made.error or OUTCOMES.get(made.outcome, made.outcome)
        return Phrase("{call}: {said}", call=Phrase(call).capitalized(), said=Phrase(said))

    async def failure(self, row: WatcherRow, occasion: str, problem: str) -> None:
        """Notify the owner that no model could decide.

        Args:
            occasion: Why a model was asked.
        """
        said = Phrase("It could not be decided: {reason}", reason=problem)
        if occasion:
            said = Phrase("{occasion}. {said}", occasion=Phrase(occasion).unstopped(), said=said)
        await self.notify(row, said)

    async def notify(self, row: WatcherRow, text: str) -> None:
        """Notify the owner; what comes too often of one watcher is held, and told with the last of it."""
        if row.name in self._held:
            self._held[row.name].append(text)
        elif self._notes.take(row.name):
            await self._notify(row, text)
        else:
            self._held[row.name] = [text]
            self.tasks.create_task(self._notify_later(row), name=f"notification of {row.name}")

    async def _notify_later(self, row: WatcherRow) -> None:
        try:
            await asyncio.sleep(self._notes.of(row.name).reserve())
        finally:  # also where the hub stops
            *others, text = self._held.pop(row.name)
            await self._notify(
                row,
                Phrase("{text}\n(and {count} more in a short time)", text=text, count=len(others))
                if others
                else text,
            )

    async def _notify(self, row: WatcherRow, text: str) -> None:
        event = NotificationData(subject=row.name, title=row.title, text=text, sender="watcher")
        await self.events.publish(row.owner, event)

    async def gap(self, owner: str, watchers: Sequence[str], reason: str) -> None:
        """Publish that data was missed, once for all watchers of a person."""
        event = WatcherData(subject="gap", decision=GAP.name, reason=reason, watchers=list(watchers))
        await self.events.publish(owner, event)

    async def _retain(self, row: WatcherRow, payload: bytes) -> None:
        topic = topics.WATCHER.build(user=row.owner, watcher=row.name)
        with suppress(Disconnected):  # it is published again on reconnect
            await self.feed.publish(topic, payload, retain=True, qos=topics.WATCHER.qos)


def state_of(row: WatcherRow, last: DecisionRow | None) -> WatcherState:
    """Return what is published of a watcher."""
    copied = row.model_dump(include={"state", "dry_run", "fired"}, warnings=False)
    decision = last.decision if last else ""
    return WatcherState(name=row.display_name, at=now(), last_decision=decision, **copied)
