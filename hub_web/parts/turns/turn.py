"""A turn of a conversation: the question, what is done meanwhile, questions to the person, and the answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from nicegui import ui

from contracts.chat.messages import (
    ChatFile,
    ConfirmationWanted,
    Notice,
    SkillCalled,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnError,
    TurnFinal,
    TurnRecord,
)
from contracts.phrases import for_people
from contracts.tracing.trace import TurnSpan
from hub_registry.http.devices import allow_method
from hub_server.http.turns import show as show_turn
from hub_web import limits, sb
from hub_web.feeds import Answered, Feed, FeedEvent
from hub_web.parts.calls.calls import as_question, show_call
from hub_web.parts.files import file_badges
from hub_web.parts.names import Names
from hub_web.parts.turns.markdown import Markdown
from hub_web.parts.turns.timeline import show_work
from hub_web.texts import milliseconds, text
from hub_web.view import view

_ICONS: Final = {
    "running": "pending",
    "ok": "check_circle",
    "failed": "error",
    "declined": "block",
    "cancelled": "cancel",
}


@dataclass
class Step:
    """Something that was done: a tool of the model, or a skill.

    Attributes:
        state: ``running``, ``ok``, ``failed``, ``declined`` by its person, or ``cancelled``.
        inner: Whether it was done within the step before that is not.
    """

    name: str
    state: str = "running"
    device: str = ""
    arguments: Any = None
    result: Any = None
    ms: float | None = None
    inner: bool = False


class Steps:
    """What was done, in order: one line that unfolds, and each step again.

    Args:
        names: Of devices and skills.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        with ui.element("details").classes("sb-steps") as self._box:
            with ui.element("summary"):
                self._icon = ui.icon("bolt")
                self._title = sb.Words("span", "", "sb-cut sb-grow")
                self._declined = sb.badge(text("You said no: not done"), "warn", icon="block")
            self._list = ui.element("ol")
        self._box.set_visibility(False)
        self._declined.set_visibility(False)
        self._shown: list[tuple[Step, ui.element, float]] = []

    def add(self, step: Step) -> None:
        """Show one more step."""
        self._box.set_visibility(True)
        with self._list, ui.element("li") as item:
            if step.inner:
                item.classes("sb-inner")
        self._shown.append((step, item, time.monotonic()))
        self.update(step)

    def update(self, step: Step) -> None:
        """Show what has become of one."""
        item, began = next((item, began) for each, item, began in self._shown if each is step)
        if step.state != "running" and step.ms is None:
            step.ms = (time.monotonic() - began) * 1_000
        item.clear()
        with item:
            self._draw(step)
        self._summarise()

    def conclude(self, did: Sequence[str]) -> None:
        """Summarise in one line what was done, from the record."""
        self._box.set_visibility(True)
        failed = sum(line.endswith(": failed") for line in did)
        said = text.count(len(did), "{n} call", "{n} calls")
        self._title.set(said + (f" · {text('{n} failed', n=failed)}" if failed else ""))
        self._declined.set_visibility(any(line.endswith(": declined") for line in did))

    def fetch(self, turn: str, did: Sequence[str]) -> None:
        """Fetch the steps of a recorded turn when they are unfolded."""
        self.conclude(did)

        async def load() -> None:
            found = await view.api(show_turn, turn)
            # Two quick toggles may both have asked.
            if self._list.default_slot.children:
                return
            for step in steps_of(found.spans or ()):
                self.add(step)
            if not self._shown:
                with self._list:
                    sb.code("\n".join(did))
            self.conclude(did)

        self._box.on("toggle", view.showing(load))

    def _summarise(self) -> None:
        steps = [step for step, _, _ in self._shown]
        running = [step for step in steps if step.state == "running"]
        self._icon.classes(add="sb-turning" if running else "", remove="" if running else "sb-turning")
        self._icon.props["name"] = "autorenew" if running else "bolt"
        self._icon.update()
        if running:
            self._title.set(f"{self._called(running[-1])} …")
            return
        failed = sum(step.state == "failed" for step in steps)
        said = text.count(len(steps), "{n} step", "{n} steps")
        self._title.set(said + (f" · {text('{n} failed', n=failed)}" if failed else ""))

    def _draw(self, step: Step) -> None:
        with ui.element("details"):
            with ui.element("summary"):
                ui.icon(_ICONS.get(step.state, "help")).classes(f"sb-step-{step.state}")
                sb.Words("span", self._called(step), "sb-cut")
                if step.device:
                    sb.badge(self._names.device(step.device), icon="memory")
                sb.Words("span", "", "sb-grow")
                if step.ms is not None:
                    sb.Words("span", milliseconds(step.ms), "sb-muted sb-small")
            show_work(step.arguments, step.result)

    def _called(self, step: Step) -> str:
        known = {
            "python_exec": text("Runs a program"),
            "search_skills": text("Looks for skills"),
            "describe_function": text("Reads how a skill is used"),
        }
        *path, method = step.name.split(".")
        if not path:
            return known.get(step.name) or step.name
        return self._names.label(step.device or "hub", path[-1])(method)


