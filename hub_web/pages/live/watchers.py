"""Watchers: what keeps an eye on the home, and the form that makes one in words."""

import json
from functools import partial
from typing import Any

from nicegui import ui

from contracts.answers.watchers import Allowed, MadeCall, WatcherSummary
from hub_live.events.kinds import WatcherData
from hub_live.watchers.decisions.kinds import kind_of
from hub_live.watchers.operations import list_watchers
from hub_web import sb
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import part, view


def state_of(watcher: WatcherSummary) -> tuple[str, sb.Tone]:
    """Return the state of a watcher in words, and how it looks."""
    known: dict[str, tuple[str, sb.Tone]] = {
        "active": (text("active"), "good"),
        "draft": (text("draft"), "accent"),
        "paused": (text("paused"), "plain"),
        "failed": (text("cannot watch"), "bad"),
    }
    words, tone = known[watcher.state]
    return (text("{state}, dry run", state=words) if watcher.dry_run else words), tone


def truth_of(watcher: WatcherSummary) -> tuple[sb.Tone, str]:
    """Return what the predicate says now."""
    if watcher.truth is None:
        return "warn", text.message(watcher.reason) or text("not known yet")
    return ("accent", text("true now")) if watcher.truth else ("plain", text("false now"))


def decision_of(decision: str) -> str:
    return text(kind_of(decision).label)


def called(call: Allowed | MadeCall) -> str:
    """Return a call that a watcher may make, as people write it."""
    arguments = ", ".join(f"{name}={rule_of(rule)}" for name, rule in call.arguments.items())
    return f"{call.path.removeprefix('devices.')}({arguments})"


def rule_of(rule: Any) -> str:
    """Return the value of an argument that was approved, or the range of values."""
    if isinstance(rule, dict) and rule.keys() & {"minimum", "maximum"}:
        return f"{rule.get('minimum', '…')}..{rule.get('maximum', '…')}"
    if isinstance(rule, dict) and "enum" in rule:
        return "|".join(map(str, rule["enum"]))
    return json.dumps(rule, ensure_ascii=False)


@page("/watchers", title="Watchers", icon="visibility", menu=40, writer=True)
async def watchers() -> None:
    """Show all watchers, live."""
    with sb.row():
        sb.note(
            text("One with a condition costs nothing while that is false. They do only what you approved.")
        )
        ui.element("div").classes("sb-grow")
        view.button(text("New watcher"), lambda: view.go("/watchers/new"), icon="add", kind="primary")
    place = ui.element("div")

    @sb.one_at_a_time
    async def show() -> None:
        found = await view.api(list_watchers)
        with sb.refilled(place):
            if not found:
                with sb.empty(
                    "visibility",
                    text("No watcher yet"),
                    text("Say in words what should be kept an eye on, such as a full disk or an open door."),
                ):
                    new = partial(view.go, "/watchers/new")
                    view.button(text("Make a watcher"), new, icon="add", kind="primary")
                return
            with sb.grid(least=340):
                for each in sorted(found, key=lambda each: each.state != "draft"):
                    _card(each)

    # First, so that nothing happens unheard in between.
    view.on_event(WatcherData, lambda _: show())
    await show()


def _card(watcher: WatcherSummary) -> None:
    last = watcher.last
    link = ui.link("", f"/watchers/{part(watcher.name)}")
    with link.classes("sb-card sb-card-link"):
        with ui.element("div").classes("sb-card-head"):
            sb.cut("h2", watcher.title, "sb-h2")
            with ui.element("div").classes("sb-card-tools"):
                sb.badge(*state_of(watcher))
        sb.sentence(text.message(watcher.sentence), "sb-clamp")
        if watcher.note and not watcher.predicate:
            sb.note(text.message(watcher.note), classes="sb-small")
        with sb.row().classes("sb-small"):
            if watcher.state == "draft":
                sb.dot("accent", text("waits for your approval"))
            elif watcher.state == "active" and watcher.predicate:
                sb.dot(*truth_of(watcher))
            sb.Words("span", text.count(watcher.fired, "fired {n} time", "fired {n} times"), "sb-muted")
            if last:
                when = f"{decision_of(last.decision)} {view.ago(last.at)}"
                sb.Words("span", when, "sb-muted")
