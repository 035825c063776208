"""The watchers of a home: made, approved and changed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain, count
from typing import Any

from agent_core.sentences.index import SentenceCall
from contracts.answers.watchers import (
    CheckedPredicate,
    DecisionEntry,
    ProposedWatcher,
    Report,
    WatcherSummary,
)
from contracts.errors import Conflict, InvalidMessage, StrawberryError
from contracts.phrases import Phrase
from contracts.wire import Json, check_shown
from hub_agent.settings import HubSettings
from hub_live import limits
from hub_live.topics.values import check_visible, visible_to
from hub_live.watchers.backtest import Recordings, backtest, decide
from hub_live.watchers.decisions.approved import approve, is_range
from hub_live.watchers.decisions.evaluation import Evaluations
from hub_live.watchers.decisions.kinds import kind_of
from hub_live.watchers.decisions.model import problem_of
from hub_live.watchers.decisions.store import check_room
from hub_live.watchers.definition import (
    Edit,
    WatcherRequest,
    sources_of,
)
from hub_live.watchers.engine import Engine
from hub_live.watchers.phases import TRANSITIONS, Phase, Trigger, phase_of, requested
from hub_live.watchers.predicates import parse
from hub_live.watchers.schedule import Schedule
from hub_live.watchers.tables import DecisionRow, WatcherRow
from hub_live.watchers.values.asks import asked_call, check_single
from hub_live.watchers.views import (
    WatcherViews,
    calls_json,
    checked_decision,
    checked_row,
    digest_of,
    values_json,
)
from hub_live.watchers.words.naming import check_published, mistaken, resolved
from hub_live.watchers.words.proposals import Proposals
from hub_live.world import World
from hub_registry.access.bearer import Bearer, cannot_confirm
from hub_registry.storage.tables import now, readable

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Watchers:
    """Makes, approves and changes watchers. A person has their own, an admin all."""

    engine: Engine
    evaluations: Evaluations
    recordings: Recordings
    world: World
    proposals: Proposals
    settings: HubSettings
    views: WatcherViews
    rows: dict[str, WatcherRow]

    def __post_init__(self) -> None:
        self.store, self.registry = self.evaluations.store, self.evaluations.registry
        self._drafts: dict[str, tuple[WatcherRequest, str]] = {}
        self._one = asyncio.Lock()

    async def propose(
        self, asked: str | WatcherRequest, by: Bearer, language: str | None = None
    ) -> ProposedWatcher:
        """Return the watcher that a sentence or a request asks for, in words; nothing is made yet.

        Args:
            language: Of the sentence, where it is not the person's.

        Raises:
            InvalidMessage: If none can be made of it; with the nearest sentences that can.
        """
        by.user.require_writer()
        naming = self.views.naming(by.user.id, with_values=True)

        def check(request: WatcherRequest) -> WatcherRequest:
            request = resolved(request, naming.devices, by.user.id, self.world)
            self._checked(request, by)
            return request

        if isinstance(asked, WatcherRequest):
            made = check(asked)
        else:
            spoken = language or by.user.language or self.settings.household.language
            made = await self.proposals.propose(asked, naming, user=by.user.id, language=spoken, check=check)
        watcher = made.model_dump(mode="json", exclude_defaults=True)
        return ProposedWatcher(sentence=naming.sentence(made), watcher=watcher)

    async def meant(self, sentence: str, language: str, user: str | None) -> SentenceCall | None:
        """Return the call that makes the watcher of a sentence; None where it has no known shape."""
        if user is None:
            return None
        return await self.proposals.meant(sentence, self.views.naming(user), user=user, language=language)

    async def create(self, request: WatcherRequest, by: Bearer, *, as_draft: bool = False) -> WatcherSummary:
        """Make a watcher. With a predicate it is active at once, if its maker may approve its calls.

        Without one, a model is asked to propose it, and the watcher is a draft until it is approved.

        Args:
            as_draft: Make a draft in any case, in place of an earlier draft of this name and person.

        Raises:
            Conflict: If there is one of this name, or there are too many.
            PredicateError: If the predicate cannot be used.
            InvalidMessage: If the schedule or an argument cannot.
            CallError: If a path means nothing.
            NotFound: If a device does not publish such a value.
            Forbidden: If the person has read-only access, or may not see a topic.
        """
        by.user.require_writer()
        asked, request = request, request.model_copy(update={"name": self.free_id(request.name, by)})
        check_room(self.rows, request.name, by.user, as_draft=as_draft)
        devices = self.registry.directory.seen_by(by.user.id)
        request = resolved(request, devices, by.user.id, self.world)
        allow = self._checked(request, by)
        row = WatcherRow(
            name=request.name,
            instance=self.store.instance,
            owner=by.user.id,
            created_at=now(),
            actions_per_hour=request.actions_per_hour,
            allow=allow,
            **request.stored(),
        )
        seen = await self.engine.history.fetch(row)
        if row.predicate is None and row.topics and not row.then:
            await self.evaluations.propose(row, seen)
        elif row.predicate is not None:
            row.note = problem_of(row.predicate, seen, self.evaluations.clock) or ""
        mistake = await mistaken(row, seen, self.engine.feed, self.registry.directory, self.world)
        row.note = mistake or row.note
        needs_look = request.predicate is None and not request.then
        is_active = not as_draft and not needs_look and (by.may_confirm or not allow)
        if is_active:
            row.sqlmodel_update({**Phase.QUIET.stored(), **await self._approval(by)})
        async with self._one:
            check_room(self.rows, request.name, by.user, as_draft=as_draft)
            # Stored first: what was reported as failed must not run.
            await self.store.add(row, replace=row.name in self.rows)
            self.rows[row.name], self._drafts[row.name] = row, (asked, digest_of(row))
            self.evaluations.limits.forget(row.name)
            await self._try_follow(row)
            if is_active:
                await self.recordings.keep(self.rows.values())
        await self.evaluations.announcer.state(row)
        return self.views.summary(row)

    def free_id(self, name: str, by: Bearer) -> str:
        """Return an id for a person's watcher, with a number if another person's has that one."""
        numbered = (f"{name[:60]}-{number}" for number in count(2))
        ids = chain([name], numbered)
        return next(each for each in ids if each not in self.rows or self.rows[each].owner == by.user.id)

    def digest_shown(self, request: WatcherRequest, by: Bearer) -> str:
        """Return the digest of the draft that was made of a request; empty where it is another by now."""
        name = self.free_id(request.name, by)
        row, (made, digest) = self.rows.get(name), self._drafts.get(name, (None, ""))
        is_same = row is not None and row.state == "draft" and (made, digest) == (request, digest_of(row))
        return digest if is_same else ""

    async def approve(self, name: str, by: Bearer, digest: str, edit: Edit | None = None) -> WatcherSummary:
        """Approve a watcher, with changes, and let it begin.

        Its calls then count as confirmed, so this is only for people who may confirm calls.

        Args:
            digest: Of what the person saw; see `views.digest_of`.

        Raises:
            Conflict: If it was changed meanwhile.
            Forbidden: If it makes calls and the person may not confirm calls here.
            StrawberryError: As by `change`.
        """
        async with self._changing(name, by, "approved", is_new=True) as (row, assign):
            hint = Phrase("Look at it again. 'strawberry watchers show {name}' shows it.", name=name)
            check_shown(digest, digest_of(row), name=name, hint=hint)
            edited = await self._edited(row, edit or Edit(), by)
            if edited["allow"] and not by.may_confirm:
                raise cannot_confirm()
            approval = await self._approval(by)
            # It begins as a new one: what it did as it was before does not count.
            begun = {
                "done": [],
                "armed": True,
                "step": None,
                "step_at": None,
                **self._after(row, "approve").stored(),
            }
            assign({**edited, **approval, **begun})
        return self.views.summary(row)

    async def change(self, name: str, by: Bearer, edit: Edit) -> WatcherSummary:
        """Change the topics, instruction and calls of a watcher, and when it is evaluated.

        One that makes calls is a draft after any change: what was approved is another watcher.

        Raises:
            InvalidMessage: If an argument or the schedule cannot be used, or it would have no topic to see.
            PredicateError: If its predicate cannot be read with these topics.
            CallError: If a path means nothing.
            Forbidden: If the person has read-only access, or may not see a topic.
        """
        async with self._changing(name, by, "changed") as (row, assign):
            edited = await self._edited(row, edit, by)
            changed = {field for field, value in edited.items() if value != getattr(row, field)} - {"note"}
            if not changed:
                return self.views.summary(row)
            needs_approval = edited["allow"] and changed != {"title"}
            assign({**edited, **self._after(row, "edit").stored()} if needs_approval else edited)
        return self.views.summary(row)

    async def _edited(self, row: WatcherRow, edit: Edit, by: Bearer) -> dict[str, Any]:
        """Return the fields of a watcher as they are with the changes.

        The row itself stays as it is: the engine reads and stores it while values are awaited.
        """
        request = edit.applied_to(row, calls_json(row))
        devices = self.registry.directory.seen_by(by.user.id)
        request = resolved(request, devices, row.owner, self.world)
        edited = {"allow": self._checked(request, by, row), **request.stored()}
        if request.schedule != row.schedule:
            edited["next_at"] = None
        if edited["then"] != row.then:
            edited |= {"step": None, "step_at": None}
        if request.predicate is not None and (edit.predicate, edit.topics) != (None, None):
            seen = await self.engine.history.fetch(WatcherRow(**{**row.model_dump(), **edited}))
            edited["note"] = problem_of(request.predicate, seen, self.evaluations.clock) or ""
        return edited

    async def check(self, name: str, by: Bearer, predicate: str | None) -> CheckedPredicate:
        """Return what another predicate would be worth now; nothing is changed.

        Args:
            predicate: None to have the model propose one.

        Raises:
            PredicateError: If it cannot be read.
        """
        row = self.views.find(name, by)
        by.user.require_writer()
        seen = await self.engine.history.fetch(row)
        problem = ""
        if predicate is None:
            tried = WatcherRow(**{**row.model_dump(), "predicate": None, "tokens": 0, "model_calls": 0})
            await self.evaluations.propose(tried, seen)
            row.tokens, row.model_calls = row.tokens + tried.tokens, row.model_calls + tried.model_calls
            await self.store.save(row)
            predicate, problem = tried.predicate, tried.note
        if predicate is not None:
            self.evaluations.clock.check(parse(predicate, row.topics).clock_names)
            problem = problem_of(predicate, seen, self.evaluations.clock) or ""
        return CheckedPredicate(predicate=predicate, note=problem, latest=values_json(seen))

    async def pause(self, name: str, by: Bearer) -> WatcherSummary:
        """Watch no more until it is resumed."""
        async with self._changing(name, by, "paused") as (row, assign):
            assign(self._after(row, "pause").stored())
        return self.views.summary(row)

    async def snooze(self, name: str, by: Bearer, *, seconds: float) -> WatcherSummary:
        """Suspend a watcher for some time; values are seen meanwhile."""
        async with self._changing(name, by, "snoozed", keeps=True) as (row, assign):
            until = now() + timedelta(seconds=seconds)
            assign(self._after(row, "snooze").stored(until))
        return self.views.summary(row)

    async def resume(self, name: str, by: Bearer) -> WatcherSummary:
        """Go on with a watcher that was paused, snoozed or has failed."""
        async with self._changing(name, by, "resumed") as (row, assign):
            assign({**self._after(row, "resume").stored(), "note": ""})
        return self.views.summary(row)

    async def remove(self, name: str, by: Bearer) -> None:
        """Delete a watcher and its history."""
        row = self.views.find(name, by)
        by.user.require_writer()
        await self._remove(row)
        await self.evaluations.announcer.change(row, "removed", by=by.user.id)

    async def forget_person(self, user: str) -> None:
        for row in [row for row in self.rows.values() if row.owner == user]:
            await self._remove(row)

    async def _approval(self, by: Bearer) -> dict[str, str | None]:
        token = await self.registry.authority.get(by.claims.jti)
        through = token.subject if token.kind == "device" else None
        return {"approved_by": by.claims.jti, "approver": by.user.id, "approved_through": through}

    async def _remove(self, row: WatcherRow) -> None:
        async with self._one:
            await self.store.remove(row.name)
            self.engine.forget(row.name)
            for kept in (self.rows, self._drafts):
                kept.pop(row.name, None)
            self.evaluations.limits.forget(row.name)
            await self.recordings.keep(self.rows.values())
        await self.evaluations.announcer.gone(row)

    async def run(self, name: str, by: Bearer) -> DecisionEntry:
        """Evaluate a watcher now, and return the decision and the actions.

        Raises:
            Conflict: If it is not active, or is evaluated already.
            TooManyRequests: If it did its steps too often in a short time.
        """
        row = self.views.find(name, by)
        by.user.require_writer()
        self._after(row, "ask")
        self.evaluations.limits.charge_run(row)
        row.done = []
        entry = await self.engine.evaluate_now(row.name, occasion="The owner asks for an evaluation now.")
        return self.views.entry(entry, self.views.naming(row.owner))

    async def test(
        self,
        name: str,
        by: Bearer,
        *,
        since: float | None = None,
        capture: str = "",
        with_model: bool = False,
        predicate: str | None = None,
    ) -> Report:
        """Return when a watcher would have fired on recorded values; nothing is called or notified.

        Args:
            predicate: Another one than its own, to try it.
            since: Unix seconds; the recordings of all captures and of the watchers since then.
            capture: Id of the one capture to read instead.
            with_model: Whether the model decides the first times.

        Raises:
            Conflict: If it has no predicate.
            NotFound: If there is no such capture.
            Forbidden: If a model is to decide and the person has read-only access: that costs tokens.
        """
        row = self.views.find(name, by)
        if with_model:
            by.user.require_writer()
        tried = predicate or row.predicate
        if tried is None:
            raise Conflict(
                "{name} has no predicate to test", name=row.display_name, hint="Approve it with one."
            )
        sources = sources_of(row)
        sees = partial(visible_to, self.registry.directory, row.owner)
        seen = [source for source in sources.values() if sees(source.link)(source.topic)]
        recorded = self.recordings.read(by, seen, since=since or 0.0, capture=capture)
        until = None if capture else now().timestamp()
        report = await backtest(
            parse(tried, sources), sources, recorded, self.evaluations.clock, since=since or 0.0, until=until
        )
        if with_model:
            report = await decide(report, row, sources, self.evaluations)
        return report

    async def load(self) -> None:
        """Go on with the watchers of the database; tell of what a stop of the hub interrupted."""
        tokens, acted = await self.store.used()
        self.evaluations.model.tokens.charge(tokens)
        for row in readable(await self.store.watchers(), checked_row):
            self.rows[row.name] = row
            self.evaluations.limits.actions(row).charge(acted.get(row.name, 0))
        for entry in await self.store.interrupt():
            if (interrupted := self.rows.get(entry.watcher)) is not None:
                await self.evaluations.announcer.notify(
                    interrupted,
                    Phrase(
                        "The hub was stopped while this was done; it may be done or not, and is not "
                        "repeated: {decision}, {reason}",
                        decision=Phrase(kind_of(entry.decision).label),
                        reason=self.evaluations.announcer.sentence(interrupted, entry),
                    ),
                )
        sources = [each for row in self.rows.values() for each in sources_of(row).values()]
        await self.recordings.keep(self.rows.values())
        gaps = [gap for link in {each.link for each in sources} for gap in self.engine.feed.gaps(link)]
        await self.recordings.recall(self.rows.values())
        for row in self.rows.values():
            stored = await self.store.history(row.name, limit=limits.FAILURES_LOOKED_AT, gaps=False)
            if earlier := readable(stored, checked_decision):
                self.store.last[row.name] = earlier[0]
            await self._try_follow(row, earlier)
        for gap in gaps:
            self.engine.gap(gap)
        await self.recordings.keep(self.rows.values())

    async def announce(self) -> None:
        for row in list(self.rows.values()):
            await self.evaluations.announcer.state(row, self.store.last.get(row.name))

    async def _try_follow(self, row: WatcherRow, earlier: Sequence[DecisionRow] = ()) -> None:
        try:
            await self.engine.follow(row, earlier=earlier)
        except StrawberryError as error:
            failed = TRANSITIONS["fail"][phase_of(row)]
            row.sqlmodel_update({**failed.stored(), "note": error.message})
            await self.store.save(row)
            await self.evaluations.announcer.notify(
                row, Phrase("It cannot watch: {reason}", reason=error.message)
            )

    @asynccontextmanager
    async def _changing(
        self, name: str, by: Bearer, change: str, *, is_new: bool = False, keeps: bool = False
    ) -> AsyncIterator[tuple[WatcherRow, Callable[[Mapping[str, Any]], None]]]:
        """Change a watcher, have the engine follow it as it then is, and publish what was done.

        Args:
            is_new: Whether it begins as a new one.
            keeps: Whether one that the engine follows goes on with what it knows.

        Yields:
            The row, and how its fields are assigned: those have their values of before again if an error
            comes, and the engine goes on as before; what it counts meanwhile stays.
        """
        self.views.find(name, by)
        by.user.require_writer()
        before: dict[str, Any] = {}

        def assign(fields: Mapping[str, Any]) -> None:
            before.update({field: getattr(row, field) for field in fields.keys() - before.keys()})
            row.sqlmodel_update(dict(fields))

        async with self._one:
            # Not before: it can have been removed, or made again, meanwhile.
            row = self.views.find(name, by)
            watched = self.engine.get(row.name)
            try:
                yield row, assign
                if not before:
                    return
                if not keeps or watched is None:
                    await self.engine.follow(row, is_new=is_new)
                await self.store.save(row)
                await self.recordings.keep(self.rows.values())
            except BaseException:
                row.sqlmodel_update(before)
                if self.engine.get(row.name) is not watched:
                    await self.engine.follow(row)
                raise
        await self.evaluations.announcer.state(row, self.store.last.get(row.name))
        await self.evaluations.announcer.change(row, change, by=by.user.id)

    def _after(self, row: WatcherRow, trigger: Trigger) -> Phase:
        watched = self.engine.get(row.name)
        phase = phase_of(row, watched.phase if watched is not None else Phase.PAUSED)
        return requested(row, phase, trigger)

    def _checked(self, request: WatcherRequest, by: Bearer, row: WatcherRow | None = None) -> list[Json]:
        """Check what is asked for, of a watcher that there is; return the calls as they are stored."""
        known = () if row is None else sources_of(row).values()
        owner = by.user.id if row is None else row.owner
        directory = self.registry.directory.seen_by(owner)
        for source in request.topics.values():
            if source not in known and source.ask is None:
                check_visible(by.user, source.topic, source.link)
                check_published(source, directory, owner, self.world)
        for source in request.topics.values():
            if source.ask is not None:
                call = asked_call(source, directory)
                if request.predicate is not None:
                    check_single(source, call)
        if request.schedule is not None:
            Schedule.parse(request.schedule).next(now(), self.settings.household)
        if request.predicate is not None:
            self.evaluations.clock.check(parse(request.predicate, request.topics).clock_names)
        if request.then and any(is_range(each) for call in request.calls for each in call.arguments.values()):
            raise InvalidMessage("a step has one value for each argument: only a model chooses from a range")
        return [call.model_dump() for call in approve(directory, request.calls)]