def steps_of(spans: Sequence[TurnSpan]) -> list[Step]:
    """Return the steps of a recorded turn."""
    declined = {each.parent for each in spans if (each.kind, each.outcome) == ("confirmation", "failed")}
    return [
        Step(
            span.name,
            "declined" if place in declined else span.outcome,
            span.device or "",
            span.detail.arguments,
            span.detail.error or span.detail.result,
            span.ms,
            inner=span.kind == "skill" and span.parent is not None,
        )
        for place, span in enumerate(spans)
        if span.kind in ("tool", "skill")
    ]


class Replaced:
    """Turns whose place another one has taken: one line that unfolds."""

    def __init__(self) -> None:
        self._count = 0
        with ui.element("details").classes("sb-replaced") as self.box:
            with ui.element("summary"):
                ui.icon("history")
                self._title = sb.Words("span", "")
            self._inside = ui.element("div").classes("sb-thread")

    def take(self, turn: "TurnBox") -> None:
        """Put a turn below the others."""
        turn.set_replaced()
        turn.box.move(self._inside)
        self._count += 1
        self._title.set(text.count(self._count, "{n} message, replaced", "{n} messages, replaced"))


class TurnBox:
    """One turn.

    Args:
        turn: Its id.
        on_edit: Called with this, to change the question and ask again.
        on_retry: Likewise, to ask again.
        names: Of devices and skills.
        files: What came with the question.

    Attributes:
        is_kept: Whether the hub has it in its record, as all turns that it did not refuse.
    """

    def __init__(
        self,
        question: str,
        *,
        turn: str,
        on_edit: Callable[["TurnBox"], Awaitable[Any]],
        on_retry: Callable[["TurnBox"], Awaitable[Any]],
        names: Names,
        files: Sequence[ChatFile] = (),
    ) -> None:
        self.turn = turn
        self.question = question
        self.files = files
        self.is_kept = True
        self._did: list[str] = []
        self._on_edit, self._on_retry = on_edit, on_retry
        self._answer_text = ""
        self._drawing: asyncio.TimerHandle | None = None
        self._steps_by_id: dict[str, Step] = {}
        self._questions: dict[str, ui.element] = {}
        with sb.named(ui.element("article").classes("sb-turn"), text("Question and answer")) as self.box:
            with ui.element("div").classes("sb-question"):
                sb.Words("p", question)
                if files:
                    with sb.row():
                        file_badges(files)
            self._steps = Steps(names)
            self._cards = ui.element("div").classes("sb-cards")
            self._cards.props("aria-live=assertive")
            self._answer = Markdown()
            self._waiting = ui.element("div").classes("sb-waiting").props("role=status")
            with self._waiting:
                sb.Words("span", text("Thinking"), "sb-only-read")
                for _ in range(3):
                    ui.element("i")
            self._foot = ui.element("div").classes("sb-turn-foot")

    # -- as it comes --------------------------------------------------------------------------------

    async def follow(self, feed: Feed, *, begun: Callable[[], Any]) -> None:
        """Show the events of a running turn until its end; the first one means that the hub has it."""
        last: FeedEvent | None = None
        try:
            async for event in feed.follow():
                if last is None:
                    begun()
                last = event
                with self.box:
                    if isinstance(event, TextDelta):
                        self._answer_text += event.text
                        self._draw_soon()
                    else:
                        self._show_event(event, feed)
        finally:
            if self._drawing is not None:
                self._drawing.cancel()
        with self.box:
            self._end(last)

    def _draw_soon(self) -> None:
        """Draw the answer, together with what comes until then."""
        if self._drawing is None:
            wait = max(limits.REDRAW_S, len(self._answer_text) / limits.REDRAWN_CHARS_PER_S)
            self._drawing = asyncio.get_running_loop().call_later(wait, self._draw)

    def _draw(self) -> None:
        self._drawing = None
        if not self.box.is_deleted:
            self._show_answer(self._answer_text)

    def _show_event(self, event: FeedEvent, feed: Feed) -> None:
        match event:
            case ToolCalled():
                self._begin(event.id, Step(event.name, arguments=event.arguments))
            case ToolReturned():
                self._finish(event.id, "ok" if event.ok else "failed", result=event.output)
            case SkillCalled(state="called"):
                inner = any(not step.inner and step.state == "running" for step in self._steps_by_id.values())
                step = Step(event.path, device=event.device or "", arguments=event.detail, inner=inner)
                self._begin(event.id, step)
            case SkillCalled(state="progress"):
                if (running := self._steps_by_id.get(event.id)) is not None:
                    running.result = event.detail
                    self._steps.update(running)
            case SkillCalled():
                state = "declined" if event.declined else event.state
                self._did.append(f"{event.path}: {state}")
                self._finish(event.id, "ok" if state == "done" else state, result=event.detail)
            case ConfirmationWanted():
                self._ask(event, feed)
            case Answered():
                self._close(event.id)
            case Notice():
                with self._cards:
                    sb.Words("p", text.message(event.text), "sb-notice")

    def _begin(self, id_: str, step: Step) -> None:
        self._steps_by_id[id_] = step
        self._steps.add(step)

    def _finish(self, id_: str, state: str, *, result: Any) -> None:
        if (step := self._steps_by_id.get(id_)) is not None:
            step.state = state
            step.result = result if result is not None else step.result
            self._steps.update(step)

    def _show_answer(self, answer: str) -> None:
        self._waiting.set_visibility(False)
        self._answer.show(answer)

    def _end(self, event: FeedEvent | None) -> None:
        self._waiting.set_visibility(False)
        self._cards.clear()
        for step in self._steps_by_id.values():
            if step.state == "running":
                step.state = "cancelled"
                self._steps.update(step)
        if self._did:
            self._steps.conclude(self._did)
        ended = event if isinstance(event, TurnFinal | TurnError) else None
        if answer := (ended.answer if ended is not None else "") or self._answer_text:
            self._show_answer(answer)
        if isinstance(ended, TurnFinal):
            tokens = ended.input_tokens + ended.output_tokens
            about = [
                ended.model or (text("without a model") if ended.mode == "sentence" else ""),
                text.count(tokens, "{n} token", "{n} tokens") if tokens else "",
            ]
            self._show_foot(None, "", "", about)
        elif ended is not None:
            self.is_kept = ended.code != "refused"
            self._show_foot(ended.code, ended.message, ended.hint, [])

    # -- as it was recorded -------------------------------------------------------------------------

    def show_recorded(self, exchange: TurnRecord) -> None:
        """Show a turn that has ended; what was done is fetched when it is unfolded."""
        with self.box:
            self._did = list(exchange.did)
            self._waiting.set_visibility(False)
            if exchange.answer:
                self._show_answer(exchange.answer)
            if self._did:
                self._steps.fetch(self.turn, self._did)
            is_whole = exchange.outcome in (None, "answered")
            outcome = None if is_whole else exchange.reason or exchange.outcome
            self._show_foot(outcome, exchange.problem, "", [view.at(exchange.at)])

    def set_replaced(self) -> None:
        self.box.classes("sb-was")

    # -- questions and the foot ---------------------------------------------------------------------

    def _ask(self, event: ConfirmationWanted, feed: Feed) -> None:
        """Show the question whether a call may be made, with its real arguments."""

        async def allow() -> None:
            await view.api(allow_method, event.device, event.method, event.lasting)
            await answer(approve=True)

        async def answer(approve: bool) -> None:
            try:
                await feed.answer(view.api, event.id, approve=approve)
            finally:
                self._close(event.id)

        with self._cards, ui.element("section").classes("sb-confirm").props("role=alertdialog") as card:
            self._questions[event.id] = sb.named(card, text("Confirm this call"))
            with sb.row():
                ui.icon("help_outline")
                sb.Words("h2", as_question(event) or text("May I do this?"), "sb-h3")
            show_call(event, cut=event.cut)
            with sb.actions():
                seconds = text("No answer within {n} s counts as no.", n=round(event.expires_s))
                sb.Words("span", seconds, "sb-muted sb-small sb-grow")
                no = view.button(text("No"), lambda: answer(False), kind="plain")
                if event.lasting and view.is_admin:
                    view.button(text("Yes, from now on"), allow, kind="plain")
                view.button(text("Yes, do it"), lambda: answer(True), kind="primary")
        # The careful answer has the focus: Enter typed on for the next message confirms nothing.
        ui.run_javascript(f"getHtmlElement({no.id})?.focus()")
        with card:
            ui.timer(event.expires_s, partial(self._close, event.id), once=True)

    def _close(self, question: str) -> None:
        """Remove the card of a question; another page, or the time, may have done so before."""
        card = self._questions.pop(question, None)
        if card is not None and not card.is_deleted:
            card.delete()

    def _show_foot(self, outcome: str | None, message: str, hint: str, about: list[str]) -> None:
        message, hint = text.message(message), text.message(for_people(hint)).strip()
        self._foot.clear()
        with self._foot:
            if outcome is not None:
                said = {
                    "interrupted": text(
                        "Interrupted: the hub was restarted. Nothing is done again by itself."
                    ),
                    "cancelled": text("Stopped."),
                    "stopped": text("Stopped."),
                }.get(outcome, "")
                with ui.element("div").classes("sb-ended"):
                    ui.icon("stop_circle" if outcome in ("cancelled", "stopped") else "info_outline")
                    with ui.element("div"):
                        sb.Words("span", said or text("No complete answer: {problem}", problem=message))
                        if outcome in ("no_model", "model_failed") and view.is_admin:
                            view.link(text("Models"), "/models")
                        if hint and not said:
                            sb.Words("p", hint, "sb-muted")
            with sb.row().classes("sb-turn-tools"):
                sb.Words("span", " · ".join(filter(None, about)), "sb-muted sb-small")
                for icon, label, act in (
                    ("edit", text("Change the question"), self._on_edit),
                    ("refresh", text("Ask again"), self._on_retry),
                ):
                    _tool(icon, label, view.showing(partial(act, self))).classes("sb-again")
                _tool("content_copy", text("Copy the answer"), lambda: view.copy(self._answer.source))
                _tool("volume_up", text("Read aloud"), self._speak).classes("sb-speak")
                _tool("timeline", text("Where the time went"), lambda: view.go(f"/turns/{self.turn}"))

    def _speak(self) -> None:
        ui.run_javascript(f"strawberry.speak(getHtmlElement({self._answer.id}))")


def _tool(icon: str, label: str, on_click: Any) -> ui.button:
    return sb.icon_button(icon, label, on_click).props("size=sm").classes("sb-small-tool")
