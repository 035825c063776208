"""Watchers and timers: ``/api/watchers``, ``/api/timers``, ``strawberry watchers`` and their pages."""

from typing import Annotated

from pydantic import Field

from agent_core.skills.skill import skill_method
from agent_core.times import parse_since
from chat.operations import CALL, CHANGE, LOOK, Command, Resource
from contracts.answers.watchers import (
    CheckedPredicate,
    DecisionEntry,
    ProposedWatcher,
    Report,
    TraceEntry,
    WatcherSummary,
    WatcherWithHistory,
)
from contracts.errors import InvalidMessage
from contracts.validation import Language
from contracts.wire import Part
from hub_live.watchers.definition import Approval, Edit, WatcherRequest
from hub_live.watchers.timers import Timers, TimerSummary
from hub_live.watchers.watchers import Watchers
from hub_registry.access.bearer import Bearer

Predicate = Annotated[str | None, Field(min_length=1, max_length=2_000)]


class RemovedWatcher(Part):
    """The name of a watcher that is gone."""

    removed: str


watchers: Resource[Watchers, Bearer] = Resource("watchers", "/api/watchers")
timers: Resource[Timers, Bearer] = Resource("timers", "/api/timers")


@watchers.get(LOOK, skill="list")
@skill_method(read_only=True, untrusted_output=True)
async def list_watchers(watchers: Watchers, asking: Bearer) -> list[WatcherSummary]:
    """List the watchers: state, predicate, how often they fired, and their last decision.

    `state` is `draft`, `active`, `paused` or `failed`; `fired` counts how often the predicate became true,
    `digest` is of all that an approval is for.
    """
    return watchers.views.all(asking)


@watchers.post(CALL, status=201)
async def create(watchers: Watchers, asking: Bearer, wanted: WatcherRequest) -> WatcherSummary:
    """Make a watcher.

    `topics` may be a list; they are then named by their last level. Without `predicate` one is proposed and
    it is a `draft`.
    """
    return await watchers.create(wanted, asking)


@watchers.post(CALL, "/from-words")
async def propose(
    watchers: Watchers,
    asking: Bearer,
    sentence: Annotated[str, Field(max_length=2_000)] = "",
    language: Language | None = None,
    watcher: WatcherRequest | None = None,
) -> ProposedWatcher:
    """Return the watcher that a sentence asks for; `watcher` is the request that makes it.

    The commonest shapes need no model, others ask one. 422 names sentences that are understood. `language`:
    That of the sentence, where it is not yours; `watcher`: A request that is told as a sentence instead.
    """
    return await watchers.propose(watcher or sentence, asking, language)


@watchers.get(LOOK, "/{name}", skill="show")
@skill_method(read_only=True, untrusted_output=True)
async def show(watchers: Watchers, asking: Bearer, name: str) -> WatcherWithHistory:
    """Show a watcher and its `history`, newest first: what it saw, decided, did, and what that cost."""
    return await watchers.views.show(name, asking)


@watchers.patch(CALL, "/{name}")
async def edit(watchers: Watchers, asking: Bearer, name: str, changes: Edit) -> WatcherSummary:
    """Change what is given of a watcher; an empty `predicate` removes it.

    One that makes calls is a `draft` then, until it is approved again; one that only notifies goes on.
    """
    return await watchers.change(name, asking, changes)


@watchers.delete(
    CALL,
    "/{name}",
    command=Command("remove NAME", asks="Delete {name} with its history?", says="{name} is deleted."),
)
async def remove(watchers: Watchers, asking: Bearer, name: str) -> RemovedWatcher:
    """Delete a watcher and its history."""
    await watchers.remove(name, asking)
    return RemovedWatcher(removed=name)


@watchers.post(CALL, "/{name}/approve")
async def approve(watchers: Watchers, asking: Bearer, name: str, approval: Approval) -> WatcherSummary:
    """Approve a watcher, with changes; of one with calls, by a token with `confirm`.

    `digest` is that of the watcher as it was shown; 409 where it is another one by now.
    """
    return await watchers.approve(name, asking, approval.digest, approval)


