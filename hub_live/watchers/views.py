"""Watchers as people and programs read them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter

from agent_core.provenance import Prompt
from agent_core.tools.skill_calls import shown_arguments
from contracts import topics
from contracts.answers.watchers import (
    Allowed,
    DecisionEntry,
    DecisionSummary,
    MadeCall,
    TraceEntry,
    TracePart,
    WatchedTopic,
    WatcherSummary,
    WatcherWithHistory,
)
from contracts.errors import InvalidMessage, NotFound
from contracts.phrases import Phrase
from contracts.validation import did_you_mean
from contracts.wire import Json, shown_digest
from hub_agent.prompt import Asked, PromptPart, list_part
from hub_live import limits
from hub_live.watchers.decisions.announcer import state_of
from hub_live.watchers.decisions.evaluation import calls_of
from hub_live.watchers.decisions.model import Seen
from hub_live.watchers.decisions.steps import steps_of
from hub_live.watchers.decisions.trace import HELD_UP, RAN_OFTEN
from hub_live.watchers.definition import Edit, sources_of, watcher_id
from hub_live.watchers.engine import Engine
from hub_live.watchers.phases import Phase, is_watching
from hub_live.watchers.tables import DecisionRow, WatcherRow
from hub_live.watchers.values.watched import Watched
from hub_live.watchers.words.sentence import Naming, plain
from hub_registry.access.bearer import Bearer
from hub_registry.storage.tables import readable

_APPROVED: Final = {
    *("name", "owner", "created_at", "instruction", "topics", "every_s", "schedule", "missed"),
    *("predicate", "allow", "then", "dry_run", "actions_per_hour"),
}
_COPIED: Final = {
    *("name", "state", "owner", "instruction", "predicate", "every_s", "schedule", "next_at", "dry_run"),
    *("snoozed_until", "fired", "evaluations", "model_calls", "tokens"),
}
"""Fields of a row that a summary has as they are."""
_DONE: Final = TypeAdapter(list[str])


@dataclass(frozen=True)
class WatcherViews:
    """Shows watchers. A person sees their own, an admin all.

    Attributes:
        rows: By name; see `watchers.Watchers`, which changes them.
    """

    engine: Engine
    rows: Mapping[str, WatcherRow]

    def find(self, name: str, by: Bearer) -> WatcherRow:
        """Return the watcher of an id or a title.

        Raises:
            NotFound: If this person sees none, with the nearest name.
        """
        own = {each.name: each for each in self.rows.values() if _may_see(each, by)}
        titled = [each for each in own.values() if each.title.casefold() == name.casefold()]
        titled.sort(key=lambda each: each.owner != by.user.id)
        row = own.get(name) or next(iter(titled), None) or own.get(watcher_id(name.strip() or "-"))
        if row is None:
            names = [text for each in own.values() for text in (each.name, each.display_name)]
            raise NotFound(
                "there is no watcher {name!r}{nearest}",
                name=name,
                nearest=did_you_mean(name, names),
                hint="'strawberry watchers list' shows them.",
            )
        return row

    def all(self, by: Bearer) -> list[WatcherSummary]:
        """Return the watchers that a person sees, the oldest first."""
        naming = self.naming(by.user.id)
        return [self.summary(row, naming) for row in self.rows.values() if _may_see(row, by)]

    async def to_confirm(self, name: str, by: Bearer) -> dict[str, Json]:
        """Return what a person must see of a draft before saying yes: most important first."""
        row = self.find(name, by)
        seen = await self.engine.history.fetch(row)
        return {
            "does": plain(self.sentence(row, self.naming(row.owner, with_values=True))),
            "predicate": row.predicate or row.note,
            "actions": row.then or calls_json(row) or "none, it only notifies",
            "topics": {name: each.topic for name, each in sources_of(row).items()},
            "latest": values_json(seen),
        }

    async def show(self, name: str, by: Bearer) -> WatcherWithHistory:
        """Return a watcher with its history, newest first."""
        row = self.find(name, by)
        naming = self.naming(row.owner)
        stored = await self.engine.evaluations.store.history(row.name, limit=limits.HISTORY_SHOWN)
        history = readable(stored, lambda entry: self.entry(entry, naming))
        return WatcherWithHistory(**dict(self.summary(row, naming)), history=history)

    def entry(self, row: DecisionRow, naming: Naming) -> DecisionEntry:
        """Return an entry of the history, with its calls in words."""
        entry = DecisionEntry.model_validate(row)
        return entry.model_copy(update={"actions": _in_words(entry.actions, naming)})

    def trace(self, name: str, by: Bearer) -> list[TraceEntry]:
        """Return the last looks at a watcher, newest first."""
        row = self.find(name, by)
        naming = self.naming(row.owner)
        held = replace(naming, held={})
        said = held.parts(row.predicate, sources_of(row)) if row.predicate else {}
        entries: list[TraceEntry] = []
        for look in reversed(self.engine.traces.looks.get(row.name, ())):
            parts = [TracePart(text=said.get(text, text), truth=truth) for text, truth in look.truths.items()]
            actions = _in_words(map(MadeCall.model_validate, look.actions), naming)
            entries.append(TraceEntry.model_validate({**vars(look), "parts": parts, "actions": actions}))
        return entries

    def summary(self, row: WatcherRow, naming: Naming | None = None) -> WatcherSummary:
        """Return a watcher as it is now."""
        watched, last = self.engine.get(row.name), self.engine.evaluations.store.last.get(row.name)
        sentence = self.sentence(row, naming or self.naming(row.owner))
        return summary_of(row, watched, last, problem=self._problem(row), sentence=sentence)

    def sentence(self, row: WatcherRow, naming: Naming) -> str:
        """Return what a watcher does, as a sentence."""
        try:
            return naming.sentence(Edit().applied_to(row, calls_json(row)))
        except InvalidMessage:  # made by an earlier version, or altered: it is shown all the same
            return row.instruction

    def naming(self, user: str, *, with_values: bool = False) -> Naming:
        return replace(self.engine.naming(user), with_values=with_values)

    def without_values(self) -> Iterator[tuple[str, str, str]]:
        """Iterate over those that see no values of a topic: owner, name, and why."""
        for row in filter(is_watching, self.rows.values()):
            if problem := self._problem(row):
                yield row.owner, row.display_name, problem

    async def prompt_part(self, asked: Asked) -> PromptPart | None:
        """Return what the prompt says of a person's watchers."""
        own = [row for row in self.rows.values() if row.owner == asked.user.id]
        return list_part(
            "Watchers", [Prompt(f"{row.display_name} ({row.state}, fired {row.fired} times)") for row in own]
        )

    def _problem(self, row: WatcherRow) -> str:
        refused = (self.engine.feed.refusal(each.topic, each.link) for each in sources_of(row).values())
        return next(filter(None, refused), "")


