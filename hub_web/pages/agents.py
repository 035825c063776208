"""Agents: their profiles, with what is wrong in which line, and their files."""

from functools import partial

from nicegui import ui

from contracts.answers.system import AgentProblem, AgentSummary
from contracts.phrases import Phrase
from hub_agent.agents import operations as profiles
from hub_web import limits, sb
from hub_web.parts.calls.forms import text_field
from hub_web.parts.files import FileField, download_link
from hub_web.shell import page
from hub_web.texts import size, text
from hub_web.view import part, view


@page("/agents", title="Agents", icon="smart_toy", menu=70, writer=True)
async def agents() -> None:
    """Show the agents of the home."""
    found = await view.api(profiles.list_agents)
    with sb.row():
        sb.note(text("Assistants with their own instructions, files and rights."))
        ui.element("div").classes("sb-grow")
        if view.is_admin:
            view.button(text("New agent"), _ask, icon="add", kind="primary")
    if not found:
        with sb.empty(
            "smart_toy",
            text("No agent yet"),
            text("An agent is a file with instructions: what it looks after, and what it may call."),
        ):
            if view.is_admin:
                view.button(text("Write one"), _ask, icon="add", kind="primary")
        return
    with sb.grid(least=320):
        for agent in found:
            _card(agent)


def _card(agent: AgentSummary) -> None:
    with sb.card(agent.name, icon="smart_toy") as tools:
        with tools:
            if agent.problems:
                sb.badge(text("to be mended"), "bad")
        if agent.description:
            sb.Words("p", agent.description)
        for each in agent.problems:
            sb.problem(each.message.rpartition("/")[2], each.hint)
        if agent.models is not None:
            sb.facts(
                (text("Models"), ", ".join(agent.models) or text("all, in their order")),
                (text("Tools"), ", ".join(agent.tools or ())),
                (text("May call"), ", ".join(agent.allow or ()) or text("nothing")),
                (text("Files"), agent.data_dir or ""),
            )
        with sb.actions():
            if view.is_admin:
                view.button(text("Edit"), lambda: view.go(f"/agents/{part(agent.name)}"), icon="edit")


async def _ask() -> None:

    async def make() -> None:
        made = await view.api(profiles.add, name.value)
        view.go(f"/agents/{part(made.name)}")

    with view.form(text("New agent"), make, yes=text("Write its file")):
        name = text_field(text("Name"), hint=text("Letters, digits, - and _"))


@page("/agents/{name}", title="Agent", icon="smart_toy", writer=True)
async def agent(name: str) -> None:
    """Show an agent's profile to edit, and its files."""
    view.title(name)
    await _Editor(name).open()


class _Editor:
    """The page as one browser shows it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._path = f"/api/agents/{part(name)}"

    async def open(self) -> None:
        """Build the page."""
        shown = await view.api(profiles.show, self._name)
        self._saved = shown.source
        with sb.card(text("Profile"), icon="description"):
            sb.note(text("What you save counts from the next message on; with a mistake it is not saved."))
            with ui.element("div").classes("sb-editor"):
                self._numbers = sb.Words("pre", "", "sb-lines").props("aria-hidden=true")
                self._source = sb.named(ui.textarea(value=self._saved), text("Profile")).classes("sb-grow")
                self._source.props("borderless spellcheck=false debounce=400")
            self._source.on_value_change(view.showing(self._check))
            self._problems = sb.stack().props("aria-live=polite")
            with sb.actions():
                view.button(text("Delete"), self._delete, icon="delete", kind="flat")
                view.button(text("As it was"), self._reset, icon="undo", kind="flat")
                view.button(text("Save"), self._save, icon="save", kind="primary")
        self._files = ui.element("div")
        self._say(shown.problems)
        await self._show_files(is_usable=not shown.problems)

    async def _check(self) -> None:
        source = self._source.value or ""
        self._say((await view.api(profiles.check, self._name, source)).problems)

    def _say(self, problems: list[AgentProblem]) -> None:
        wrong = {each.line for each in problems}
        count = (self._source.value or "").count("\n") + 1
        self._numbers.set("\n".join(f"▸{n:>3}" if n in wrong else f"{n:>4}" for n in range(1, count + 1)))
        self._source.props(f"rows={max(count, limits.LEAST_EDITOR_LINES)}")
        with sb.refilled(self._problems):
            for each in problems:
                # The file and the line are shown anyway.
                said = text.message(Phrase(each.message).values.get("text", each.message))
                line = text("Line {n}: {message}", n=each.line, message=said)
                sb.problem(line if each.line else said, each.hint)
            if not problems:
                sb.dot("good", text("No mistake."))

    async def _save(self) -> None:
        written = await view.api(profiles.change, self._name, self._source.value or "")
        self._saved = self._source.value
        self._say(written.problems)
        view.notify(text("Saved"))
        await self._show_files(is_usable=not written.problems)

    def _reset(self) -> None:
        self._source.value = self._saved

    async def _delete(self) -> None:
        question = text("Delete the agent {name}?", name=self._name)
        if await view.ask(question, text("Its files stay."), yes=text("Delete"), danger=True):
            await view.api(profiles.remove, self._name)
            view.go("/agents")

    async def _show_files(self, *, is_usable: bool = True) -> None:
        if not is_usable:
            self._files.clear()  # which folder is its own, only a profile without mistakes says
            return
        found = await view.api(profiles.list_files, self._name)
        with sb.refilled(self._files), sb.card(text("Its files"), icon="folder_open"):
            sb.note(text("What it reads and writes with its file tools, and nothing else of this machine."))
            with sb.row():
                chosen = FileField(text("File to add"))
                view.button(text("Upload"), partial(self._upload, chosen), icon="upload")
            if not found:
                sb.note(text("It has no file yet."))
                return
            rows = [self._file(each.path, each.bytes or 0) for each in found if each.path is not None]
            sb.table((text("Name"), text("Size"), ""), rows, label=text("Its files"))
            for each in found:
                if each.note is not None:
                    sb.note(text.message(each.note))

    def _file(self, name: str, count: int) -> tuple[sb.Cell, ...]:
        def tools() -> None:
            with sb.row().classes("sb-end"):
                download_link(name, self._file_path(name))
                view.tool("delete", text("Delete {name}", name=name), partial(self._drop, name))

        return name, size(count), tools

    def _file_path(self, name: str) -> str:
        return f"{self._path}/files/{'/'.join(map(part, name.split('/')))}"

    async def _upload(self, chosen: FileField) -> None:
        await chosen.send(f"{self._path}/files/")
        view.notify(text("Uploaded"))
        await self._show_files()

    async def _drop(self, name: str) -> None:
        if await view.ask(text("Delete {name}?", name=name), yes=text("Delete"), danger=True):
            await view.api(profiles.remove_file, self._name, name)
            await self._show_files()
