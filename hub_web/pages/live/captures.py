"""Captures: what is recorded, how much of it there is, its plot and its files."""

from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from nicegui import ui

from contracts.errors import InvalidMessage
from hub_web.api import part
from hub_web.parts.files import download_link, size
from hub_web.parts.forms import choice, number_field, switch, text_field
from hub_web.parts.layout import (
    Tone,
    Words,
    actions,
    badge,
    card,
    empty,
    facts,
    grid,
    heading,
    note,
    problem,
    refilled,
)
from hub_web.parts.plots import plot
from hub_web.parts.tables import Cell, Table
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import view

_TONES: Final[dict[str, Tone]] = {"active": "good", "stopped": "plain", "full": "warn", "failed": "bad"}
_PLOTTED: Final = frozenset({"jsonl", "csv"})
_FORMATS: Final = ("jsonl", "csv", "raw", "h264")


@page("/captures", title="Captures", icon="fiber_smart_record", menu=50)
async def captures() -> None:
    """Show all captures, live."""
    await _Captures().open()


class _Captures:
    """The page as one browser shows it."""

    async def open(self) -> None:
        """Build the page."""
        with ui.element("div").classes("sb-row"):
            note(text("Topics recorded into files, until you stop them."))
            ui.element("div").classes("sb-grow")
            view.button(text("New capture"), self._ask, icon="add", kind="primary")
        self._place = ui.element("div")
        await self._show()
        view.follow("/api/events", lambda _: self._show(), kind="capture")

    async def _show(self) -> None:
        found = await view.api.get("/api/captures")
        with refilled(self._place):
            if not found:
                with empty(
                    "fiber_smart_record",
                    text("No capture yet"),
                    text("Record the values of your home to look at them later, or to try watchers on them."),
                ):
                    view.button(text("Start a capture"), self._ask, icon="add", kind="primary")
                return
            with grid(least=360):
                for each in found:
                    self._card(each)

    def _card(self, capture: dict[str, Any]) -> None:
        states = {
            "active": text("recording"),
            "stopped": text("stopped"),
            "full": text("no room"),
            "failed": text("cannot record"),
        }
        with card(capture["id"], icon="fiber_smart_record") as tools:
            with tools:
                badge(states.get(capture["state"], capture["state"]), _TONES.get(capture["state"], "plain"))
            if capture["problem"]:
                problem(capture["problem"])
            facts(
                {
                    text("Topics"): ", ".join(each["topic"] for each in capture["topics"]),
                    text("Messages"): text.number(capture["messages"]),
                    text("Size"): f"{size(capture['bytes'])}, "
                    + text.count(capture["files"], "{n} file", "{n} files"),
                    text("Gaps"): text.number(capture["gaps"]) if capture["gaps"] else "",
                    text("Format"): capture["format"] + (" (zstd)" if capture["zstd"] else ""),
                    text("Since"): view.ago(capture["created_at"]),
                }
            )
            if not capture["owner"]:
                note(text("What watchers see, kept for their back-tests."), classes="sb-small")
            with actions():
                if capture["state"] != "stopped" and capture["owner"]:
                    view.button(text("Stop"), partial(self._stop, capture["id"]), icon="stop", kind="flat")
                if capture["format"] in _PLOTTED and capture["files"]:
                    view.button(text("Plot"), partial(self._plot, capture["id"]), icon="show_chart")
                view.button(text("Files"), partial(self._files, capture["id"]), icon="folder_open")

    async def _stop(self, capture: str) -> None:
        if await view.ask(text("Stop {name}?", name=capture), text("Its files stay."), yes=text("Stop")):
            await view.api.delete(f"/api/captures/{part(capture)}")
            await self._show()

    async def _plot(self, capture: str) -> None:
        numbers = await view.api.get(f"/api/captures/{part(capture)}/numbers")
        with view.dialog(capture, wide=True, close=text("Close")):
            if not numbers["lines"]:
                note(text("There are no numbers in it."))
            for name, line in numbers["lines"].items():
                topic, _, field = name.rpartition(" ")
                heading(field, level=3, classes="sb-mono")
                Words("p", topic, "sb-muted sb-small sb-cut").props["title"] = topic
                times = [datetime.fromtimestamp(at, UTC) for at, _ in line]
                plot(times, [value for _, value in line], label=name, steps=True)
            if numbers["more"]:
                note(text("and {n} more", n=numbers["more"]))
            if numbers["cut"]:
                note(text("Only the newest files are drawn."))

    async def _files(self, capture: str) -> None:
        path = f"/api/captures/{part(capture)}/files"
        found = await view.api.get(path)
        with view.dialog(text("Files of {name}", name=capture), wide=True, close=text("Close")):
            if not found:
                note(text("There is no file yet."))
            else:
                shown = Table((text("Name"), text("Size"), text("Changed"), ""), label=text("Files"))
                shown.show(self._file(path, each) for each in reversed(found))

    def _file(self, path: str, file: dict[str, Any]) -> tuple[Cell, ...]:
        return (
            file["name"],
            size(file["bytes"]),
            view.ago(file["changed_at"]),
            partial(download_link, file["name"], f"{path}/{part(file['name'])}"),
        )

    async def _ask(self) -> None:

        async def start() -> None:
            named = [line.strip() for line in (topics.value or "").splitlines() if line.strip()]
            if not named or not path.value:
                raise InvalidMessage(text("It needs topics and a file."))
            body: dict[str, Any] = {
                "topics": [{"topic": each, "link": link.value} for each in named],
                "path": path.value,
                "format": kind.value,
                "zstd": zstd.value,
            }
            if keep.value:
                body["keep_days"] = keep.value
            await view.api.post("/api/captures", body)
            await self._show()

        with view.form(text("New capture"), start, yes=text("Start")):
            topics = text_field(
                text("Topics"), hint=text("One in each line; + and # are wildcards"), lines=True
            )
            link = choice(
                text("Broker"), {"bus": text("Strawberry's bus"), "home": text("the home broker")}, "bus"
            )
            path = text_field(text("File"), hint=text("In the folder for captures, as nas/disk.jsonl"))
            with ui.element("div").classes("sb-row sb-nowrap"):
                kind = choice(text("Format"), _FORMATS, "jsonl")
                keep = number_field(text("Keep days"), least=1)
            zstd = switch(text("Compress"))
