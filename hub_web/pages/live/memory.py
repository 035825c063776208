"""Memory: what the assistant knows in every conversation, read, changed and taken back."""

from functools import partial

from nicegui import ui

from contracts.answers.live import ShownEntry
from hub_agent.prompt.operations import show_prompt
from hub_live.memory import operations as memories
from hub_registry.http.users import list_users
from hub_web import sb
from hub_web.parts.calls.forms import search_field, switch, text_field
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import part, view


@page("/memory", title="Memories", icon="bookmarks", menu=60, writer=True)
async def memory() -> None:
    """Show what is remembered."""

    @sb.one_at_a_time
    async def show() -> None:
        wanted = (query.value or "").strip()
        entries = await view.api(memories.entries, wanted)
        with sb.refilled(place):
            if not entries and wanted:
                sb.empty("search_off", text("Nothing found"), text("Other words may find it."))
            elif not entries:
                with sb.empty(
                    "psychology",
                    text("Nothing is remembered yet"),
                    text("Tell the assistant: remember that the bins go out on Tuesday."),
                ):
                    view.button(text("Add an entry"), partial(_edit, show), icon="add", kind="primary")
            categories: dict[str, list[ShownEntry]] = {}
            for entry in entries:
                categories.setdefault(entry.category, []).append(entry)
            for category, of_it in categories.items():
                with sb.card(category, icon="bookmark_border"), ui.element("ul").classes("sb-entries"):
                    for entry in of_it:
                        _entry(entry, show, names)

    async def undo() -> None:
        entry = await view.api(memories.undo)
        view.notify(text("Taken back: {text}", text=entry.text[:80]))
        await show()

    with sb.row().classes("sb-search"):
        query = search_field(text("Search"), view.showing(show)).classes("sb-grow")
        view.button(text("Undo"), undo, icon="undo")
        view.button(text("Add"), partial(_edit, show), icon="add", kind="primary")
    sb.note(text("Undo takes back your last changes, up to 20, until the hub restarts."), classes="sb-small")
    for each in (await view.api(show_prompt)).problems:
        if "MEMORY.md" in each:
            sb.problem(each, text("What it said before is shown; nothing is changed until it can be read."))
    names = {view.user.id: view.user.display_name}
    if view.is_admin:
        names |= {each.id: each.name for each in await view.api(list_users)}
    place = sb.stack().classes("sb-parts").props("aria-live=polite")
    await show()


def _entry(entry: ShownEntry, show: sb.Callback, names: dict[str, str]) -> None:
    with ui.element("li").classes("sb-entry-row"):
        with sb.stack().classes("sb-tight sb-grow"):
            sb.Words("p", entry.text, "sb-text")
            with sb.row().classes("sb-small"):
                if entry.private:
                    sb.badge(text("only for you"), icon="lock")
                if entry.untrusted:
                    sb.badge(text("after text of strangers"), "warn")
                said = text("written in the file")
                if entry.at:
                    person = names.get(entry.by or "", entry.by or "")
                    said = text("{person}, {time}", person=person, time=view.ago(entry.at))
                sb.Words("span", said.lstrip(", "), "sb-muted")
                if entry.conversation:
                    path = f"/chat/{part(entry.conversation)}"
                    view.link(text("Conversation"), path, classes="sb-small")
        cut = entry.text[:40]
        for icon, tip, act in (
            ("edit", text("Edit: {text}", text=cut), _edit),
            ("delete", text("Forget: {text}", text=cut), _forget),
        ):
            view.tool(icon, tip, partial(act, show, entry))


async def _edit(show: sb.Callback, entry: ShownEntry | None = None) -> None:
    """Ask for the words of an entry, or of a new one."""

    async def save() -> None:
        if entry is None:
            await view.api(memories.add, category.value, words.value, private.value)
        else:
            # Who writes the text vouches for it: what is as it was is not sent.
            await view.api(
                memories.change,
                entry.id,
                category.value if category.value != entry.category else None,
                words.value if words.value != entry.text else None,
            )
        await show()

    title, yes = (text("Add an entry"), text("Remember")) if entry is None else (text("Edit an entry"), "")
    with view.form(title, save, yes=yes):
        hint = text("One sentence that can be understood alone")
        words = text_field(text("Text"), entry.text if entry else "", hint=hint, lines=True)
        named = entry.category if entry else ""
        category = text_field(text("Category"), named, hint=text("As: Chores, Preferences"))
        if entry is None:
            private = switch(text("Only for me"))


async def _forget(show: sb.Callback, entry: ShownEntry) -> None:
    await view.api(memories.forget, entry.id)
    view.notify(text("Forgotten. Undo brings it back."))
    await show()
