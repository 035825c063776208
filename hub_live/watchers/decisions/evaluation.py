"""What a model does for a watcher: it proposes the predicate, and decides.

A decision is recorded before it is carried out.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from contracts.answers.watchers import Allowed, WouldDecide
from contracts.devices.rpc import Actor
from contracts.errors import (
    CallError,
    GatewayError,
    NoModel,
    NotFound,
    PredicateError,
    StorageError,
    TooManyRequests,
)
from contracts.phrases import Phrase, with_phrases
from contracts.rates import TokenBucket, TokenBuckets
from contracts.text import shortened
from contracts.wire import Json, rfc3339
from hub_agent.calls.audit import Origin
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.settings import WatcherSettings
from hub_live import limits
from hub_live.watchers.decisions.announcer import Announcer
from hub_live.watchers.decisions.approved import ApprovedCall
from hub_live.watchers.decisions.kinds import FAILED, NOTHING, NOTIFY
from hub_live.watchers.decisions.model import Chosen, Decision, Seen, WatcherModel, problem_of
from hub_live.watchers.decisions.store import WatcherStore
from hub_live.watchers.predicates import Clock
from hub_live.watchers.tables import DecisionRow, WatcherRow
from hub_registry.registry import Registry
from hub_registry.storage.tables import now

_log = logging.getLogger(__name__)


class EvaluationLimits:
    """The limits of all evaluations, and of the evaluations and actions of each watcher.

    One watcher has half of the evaluations at once, and a quarter in the long run: a value that flaps leaves
    the rest to others.
    """

    def __init__(self, settings: WatcherSettings) -> None:
        self._settings = settings
        per_minute = settings.evaluations_per_minute
        self.evaluations = TokenBucket(burst=per_minute, per_second=per_minute / 60)
        self._evaluations = TokenBuckets(burst=max(1, per_minute / 2), per_second=per_minute / 240)
        self._runs = TokenBuckets(burst=limits.RULE_RUNS[0], per_second=limits.RULE_RUNS[1])
        self._actions: dict[str, TokenBucket] = {}

    def take_evaluation(self, row: WatcherRow) -> bool:
        """Use one of the evaluations of a minute, unless they, or the share of this watcher, are used up.

        One that asks no model costs the others nothing.
        """
        if row.then:
            return self._runs.take(row.name)
        share = self._evaluations.of(row.name)
        return not share.empty and self.evaluations.take() and share.take()

    def charge_run(self, row: WatcherRow) -> None:
        """Deduct an evaluation that a person asks for: it does not wait for a model's turn; the others do.

        Raises:
            TooManyRequests: If a watcher without a model did its steps too often in a short time.
        """
        if not row.then:
            self.evaluations.charge(1)
        elif not self._runs.take(row.name):
            wait_s = round(1 / limits.RULE_RUNS[1])
            raise TooManyRequests(
                "{name} ran too often in a short time", name=row.display_name, retry_after_s=wait_s
            )

    def actions(self, row: WatcherRow) -> TokenBucket:
        """Return what a watcher may do."""
        bucket = self._actions.get(row.name)
        if bucket is None:
            otherwise = limits.RULE_ACTIONS if row.then else self._settings.actions_per_hour
            most = row.actions_per_hour or otherwise
            bucket = self._actions[row.name] = TokenBucket(burst=most, per_second=most / 3_600)
        return bucket

    def forget(self, name: str) -> None:
        self._actions.pop(name, None)


@dataclass(frozen=True)
class Evaluations:
    """Evaluates watchers with a model."""

    store: WatcherStore
    model: WatcherModel
    manager: DeviceManager
    announcer: Announcer
    registry: Registry
    limits: EvaluationLimits
    clock: Clock

    async def evaluate(
        self,
        row: WatcherRow,
        seen: Mapping[str, Seen],
        *,
        occasion: str,
        gaps: Sequence[str] = (),
        is_current: Callable[[], bool],
        tells_failure: bool = True,
    ) -> DecisionRow:
        """Ask the model, record what it decides, and do it.

        What is decided is in the database before it is done, so that it is done at most once, whenever the
        hub is stopped. What was done since the predicate was last false is not done again.

        Args:
            is_current: Whether the watcher is still the one that was asked about; nothing is done for one
                that was paused, changed or removed meanwhile.
            tells_failure: Whether the owner is notified where no model can decide.
        """
        entry = DecisionRow(
            watcher=row.name,
            at=now(),
            decision=FAILED.name,
            seen={name: each.value for name, each in seen.items()},
            dry_run=row.dry_run,
        )
        try:
            earlier = await self.store.history(row.name, limit=limits.EARLIER_DECISIONS, gaps=False)
            lines = [f"{rfc3339(each.at)} {each.decision}: {each.reason}" for each in earlier]
            decision = await self.model.decide(row, occasion, seen, calls_of(row), gaps=gaps, earlier=lines)
        except GatewayError as error:
            entry.reason, entry.tokens = error.message, getattr(error, "tokens", 0)
            if not isinstance(error, NoModel):
                self._charge(row, entry)
            if is_current():
                await self._record_failure(row, entry, occasion if tells_failure else None)
            return entry
        entry.decision, entry.reason, entry.tokens = decision.kind.name, decision.reason, decision.tokens
        self._charge(row, entry)
        if not is_current():
            entry.decision, entry.reason = NOTHING.name, "the watcher was changed meanwhile"
            return entry
        steps = self._bounded(row, entry, decision)
        fires = bool(steps) and counts(row) and not row.done
        # Without a predicate, the model's own word says when it is over.
        is_over = not decision.steps and row.predicate is None
        await self.record(row, entry, fires=fires, done=[] if is_over else [*row.done, *steps])
        if steps:
            await self.act(row, entry, [step for step in steps.values() if step is not None], is_current)
        await self.announcer.decision(row, entry)
        if steps:
            await self.store.finish(entry)
        await self.announcer.state(row, entry)
        return entry

    async def record(self, row: WatcherRow, entry: DecisionRow, *, fires: bool, **changes: Any) -> None:
        """Write a decision, and what it changes of its watcher, before anything of it is done.

        If that fails, the watcher is as it was: nothing was done, so it can be decided again.

        Args:
            fires: Whether it counts as firing.
        """
        before = {name: getattr(row, name) for name in changes}
        row.sqlmodel_update(changes)
        row.fired += fires
        try:
            await self.store.record(row, entry)
        except BaseException:
            row.sqlmodel_update(before)
            row.fired -= fires
            raise

    async def _record_failure(self, row: WatcherRow, entry: DecisionRow, occasion: str | None) -> None:
        """Record that no model could decide; with an occasion, notify the owner."""
        await self.announcer.decision(row, entry)
        if occasion is not None:
            await self.announcer.failure(row, occasion, entry.reason)
        # Told first: neither a full disk nor the end of the hub may silence an alarm.
        with suppress(StorageError):
            await self.store.record(row, entry)
        await self.announcer.state(row, entry)

    async def objection(self, row: WatcherRow) -> str | None:
        """Return why a watcher may no longer do what it was made for; None where it may.

        It acts for the person who made it, by the word of the person who approved its calls.
        """
        for person in dict.fromkeys((row.owner, row.approver or row.owner)):
            try:
                user = await self.registry.accounts.get(person)
            except NotFound as error:
                return error.message
            if user.read_only:
                return f"{user.display_name} has read-only access now"
            if person != row.owner and row.allow and user.role != "admin":
                return Phrase("{user}, who approved its calls, is no longer an admin", user=user.display_name)
        if row.allow and row.approved_through is not None:
            entry = self.registry.directory.get(row.approved_through)
            if entry is None or entry.revoked:
                return Phrase(
                    "its calls were approved through the device {device}, which is revoked",
                    device=row.approved_through,
                )
        return None

    async def propose(self, row: WatcherRow, seen: Mapping[str, Seen]) -> None:
        """Ask a model once for a predicate; without a good one, it evaluates at its interval itself."""
        try:
            problem: str | None = await self._propose_once(row, seen)
            if problem is not None and row.predicate:
                tried, row.predicate = row.predicate, None
                problem = await self._propose_once(row, seen, mistake=f"{tried}: {problem}")
            if problem is None:
                return
            row.predicate = None
        except (GatewayError, PredicateError) as error:
            problem = error.message
        if row.every_s is not None:
            row.note = Phrase(
                "no predicate ({problem}): the model evaluates it every {seconds:g} s",
                problem=problem,
                seconds=row.every_s,
            )
        elif row.schedule is None:
            row.note = Phrase("no predicate ({problem}): the model evaluates each new value", problem=problem)
        else:
            row.note = Phrase("no predicate ({problem}): the model evaluates it each time", problem=problem)

    async def _propose_once(
        self, row: WatcherRow, seen: Mapping[str, Seen], *, mistake: str = ""
    ) -> str | None:
        """Put the predicate that a model proposes into a row; return what is wrong with it."""
        predicate, reason, tokens = await self.model.propose(row, seen, mistake=mistake)
        row.tokens, row.model_calls = row.tokens + tokens, row.model_calls + 1
        row.predicate = predicate or None
        try:
            return problem_of(predicate, seen, self.clock) if predicate else reason
        except PredicateError as error:
            return error.message

    async def would_decide(self, row: WatcherRow, seen: Mapping[str, Seen], *, at: str) -> WouldDecide:
        """Return what the model decides on values of the past; nothing is done or recorded."""
        occasion = Phrase("{predicate} became true at {time}.", predicate=row.predicate, time=at)
        try:
            decision = await self.model.decide(row, occasion, seen, calls_of(row))
        except GatewayError as error:
            return WouldDecide(decision=FAILED.name, reason=error.message)
        actions = [Allowed(path=call.path, arguments=given) for call, given in decision.calls]
        return WouldDecide(decision=decision.kind.name, reason=decision.reason, actions=actions or None)

    def _charge(self, row: WatcherRow, entry: DecisionRow) -> None:
        row.model_calls += 1
        row.tokens += entry.tokens

    def _bounded(
        self, row: WatcherRow, entry: DecisionRow, decision: Decision
    ) -> Mapping[str, Chosen | None]:
        """Apply the limits to a decision; return the steps to do, with their calls noted."""
        left = {key: step for key, step in decision.steps.items() if key not in row.done}
        if not left:
            if decision.steps:
                entry.decision = NOTHING.name
                entry.reason = Phrase("done already: {reason}", reason=entry.reason)
            return {}
        limit = self.limits.actions(row)
        steps = {key: step for key, step in left.items() if step is None or row.dry_run or limit.take()}
        if len(steps) < len(left):
            entry.reason = Phrase(
                "the limit of actions per hour is used up, so some actions were not done: {reason}",
                reason=Phrase(entry.reason).unstopped(),
            )
        if not steps:
            key = f"{NOTIFY.name} limit"
            entry.decision = NOTHING.name if key in row.done else NOTIFY.name
            steps = {key: None}
        entry.state = "acting"
        outcome = "dry_run" if row.dry_run else "unknown"
        calls = [step for step in steps.values() if step is not None]
        entry.actions = [{"path": call.path, "arguments": given, "outcome": outcome} for call, given in calls]
        return steps

    async def act(
        self,
        row: WatcherRow,
        entry: DecisionRow,
        steps: Sequence[str | Chosen],
        is_current: Callable[[], bool],
    ) -> None:
        """Tell the texts and make the calls of a decision in their order, but for those that have an outcome.

        Args:
            is_current: Whether the watcher is still as it was; else the rest is skipped.
        """
        number = 0
        for step in steps:
            if isinstance(step, str):
                if is_current() and not row.dry_run:
                    await self.announcer.notify(row, step)
                continue
            action: dict[str, Json] = entry.actions[number]
            if action["outcome"] == "unknown":
                made = await self.make(row, *step, is_current) if is_current() else skipped()
                entry.actions = [*entry.actions[:number], action | made, *entry.actions[number + 1 :]]
                if number + 1 < len(entry.actions):
                    with suppress(StorageError):
                        await self.store.finish(entry)
            number += 1
        entry.state = "done"

    async def make(
        self,
        row: WatcherRow,
        call: ApprovedCall,
        arguments: Mapping[str, Json],
        is_current: Callable[[], bool],
    ) -> dict[str, Json]:
        """Make a call for a watcher; return its outcome, with its result or its error.

        Args:
            is_current: Whether the watcher is still as it was; otherwise the call is skipped.
        """
        try:
            user = await self.registry.accounts.get(row.owner)
            actor = Actor(user=user.id, watcher=row.name, read_only=user.read_only)
            devices, by = self.registry.directory.seen_by(user.id), row.approved_by or ""
            found = call.found(arguments, devices)
            await self.manager.when_back(user.id, found.target)
            if not is_current():
                return skipped()
            value = await self.manager.call(actor, found, origin=Origin(token=by, confirmed_by=by))
        except (CallError, NotFound) as error:
            code = error.code.value if isinstance(error, CallError) else "refused"
            return {"outcome": code, **with_phrases({"error": shortened(error.message, limits.MOST_OUTCOME)})}
        result = json.dumps(value, ensure_ascii=False, default=str)[: limits.MOST_OUTCOME]
        return {"outcome": "result", "result": result}


def skipped() -> dict[str, Json]:
    """Return the outcome of a call that is not made, which its owner, who changed the watcher, knows."""
    problem = Phrase("the watcher was changed meanwhile")
    return {"outcome": "skipped", **with_phrases({"error": problem})}


def counts(row: WatcherRow) -> bool:
    """Return whether its actions count as firing: no predicate defines when it fires."""
    return row.predicate is None or row.schedule is not None


def calls_of(row: WatcherRow) -> list[ApprovedCall]:
    return [ApprovedCall.model_validate(each) for each in row.allow]