@watchers.post(
    CALL, "/{name}/pause", command=Command("pause NAME", says="{title} is {state}."), skill="pause"
)
@skill_method(idempotent=True)
async def pause(watchers: Watchers, asking: Bearer, name: str) -> WatcherSummary:
    """Stop a watcher until it is resumed."""
    return await watchers.pause(name, asking)


@watchers.post(CALL, "/{name}/predicate")
async def check(
    watchers: Watchers, asking: Bearer, name: str, predicate: Predicate = None
) -> CheckedPredicate:
    """Check a predicate against the latest values, or have the model propose one; nothing is changed.

    422 names the column of a mistake.
    """
    return await watchers.check(name, asking, predicate)


@watchers.post(
    CALL, "/{name}/resume", command=Command("resume NAME", says="{title} is {state}."), skill="resume"
)
@skill_method(idempotent=True)
async def resume(watchers: Watchers, asking: Bearer, name: str) -> WatcherSummary:
    """Resume a watcher that is paused, snoozed or has failed."""
    return await watchers.resume(name, asking)


@watchers.post(CALL, "/{name}/run", skill="run")
@skill_method(timeout_s=120, untrusted_output=True)
async def run(watchers: Watchers, asking: Bearer, name: str) -> DecisionEntry:
    """Evaluate a watcher now; it may notify and act."""
    return await watchers.run(name, asking)


@watchers.post(CALL, "/{name}/snooze")
async def snooze(
    watchers: Watchers,
    asking: Bearer,
    name: str,
    seconds: Annotated[float, Field(gt=0, le=366 * 86_400)],
) -> WatcherSummary:
    """Keep a watcher quiet for some time."""
    return await watchers.snooze(name, asking, seconds=seconds)


@watchers.get(LOOK, "/{name}/trace", skill="trace")
@skill_method(read_only=True, untrusted_output=True)
async def trace(watchers: Watchers, asking: Bearer, name: str) -> list[TraceEntry]:
    """Show why a watcher did something or nothing: its last looks at its values, newest first.

    Like ones in a row are one entry. They are remembered since the start of the hub.
    """
    return watchers.views.trace(name, asking)


@watchers.post(CALL, "/{name}/test")
async def backtest(
    watchers: Watchers,
    asking: Bearer,
    name: str,
    since: Annotated[str | None, Field(max_length=32)] = None,
    capture: Annotated[str | None, Field(max_length=500)] = None,
    model: bool = False,
    lines: bool = False,
    predicate: Predicate = None,
) -> Report:
    """Return when a watcher would have fired on recorded values.

    `since` is a duration (`7d`) or a time, `predicate` another one than its own. With `model`, only for
    people who may act, it decides each time; calls are not made. With `lines` its numbers are there for a
    plot, `{"disk": [[seconds, value]]}`. Give either `since` or the id of a `capture`.
    """
    if (since is None) == (capture is None):
        raise InvalidMessage("give either since or capture")
    report = await watchers.test(
        name,
        asking,
        since=parse_since(since) if since is not None else None,
        capture=capture or "",
        with_model=model,
        predicate=predicate,
    )
    return report if lines else report.model_copy(update={"lines": None})


@timers.get(LOOK, skill="timers")
@skill_method(read_only=True)
async def list_timers(timers: Timers, asking: Bearer) -> list[TimerSummary]:
    """List timers and reminders, the next one first.

    Your own ones; `WatcherSkill.set_timer` and `remind` set one.
    """
    return timers.of(asking.user)


@timers.post(CHANGE, "/{timer}/pause")
async def pause_timer(timers: Timers, asking: Bearer, timer: str) -> TimerSummary:
    """Pause a timer, by its id or its text."""
    return await timers.pause(asking.user, timer)


@timers.post(CHANGE, "/{timer}/resume")
async def resume_timer(timers: Timers, asking: Bearer, timer: str) -> TimerSummary:
    """Resume a paused timer, by its id or its text."""
    return await timers.resume(asking.user, timer)


@timers.delete(CHANGE, "/{timer}", skill="cancel_timer")
@skill_method(idempotent=True)
async def remove_timer(timers: Timers, asking: Bearer, timer: str) -> TimerSummary:
    """Cancel a timer or reminder, by its id or its text."""
    return await timers.remove(asking.user, timer)
