"""The audit log: who called what through what, and what was refused; searched, filtered, and exported."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from nicegui import ui

from contracts.answers.record import AuditEntry, AuditPage
from hub_server.http import audit as operations
from hub_web.parts.forms import choice, text_field
from hub_web.parts.layout import Cell, Table, Tone, Words, badge, card, empty, refilled, row, stack
from hub_web.parts.names import load_names
from hub_web.parts.paging import Paged
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import view

_TONES: Final[dict[str, Tone]] = {"result": "good", "refused": "bad", "cancelled": "plain"}


@page("/audit", title="Audit log", icon="fact_check", menu=230, width="wide")
async def audit() -> None:
    """Show the log."""
    names = await load_names()
    people, devices = names.people, {"hub": text("Hub"), **names.devices}
    entries: list[AuditEntry] = []

    def query() -> dict[str, str]:
        given = {name: str(each.value or "") for name, each in {"q": words, **filters}.items()}
        return {name: value for name, value in given.items() if value}

    async def look(asked: Mapping[str, Any]) -> AuditPage:
        return await view.api(operations.look, operations.AuditQuery.model_construct(**asked))

    def show(answer: AuditPage, is_first: bool) -> int | None:
        if is_first:
            entries.clear()
            for form, link in exports.items():
                link.props["href"] = f"/api/audit/export?{urlencode({**query(), 'format': form})}"
        entries.extend(answer.entries)
        table.show(_row(each, people, devices) for each in entries)
        with refilled(nothing):
            if not entries:
                empty("fact_check", text("Nothing found"), text("Nothing like this was called."))
        return answer.before

    with card(text("Filter"), icon="filter_list") as tools:
        with tools, row():
            exports = {form: _export(form) for form in ("csv", "jsonl")}
        with row().classes("sb-search"):
            words = text_field(text("Words")).props("clearable debounce=120 type=search")
            words.classes("sb-grow")
            filters = {
                "user": choice(text("Person"), {"": text("anybody"), **people}, ""),
                "device": choice(text("Device"), {"": text("any device"), **devices}, ""),
                "outcome": choice(text("Outcome"), {"": text("any outcome"), **outcomes()}, ""),
                "since": choice(text("Since"), _since(), ""),
            }
            for name, each in filters.items():
                # As a link of another page asks for it.
                if (asked := view.client.request.query_params.get(name)) in each.options:
                    each.value = asked
                each.classes("sb-narrow")
    with card(text("Calls and changes")):
        columns = [text("Time"), text("Person"), text("Call"), text("Device"), text("Through")]
        table = Table([*columns, text("Outcome")], label=text("Calls and changes"))
        nothing = stack()
        pages = Paged(look, query, show)
    search = view.showing(pages.search)
    words.on_value_change(search)
    for each in filters.values():
        each.on_value_change(search)
    await pages.search()


def outcomes() -> dict[str, str]:
    """Return the word for each outcome that the audit log has."""
    return {
        "result": text("worked"),
        "refused": text("refused"),
        "needs_confirmation": text("asked first"),
        "skill_error": text("failed"),
        "offline": text("offline"),
        "forbidden": text("not allowed"),
        "rate_limited": text("too many requests"),
        "timeout": text("no answer in time"),
        "cancelled": text("cancelled"),
        "outcome_unknown": text("outcome unknown"),
        "busy": text("busy"),
        "bad_arguments": text("wrong arguments"),
        "unknown_skill": text("unknown skill"),
        "too_large": text("too large"),
        "expired": text("expired"),
        "stale_epoch": text("out of date"),
    }


def _since() -> dict[str, str]:
    return {
        "": text("ever"),
        "1h": text("an hour"),
        "1d": text("a day"),
        "7d": text("a week"),
        "30d": text("a month"),
    }


def _export(form: str) -> ui.link:
    made = ui.link(form.upper(), "#").classes("sb-link").props("download")
    made.props["aria-label"] = text("Export as {form}", form=form.upper())
    return made


def _row(entry: AuditEntry, people: Mapping[str, str], devices: Mapping[str, str]) -> list[Cell]:
    return [
        view.at(entry.at),
        people.get(entry.user, entry.user),
        ".".join(filter(None, (entry.skill, entry.method))),
        devices.get(entry.device, entry.device),
        str(entry.token_name or entry.through or entry.actor.get("address", "")),
        partial(_outcome, entry),
    ]


def _outcome(entry: AuditEntry) -> None:
    with row():
        badge(outcomes().get(entry.outcome, entry.outcome), _TONES.get(entry.outcome, "warn"))
        if entry.confirmed_by:
            Words("span", text("confirmed"), "sb-muted sb-small")
