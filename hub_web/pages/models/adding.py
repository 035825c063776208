"""A new model in three steps: where it runs, which one, and whether it answers."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from nicegui import ui

from agent_core.setup.writing import name_for, own_variable
from hub_web.api import part
from hub_web.parts.files import size
from hub_web.parts.forms import choice, refuse, text_field
from hub_web.parts.layout import Words, actions, dot, heading, note, problem, refilled, stack
from hub_web.parts.times import milliseconds
from hub_web.texts import text
from hub_web.view import view

_ICONS: Final = {"ollama": "memory", "openai": "hub", "anthropic": "auto_awesome", "google": "blur_on"}
_SUGGESTED: Final = "qwen3:4b"
_OF_THE_HUB: Final = ("key_variable", "has_key", "problem")
"""What of an entry only the hub says."""


def bare(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as it is sent back."""
    return {key: value for key, value in entry.items() if key not in _OF_THE_HUB}


def show_result(tried: dict[str, Any]) -> None:
    """Show what came of a test."""
    time = milliseconds(1_000 * tried["first_s"])
    if tried["problem"]:
        problem(text("It does not answer"), tried["problem"])
    elif tried["advice"]:
        dot("warn", text("answers after {time}", time=time))
        note(text.message(tried["advice"]), classes="sb-small")
    else:
        dot("good", text("answers after {time}, and calls tools", time=time))


class Adding:
    """Three steps to a model: where it runs, which one, and whether it answers.

    Args:
        done: Called once it was written.
    """

    def __init__(self, settings: dict[str, Any], done: Callable[[], Awaitable[None]]) -> None:
        self._settings = settings
        self._done = done
        self._tiles: dict[str, ui.button] = {}
        self._provider = ""
        self._server = ""

    def show(self) -> None:
        """Show the first step; the others follow below it."""
        with stack():
            heading(text("Where does it run?"), level=3)
            with ui.element("div").classes("sb-tiles"):
                # Where nothing leaves the house comes first.
                for provider in sorted(
                    self._settings["providers"], key=lambda each: each["name"] != "ollama"
                ):
                    self._tile(provider)
            self._rest = stack()

    def _tile(self, provider: dict[str, Any]) -> None:
        name, (title, about) = provider["name"], _providers()[provider["name"]]
        tile = ui.button(color=None, on_click=lambda: self._choose(provider)).props("no-caps unelevated")
        tile.classes("sb-tile").props["aria-pressed"] = "false"
        with tile, ui.element("span").classes("sb-tile-in"):
            ui.icon(_ICONS.get(name, "cloud"))
            Words("span", title, "sb-strong")
            Words("span", about, "sb-muted sb-small")
        self._tiles[name] = tile

    async def _choose(self, provider: dict[str, Any]) -> None:
        self._provider = provider["name"]
        for name, tile in self._tiles.items():
            tile.props["aria-pressed"] = "true" if name == self._provider else "false"
            tile.update()
        with refilled(self._rest):
            await self._second(provider)

    async def _second(self, provider: dict[str, Any]) -> None:
        name = provider["name"]
        heading(text("Which one?"), level=3)
        found: list[dict[str, Any]] = []
        if name == "ollama":
            async with view.busy():
                found = await view.api.get("/api/ollama")
            if found and found[0]["problem"]:
                problem(found[0]["problem"])
        local = found[0]["models"] if found else []
        # The hub may find it by a variable of its own, which an entry does not go by.
        self._server = found[0]["address"] if found and found[0]["address"] != provider["address"] else ""
        with ui.element("div").classes("sb-form"):
            self._model: Any
            if local:
                able = [each["name"] for each in local if each["calls_tools"] is not False]
                names = {each["name"]: _described(each) for each in local}
                self._model = choice(text("Model"), names, (able or list(names))[0])
            else:
                suggested = _SUGGESTED if name == "ollama" else ""
                self._model = text_field(
                    text("Model"),
                    suggested,
                    hint=text("As the provider calls it") if name != "ollama" else "",
                )
            self._address = None
            if name == "openai":
                hint = text("Up to and with /v1; empty for OpenAI's own")
                self._address = text_field(text("Address"), hint=hint)
            self._key = None
            if name != "ollama":
                hint = text("It is written to the hub's own file of secrets, and never shown again.")
                self._key = text_field(text("Key"), secret=True, hint=hint)
        heading(text("Does it answer?"), level=3)
        self._tried = ui.element("div").props("aria-live=polite")
        self._known = {each["name"]: each for each in local}
        with actions():
            view.button(text("Test"), self._test, icon="play_arrow")
            view.button(text("Use this model"), self._save, kind="primary", icon="check")

    def _entry(self) -> dict[str, Any]:
        model = str(self._model.value or "").strip()
        if not model:
            refuse(self._model, text("Say which model"))
        address = (self._address.value or "").strip() if self._address is not None else self._server
        name = name_for(model, {each["name"] for each in self._settings["entries"]})
        entry: dict[str, Any] = {"name": name, "provider": self._provider, "model": model}
        if address:
            entry["base_url"] = address
        if self._provider == "openai" and (not address or self._secret):
            entry["api_key_env"] = own_variable(name if address else "openai")
        if self._known.get(model, {}).get("is_small"):
            entry["tools"] = "native"
        return entry

    @property
    def _secret(self) -> str:
        return (self._key.value or "").strip() if self._key is not None else ""

    async def _try(self) -> dict[str, Any]:
        body: dict[str, Any] = {"entry": self._entry()}
        if self._secret:
            body["key"] = self._secret
        tried: dict[str, Any] = await view.api.post("/api/models/test", body)
        with refilled(self._tried):
            show_result(tried)
        return tried

    async def _test(self) -> None:
        await self._try()

    async def _save(self) -> None:
        entry = self._entry()
        tried = await self._try()
        lack = text("Use it although it cannot act?")
        if tried["problem"]:
            lack = text("Use it although it does not answer?")
        if not tried["serves"] and not await view.ask(lack, yes=text("Use it")):
            return
        entry["first_token_s"] = tried["first_token_s"]
        if self._secret:
            variable = entry.get("api_key_env") or next(
                each["key_variable"] for each in self._settings["providers"] if each["name"] == self._provider
            )
            # The key first: an entry without its key is one that is named as a problem.
            await view.api.put(f"/api/models/keys/{part(variable)}", {"key": self._secret})
        entries = [*map(bare, self._settings["entries"]), entry]
        await view.api.put("/api/models", {"entries": entries})
        view.notify(text("{name} is asked from now on", name=entry["name"]))
        await self._done()


def _providers() -> dict[str, tuple[str, str]]:
    return {
        "ollama": (text("On a machine of mine"), text("With Ollama: private, free, needs memory")),
        "openai": (text("OpenAI, or compatible"), text("Also a server of your own with an address")),
        "anthropic": ("Anthropic", text("Claude")),
        "google": ("Google", text("Gemini")),
    }


def _described(model: dict[str, Any]) -> str:
    without = f" · {text('cannot call tools')}" if model["calls_tools"] is False else ""
    return f"{model['name']} · {size(model['size'])}{without}"
