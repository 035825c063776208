"""A watcher as people and programs read it: what it is for, what it is doing, what it did last."""

from collections.abc import Mapping
from typing import Final

from agent_core.tools.skill_calls import shown_arguments
from contracts.wire import Json, rfc3339
from hub_agent.live.watchers.decisions.evaluation import calls_of, entry_json
from hub_agent.live.watchers.decisions.model import Seen
from hub_agent.live.watchers.engine import Watched
from hub_agent.live.watchers.tables import DecisionRow, WatcherRow

_LAST: Final = ("at", "decision", "reason", "actions")
"""What is shown of the last decision."""


def watcher_json(row: WatcherRow, watched: Watched | None, last: DecisionRow | None) -> dict[str, Json]:
    """Return a watcher as people and programs read it.

    Args:
        watched: What the engine has of it, while it is active.
        last: Its last decision.
    """
    verdict, reason = None, ""
    if watched is not None:
        verdict = watched.verdict
        silent = ", ".join(name for name in watched.sources if name not in watched.heard)
        reason = verdict.reason if verdict else f"there is no value of {silent} yet" if silent else ""
        if watched.is_held_up:
            reason = "it waits to be evaluated: the evaluations of a minute are used up"
        watched.count()
    return {
        "name": row.name,
        "state": row.state,
        "owner": row.owner,
        "instruction": row.instruction,
        "predicate": row.predicate,
        "note": row.note,
        "truth": verdict.truth if verdict is not None else None,
        "reason": reason,
        "topics": row.topics,
        "every_s": row.every_s,
        "on_change": row.every_s is None and row.schedule is None,
        "schedule": row.schedule,
        "next_at": rfc3339(row.next_at) if row.next_at else None,
        "allow": calls_json(row),
        "dry_run": row.dry_run,
        "snoozed_until": rfc3339(row.snoozed_until) if row.snoozed_until else None,
        "fired": row.fired,
        "evaluations": row.evaluations,
        "model_calls": row.model_calls,
        "tokens": row.tokens,
        "last": {key: value for key, value in entry_json(last).items() if key in _LAST} if last else None,
    }


def calls_json(row: WatcherRow) -> list[Json]:
    """Return the approved calls of a watcher without their devices."""
    return [call.model_dump(include={"path", "arguments"}) for call in calls_of(row)]


def values_json(seen: Mapping[str, Seen]) -> Json:
    """Return the latest values, cut to what a person reads."""
    return shown_arguments({name: each.value for name, each in seen.items() if each.age_s is not None})
