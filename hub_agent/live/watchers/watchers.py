"""The watchers of a home: made, approved, changed and shown."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from agent_core.gateway.protocol import Gateway
from agent_core.provenance import Prompt
from bus.link import Link
from chat.tasks import open_tasks
from contracts.errors import (
    Conflict,
    Forbidden,
    GatewayError,
    NotFound,
    PredicateError,
    StrawberryError,
)
from contracts.validation import did_you_mean
from contracts.wire import Json, rfc3339
from hub_agent.calls.confirmations import cannot_confirm
from hub_agent.calls.device_manager import DeviceManager
from hub_agent.live.captures.captures import Captures
from hub_agent.live.events import Events
from hub_agent.live.topics import Feed
from hub_agent.live.topics.values import check_visible
from hub_agent.live.watchers.approved import ApprovedCaller, approve
from hub_agent.live.watchers.backtest import Recordings, backtest, joined
from hub_agent.live.watchers.definition import DEFAULT_EVERY_S, Allowed, Change, WatcherRequest
from hub_agent.live.watchers.engine import Engine, Watched, sources_of
from hub_agent.live.watchers.evaluation import Announcer, Evaluations, Limits, calls_of, entry_json
from hub_agent.live.watchers.model import Seen, WatcherModel
from hub_agent.live.watchers.predicates import Evaluator, parse
from hub_agent.live.watchers.schedule import Schedule
from hub_agent.live.watchers.store import WatcherStore, name_taken
from hub_agent.live.watchers.tables import DecisionRow, WatcherRow
from hub_agent.prompt import Asked, PromptPart
from hub_agent.settings import HubSettings
from hub_registry.access.accounts import User
from hub_registry.registry import Registry
from hub_registry.storage.tables import now

_log = logging.getLogger(__name__)

_MOST: Final = 1_000
"""Watchers of a home."""
_MOST_OF_ONE: Final = 300
_HISTORY: Final = 50
_LISTED: Final = 10
"""Watchers that are in the prompt; WatcherSkill.list has them all."""
_LAST: Final = ("at", "decision", "reason", "actions")
"""What is shown of the last decision."""
_DECIDED: Final = 10
"""Times that a model decides in a back-test."""


@dataclass(frozen=True)
class By:
    """The person who makes or changes a watcher.

    Attributes:
        token: ``jti`` of the token that is used.
        may_confirm: Whether this person confirms calls here, so that approved calls count as confirmed.
    """

    user: User
    token: str = ""
    may_confirm: bool = False


class Watchers:
    """Makes, approves, changes and shows watchers. A person has their own; an admin has all."""

    def __init__(
        self,
        *,
        store: WatcherStore,
        engine: Engine,
        evaluations: Evaluations,
        feed: Feed,
        recordings: Recordings,
        registry: Registry,
        settings: HubSettings,
    ) -> None:
        self._store = store
        self._engine = engine
        self._evaluations = evaluations
        self._feed = feed
        self._recordings = recordings
        self._registry = registry
        self._settings = settings
        self._rows: dict[str, WatcherRow] = {}
        self._last: dict[str, DecisionRow] = {}
        self._one = asyncio.Lock()

    async def create(self, request: WatcherRequest, by: By) -> dict[str, Json]:
        """Make a watcher. With a predicate it is active at once, if whoever makes it may approve its calls.

        Without one, a model is asked to propose it, and the watcher is a draft until it is approved.

        Raises:
            Conflict: If there is one of this name, or there are too many.
            PredicateError: If the predicate cannot be used.
            InvalidMessage: If the schedule or an argument cannot.
            CallError: If a path means nothing.
            Forbidden: If the person has read-only access, or may not see a topic.
        """
        _require_writer(by.user)
        for source in request.topics.values():
            check_visible(by.user, source.topic, source.link)
        self._check_room(request.name, by.user)
        allow = [call.model_dump() for call in approve(self._registry.directory, request.allow)]
        if request.schedule is not None:
            Schedule.parse(request.schedule).next(now(), self._settings.household)
        if request.predicate is not None:
            parse(request.predicate, request.topics)
        row = WatcherRow(
            name=request.name,
            instance=self._store.instance,
            owner=by.user.id,
            created_at=now(),
            instruction=request.instruction,
            topics={name: source.model_dump(exclude_none=True) for name, source in request.topics.items()},
            every_s=request.interval_s,
            schedule=request.schedule,
            missed=request.missed,
            predicate=request.predicate,
            allow=allow,
            dry_run=request.dry_run,
            actions_per_hour=request.actions_per_hour,
        )
        seen = await self._values(row)
        if row.predicate is None and row.topics:
            await self._propose(row, seen)
        elif row.predicate is not None:
            row.note = _objection(row.predicate, seen) or ""
        async with self._one:
            self._check_room(request.name, by.user)
            await self._store.add(row)
            self._rows[row.name] = row
            if request.predicate is not None and (by.may_confirm or not allow):
                row.state, row.approved_by = "active", by.token
                await self._try_start(row)
                await self._store.save(row)
                await self._record()
        await self._evaluations.announcer.state(row)
        return self._shown(row)

    async def approve(self, name: str, by: By, change: Change | None = None) -> dict[str, Json]:
        """Approve a watcher, with changes, and let it begin.

        Its calls then count as confirmed, so this is only for people who may confirm calls.

        Raises:
            Forbidden: If it makes calls and the person may not confirm calls here.
        """
        change = change or Change()
        async with self._changing(name, by) as row:
            if change.allow is not None:
                row.allow = [each.model_dump() for each in approve(self._registry.directory, change.allow)]
            elif row.allow:
                again = [Allowed(path=call.path, arguments=call.arguments) for call in calls_of(row)]
                row.allow = [each.model_dump() for each in approve(self._registry.directory, again)]
            if row.allow and not by.may_confirm:
                raise cannot_confirm()
            if change.predicate is not None:
                if change.predicate:
                    parse(change.predicate, row.topics)
                    row.note = _objection(change.predicate, await self._values(row)) or ""
                row.predicate = change.predicate or None
                if row.predicate is None and row.schedule is None:
                    row.every_s = row.every_s or DEFAULT_EVERY_S
            if change.dry_run is not None:
                row.dry_run = change.dry_run
            # It begins as a new one: what it did as it was before does not count.
            row.done, row.state, row.approved_by = [], "active", by.token
            row.snoozed_until = None
            await self._start(row)
        return self._shown(row)

    async def pause(self, name: str, by: By) -> dict[str, Json]:
        """Watch no more until it is resumed."""
        async with self._changing(name, by) as row:
            _require_approved(row)
            self._engine.stop(name)
            row.state, row.snoozed_until = "paused", None
        return self._shown(row)

    async def snooze(self, name: str, by: By, *, seconds: float) -> dict[str, Json]:
        """Do nothing for some time; values are seen meanwhile."""
        async with self._changing(name, by) as row:
            _require_approved(row)
            row.state, row.snoozed_until = "paused", now() + timedelta(seconds=seconds)
            if self._engine.get(name) is None:
                await self._start(row)
            self._engine.wake()
        return self._shown(row)

    async def resume(self, name: str, by: By) -> dict[str, Json]:
        """Go on with a watcher that was paused, snoozed or has failed."""
        async with self._changing(name, by) as row:
            _require_approved(row)
            row.state, row.snoozed_until, row.note = "active", None, ""
            await self._start(row)
        return self._shown(row)

    async def remove(self, name: str, by: By) -> None:
        """Delete a watcher and its history."""
        row = self._get(name, by.user)
        _require_writer(by.user)
        async with self._one:
            self._engine.stop(name)
            await self._store.remove(row.name)
            self._rows.pop(row.name, None)
            self._last.pop(row.name, None)
            self._evaluations.limits.forget(row.name)
            await self._record()
        await self._evaluations.announcer.gone(row.name)

    async def run(self, name: str, by: By) -> dict[str, Json]:
        """Have the model evaluate a watcher now, and return what it decided and did.

        Raises:
            Conflict: If it is not active, or is evaluated already.
        """
        row = self._get(name, by.user)
        _require_writer(by.user)
        _require_approved(row)
        watched = self._engine.get(name)
        if watched is None or row.state != "active":
            raise Conflict(
                f"{name} is {row.state}", hint=f"'strawberry watchers resume {name}' lets it go on."
            )
        if watched.busy:
            raise Conflict(
                f"{name} is evaluated just now", hint=f"'strawberry watchers show {name}' shows it."
            )
        row.done = []
        entry = await self._engine.evaluate_now(watched, occasion="The owner asks for an evaluation now.")
        return entry_json(entry)

    async def test(
        self,
        name: str,
        user: User,
        *,
        since: float | None = None,
        capture: str = "",
        with_model: bool = False,
    ) -> dict[str, Json]:
        """Return when a watcher would have fired on recorded values; nothing is called or notified.

        Args:
            since: Unix seconds; the recordings of all captures and of the watchers since then.
            capture: Id of the one capture to read instead.
            with_model: Whether the model decides the first times.

        Raises:
            Conflict: If it has no predicate.
            NotFound: If there is no such capture.
        """
        row = self._get(name, user)
        if row.predicate is None:
            raise Conflict(f"{name} has no predicate to test", hint="Approve it with one.")
        sources = sources_of(row)
        if capture:
            recorded, until = self._recordings.capture(user, capture), None
        else:
            recorded = self._recordings.since(since or 0.0, sources.values())
            until = now().timestamp()
        report = await backtest(parse(row.predicate, sources), sources, recorded, until=until)
        fired: list[dict[str, Json]] = [
            {"at": _rfc3339(each["at"]), "values": dict(each["values"])}
            for each in report["would_have_fired"]
        ]
        for each in fired[:_DECIDED] if with_model else ():
            values = {
                name: Seen(source, each["values"][name], 0.0) if name in each["values"] else Seen(source)
                for name, source in sources.items()
            }
            each["decision"] = await self._evaluations.would_decide(row, values, at=each["at"])
        return {**report, "would_have_fired": fired, "gaps": joined(report["gaps"])}

    def of(self, user: User) -> list[dict[str, Json]]:
        """Return the watchers of a person, the oldest first."""
        return [self._shown(row) for row in self._rows.values() if _is_of(row, user)]

    async def show(self, name: str, user: User) -> dict[str, Json]:
        """Return a watcher with its history, newest first."""
        row = self._get(name, user)
        history = [entry_json(each) for each in await self._store.history(row.name, limit=_HISTORY)]
        return {**self._shown(row), "history": history}

    async def prompt_part(self, asked: Asked) -> PromptPart | None:
        """Return what the prompt says of a person's watchers."""
        own = [row for row in self._rows.values() if row.owner == asked.user.id]
        if not own:
            return None
        lines = [f"{row.name} ({row.state}, fired {row.fired} times)" for row in own[:_LISTED]]
        more = [f"and {len(own) - _LISTED} more"] if len(own) > _LISTED else []
        return PromptPart(Prompt(f"Watchers: {', '.join([*lines, *more])}"))

    async def load(self) -> None:
        """Go on with the watchers of the database; tell of what a stop of the hub interrupted."""
        tokens, acted = await self._store.used()
        limits = self._evaluations.limits
        limits.tokens.charge(tokens)
        for row in await self._store.watchers():
            self._rows[row.name] = row
            limits.actions(row).charge(len(acted.get(row.name, ())))
        announcer = self._evaluations.announcer
        for entry in await self._store.interrupt():
            if (interrupted := self._rows.get(entry.watcher)) is not None:
                await announcer.notify(
                    interrupted,
                    "The hub was stopped while this was done; it may be done or not, and is not repeated: "
                    f"{entry.decision}, {entry.reason}",
                )
        for row in self._rows.values():
            history = await self._store.history(row.name, limit=1, gaps=False)
            if history:
                self._last[row.name] = history[0]
            if row.state == "active" or row.snoozed_until is not None:
                await self._try_start(row)
        for gap in self._engine.gaps():
            self._engine.gap(gap)
        await self._record()

    async def announce(self) -> None:
        """Publish the state of all watchers, after a connection to the broker."""
        for row in list(self._rows.values()):
            await self._evaluations.announcer.state(row, self._last_of(row))

    async def _record(self) -> None:
        """Record what the watchers see, so that it can be tested on later."""
        rows = self._rows.values()
        seen = [row for row in rows if row.state == "active" or row.snoozed_until is not None]
        try:
            await self._recordings.keep(source for row in seen for source in sources_of(row).values())
        except StrawberryError as error:
            _log.error("what watchers see is not recorded: %s", error)

    async def _try_start(self, row: WatcherRow) -> bool:
        try:
            await self._start(row)
        except StrawberryError as error:
            row.state, row.note = "failed", error.message
            await self._store.save(row)
            await self._evaluations.announcer.notify(row, f"It cannot watch: {error.message}")
            return False
        return True

    async def _start(self, row: WatcherRow) -> None:
        self._evaluations.limits.forget(row.name)
        await self._engine.start(row, last=self._last_of(row))

    @asynccontextmanager
    async def _changing(self, name: str, by: By) -> AsyncIterator[WatcherRow]:
        """Change a watcher; what is changed when an error comes stays as it was."""
        row = self._get(name, by.user)
        _require_writer(by.user)
        async with self._one:
            before = row.model_dump()
            try:
                yield row
                await self._store.save(row)
                await self._record()
            except BaseException:
                for field, value in before.items():
                    setattr(row, field, value)
                raise
        await self._evaluations.announcer.state(row, self._last_of(row))

    def _get(self, name: str, user: User) -> WatcherRow:
        row = self._rows.get(name)
        if row is None or not _is_of(row, user):
            own = [each.name for each in self._rows.values() if _is_of(each, user)]
            raise NotFound(
                f"there is no watcher {name!r}{did_you_mean(name, own)}",
                hint="'strawberry watchers list' shows them.",
            )
        return row

    def _check_room(self, name: str, user: User) -> None:
        if name in self._rows:
            raise name_taken(name)
        if len(self._rows) >= _MOST or sum(_is_of(row, user) for row in self._rows.values()) >= _MOST_OF_ONE:
            raise Conflict("there are too many watchers", hint="'strawberry watchers remove' removes one.")

    async def _values(self, row: WatcherRow) -> dict[str, Seen]:
        """Return the present values of the topics; those that are not followed yet are asked for."""
        await asyncio.gather(*(self._feed.fetch(each.topic, each.link) for each in sources_of(row).values()))
        return self._engine.seen(Watched(row, sources_of(row), None, None))

    async def _propose(self, row: WatcherRow, seen: Mapping[str, Seen]) -> None:
        """Ask a model once for a predicate; without a good one, it evaluates at its interval itself."""
        limits = self._evaluations.limits
        try:
            limits.check_tokens()
            proposal = await self._evaluations.model.propose(row.instruction, seen)
            limits.tokens.charge(proposal.tokens)
            row.tokens, row.model_calls = proposal.tokens, 1
            if not proposal.predicate:
                problem: str | None = proposal.reason
            else:
                parse(proposal.predicate, row.topics)
                problem = _objection(proposal.predicate, seen)
                if problem is None:
                    row.predicate = proposal.predicate
                    return
        except (GatewayError, PredicateError) as error:
            problem = error.message
        if row.schedule is None:
            row.every_s = row.every_s or DEFAULT_EVERY_S
            row.note = f"no predicate ({problem}): the model evaluates it every {row.every_s:g} s"
        else:
            row.note = f"no predicate ({problem}): the model evaluates it each time"

    def _last_of(self, row: WatcherRow) -> DecisionRow | None:
        watched = self._engine.get(row.name)
        if watched is not None and watched.last is not None:
            self._last[row.name] = watched.last
        return self._last.get(row.name)

    def _shown(self, row: WatcherRow) -> dict[str, Json]:
        last, watched = self._last_of(row), self._engine.get(row.name)
        verdict, reason = None, ""
        if watched is not None:
            verdict = watched.verdict
            silent = ", ".join(name for name in watched.sources if name not in watched.heard)
            reason = verdict.reason if verdict else f"there is no value of {silent} yet" if silent else ""
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
            "allow": [call.model_dump(include={"path", "arguments"}) for call in calls_of(row)],
            "dry_run": row.dry_run,
            "snoozed_until": rfc3339(row.snoozed_until) if row.snoozed_until else None,
            "fired": row.fired,
            "evaluations": row.evaluations,
            "model_calls": row.model_calls,
            "tokens": row.tokens,
            "last": {key: value for key, value in entry_json(last).items() if key in _LAST} if last else None,
        }


