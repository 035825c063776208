"""One watcher: its predicate, tried on what was recorded, its actions and its history."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from nicegui import ui

from chat.operations import Operation
from contracts.answers.live import Event
from contracts.answers.watchers import (
    OUTCOMES,
    DecisionEntry,
    MadeCall,
    TraceEntry,
    WatcherSummary,
    WatcherWithHistory,
)
from contracts.errors import StrawberryError
from contracts.text import shortened
from contracts.wire import Json
from hub_live.captures.files.formats import FORMATS
from hub_live.captures.operations import list_captures
from hub_live.events.kinds import WatcherData
from hub_live.watchers import operations
from hub_live.watchers.decisions.kinds import kind_of
from hub_live.watchers.definition import Approval
from hub_live.watchers.words.sentence import plain
from hub_web import limits, sb
from hub_web.pages.audit import outcomes
from hub_web.pages.live.watcher_form import source_line
from hub_web.pages.live.watchers import called, decision_of, state_of, truth_of
from hub_web.parts.calls.forms import choice, text_field
from hub_web.parts.plots import Mark, plot
from hub_web.shell import page
from hub_web.texts import lasting, text
from hub_web.view import part, view

_TRUTHS: Final[dict[bool | None, tuple[sb.Tone, str]]] = {
    True: ("accent", "true"),
    False: ("plain", "false"),
    None: ("warn", "not known yet"),
}


@page("/watchers/{name}", title="Watcher", icon="visibility", writer=True)
async def watcher(name: str) -> None:
    await _Watcher(name).open()


class _Watcher:
    """The page as one browser shows it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._looks: list[TraceEntry] = []
        self._watcher: WatcherWithHistory
        self._shown: object = None

    async def open(self) -> None:
        """Build the page."""
        self._watcher = await view.api(operations.show, self._name)
        self._name = self._watcher.name
        view.title(self._watcher.title)
        captures = await view.api(list_captures)
        self._head = sb.stack()
        with sb.folded(text("As code")), sb.card(text("Condition"), icon="rule"):
            sb.note(text("While it is false, no model is asked. You can change it."))
            self._predicate = text_field(text("Predicate"), self._watcher.predicate or "", lines=True)
            self._predicate.props("input-class=sb-mono spellcheck=false")
            self._checked = sb.stack().props("aria-live=polite")
            # What was said of another one is no longer so.
            self._predicate.on_value_change(self._checked.clear)
            with sb.actions():
                propose = partial(self._check_with, None)
                view.button(text("Propose another"), propose, icon="auto_awesome", kind="flat")
                view.button(text("Check"), self._check, icon="done")
                self._save = view.button(text("Save"), self._approve, kind="plain")
        with sb.card(text("Try it on what was recorded"), icon="history"):
            with sb.row().classes("sb-search"):
                since: dict[str, str] = {
                    "1h": text("the last hour"),
                    "1d": text("the last day"),
                    "7d": text("the last week"),
                }
                for each in captures:
                    if FORMATS[each.format].is_series and each.owner:
                        since[f"capture {each.id}"] = text("the capture {name}", name=each.id)
                self._since = choice(text("Recorded in"), since, "1d").classes("sb-narrow")
                view.button(text("Back-test"), self._test, icon="play_arrow", kind="primary")
            self._report = sb.stack().props("aria-live=polite")
        self._rest = sb.stack().classes("sb-parts")
        await self._show()
        view.on_event(WatcherData, self._heard)

    async def _heard(self, event: Event[WatcherData]) -> None:
        concerned = event.data.watchers or [event.subject]
        if self._name in concerned and event.data.event != "removed":
            await self._show()

    async def _show(self) -> None:
        """Show what changes by itself; what is being edited stays."""
        shown = self._watcher = await view.api(operations.show, self._name)
        self._looks = await view.api(operations.trace, self._name)
        self._save.set_visibility(shown.state != "draft")
        head = (
            *(shown.sentence, shown.state, shown.dry_run, shown.predicate, shown.truth),
            *(shown.reason, shown.snoozed_until, shown.note, shown.allow),
        )
        if head != self._shown:
            # Its buttons stay in their place while only counts and history change.
            self._shown = head
            with sb.refilled(self._head):
                self._build_head()
        with sb.refilled(self._rest):
            self._build_rest()

    # -- what it is -------------------------------------------------------------------------------

    def _build_head(self) -> None:
        shown = self._watcher
        is_draft = shown.state == "draft"
        with sb.card(classes="sb-attention" if is_draft else ""):
            sb.sentence(text.message(shown.sentence), "sb-lead sb-wrap")
            with sb.row():
                sb.badge(*state_of(shown))
                if shown.state == "active" and shown.predicate:
                    sb.dot(*truth_of(shown))
                if shown.snoozed_until:
                    sb.note(text("quiet until {time}", time=view.at(shown.snoozed_until)))
            if shown.note:
                sb.note(text.message(shown.note))
            if not shown.allow:
                sb.note(text("It notifies you, and calls nothing."))
            with sb.folded(text("What exactly is called")) if shown.allow else nullcontext():
                for call in shown.allow:
                    sb.Words("p", called(call), "sb-code sb-wrap")
            if is_draft:
                sb.note(text("It does nothing until you approve its condition and these calls."))
            with sb.actions():
                edit = f"/watchers/{part(self._name)}/edit"
                view.button(text("Edit"), lambda: view.go(edit), icon="edit", kind="flat")
                if is_draft:
                    view.button(text("Remove"), self._remove, icon="delete", kind="flat")
                    view.button(text("Approve"), self._approve, icon="check", kind="primary")
                else:
                    self._build_tools()

    def _build_tools(self) -> None:
        shown = self._watcher
        view.button(text("Remove"), self._remove, icon="delete", kind="flat")
        if shown.allow:
            label = text("Make the calls") if shown.dry_run else text("Only a dry run")
            view.button(label, self._toggle_dry_run, kind="flat")
        if shown.state == "active":
            with view.button(text("Snooze"), lambda: None, icon="snooze"), ui.menu().props("role=menu"):
                for hours in (1, 8, 24):
                    snooze = partial(self._do, operations.snooze, hours * 3_600)
                    view.menu_item(lasting(hours * 3_600.0), snooze)
            view.button(text("Pause"), partial(self._do, operations.pause), icon="pause")
            view.button(text("Run now"), self._run, icon="bolt")
        else:
            resume = partial(self._do, operations.resume)
            view.button(text("Resume"), resume, icon="play_arrow", kind="primary")

    def _build_rest(self) -> None:
        shown = self._watcher
        with sb.card(text("What it sees"), icon="sensors"):
            every = text("at intervals of {time}", time=lasting(shown.every_s)) if shown.every_s else ""
            every = "" if shown.predicate else every
            sees = {name: source_line(source) for name, source in shown.topics.items()}
            with sb.folded(text("As code")) if sees else nullcontext():
                sb.facts(*sees.items())
            sb.facts(
                (text("It looks"), shown.schedule or every or text("when a value changes")),
                (text("Next time"), view.at(shown.next_at)),
                (text("Fired"), text.number(shown.fired)),
                (text("Looked"), text.count(shown.evaluations, "{n} time", "{n} times")),
                (text("Asked a model"), text.count(shown.model_calls, "{n} time", "{n} times")),
                (text("Cost"), text.count(shown.tokens, "{n} token", "{n} tokens")),
            )
        with sb.card(text("Why it did something, or nothing"), icon="troubleshoot"):
            if not self._looks:
                sb.note(text("It has not looked at its values since the hub was started."))
            else:
                seen = (text("When"), text("What came of it"), text("Values"))
                sb.table(seen, map(_look, self._looks), label=text("Why it did something, or nothing"))
        with sb.card(text("History"), icon="list"):
            if not shown.history:
                sb.note(text("It has not decided anything yet."))
                return
            columns = (text("When"), text("Decision"), text("Why"), text("Values"), text("Tokens"))
            rows = [self._row(entry) for entry in shown.history]
            sb.table(columns, rows, label=text("History"))

    def _row(self, entry: DecisionEntry) -> tuple[sb.Cell, ...]:
        def decision() -> None:
            sb.badge(decision_of(entry.decision), kind_of(entry.decision).tone)

        def why() -> None:
            with sb.stack().classes("sb-tight"):
                sb.Words("span", text.message(entry.reason), "sb-text")
                _did(entry.actions)

        tokens = text.number(entry.tokens) if entry.tokens else ""
        return view.ago(entry.at), decision, why, _values(entry.seen), tokens

    # -- the condition ----------------------------------------------------------------------------

    async def _check(self) -> None:
        await self._check_with((self._predicate.value or "").strip() or None)

    async def _check_with(self, predicate: str | None) -> None:
        self._checked.clear()
        try:
            found = await view.api(operations.check, self._name, predicate)
        except StrawberryError as error:
            with self._checked:
                sb.failure(error)
            return
        with self._checked:
            if found.predicate:
                self._predicate.value = found.predicate
            if found.note:
                sb.problem(found.note)
            else:
                sb.dot("good", text("It can be read, and its values are there."))
            if found.latest:
                sb.Words("p", " · ".join(_values(found.latest).splitlines()), "sb-mono sb-muted sb-text")

    async def _approve(self) -> None:
        predicate = (self._predicate.value or "").strip()
        shown = self._watcher
        # The words may be the skill's author's: what is approved is the calls.
        calls = [plain(text.message(shown.sentence)), *map(called, shown.allow)]
        if shown.allow and not await view.ask(
            text("Approve {name}?", name=shown.title),
            "\n".join((text("It then does this without asking:"), *calls)),
        ):
            return
        approval = Approval.model_construct(digest=shown.digest, predicate=predicate)
        await view.api(operations.approve, self._name, approval)
        # Before the button goes that stands for this handler.
        view.notify(text("{name} is active", name=shown.title))
        self._checked.clear()
        await self._show()

    # -- the back-test ----------------------------------------------------------------------------

    async def _test(self) -> None:
        kind, _, capture = str(self._since.value).partition(" ")
        report = await view.api(
            operations.backtest,
            self._name,
            since=None if capture else kind,
            capture=capture or None,
            predicate=(self._predicate.value or "").strip() or None,
            lines=True,
        )
        with sb.refilled(self._report):
            if not report.evaluated:
                sb.note(
                    text("Nothing is recorded there yet. What a watcher sees is recorded from its start on.")
                )
                return
            fired = report.would_have_fired
            count = text.count(
                report.fired, "It would have fired {n} time.", "It would have fired {n} times."
            )
            sb.Words("p", count, "sb-strong sb-lead")
            marks = [Mark(each.at, view.at(each.at), "warn") for each in fired]
            marks += [Mark(each.since, text("a gap"), "plain") for each in report.gaps]
            for name, line in (report.lines or {}).items():
                sb.heading(name, level=3, classes="sb-mono")
                plot(line, label=name, marks=marks, steps=True)
            if report.lines:
                sb.note(
                    text("Dashed lines: it would have fired. Grey ones: nothing was heard from there on."),
                    classes="sb-small",
                )
            if fired:
                rows = [
                    (view.at(each.at), _values(each.values))
                    for each in fired[: limits.WATCHER_DECISIONS_SHOWN]
                ]
                sb.table(
                    (text("When"), text("Values")), rows, label=text("Times at which it would have fired")
                )
            if len(fired) > limits.WATCHER_DECISIONS_SHOWN:
                sb.note(text("and {n} more", n=report.fired - limits.WATCHER_DECISIONS_SHOWN))
            if report.unknown:
                sb.note(
                    text(
                        "Unknown {n} of {all} times: {reason}",
                        n=report.unknown,
                        all=report.evaluated,
                        reason=text.message(report.reason),
                    )
                )

    # -- what is done with it ---------------------------------------------------------------------

    async def _do(self, operation: Operation[Any, WatcherSummary], *given: Any) -> None:
        await view.api(operation, self._name, *given)
        await self._show()

    async def _toggle_dry_run(self) -> None:
        shown = self._watcher
        await self._do(operations.approve, Approval(digest=shown.digest, dry_run=not shown.dry_run))

    async def _run(self) -> None:
        decided = await view.api(operations.run, self._name)
        view.notify(f"{decision_of(decided.decision)}: {text.message(decided.reason)}", kind="info")
        await self._show()

    async def _remove(self) -> None:
        question = text("Remove {name} with its history?", name=self._watcher.title)
        if await view.ask(question, yes=text("Remove"), danger=True):
            await view.api(operations.remove, self._name)
            view.go("/watchers")


