"""Memory: what the assistant knows in every conversation, read, changed and taken back."""

from functools import partial
from typing import Any

from nicegui import ui

from hub_web.api import part
from hub_web.parts.forms import switch, text_field
from hub_web.parts.layout import Words, badge, card, empty, note, problem, refilled, row, stack
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import Show, one_at_a_time, view


@page("/memory", title="Memories", icon="bookmarks", menu=60)
async def memory() -> None:
    """Show what is remembered."""

    @one_at_a_time
    async def show() -> None:
        wanted = (query.value or "").strip()
        entries = await view.api.get("/api/memory", q=wanted or None)
        with refilled(place):
            if not entries and wanted:
                empty("search_off", text("Nothing found"), text("Other words may find it."))
            elif not entries:
                with empty(
                    "psychology",
                    text("Nothing is remembered yet"),
                    text("Tell the assistant: remember that the bins go out on Tuesday."),
                ):
                    if view.may_change:
                        view.button(text("Add an entry"), partial(_edit, show), icon="add", kind="primary")
            categories: dict[str, list[dict[str, Any]]] = {}
            for entry in entries:
                categories.setdefault(entry["category"], []).append(entry)
            for category, of_it in categories.items():
                with card(category, icon="bookmark_border"), ui.element("ul").classes("sb-entries"):
                    for entry in of_it:
                        _entry(entry, show, names)

    async def undo() -> None:
        entry = await view.api.post("/api/memory/undo")
        view.notify(text("Taken back: {text}", text=entry["text"][:80]))
        await show()

    with row().classes("sb-search"):
        query = text_field(text("Search")).props("type=search clearable debounce=120")
        query.classes("sb-grow").on_value_change(view.showing(show))
        if view.may_change:
            view.button(text("Undo"), undo, icon="undo")
            view.button(text("Add"), partial(_edit, show), icon="add", kind="primary")
    if view.may_change:
        note(text("Undo takes back your last changes, up to 20, until the hub restarts."), classes="sb-small")
    for each in (await view.api.get("/api/prompt"))["problems"]:
        if "MEMORY.md" in each:
            problem(each, text("What it said before is shown; nothing is changed until it can be read."))
    names = {view.user.id: view.user.display_name}
    if view.is_admin:
        names |= {each["id"]: each["name"] for each in await view.api.get("/api/users")}
    place = stack().classes("sb-parts").props("aria-live=polite")
    await show()


def _entry(entry: dict[str, Any], show: Show, names: dict[str, str]) -> None:
    with ui.element("li").classes("sb-entry-row"):
        with stack().classes("sb-tight sb-grow"):
            Words("p", entry["text"], "sb-text")
            with row().classes("sb-small"):
                if entry["private"]:
                    badge(text("only for you"), icon="lock")
                if entry["untrusted"]:
                    badge(text("after text of strangers"), "warn")
                said = text("written in the file")
                if entry["at"]:
                    person = names.get(entry["from"], entry["from"] or "")
                    said = text("{person}, {time}", person=person, time=view.ago(entry["at"]))
                Words("span", said.lstrip(", "), "sb-muted")
                if entry["conversation"]:
                    path = f"/chat/{part(entry['conversation'])}"
                    view.link(text("Conversation"), path, classes="sb-small")
        if not view.may_change:
            return
        cut = entry["text"][:40]
        for icon, tip, act in (
            ("edit", text("Edit: {text}", text=cut), _edit),
            ("delete", text("Forget: {text}", text=cut), _forget),
        ):
            view.button("", partial(act, show, entry), icon=icon, kind="flat", tip=tip)


async def _edit(show: Show, entry: dict[str, Any] | None = None) -> None:
    """Ask for the words of an entry, or of a new one."""

    async def save() -> None:
        body = {"text": words.value, "category": category.value}
        if entry is None:
            await view.api.post("/api/memory", {**body, "private": private.value})
        elif changed := {name: value for name, value in body.items() if value != entry[name]}:
            await view.api.patch(f"/api/memory/{part(entry['id'])}", changed)
        await show()

    title, yes = (text("Add an entry"), text("Remember")) if entry is None else (text("Edit an entry"), "")
    with view.form(title, save, yes=yes):
        given = entry or {"text": "", "category": ""}
        hint = text("One sentence that can be understood alone")
        words = text_field(text("Text"), given["text"], hint=hint, lines=True)
        category = text_field(text("Category"), given["category"], hint=text("As: Chores, Preferences"))
        if entry is None:
            private = switch(text("Only for me"))


async def _forget(show: Show, entry: dict[str, Any]) -> None:
    await view.api.delete(f"/api/memory/{part(entry['id'])}")
    view.notify(text("Forgotten. Undo brings it back."))
    await show()
