"""The audit log in words: what happened, by whom, and what was refused; searched, filtered, and exported."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from nicegui import ui

from contracts.answers.record import AuditEntry, AuditPage
from hub_agent.calls.audit import PEOPLE
from hub_live.watchers.operations import list_watchers
from hub_server.http import audit as operations
from hub_web import sb
from hub_web.parts.calls.forms import choice, search_field
from hub_web.parts.names import Names, load_names
from hub_web.parts.paging import Paged
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import view

_TONES: Final[dict[str, sb.Tone]] = {"result": "good", "refused": "bad", "cancelled": "plain"}


@page("/audit", title="Audit log", icon="fact_check", menu=230, width="wide")
async def audit() -> None:
    """Show the log."""
    names = await load_names()
    watchers = {each.name: each.title for each in await view.api(list_watchers)}
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
        table.show(_row(each, names, watchers) for each in entries)
        with sb.refilled(nothing):
            if not entries:
                sb.empty("fact_check", text("Nothing found"), text("Nothing like this was called."))
        return answer.before

    with sb.card(text("Filter"), icon="filter_list") as tools:
        with tools, sb.row():
            exports = {form: _export(form) for form in ("csv", "jsonl")}
        with sb.row().classes("sb-search"):
            search = view.showing(lambda: pages.search())
            words = search_field(text("Words"), search).classes("sb-grow")
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
                each.classes("sb-narrow").on_value_change(search)
    with sb.card(text("Calls and changes")):
        columns = [text("Time"), text("What happened"), text("By"), text("Outcome")]
        table = sb.Table(columns, label=text("Calls and changes"))
        nothing = sb.stack()
        pages = Paged(look, query, show)
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
    return sb.named(made, text("Export as {form}", form=form.upper()))


def _row(entry: AuditEntry, names: Names, watchers: Mapping[str, str]) -> list[sb.Cell]:
    by = _by(entry, names, watchers)
    return [view.at(entry.at), partial(_happened, entry, names), by, partial(_outcome, entry)]


def _happened(entry: AuditEntry, names: Names) -> None:
    with ui.element("details").classes("sb-more sb-act"):
        sb.Words("summary", what_happened(entry, names))
        address = str(entry.actor.get("address", ""))
        sb.facts(
            (text("Call"), ".".join(filter(None, (entry.skill, entry.method)))),
            (text("Device"), names.device(entry.device)),
            (text("Through"), entry.token_name or entry.through or address),
            (text("Id"), entry.call),
        )


def what_happened(entry: AuditEntry, names: Names) -> str:
    """Return what was called or changed, in words."""
    if entry.skill == PEOPLE:
        act, _, about = entry.method.partition(" ")
        who, _, more = about.partition(" ")
        # Ids have no spaces, names of tokens do; what a new one may do follows in parentheses.
        if act in ("make_token", "revoke_token"):
            who = about.rpartition(" (")[0] if act == "make_token" else about
        template = _acts().get(entry.method) or _acts().get(act)
        name = names.people.get(who) or names.devices.get(who) or who
        return template.format(name=name, more=more) if template else entry.method
    if not entry.skill:
        known = {"chat": text("Talk to the assistant"), "confirm": text("Answer a question of the assistant")}
        reads = entry.method.startswith("GET ")
        other = text("Read something of the hub") if reads else text("Change something of the hub")
        return known.get(entry.method, other)
    label = names.label(entry.device, entry.skill)
    device = names.devices.get(entry.device, "")
    said = f"{label(entry.skill)}: {label(entry.method)}"
    return f"{said} ({device})" if device else said


def _acts() -> dict[str, str]:
    return {
        "add_user": text("Add {name} to the home"),
        "change_user": text("Change the account of {name}"),
        "remove_user": text("Remove {name} from the home"),
        "make_code": text("Make a link with which {name} can log in"),
        "confirm_password": text("Enter the password"),
        "change_password": text("Change the password"),
        "choose_password": text("Choose a password"),
        "log_in": text("Log in"),
        "log_out": text("Log out"),
        "log_out_everywhere": text("Log out everywhere"),
        "make_token": text("Make the token {name}"),
        "revoke_token": text("Revoke the token {name}"),
        "set_scopes": text("Change what {name} may do"),
        "allow": text("Let the assistant call {more} on {name} without a question"),
        "ask_again": text("Have the assistant ask before it calls {more} on {name}"),
        "home-assistant expose": text("Show devices in Home Assistant"),
        "home-assistant hide": text("Hide devices from Home Assistant"),
        "connect Home Assistant": text("Connect Home Assistant"),
        "set where the home is": text("Set where the home is"),
        "allow other machines to connect": text("Allow other machines to connect"),
        "let only this machine connect": text("Let only this machine connect"),
    }


def _by(entry: AuditEntry, names: Names, watchers: Mapping[str, str]) -> str:
    """Return who did it, and what did it for them."""
    who = names.person(entry.user)
    actor = entry.actor
    if watcher := actor.get("watcher"):
        return text("Watcher “{name}” of {who}", name=watchers.get(str(watcher), watcher), who=who)
    if timer := actor.get("timer"):
        return text("Timer “{name}” of {who}", name=timer, who=who)
    if actor.get("turn") or actor.get("agent"):
        return text("The assistant for {who}", who=who)
    if device := actor.get("device"):
        return text("{name} for {who}", name=names.device(str(device)), who=who)
    return who


def _outcome(entry: AuditEntry) -> None:
    with sb.row():
        sb.badge(outcomes().get(entry.outcome, entry.outcome), _TONES.get(entry.outcome, "warn"))
        if entry.confirmed_by:
            sb.Words("span", text("confirmed"), "sb-muted sb-small")