def _look(look: TraceEntry) -> tuple[sb.Cell, ...]:
    def outcome() -> None:
        times = f" ({text.count(look.count, '{n} time', '{n} times')})" if look.count > 1 else ""
        with sb.stack().classes("sb-tight"):
            sb.Words("span", text.sentence(look.outcome).rstrip(".") + times, "sb-text")
            _did(look.actions)
            for part in look.parts:
                tone, words = _TRUTHS[part.truth]
                sb.dot(tone, f"{plain(text.message(part.text))}: {text(words)}").classes("sb-muted")

    return view.ago(look.at), outcome, _values(look.values)


def _did(calls: Sequence[MadeCall]) -> None:
    """Show calls with their outcomes in words, and the calls themselves one click behind."""
    words = {**outcomes(), **{name: text(each) for name, each in OUTCOMES.items()}}
    for each in calls:
        outcome = text.message(each.error or "") or words[each.outcome]
        said = plain(text.message(each.said or each.path))
        sb.Words("span", f"{said}: {outcome}", "sb-muted sb-text")
    with sb.folded(text("What exactly is called")) if calls else nullcontext():
        for call in calls:
            sb.Words("span", called(call), "sb-code sb-wrap")


def _values(values: dict[str, Json]) -> str:
    said = {n: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for n, v in values.items()}
    lines = (f"{name}: {value}" for name, value in said.items())
    return "\n".join(shortened(line, limits.MAX_WATCHER_VALUE) for line in lines)
