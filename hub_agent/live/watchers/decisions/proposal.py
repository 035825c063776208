"""A predicate for a new watcher: one that a model proposes, and whether it works with the present values."""

from collections.abc import Mapping

from contracts.errors import GatewayError, PredicateError
from hub_agent.live.watchers.decisions.evaluation import Evaluations
from hub_agent.live.watchers.decisions.model import Seen
from hub_agent.live.watchers.predicates import Evaluator, parse
from hub_agent.live.watchers.tables import WatcherRow
from hub_registry.storage.tables import now


async def propose(row: WatcherRow, seen: Mapping[str, Seen], *, evaluations: Evaluations) -> None:
    """Ask a model once for a predicate; without a good one, it evaluates at its interval itself."""
    try:
        evaluations.limits.check_tokens()
        predicate, reason, row.tokens = await evaluations.model.propose(row.instruction, seen)
        evaluations.limits.tokens.charge(row.tokens)
        row.model_calls = 1
        problem = objection(predicate, seen) if predicate else reason
        if problem is None:
            row.predicate = predicate
            return
    except (GatewayError, PredicateError) as error:
        problem = error.message
    if row.every_s is not None:
        row.note = f"no predicate ({problem}): the model evaluates it every {row.every_s:g} s"
    elif row.schedule is None:
        row.note = f"no predicate ({problem}): the model evaluates each new value"
    else:
        row.note = f"no predicate ({problem}): the model evaluates it each time"


def objection(predicate: str, seen: Mapping[str, Seen]) -> str | None:
    """Return why a predicate cannot work with the values that there are; None if it can."""
    parsed = parse(predicate, seen)
    if any(seen[name].age_s is None for name in parsed.names) or any(parsed.keep_s.values()):
        return None
    evaluator, at = Evaluator(parsed), now().timestamp()
    for name in parsed.names:
        evaluator.put(name, at - (seen[name].age_s or 0.0), seen[name].value)
    verdict = evaluator.verdict(at)
    return verdict.reason if verdict.truth is None else None
