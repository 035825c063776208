"""The models: their order, a test, keys, and Ollama; where there is none yet, the first steps to one."""

from collections.abc import Sequence
from functools import partial

from nicegui import ui
from pydantic import SecretStr

from agent_core.gateway.opening import ModelState
from agent_core.models.entries import ModelEntry
from agent_core.models.ollama import LocalModel
from agent_core.setup.writing import name_for
from hub_server.system import models as operations
from hub_server.system.models import ModelEntries, ModelSettings, ModelTest, ShownModelEntry
from hub_web import sb
from hub_web.pages.models.adding import Adding, show_result
from hub_web.pages.models.ollama import Ollama
from hub_web.parts.calls.forms import choice, number_field, text_field
from hub_web.parts.home.message_box import MessageBox
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import view


@page("/models", title="Models", icon="psychology", menu=300, admin=True)
async def models() -> None:
    await _Models().show()


class _Models:
    """The page as one browser shows it."""

    settings: ModelSettings
    states: dict[str, ModelState]

    async def show(self) -> None:
        self.settings = await view.api(operations.show_settings)
        self._place = sb.stack()
        with sb.stack():
            self._ollama = Ollama(self._add_pulled)
        await self.refresh()
        view.run(self._ollama.look(), name="ollama")

    async def refresh(self) -> None:
        """Read everything again and show it."""
        was_empty = not self.settings.entries
        self.settings = await view.api(operations.show_settings)
        answer = await view.api(operations.list_models)
        self.states = {each.name: each for each in answer.models}
        with sb.refilled(self._place):
            if self.settings.entries:
                self._list()
                if was_empty:
                    with sb.card(text("Try it now"), icon="chat_bubble_outline"):
                        MessageBox(text("Who are you, and what is your job here?"))
            else:
                self._first_steps()

    # -- the list ---------------------------------------------------------------------------------

    def _list(self) -> None:
        entries = self.settings.entries
        with sb.card(text("Asked in this order"), icon="format_list_numbered") as tools:
            with tools:
                view.button(text("Add"), self._add, icon="add", kind="primary", tip=text("Add a model"))
            sb.note(text("The first one answers. Where it cannot, the next one does."))
            with ui.element("ol").classes("sb-models"):
                for place, entry in enumerate(entries):
                    self._entry(place, entry)

    def _entry(self, place: int, entry: ShownModelEntry) -> None:
        last = len(self.settings.entries) - 1
        name = entry.name
        with ui.element("li").classes("sb-model"):
            sb.Words("span", str(place + 1), "sb-model-place").props("aria-hidden=true")
            with ui.element("div").classes("sb-model-name"):
                sb.cut("span", name, "sb-strong")
                sb.cut("span", f"{entry.model} · {_provider_name(entry)}", "sb-muted sb-small")
            with ui.element("div").classes("sb-model-state").props("aria-live=polite") as state:
                self._state(entry)
            with ui.element("div").classes("sb-model-tools"):
                test = view.button(text("Test"), lambda: self._test(entry, state), icon="play_arrow")
                sb.named(test, text("Test {name}", name=name))
                for icon, to, tip in (
                    ("arrow_upward", place - 1, text("Ask {name} earlier", name=name)),
                    ("arrow_downward", place + 1, text("Ask {name} later", name=name)),
                ):
                    view.tool(icon, tip, partial(self._move, place, to)).set_enabled(0 <= to <= last)
                more = view.tool("more_vert", text("More about {name}", name=name), lambda: None)
                with more, ui.menu().props("auto-close"):
                    view.menu_item(text("Change"), partial(self._change, entry))
                    if entry.key_variable:
                        view.menu_item(text("Write a key"), partial(self._key, entry))
                    view.menu_item(text("Remove"), partial(self._remove, entry))

    def _state(self, entry: ShownModelEntry) -> None:
        state = self.states.get(entry.name)
        if entry.problem:
            sb.dot("bad", text.message(entry.problem))
        elif state is not None and state.state == "skipped":
            seconds = state.skipped_s
            sb.dot("warn", text("skipped for {n} s: it {why}", n=seconds, why=text.message(state.detail)))
        else:
            sb.dot("good", text("ready"))

    async def _move(self, place: int, to: int) -> None:
        entries = list[ModelEntry](self.settings.entries)
        entries.insert(to, entries.pop(place))
        await self._write(entries)

    async def _test(self, entry: ShownModelEntry, place: ui.element) -> None:
        place.clear()
        tried = await view.api(operations.try_model, ModelTest(name=entry.name))
        with place:
            show_result(tried)

    def _change(self, entry: ShownModelEntry) -> None:

        async def save() -> None:
            changed = entry.model_copy(
                update={
                    "model": model.value,
                    "base_url": (address.value or None) if address is not None else None,
                    "tools": tools.value,
                    "first_token_s": first.value,
                }
            )
            entries = self.settings.entries
            await self._write([changed if each.name == entry.name else each for each in entries])

        with view.form(text("Change {name}", name=entry.name), save):
            model = text_field(text("Model"), entry.model)
            address = None
            if entry.about.takes_address:
                hint = text(entry.about.address_hint)
                address = text_field(text("Address"), entry.base_url or "", hint=hint)
            small = text("calls one skill at a time (small models)")
            ways = {"code": text("writes programs"), "native": small}
            tools = choice(text("How it acts"), ways, entry.tools)
            label = text("Seconds until its answer begins, at most")
            first = number_field(label, entry.first_token_s, least=1, most=3_600)

    def _key(self, entry: ShownModelEntry) -> None:
        variable = entry.key_variable

        async def save() -> None:
            await view.api(operations.set_key, variable or "", SecretStr((key.value or "").strip()))
            view.notify(text("The key is written"))
            await self.refresh()

        with view.form(text("Key of {name}", name=entry.name), save):
            sb.note(text("Kept in the hub's own file of secrets, and never shown again."))
            if variable in self.settings.fixed_keys:
                sb.problem(
                    text("{name} is set where the hub was started, which has precedence.", name=variable)
                )
            key = text_field(text("New key"), secret=True)

    async def _remove(self, entry: ShownModelEntry) -> None:
        if await view.ask(text("Remove {name}?", name=entry.name), yes=text("Remove"), danger=True):
            await self._write([each for each in self.settings.entries if each.name != entry.name])

    async def _write(self, entries: Sequence[ModelEntry]) -> None:
        await view.api(operations.write_models, ModelEntries(entries=list(entries)))
        await self.refresh()

    # -- adding one -------------------------------------------------------------------------------

    def _first_steps(self) -> None:
        with ui.element("div").classes("sb-welcome"):
            ui.icon("psychology").classes("sb-empty-icon")
            sb.heading(text("Add a language model"), classes="sb-empty-title")
            sb.note(
                text(
                    "A model understands what you say and decides what to do. It can run on a machine of "
                    "yours, or at a provider. Until then, fixed sentences of skills work."
                )
            )
        Adding(self.settings, self.refresh).show()

    def _add(self) -> None:
        with view.dialog(text("Add a model"), wide=True) as box:

            async def done() -> None:
                box.close()
                await self.refresh()

            Adding(self.settings, done).show()

    async def _add_pulled(self, model: LocalModel, address: str) -> None:
        entry = ModelEntry(
            name=name_for(model.name, {each.name for each in self.settings.entries}),
            provider="ollama",
            model=model.name,
            base_url=address,
            tools="native" if model.is_small else "code",
        )
        await self._write([*self.settings.entries, entry])
        view.notify(text("{name} is asked from now on", name=entry.name))


def _provider_name(entry: ShownModelEntry) -> str:
    return (entry.base_url if entry.about.address_hint else None) or entry.about.label