def checked_row(row: WatcherRow) -> WatcherRow:
    """Return a row of which can be read what it sees, may do, has done and shows.

    Raises:
        ValueError: If it was altered; likewise an AttributeError, TypeError or InvalidTopic.
    """
    topics.WATCHER.build(user=row.owner, watcher=row.name)
    _DONE.validate_python(row.done), state_of(row, None), summary_of(row, None, None)
    return row


def checked_decision(row: DecisionRow) -> DecisionRow:
    """Return a decision that can be shown.

    Raises:
        ValueError: If it was altered.
    """
    DecisionEntry.model_validate(row)
    return row


def summary_of(
    row: WatcherRow,
    watched: Watched | None,
    last: DecisionRow | None,
    *,
    problem: str = "",
    sentence: str = "",
) -> WatcherSummary:
    """Return a watcher as people and programs read it.

    Args:
        watched: What the engine has of it, while it is active.
        last: Its last decision.
        problem: Why it sees no values.
        sentence: What it does, in words.
    """
    verdict, reason = None, ""
    if watched is not None:
        verdict = watched.verdict
        silent = ", ".join(name for name in watched.sources if name not in watched.heard)
        if verdict is not None:
            reason = verdict.reason
        elif silent:
            reason = Phrase("there is no value of {name} yet", name=silent)
        if watched.phase is Phase.HELD_UP:
            reason = RAN_OFTEN if row.then else HELD_UP
    return WatcherSummary(
        **row.model_dump(include=_COPIED, warnings=False),
        title=row.display_name,
        digest=digest_of(row),
        sentence=sentence,
        note=row.note or problem,
        truth=verdict.truth if verdict is not None else None,
        reason=reason,
        topics={
            name: WatchedTopic.model_validate(each, from_attributes=True)
            for name, each in sources_of(row).items()
        },
        on_change=row.every_s is None and row.schedule is None,
        allow=list(calls_of(row)),
        then=[step for step, _ in steps_of(row)],
        next_step_at=row.step_at,
        last=None if last is None else DecisionSummary.model_validate(last),
    )


def digest_of(row: WatcherRow) -> str:
    return shown_digest(row.model_dump(mode="json", include=_APPROVED, warnings=False))


def calls_json(row: WatcherRow) -> list[Json]:
    return [call.model_dump(exclude={"device"}) for call in calls_of(row)]


def values_json(seen: Mapping[str, Seen]) -> dict[str, Json]:
    return shown_arguments({name: each.value for name, each in seen.items() if each.age_s is not None})


def _in_words(calls: Iterable[MadeCall], naming: Naming) -> list[MadeCall]:
    """Return calls with what they do in words."""
    return [
        MadeCall.model_validate(
            dict(each) | {"said": naming.call(Allowed(path=each.path, arguments=each.arguments))}
        )
        for each in calls
    ]


def _may_see(row: WatcherRow, by: Bearer) -> bool:
    return by.is_admin or row.owner == by.user.id
