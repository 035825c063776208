"""The audit log: who called what through what, and what was refused; searched, filtered, and exported."""

from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from nicegui import ui

from hub_web.parts.forms import choice, text_field
from hub_web.parts.layout import Tone, Words, badge, card, empty, note, refilled
from hub_web.parts.tables import Table
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import view

_PAGE: Final = 50
_TONES: Final[dict[str, Tone]] = {"result": "good", "refused": "bad", "cancelled": "plain"}


@page("/audit", title="Audit log", icon="fact_check", menu=230, width="wide")
async def audit() -> None:
    """Show the log."""
    await _Log().open()


class _Log:
    """The page as one browser shows it."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._before: int | None = None
        self._names: dict[str, str] = {}

    async def open(self) -> None:
        """Build the page."""
        devices = {each["id"]: each["name"] for each in await view.api.get("/api/devices")}
        if view.is_admin:
            self._names = {each["id"]: each["name"] for each in await view.api.get("/api/users")}
        self._devices = {"hub": text("Hub"), **devices}
        anybody = {"": text("anybody")}
        with card(text("Filter"), icon="filter_list") as tools:
            with tools, ui.element("div").classes("sb-row"):
                self._exports = [self._export(each) for each in ("csv", "jsonl")]
            with ui.element("div").classes("sb-row sb-search"):
                self._words = text_field(text("Words")).props("clearable debounce=300 type=search")
                self._words.classes("sb-grow").on_value_change(self._search)
                self._filters = {
                    "user": choice(text("Person"), anybody | self._names, ""),
                    "device": choice(text("Device"), {"": text("any device"), **self._devices}, ""),
                    "outcome": choice(text("Outcome"), self._outcomes(), ""),
                    "since": choice(text("Since"), self._since(), ""),
                }
                for name, each in self._filters.items():
                    # As a link of another page asks for it.
                    if (asked := view.client.request.query_params.get(name)) in each.options:
                        each.value = asked
                    each.classes("sb-narrow").on_value_change(self._search)
        with card(text("Calls and changes")):
            columns = [
                text("Time"),
                text("Person"),
                text("Call"),
                text("Device"),
                text("Through"),
                text("Outcome"),
            ]
            self._table = Table(columns, label=text("Calls and changes"))
            self._end = ui.element("div").classes("sb-stack")
        await self._search()

    def _outcomes(self) -> dict[str, str]:
        return {
            "": text("any outcome"),
            "result": text("worked"),
            "refused": text("refused"),
            "needs_confirmation": text("asked first"),
            "skill_error": text("failed"),
            "offline": text("offline"),
        }

    def _since(self) -> dict[str, str]:
        return {
            "": text("ever"),
            "1h": text("an hour"),
            "1d": text("a day"),
            "7d": text("a week"),
            "30d": text("a month"),
        }

    def _export(self, form: str) -> ui.link:
        made = ui.link(form.upper(), "#").classes("sb-link").props("download")
        made.props["aria-label"] = text("Export as {form}", form=form.upper())
        return made

    def _query(self) -> dict[str, str]:
        given = {name: str(each.value or "") for name, each in self._filters.items()}
        return {name: value for name, value in {"q": self._words.value or "", **given}.items() if value}

    async def _search(self) -> None:
        query = self._query()
        for form, link in zip(("csv", "jsonl"), self._exports, strict=True):
            link.props["href"] = view.href(f"/api/audit/export?{urlencode({**query, 'format': form})}")
        self._entries, self._before = [], None
        await self._more()

    async def _more(self) -> None:
        found = await view.api.get("/api/audit", **self._query(), before=self._before, limit=_PAGE)
        self._entries += found["entries"]
        self._before = found["before"]
        self._table.show(self._row(each) for each in self._entries)
        with refilled(self._end):
            if not self._entries:
                with empty("fact_check", text("Nothing found"), text("Nothing like this was called.")):
                    pass
            elif self._before is not None:
                view.button(text("Show more"), self._more, icon="expand_more")
            else:
                note(text("That is all."))

    def _row(self, entry: dict[str, Any]) -> list[Any]:
        device = str(entry["device"] or "")
        through = entry["token_name"] or entry["through"] or entry["actor"].get("address", "")
        return [
            view.at(entry["at"]),
            self._names.get(entry["user"], str(entry["user"])),
            ".".join(filter(None, (entry["skill"], entry["method"]))),
            self._devices.get(device, device),
            str(through),
            partial(self._outcome, entry),
        ]

    def _outcome(self, entry: dict[str, Any]) -> None:
        outcome = entry["outcome"]
        with ui.element("div").classes("sb-row"):
            badge(self._outcomes().get(outcome, outcome), _TONES.get(outcome, "warn"))
            if entry["confirmed_by"]:
                Words("span", text("confirmed"), "sb-muted sb-small")
