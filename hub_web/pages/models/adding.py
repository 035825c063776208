"""A new model in three steps: where it runs, which one, and whether it answers."""

from typing import Any

from nicegui import ui
from pydantic import SecretStr

from agent_core.models.entries import ModelEntry
from agent_core.models.ollama import LocalModel
from agent_core.models.providers import PROVIDERS, Provider
from agent_core.setup.writing import name_for, own_variable
from hub_server.system import models as operations
from hub_server.system.models import ModelEntries, ModelSettings, ModelTest, TriedModel
from hub_web import sb
from hub_web.parts.calls.forms import choice, refuse, text_field
from hub_web.texts import milliseconds, size, text
from hub_web.view import view


def show_result(tried: TriedModel) -> None:
    """Show what came of a test."""
    time = milliseconds(1_000 * tried.first_s)
    if tried.problem:
        sb.problem(text("It does not answer"), tried.problem)
    elif tried.advice:
        sb.dot("warn", text("answers after {time}", time=time))
        sb.note(text.message(tried.advice), classes="sb-small")
    else:
        sb.dot("good", text("answers after {time}, and calls tools", time=time))


class Adding:
    """Three steps to a model: where it runs, which one, and whether it answers.

    Args:
        done: Called once it was written.
    """

    def __init__(self, settings: ModelSettings, done: sb.Callback) -> None:
        self._settings = settings
        self._done = done
        self._tiles: dict[str, ui.button] = {}
        self._provider: Provider
        self._server = ""

    def show(self) -> None:
        """Show the first step; the others follow below it."""
        with sb.stack():
            sb.heading(text("Where does it run?"), level=3)
            with ui.element("div").classes("sb-tiles"):
                # Where nothing leaves the house comes first.
                for provider in sorted(PROVIDERS.values(), key=lambda each: not each.is_local):
                    self._tile(provider)
            self._rest = sb.stack()

    def _tile(self, provider: Provider) -> None:
        tile = ui.button(color=None, on_click=lambda: self._choose(provider)).props("no-caps unelevated")
        tile.classes("sb-tile").props["aria-pressed"] = "false"
        with tile, ui.element("span").classes("sb-tile-in"):
            ui.icon(provider.icon)
            sb.Words("span", text(provider.title or provider.label), "sb-strong")
            sb.Words("span", text(provider.subtitle or provider.about), "sb-muted sb-small")
        self._tiles[provider.name] = tile

    async def _choose(self, provider: Provider) -> None:
        self._provider = provider
        for name, tile in self._tiles.items():
            tile.props(f"aria-pressed={'true' if name == provider.name else 'false'}")
        with sb.refilled(self._rest):
            await self._second(provider)

    async def _second(self, provider: Provider, asked: str | None = None) -> None:
        sb.heading(text("Which one?"), level=3)
        local: tuple[LocalModel, ...] = ()
        self._server = ""
        if provider.is_local:
            async with view.busy():
                found = await view.api(operations.list_ollamas, asked)
            for server in found[:1]:
                if server.problem:
                    sb.problem(server.problem)
                local = server.models
                # The hub may find it by a variable of its own, which an entry does not go by.
                self._server = server.address if server.address != provider.address else ""
            self._look_again(provider, asked or (found[0].address if found else provider.address))
        with ui.element("div").classes("sb-form"):
            self._model: Any
            if local:
                able = [each.name for each in local if each.calls_tools is not False]
                names = {each.name: _described(each) for each in local}
                self._model = choice(text("Model"), names, (able or list(names))[0])
            else:
                hint = "" if provider.is_local else text("As the provider calls it")
                self._model = text_field(text("Model"), provider.suggested, hint=hint)
            self._address = None
            if provider.address_hint:
                self._address = text_field(text("Address"), hint=text(provider.address_hint))
            self._key = None
            if not provider.is_local:
                hint = text("Kept in the hub's own file of secrets, and never shown again.")
                self._key = text_field(text("Key"), secret=True, hint=hint)
        sb.heading(text("Does it answer?"), level=3)
        self._tried = ui.element("div").props("aria-live=polite")
        self._known = {each.name: each for each in local}
        with sb.actions():
            view.button(text("Test"), self._try, icon="play_arrow")
            view.button(text("Use this model"), self._save, kind="primary", icon="check")

    def _look_again(self, provider: Provider, asked: str) -> None:
        async def look() -> None:
            with sb.refilled(self._rest):
                await self._second(provider, (address.value or "").strip() or None)

        hint = text("Ollama on another machine: for example http://192.168.1.5:11434")
        address = text_field(text("Address of Ollama"), asked, hint=hint)
        with sb.actions():
            view.button(text("Look again"), look, icon="refresh")

    def _entry(self) -> ModelEntry:
        model = str(self._model.value or "").strip()
        if not model:
            refuse(self._model, text("Say which model"))
        address = (self._address.value or "").strip() if self._address is not None else self._server
        name = name_for(model, {each.name for each in self._settings.entries})
        known = self._known.get(model)
        # What is wrong with it, the hub says.
        return ModelEntry.model_construct(
            name=name,
            provider=self._provider.name,
            model=model,
            base_url=address or None,
            api_key_env=self._provider.key_of(address or None, own_variable(name) if self._secret else None),
            tools="native" if known is not None and known.is_small else "code",
        )

    @property
    def _secret(self) -> str:
        return (self._key.value or "").strip() if self._key is not None else ""

    async def _try(self) -> TriedModel:
        key = SecretStr(self._secret) if self._secret else None
        tried = await view.api(operations.try_model, ModelTest.model_construct(entry=self._entry(), key=key))
        with sb.refilled(self._tried):
            show_result(tried)
        return tried

    async def _save(self) -> None:
        entry = self._entry()
        tried = await self._try()
        lack = text("Use it although it cannot act?")
        if tried.problem:
            lack = text("Use it although it does not answer?")
        if not tried.serves and not await view.ask(lack, yes=text("Use it")):
            return
        entry = entry.model_copy(update={"first_token_s": tried.first_token_s})
        if self._secret:
            # The key first: an entry without its key is one that is named as a problem.
            await view.api(operations.set_key, entry.key_variable or "", SecretStr(self._secret))
        wanted = ModelEntries(entries=[*self._settings.entries, entry])
        await view.api(operations.write_models, wanted)
        view.notify(text("{name} is asked from now on", name=entry.name))
        await self._done()


def _described(model: LocalModel) -> str:
    without = f" · {text('cannot call tools')}" if model.calls_tools is False else ""
    return f"{model.name} · {size(model.size)}{without}"
