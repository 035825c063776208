"""The engine: one task for all watchers, driven by new values and by the clock."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import takewhile

from agent_core.times import local_time, utc
from chat.tasks import happens
from contracts.errors import StorageError, StrawberryError
from contracts.phrases import Phrase
from hub_live import limits
from hub_live.topics import Feed, Gap, Sample
from hub_live.topics import field as field_of
from hub_live.watchers.decisions.evaluation import Evaluations
from hub_live.watchers.decisions.firing import fires
from hub_live.watchers.decisions.kinds import FAILED, NOTHING, kind_of
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.decisions.steps import Steps
from hub_live.watchers.decisions.trace import HELD_UP, NOT_WATCHING, RAN_OFTEN, Traces, outcome_of
from hub_live.watchers.definition import sources_of
from hub_live.watchers.phases import TRANSITIONS, Phase, is_watching
from hub_live.watchers.predicates import Evaluator, Verdict, parse
from hub_live.watchers.schedule import Schedule
from hub_live.watchers.tables import DecisionRow, WatcherRow
from hub_live.watchers.values.asks import Asks
from hub_live.watchers.values.history import History, is_short
from hub_live.watchers.values.watched import Watched
from hub_live.watchers.words.sentence import Naming, plain
from hub_registry.storage.tables import now

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Engine:
    """Evaluates the active watchers."""

    feed: Feed
    evaluations: Evaluations
    tasks: asyncio.TaskGroup
    naming: Callable[[str], Naming]
    """Names what a person watches."""

    def __post_init__(self) -> None:
        self.household = self.evaluations.clock.household
        self.history = History(self.feed, self.evaluations)
        self.traces = Traces()
        self._steps = Steps(self.evaluations)
        self._asks = Asks(self.feed, self.evaluations, self.traces, self.tasks)
        self._watched: dict[str, Watched] = {}
        # By name, rows that changed while nothing could be awaited.
        self._unsaved: dict[str, WatcherRow] = {}
        self._kick = asyncio.Event()

    def get(self, name: str) -> Watched | None:
        return self._watched.get(name)

    async def follow(
        self, row: WatcherRow, *, is_new: bool = False, earlier: Sequence[DecisionRow] = ()
    ) -> None:
        """Watch from now on, or no more, as its phase says.

        Args:
            is_new: Whether earlier notifications to its owner count no more.
            earlier: The last decisions, newest first, where it goes on as it was before a restart of the hub.

        Raises:
            StrawberryError: If it cannot: it is then as it was before.
        """
        if not is_watching(row):
            self.stop(row.name)
            self.traces.add(row.name, time.time(), NOT_WATCHING[row.state])
            return
        sources = sources_of(row)
        evaluator = (
            Evaluator(parse(row.predicate, sources), self.evaluations.clock) if row.predicate else None
        )
        schedule = Schedule.parse(row.schedule) if row.schedule else None
        last = None if is_new else self.evaluations.store.last.get(row.name)
        watched = Watched(row, sources, evaluator, schedule, last)
        if earlier:
            self._go_on(watched, earlier)
        if schedule is not None:
            await self._follow_schedule(watched)
        with ExitStack() as stack:
            for name, source in sources.items():
                take, sees = partial(self._take, watched, name), self.history.sees(row, source.link)
                stack.enter_context(self.feed.follow(source.topic, take, link=source.link, sees=sees))
            self.history.prime(watched)
            watched.follows = stack.pop_all()
        self.stop(row.name)
        self._watched[row.name] = watched
        for link in {source.link for source in sources.values()}:
            for gap in self.feed.gaps(link):
                self._miss(watched, gap)
        now = time.time()
        if is_new:
            row.pending = ""
        elif row.pending:
            watched.rises = 1
            watched.plan(now, occasion=row.pending)
        if watched.heard or evaluator is not None:
            self._new_value(watched, now)
        elif watched.on_interval:
            self._new_value(watched, now + min(limits.RETAINED_S, watched.pause_s()))
        self._kick.set()

    def _go_on(self, watched: Watched, earlier: Sequence[DecisionRow]) -> None:
        """Keep what a restart must not change: when a model is asked again."""
        watched.asked_at = earlier[0].at.timestamp()
        failed = takewhile(lambda each: each.decision == FAILED.name, earlier)
        if waits := [watched.recheck.next() for _ in failed]:
            occasion = "No model could decide before the hub was started again."
            watched.plan(watched.asked_at + waits[-1], occasion=occasion)

    def stop(self, name: str) -> None:
        """Stop watching; an evaluation that runs has no more effect."""
        if (watched := self._watched.pop(name, None)) is not None:
            watched.follows.close()

    def forget(self, name: str) -> None:
        """Watch no more, and write nothing of a watcher that was removed over one that has its name next."""
        self.stop(name)
        self._unsaved.pop(name, None)
        self.traces.looks.pop(name, None)

    def gap(self, gap: Gap) -> None:
        """Note a gap of one link, and tell of it once it has ended; see ``Feed.on_gap``."""
        missed = [watched for watched in list(self._watched.values()) if self._miss(watched, gap)]
        if missed and gap.until is not None and not is_short(gap):
            self.tasks.create_task(self.history.tell(missed, gap), name="gap of watchers")

    async def run(self) -> None:
        """Evaluate what is due, until cancelled."""
        while True:
            self._kick.clear()
            for watched in list(self._watched.values()):
                try:
                    await self._step(watched, time.time())
                except StrawberryError as error:
                    _log.error("watcher %s: %s", watched.row.name, error)
            unsaved, self._unsaved = self._unsaved, {}
            if unsaved:
                await self._save(*unsaved.values())
            await happens(self._kick, within_s=limits.TICK_S if self._watched else limits.LONGEST_SLEEP_S)

    async def save(self) -> None:
        """Write what changes too often to be written each time; tell what was not decided before the end."""
        for watched in list(self._watched.values()):
            rises = self._undecided(watched)
            if rises > 0 and watched.row.armed:  # it is over
                await self.evaluations.announcer.failure(watched.row, watched.occasion, "the hub was stopped")
                watched.row.pending = ""
            elif rises > 0:
                # It fires, and counts, when the hub has started again.
                watched.row.armed, watched.row.fired = True, watched.row.fired - rises
        await self._save(*(watched.row for watched in self._watched.values()))

    async def evaluate_now(self, name: str, *, occasion: str) -> DecisionRow:
        """Evaluate an active watcher by the model, whatever its predicate says.

        One without an owner is paused, and no model is asked.
        """
        watched = self._watched[name]
        watched.ask()
        return await self._decide(watched, occasion)

    def _undecided(self, watched: Watched) -> int:
        """Return how often the predicate became true without a decision that is stored.

        What is being done of one that is stored is reported when the hub starts, and not done again.
        """
        last = self.evaluations.store.last.get(watched.row.name)
        is_stored = last is not None and last.at.timestamp() >= watched.asked_at
        return watched.rises - (watched.asked if watched.phase.is_asking and is_stored else 0)

    async def _decide(
        self,
        watched: Watched,
        occasion: str,
        *,
        seen: Mapping[str, Seen] | None = None,
        first: int | None = None,
    ) -> DecisionRow:
        try:
            if (objection := await self.evaluations.objection(watched.row)) is not None:
                return await self._pause(watched, objection)
            watched.asked_at = now().timestamp()
            if watched.row.then:
                seen = self.history.seen(watched) if seen is None else seen
                entry = await self._steps.run(
                    watched.row,
                    seen,
                    occasion=occasion,
                    first=first,
                    is_over=lambda: watched.is_over,
                    is_current=lambda: self._is_current(watched),
                )
            else:
                entry = await self.evaluations.evaluate(
                    watched.row,
                    self.history.seen(watched),
                    occasion=occasion,
                    gaps=self.history.missed_by(watched),
                    is_current=lambda: self._is_current(watched),
                    # Each alarm is reported; that the model fails again when asked again is not.
                    tells_failure=bool(watched.asked) or not watched.has_failed,
                )
        finally:
            is_over = watched.is_over
            watched.decide()
            if watched.rises and watched.row.armed and is_over:  # it fired again meanwhile, for a moment
                watched.row.pending = watched.occasion
                self._unsaved[watched.row.name] = watched.row
            if is_over and self._watched.get(watched.row.name) is watched:
                # What was done belongs to the time before.
                watched.recheck.reset()
                self._forget_done(watched.row)
            self._kick.set()
        watched.last = entry
        outcome = did = Phrase(kind_of(entry.decision).label)
        if entry.reason and not watched.row.then:
            outcome = Phrase("{did}: {said}", did=did, said=entry.reason)
        self.traces.add(watched.row.name, time.time(), outcome, actions=entry.actions)
        if watched.has_failed:
            self._ask_later(watched)
        else:
            if watched.evaluator is None:
                # With a predicate it is also the wait while that stays true.
                watched.recheck.reset()
            if watched.has_new or watched.on_interval:
                self._new_value(watched, time.time())
        return entry

    def _is_current(self, watched: Watched) -> bool:
        return self._watched.get(watched.row.name) is watched and watched.row.state == "active"

    async def _pause(self, watched: Watched, reason: str) -> DecisionRow:
        row = watched.row
        entry = DecisionRow(
            watcher=row.name,
            at=utc(time.time()),
            decision=NOTHING.name,
            reason=Phrase("it was paused: {reason}", reason=reason),
        )
        if self._watched.get(row.name) is watched:
            self.stop(row.name)
            paused = TRANSITIONS["pause"][watched.phase]
            row.sqlmodel_update({**paused.stored(), "note": reason})
            await self.evaluations.store.record(row, entry)
            await self.evaluations.announcer.state(row, entry)
            await self.evaluations.announcer.notify(
                row,
                Phrase(
                    "It is paused: {reason}. Approve it again on its page to let it go on.", reason=reason
                ),
            )
        return entry

    def _take(self, watched: Watched, name: str, sample: Sample) -> None:
        if name not in watched.heard and watched.evaluator is not None and watched.row.note:
            watched.row.note = ""  # What was wrong with its values when it was made is over.
            self._unsaved[watched.row.name] = watched.row
        watched.heard.add(name)
        if watched.evaluator is not None:
            value = field_of(sample.value, watched.sources[name].path)
            watched.evaluator.put(name, sample.at, value, retained=sample.retained)
        self._new_value(watched, sample.at)

    def _new_value(self, watched: Watched, at: float) -> None:
        watched.has_new = True
        if watched.row.snoozed_until is not None:
            self.traces.add(watched.row.name, at, "it is snoozed")
            return
        if watched.evaluator is not None:
            watched.row.evaluations += 1
            self._look(watched, at)
        elif watched.schedule is None and watched.ask_at == math.inf:
            occasion = "Its interval has passed." if watched.on_interval else "There are new values."
            watched.plan(max(at, watched.asked_at + watched.pause_s()), occasion=occasion)
        if watched.phase is Phase.DUE and watched.ask_at <= at:
            if watched.row.then:
                self._ask(watched, at)
            else:
                self._kick.set()

    def _look(self, watched: Watched, at: float, *, is_tick: bool = False) -> None:
        """Decide by what the predicate says when the model is to be asked."""
        row, before, evaluator = watched.row, watched.verdict, watched.evaluator
        if evaluator is None or row.snoozed_until is not None:
            return
        verdict = evaluator.tick(at) if is_tick else evaluator.verdict(at)
        if verdict is None:
            return
        watched.verdict = verdict
        was_armed = row.armed
        is_firing, armed = fires(verdict, armed=was_armed)
        outcome = outcome_of(verdict, evaluator, is_firing=is_firing and watched.schedule is None)
        if (verdict.truth is False or verdict.momentary) and watched.drop_step():
            self._unsaved[row.name] = row
            outcome = Phrase("{outcome}; the step that waited is dropped", outcome=Phrase(outcome))
        self.traces.add(row.name, at, outcome, truth=verdict.truth, evaluator=evaluator)
        if watched.schedule is not None:
            return
        if armed is not was_armed:
            row.armed = armed
        if verdict.truth is False or verdict.momentary:
            watched.recheck.reset()
            watched.move("fall")
            if not watched.phase.is_asking and (row.done or not was_armed):
                self._forget_done(row)
        is_quiet = watched.phase is Phase.QUIET
        if is_firing:
            # Both are written with the decision: if the hub is killed before, it fires and counts again.
            row.fired += 1
            watched.rises += 1
            because = (
                "Because {condition} ({time})" if verdict.momentary else "Because {condition}, since {time}"
            )
            occasion = Phrase(because, condition=self._condition(watched, verdict), time=self._clock(at))
            watched.plan(at, occasion=occasion)
            if verdict.momentary:  # after a crash it would not be true again
                row.pending = occasion
                self._unsaved[row.name] = row
        elif watched.rises or row.then:
            pass
        elif verdict.truth is False or watched.is_settled:
            watched.drop()
        elif (
            is_quiet
            and verdict.truth is None
            and (before is None or before.truth is False or watched.asked_at == -math.inf)
        ):
            occasion = Phrase(
                "It is not known whether {condition}: {reason}",
                condition=self._condition(watched, verdict),
                reason=verdict.reason,
            )
            watched.plan(at + limits.UNKNOWN_S, occasion=occasion)
        elif is_quiet and watched.has_new:
            still = (
                "Because it is still so that {condition}."
                if verdict.truth
                else "It is still not known whether {condition}: {reason}"
            )
            condition = self._condition(watched, verdict)
            occasion = Phrase(still, condition=condition, reason=verdict.reason)
            watched.plan(max(at, watched.asked_at + watched.pause_s()), occasion=occasion)

    def _condition(self, watched: Watched, verdict: Verdict) -> str:
        naming = replace(self.naming(watched.row.owner), held=verdict.values)
        return plain(naming.condition(watched.row.predicate or "", watched.sources))

    def _forget_done(self, row: WatcherRow) -> None:
        # The predicate was false: what was done may be done again.
        row.done = []
        self._unsaved[row.name] = row
        self._kick.set()

    def _ask_later(self, watched: Watched) -> None:
        """Ask again after a failure; at once where it fired meanwhile."""
        retry_at = time.time() + watched.recheck.next()
        if not watched.rises:
            watched.plan(retry_at, occasion=watched.occasion)

    async def _step(self, watched: Watched, now: float) -> None:
        row = watched.row
        if watched.is_step_due(now):
            watched.ask()
            evaluation = self._evaluate(watched, "The delay is over.", first=row.step)
            self.tasks.create_task(evaluation, name=f"watcher {row.name}")
        if row.snoozed_until is not None:
            watched.drop()
            if not watched.phase.is_asking:  # an evaluation subtracts those it was for
                watched.rises = 0
            row.pending = ""
            if row.snoozed_until.timestamp() > now:
                return
            # What is still so is reported again, as an alarm clock does.
            awake = TRANSITIONS["wake"][Phase.SNOOZED].stored()
            row.sqlmodel_update({**awake, "done": [], "armed": True})
            await self._save(row)
            await self.evaluations.announcer.state(row, self.evaluations.store.last.get(row.name))
            self._new_value(watched, now)
        self._asks.start_due(watched, now, lambda: self._is_current(watched))
        self._look(watched, now, is_tick=True)
        if watched.schedule and row.next_at is not None and row.next_at.timestamp() <= now:
            self._look(watched, now)
            await self._follow_schedule(watched)
        if watched.ask_at <= now and not watched.phase.is_asking:
            if watched.verdict is not None and watched.verdict.truth is False and not watched.rises:
                watched.drop()  # It was to be tried again, and is over.
            else:
                self._ask(watched, now)

    def _ask(self, watched: Watched, now: float) -> None:
        seen = self.history.seen(watched)
        values = {name: each.value for name, each in seen.items()}
        is_known = watched.last is not None and not watched.has_failed and values == watched.last.seen
        if watched.on_change and is_known:
            watched.drop()
            self.traces.add(watched.row.name, now, "its values are those that it decided on last")
        elif self.evaluations.limits.take_evaluation(watched.row):
            watched.ask()
            evaluation = self._evaluate(watched, watched.occasion, seen=seen)
            self.tasks.create_task(evaluation, name=f"watcher {watched.row.name}")
        else:
            watched.hold(now + limits.LEAST_EVERY_S)
            self.traces.add(watched.row.name, now, RAN_OFTEN if watched.row.then else HELD_UP)

    async def _evaluate(
        self,
        watched: Watched,
        occasion: str,
        *,
        seen: Mapping[str, Seen] | None = None,
        first: int | None = None,
    ) -> None:
        if (rises := watched.asked) > 1:
            occasion = Phrase("{occasion}, the last of {rises} times", occasion=occasion, rises=rises)
        try:
            await self._decide(watched, occasion, seen=seen, first=first)
        except Exception as error:  # noqa: BLE001 - the other watchers go on
            is_known = isinstance(error, StrawberryError)
            _log.error("watcher %s: %s", watched.row.name, error, exc_info=not is_known)
            if first is None:
                if not (watched.row.then and watched.row.done):  # then they are begun
                    self._ask_later(watched)
            elif watched.row.step_at is not None:
                watched.row.step_at = utc(time.time() + limits.RECHECK_S)
            if rises and self._is_current(watched):
                problem = str(error) if is_known else "an error in the hub, which its log describes"
                await self.evaluations.announcer.failure(watched.row, occasion, problem)

    async def _follow_schedule(self, watched: Watched) -> None:
        """Set when the schedule comes next; a time that has come is evaluated, or told if it was missed."""
        row, schedule, now = watched.row, watched.schedule, time.time()
        assert schedule is not None
        planned, row.next_at = row.next_at, schedule.next(utc(now), self.household)
        if planned is not None and planned.timestamp() <= now:
            is_late = planned.timestamp() < now - limits.LATE_S
            if is_late and row.missed == "tell":
                await self.evaluations.announcer.notify(row, self._missed(schedule, planned))
            elif watched.verdict is None or watched.verdict.truth is not False:
                row.done = []
                missed = Phrase("It was scheduled for {time} and missed.", time=self._clock(planned))
                watched.plan(now, occasion=missed if is_late else "It is the scheduled time.")
            else:
                self.traces.add(row.name, now, "its time came, and the condition was false")
        await self._save(row)

    def _miss(self, watched: Watched, gap: Gap) -> bool:
        """Note a gap for the predicate; return whether the watcher sees anything of that link."""
        names = [name for name, source in watched.sources.items() if source.link == gap.link]
        if names and watched.evaluator is not None:
            watched.evaluator.gap(gap.since, gap.until, names)
            self._look(watched, time.time())
        return bool(names)

    async def _save(self, *rows: WatcherRow) -> None:
        try:
            await self.evaluations.store.save(*rows)
        except StorageError as error:
            _log.error("watchers are written later: %s", error)

    def _missed(self, schedule: Schedule, planned: datetime) -> str:
        missed = [planned]
        while (
            len(missed) < limits.MOST_MISSED and (after := schedule.next(missed[-1], self.household)) <= now()
        ):
            missed.append(after)
        return Phrase("the evaluation of {time} was missed", time=", ".join(map(self._clock, missed)))

    def _clock(self, at: float | datetime) -> str:
        return local_time(at, self.household.time_zone)
