"""Turns: what was asked, how it ended, and where the time went."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from nicegui import ui

from contracts.answers.record import TurnPage, TurnShown, TurnSummary
from contracts.errors import StrawberryError
from contracts.text import shortened
from contracts.tracing.trace import TurnSpan
from hub_agent.chat.traces import TurnFilter
from hub_server.http import turns as operations
from hub_web import limits, sb
from hub_web.parts.calls.forms import choice
from hub_web.parts.names import Names, load_names
from hub_web.parts.paging import Paged
from hub_web.parts.turns.markdown import Markdown
from hub_web.parts.turns.timeline import Timeline, cost_words, legend, shares, span_name
from hub_web.shell import page
from hub_web.texts import milliseconds, text
from hub_web.view import part, view


@page("/turns", title="Turns", icon="timeline", menu=210)
async def turns() -> None:
    """Show the turns, newest first."""
    names = await load_names()
    sb.note(
        text("Everything that was asked, and where the time went. Open one to see why it was slow or wrong.")
    )
    outcomes = {"": text("All"), **{key: word for key, (word, _) in _outcomes().items()}}
    times = {"1d": text("A day"), "7d": text("A week"), "": text("The beginning")}
    with sb.row().classes("sb-filters"):
        search = view.showing(lambda: pages.search())
        outcome = choice(text("How it ended"), outcomes, "").on_value_change(search)
        since = choice(text("Since"), times, "7d").on_value_change(search)
        view.tool("refresh", text("Refresh"), lambda: pages.search())
    legend()
    listed = sb.stack()
    found: list[TurnSummary] = []

    def query() -> dict[str, str | None]:
        return {"outcome": outcome.value or None, "since": since.value or None}

    async def look(asked: Mapping[str, Any]) -> TurnPage:
        return await view.api(operations.look, TurnFilter.model_construct(**asked))

    def show(answer: TurnPage, is_first: bool) -> str | None:
        if is_first:
            found.clear()
            listed.clear()
        found.extend(answer.turns)
        slowest = max((_machine_ms(turn) for turn in found), default=0)
        with listed:
            for turn in answer.turns:
                _listed(turn, names, slowest)
            if not found:
                with sb.empty(
                    "timeline", text("No turns here"), text("Whatever is asked in the chat appears here.")
                ):
                    view.button(text("Ask something"), lambda: view.go("/chat"), kind="primary", icon="chat")
        return answer.next

    pages = Paged(look, query, show)
    await pages.search()


def _listed(turn: TurnSummary, names: Names, slowest: float) -> None:
    with view.anchor(f"/turns/{part(turn.turn)}", "sb-card sb-asked"):
        with sb.row(wrap=False):
            sb.cut("span", _question(turn, names), "sb-strong sb-grow")
            _outcome(turn)
        kinds = _kinds(turn)
        shares(kinds, of_ms=max(slowest, sum(kinds.values())))
        with sb.row().classes("sb-asked-facts"):
            for said in (
                view.at(turn.at),
                names.person(turn.user) if turn.user != view.user.id else "",
                names.device(turn.device or ""),
                turn.agent if turn.agent not in ("", "assistant", "strawberry") else "",
                _answered_by(turn),
                milliseconds(turn.ms) if turn.ms is not None else "",
                _tokens(turn),
                cost_words(turn.cost) if turn.cost is not None else "",
            ):
                if said:
                    sb.Words("span", said, "sb-cut")


def _kinds(turn: TurnSummary) -> dict[str, float]:
    """Return the milliseconds of each kind; what no span measured is the hub's."""
    kinds = dict(turn.ms_by_kind)
    if kinds and (rest := (turn.ms or 0) - sum(kinds.values())) >= 1:
        kinds["hub"] = kinds.get("hub", 0) + rest
    return kinds


@page("/turns/{turn}", title="Turn", icon="timeline")
async def turn(turn: str) -> None:
    """Show one turn as a timeline."""
    names = await load_names()
    shown = await view.api(operations.show, turn)
    content = sb.stack().classes("sb-turn-page")
    with content:
        _whole(shown, names)

    async def follow() -> None:
        nonlocal shown
        while shown.outcome is None:
            await asyncio.sleep(limits.TURN_LOOK_S)
            try:
                again = await view.api(operations.show, turn)
            except StrawberryError:
                continue  # the hub stops; the page is loaded again when it is back
            if _progress(again) != _progress(shown):
                with sb.refilled(content):
                    _whole(again, names)
            shown = again

    if shown.outcome is None:
        view.run(follow(), name="turn")