def _rfc3339(at: float) -> str:
    return rfc3339(datetime.fromtimestamp(at, UTC))


def _objection(predicate: str, seen: Mapping[str, Seen]) -> str | None:
    """Return why a predicate cannot work with the values that there are; None if it can."""
    parsed = parse(predicate, seen)
    if any(seen[name].age_s is None for name in parsed.names) or any(parsed.keep_s.values()):
        return None
    evaluator, at = Evaluator(parsed), now().timestamp()
    for name in parsed.names:
        evaluator.put(name, at - (seen[name].age_s or 0.0), seen[name].value)
    verdict = evaluator.verdict(at)
    return verdict.reason if verdict.truth is None else None


def _is_of(row: WatcherRow, user: User) -> bool:
    return row.owner == user.id or user.role == "admin"


def _require_writer(user: User) -> None:
    if user.read_only:
        raise Forbidden(f"{user.id} has read-only access", hint="Ask a user with full access.")


def _require_approved(row: WatcherRow) -> None:
    if row.state == "draft":
        raise Conflict(
            f"{row.name} is a draft", hint=f"'strawberry watchers approve {row.name}' approves it."
        )


@asynccontextmanager
async def open_watchers(
    settings: HubSettings,
    registry: Registry,
    *,
    link: Link,
    feed: Feed,
    events: Events,
    captures: Captures,
    manager: DeviceManager,
    gateway: Gateway,
) -> AsyncIterator[Watchers]:
    """Watch for as long as the context is open."""
    store = WatcherStore(registry.store, instance=settings.instance)
    announcer = Announcer(events, feed)
    evaluations = Evaluations(
        store=store,
        model=WatcherModel(gateway, only=settings.watchers.model),
        caller=ApprovedCaller(registry.directory, manager),
        announcer=announcer,
        accounts=registry.accounts,
        limits=Limits(settings.watchers),
    )
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(open_tasks())
        engine = Engine(feed, evaluations, household=settings.household, tasks=tasks)
        watchers = Watchers(
            store=store,
            engine=engine,
            evaluations=evaluations,
            feed=feed,
            recordings=Recordings(feed, captures, settings.watchers),
            registry=registry,
            settings=settings,
        )
        stack.callback(feed.on_gap(engine.gap))
        stack.callback(link.on_connected(watchers.announce))
        await watchers.load()
        await watchers.announce()
        tasks.create_task(engine.run(), name="watchers")
        stack.push_async_callback(engine.note_progress)
        yield watchers
