"""The steps of watchers that ask no model: texts and approved calls, in their order, with delays."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from contracts.answers.watchers import Allowed, WouldDecide
from contracts.errors import StorageError
from contracts.phrases import Phrase, with_phrases
from contracts.text import shortened
from contracts.wire import Json
from hub_live import limits
from hub_live.watchers.decisions.approved import ApprovedCall
from hub_live.watchers.decisions.evaluation import Evaluations, calls_of, counts
from hub_live.watchers.decisions.kinds import ACT, NOTIFY, WAIT, Kind
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.definition import CheckedStep
from hub_live.watchers.tables import DecisionRow, WatcherRow
from hub_registry.storage.tables import now

Bound = tuple[CheckedStep, ApprovedCall | None]
"""A step, with its call as it was approved."""


@dataclass(frozen=True)
class Steps:
    """Does the steps of watchers."""

    evaluations: Evaluations

    async def run(
        self,
        row: WatcherRow,
        seen: Mapping[str, Seen],
        *,
        occasion: str,
        first: int | None,
        is_over: Callable[[], bool],
        is_current: Callable[[], bool],
    ) -> DecisionRow:
        """Do the steps up to the next one that waits.

        What is done, and when the next step is due, is in the database before it is done: each step is done
        at most once, and one that waits comes also where the hub is stopped meanwhile.

        Args:
            first: Index of the step that was due; None to begin.
            is_over: Whether the predicate is false again.
            is_current: Whether the watcher is still as it was; one that was paused, changed or removed does
                nothing more.
        """
        steps = steps_of(row)
        batch, following = _batch(steps, first)
        if following is not None and steps[following][0].if_still and is_over():
            following = None
        values = {name: _shown(each.value) for name, each in seen.items()}
        texts = [Phrase("Told: {text}", text=step.text(values)) for step, call in batch if call is None]
        entry = DecisionRow(
            watcher=row.name,
            at=now(),
            state="acting" if batch else "done",
            decision=_kind(batch).name,
            reason=Phrase.joined(". ", [Phrase(occasion).unstopped(), *texts]),
            seen={name: each.value for name, each in seen.items()},
            actions=[self._action(row, call) for _, call in batch if call is not None],
            dry_run=row.dry_run,
        )
        due = None if following is None else now() + timedelta(seconds=steps[following][0].after_s)
        fires, evaluations = first is None and counts(row), self.evaluations
        await evaluations.record(row, entry, fires=fires, done=["then"], step=following, step_at=due)
        announcer = evaluations.announcer
        if batch:
            did = [(call, call.arguments) if call else step.text(values) for step, call in batch]
            await evaluations.act(row, entry, did, is_current)
            failed = [each for each in entry.actions if "error" in each and each["outcome"] != "skipped"]
            if failed:
                # A valve that does not close is worth a word; a lamp that goes on is not.
                said = [announcer.action_text(row, each) for each in failed]
                await announcer.notify(row, Phrase.joined("\n", said))
            with suppress(StorageError):
                await evaluations.store.finish(entry)
        await announcer.decision(row, entry, tells=row.dry_run)
        await announcer.state(row, entry)
        return entry

    def would_do(self, row: WatcherRow, seen: Mapping[str, Seen]) -> WouldDecide:
        """Return what all steps would do on values of the past."""
        steps, values = steps_of(row), {name: _shown(each.value) for name, each in seen.items()}
        texts = [Phrase("Told: {text}", text=step.text(values)) for step, call in steps if call is None]
        actions = [Allowed(path=call.path, arguments=call.arguments) for _, call in steps if call]
        return WouldDecide(
            decision=_kind(steps).name, reason=Phrase.joined(". ", texts), actions=actions or None
        )

    def _action(self, row: WatcherRow, call: ApprovedCall) -> dict[str, Json]:
        action = {"path": call.path, "arguments": call.arguments}
        if row.dry_run:
            return {**action, "outcome": "dry_run"}
        if self.evaluations.limits.actions(row).take():
            return {**action, "outcome": "unknown"}
        problem = Phrase("the limit of actions per hour is used up")
        return {**action, "outcome": "limited", **with_phrases({"error": problem})}


def steps_of(row: WatcherRow) -> list[Bound]:
    """Return the steps of a watcher, each call bound to the device that it was approved for.

    Raises:
        ValueError: If the row was altered.
    """
    steps = [CheckedStep.model_validate(each) for each in row.then]
    if not steps:
        return []
    calls = iter(calls_of(row))
    bound = [(step, next(calls, None) if step.call else None) for step in steps]
    if any(step.call and (call is None or call.path != step.call) for step, call in bound) or (
        row.step is not None and not 0 <= row.step < len(steps)
    ):
        raise ValueError(f"the steps of {row.name} are not those that were approved")
    return bound


def _batch(steps: list[Bound], first: int | None) -> tuple[list[Bound], int | None]:
    """Return the steps that are done now, and the index of the next one, which waits."""
    begin = first or 0
    if first is None and steps[0][0].after:
        return [], 0
    waiting = (number for number in range(begin + 1, len(steps)) if steps[number][0].after)
    following = next(waiting, None)
    return steps[begin:following], following


def _kind(steps: list[Bound]) -> Kind:
    if not steps:
        return WAIT
    return ACT if any(call is not None for _, call in steps) else NOTIFY


def _shown(value: Json) -> str:
    """Return a value as it stands in a text."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return shortened(value, limits.MOST_TEXT_VALUE)
    return "?" if value is None else shortened(json.dumps(value, ensure_ascii=False), limits.MOST_TEXT_VALUE)
