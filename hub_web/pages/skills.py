"""Skills: found as the model finds them, described as it reads them, and sentences that are tried."""

from functools import partial
from typing import Any, Final

from nicegui import ui

from hub_web.api import part
from hub_web.pages.device import method_row
from hub_web.parts.calls import call, flag_legend, flags, show_result
from hub_web.parts.code import as_json, code, escaped
from hub_web.parts.forms import choice, text_field
from hub_web.parts.layout import Words, badge, card, empty, heading, note
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import view

_SHOWN: Final = 30


@page("/skills", title="Skills", icon="extension", menu=30)
async def skills() -> None:
    """Show the search, and what a sentence would call."""
    await _Skills().open()


class _Skills:
    """The page as one browser shows it."""

    async def open(self) -> None:
        """Build the page."""
        devices = await view.api.get("/api/devices")
        names = {None: text("No device"), **{each["key"]: each["name"] for each in devices}}
        with card(text("Try a sentence"), icon="chat_bubble_outline"):
            note(text("A sentence that a skill declares acts without a model. Trying it runs nothing."))
            with ui.element("div").classes("sb-row sb-search"):
                self._sentence = text_field(text("Sentence"), hint=text("For example: turn on the lamp"))
                self._sentence.classes("sb-grow").on("keydown.enter", self._try)
                self._here = choice(text("Said on"), names, None).classes("sb-narrow")
                view.button(text("Try"), self._try, kind="primary")
            self._meant = ui.element("div").classes("sb-stack").props("aria-live=polite")
        with card(text("Search as the assistant does"), icon="search"):
            with ui.element("div").classes("sb-row sb-search"):
                self._words = text_field(text("Words")).classes("sb-grow")
                self._words.props("clearable debounce=300 type=search")
                self._words.on_value_change(self._search)
                self._current = choice(text("Current device"), names, None).classes("sb-narrow")
                self._current.on_value_change(self._search)
            flag_legend()
            self._found = ui.element("div").props("aria-live=polite")
        await self._search()

    # -- sentences --------------------------------------------------------------------------------

    async def _try(self) -> None:
        said = self._sentence.value.strip()
        self._meant.clear()
        if not said:
            return
        meant = await view.api.get("/api/skills/sentence", q=said, device=self._here.value)
        with self._meant:
            if not meant["calls"]:
                Words("p", text("No skill declares this; a model would answer."), "sb-strong")
                if meant["examples"]:
                    note(text("These would work: {sentences}", sentences=" · ".join(meant["examples"])))
                return
            if meant["question"]:
                Words("p", text("It may mean several; it would ask:"), "sb-strong")
                note(meant["question"])
            for each in meant["calls"]:
                self._call(each)

    def _call(self, meant: dict[str, Any]) -> None:
        _, device, skill, method = meant["path"].split(".")
        with ui.element("div").classes("sb-method"):
            with ui.element("div").classes("sb-stack sb-tight sb-grow"):
                Words("p", meant["path"], "sb-mono sb-strong sb-text")
                Words("p", meant["summary"], "sb-muted")
                with ui.element("div").classes("sb-row"):
                    badge(meant["device_name"], icon="devices")
                    flags(meant["flags"])
                    if why := meant["unavailable"]:
                        badge(text(why), "bad")
                if meant["arguments"]:
                    as_json(meant["arguments"], label=text("Arguments"))
                outcome = ui.element("div").classes("sb-stack")

            async def run() -> None:
                answer = await call(device, skill, method, meant["arguments"])
                outcome.clear()
                if answer is not None:
                    with outcome:
                        show_result(answer)

            view.button(text("Run"), run, icon="play_arrow")

    # -- search -----------------------------------------------------------------------------------

    async def _search(self) -> None:
        page = await view.api.get(
            "/api/skills/search", q=self._words.value or "", device=self._current.value, limit=_SHOWN
        )
        self._found.clear()
        with self._found:
            if not page["results"]:
                with empty("search_off", text("Nothing found"), text("Other words may find it.")):
                    pass
            for result in page["results"]:
                self._result(result)
            if page["more"]:
                note(text("{n} more: narrower words find fewer.", n=page["more"]))
            if page["silent"]:
                note(text("Not heard for long, so left out: {names}", names=", ".join(page["silent"])))

    def _result(self, result: dict[str, Any]) -> None:
        _, _, skill, method = result["path"].split(".")
        with ui.element("div").classes("sb-method"):
            with ui.element("div").classes("sb-stack sb-tight sb-grow"):
                Words("p", f"{skill}.{result['signature']}", "sb-mono sb-strong sb-text")
                Words("p", result["summary"], "sb-muted")
                with ui.element("div").classes("sb-row"):
                    for each in result["devices"]:
                        why = result["unavailable"].get(each, "")
                        made = badge(f"{each}: {text(why)}" if why else each, "bad" if why else "plain")
                        made.props["title"] = why or each
                    if result["more_devices"]:
                        badge(text("and {n} more", n=result["more_devices"]))
                    flags(result["flags"])
                    if not result["available"]:
                        badge(text("cannot be called now"), "bad")
            view.button(
                "",
                partial(self._describe, result["path"]),
                icon="chevron_right",
                kind="flat",
                tip=text("More about {method}", method=f"{skill}.{method}"),
            )

    async def _describe(self, path: str) -> None:
        """Show what the model reads of a method, its sentences, and the form that runs it."""
        _, device, skill, method = path.split(".")
        described = await view.api.get(f"/api/skills/describe?path={part(path)}")
        found = await view.api.get("/api/skills/methods", device=device, skill=skill)
        with view.dialog(f"{skill}.{method}", wide=True, close=text("Close")):
            code(escaped(described["text"]), label=text("As the assistant reads it")).classes("sb-wrap")
            for each in found["skills"][:1]:
                here = [one for one in each["methods"] if one["name"] == method]
                for one in here:
                    if one["sentences"]:
                        heading(text("Sentences"), level=3)
                        for language, templates in one["sentences"].items():
                            for template in templates:
                                with ui.element("div").classes("sb-row sb-nowrap"):
                                    badge(language)
                                    Words("span", template, "sb-text")
                    method_row(each, one)