def _whole(turn: TurnShown, names: Names) -> None:
    view.title(shortened(_question(turn, names), limits.MAX_TURN_TITLE))
    spans = turn.spans or ()
    with sb.row():
        _outcome(turn)
        sb.Words("span", view.at(turn.at), "sb-muted")
        view.link(text("All turns"), "/turns")
        if turn.conversation:
            view.link(text("To the conversation"), f"/chat/{part(turn.conversation)}")
    if turn.problem:
        (sb.note if turn.reason == "no_model" else sb.problem)(text.message(turn.problem))
        if turn.reason in ("no_model", "model_failed") and view.is_admin:
            view.link(text("Models"), "/models")
    if turn.outcome == "interrupted":
        sb.problem(
            text("The hub ended while this turn ran."),
            text(
                "What it had done by then stays done. It is not run again by itself; ask again if you want."
            ),
        )
    with sb.card(text("Where the time went"), icon="schedule") as tools:
        with tools:
            if turn.ms is not None and (spans or turn.outcome != "interrupted"):
                sb.Words("span", milliseconds(turn.ms), "sb-figure")
        if spans:
            shares(_kinds(turn))
            legend(_kinds(turn))
            for finding in findings(spans):
                with sb.row(wrap=False).classes("sb-finding"):
                    ui.icon("arrow_right")
                    sb.Words("span", finding)
        else:
            sb.note(_why_no_spans(turn))
        sb.facts(
            (text("Asked by"), names.person(turn.user)),
            (text("Device"), names.device(turn.device or "")),
            (text("Agent"), turn.agent),
            (text("Answered by"), _answered_by(turn)),
            (text("Tokens"), _tokens(turn)),
            (text("Cost"), cost_words(turn.cost) if turn.cost is not None else ""),
        )
    if spans:
        with sb.card(text("Timeline"), icon="timeline"):
            Timeline(spans, names.devices)
            if turn.left_out:
                sb.note(
                    text.count(turn.left_out, "{n} more part is not shown.", "{n} more parts are not shown.")
                )
    if turn.answer:
        with sb.card(text("Answer"), icon="chat_bubble_outline"):
            Markdown(turn.answer)


def findings(spans: Sequence[TurnSpan]) -> list[str]:
    """Return what stands out in a turn: what failed, and what made a person wait."""
    said = list[str]()
    failed = {index for index, span in enumerate(spans) if span.outcome == "failed"}
    # A part failed because one within it did.
    because = failed - {spans[index].parent for index in failed}
    for index, span in enumerate(spans):
        detail, name = span.detail, span_name(span)
        took = milliseconds(span.ms)
        wait = span.ms - max(detail.run_ms or 0, detail.ran_ms or 0)
        if span.kind == "confirmation":
            said.append(text("A person took {time} to answer.", time=took))
        elif index in because:
            error = text.message(detail.error or "")
            sentence = text("{name} failed after {time}: {error}", name=name, time=took, error=error)
            said.append(sentence.rstrip(": "))
        elif detail.run_ms is not None and wait > limits.WAIT_MS:
            said.append(text("The program waited {time} for a process.", time=milliseconds(wait)))
        elif detail.ran_ms is not None and wait > limits.WAIT_MS:
            said.append(text("{name} was {time} on its way.", name=name, time=milliseconds(wait)))
    slow = [span for span in spans if span.kind in ("model", "bus", "hub") and span.ms > limits.SLOW_MS]
    if slow and not said:
        slowest = max(slow, key=lambda span: span.ms)
        name, took = span_name(slowest), milliseconds(slowest.ms)
        said.append(text("The slowest part was {name}: {time}", name=name, time=took))
    return list(dict.fromkeys(said))[: limits.FINDINGS_SHOWN]


def _outcomes() -> dict[str, tuple[str, sb.Tone]]:
    return {
        "answered": (text("Answered"), "good"),
        "failed": (text("Failed"), "bad"),
        "stopped": (text("Stopped"), "plain"),
        "interrupted": (text("Interrupted"), "warn"),
        "running": (text("Running"), "accent"),
    }


def _outcome(turn: TurnSummary) -> None:
    if turn.replaced_by:
        sb.badge(text("Replaced"), icon="history")
    sb.badge(*_outcomes()[turn.outcome or "running"])


def _question(turn: TurnSummary, names: Names) -> str:
    if turn.question is None:
        return text("A turn of {name}", name=names.person(turn.user))
    return " ".join(turn.question.split())


def _answered_by(turn: TurnSummary) -> str:
    if turn.mode == "sentence":
        return text("a sentence, without a model")
    if turn.mode == "offline":
        return text("the device itself")
    return turn.model or ""


def _tokens(turn: TurnSummary) -> str:
    tokens = turn.input_tokens + turn.output_tokens
    return text.count(tokens, "{n} token", "{n} tokens") if tokens else ""


def _why_no_spans(turn: TurnSummary) -> str:
    if turn.origin == "device" or turn.mode == "offline":
        return text("A device answered this without the hub, so it is not known where its time went.")
    if turn.outcome == "interrupted":
        return text("It is not known where the time went: the hub ended before it could be recorded.")
    if datetime.now(UTC) - turn.at > timedelta(minutes=1):
        return text("Of old turns it is not kept where their time went.")
    return text("Nothing was measured yet.")


def _machine_ms(turn: TurnSummary) -> float:
    # The time of people would make all other bars short.
    return sum(turn.ms_by_kind.values()) - turn.ms_by_kind.get("confirmation", 0.0)


def _progress(turn: TurnShown) -> object:
    return turn.outcome, [span.outcome for span in turn.spans or ()]
