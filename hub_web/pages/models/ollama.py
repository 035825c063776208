"""What Ollama has, and downloads into it."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from nicegui import ui

from agent_core.models.ollama import LocalModel
from agent_core.setup.looking import FoundOllama
from contracts.errors import InvalidMessage, StrawberryError
from hub_server.system import models as operations
from hub_web import sb
from hub_web.parts.calls.forms import text_field
from hub_web.texts import size, text
from hub_web.view import view


class Ollama:
    """What Ollama has, and downloads into it.

    Args:
        add: Called with a model of it that shall be asked, and its address.
    """

    def __init__(self, add: Callable[[LocalModel, str], Awaitable[None]]) -> None:
        self._add = add
        self._place = sb.stack()

    async def look(self) -> None:
        """Ask each Ollama for its models, and show them."""
        found = await view.api(operations.list_ollamas)
        with sb.refilled(self._place):
            for each in found:
                with sb.card("Ollama", icon="memory") as tools:
                    with tools:
                        sb.badge(each.address)
                    if each.problem:
                        sb.note(text.message(each.problem))
                        continue
                    self._models(each)
                    self._download(each.address)
            if not found:
                sb.note(text("No Ollama is known."))

    def _models(self, found: FoundOllama) -> None:
        if not found.models:
            sb.note(text("It has no models yet."))
            return
        columns = [text("Model"), text("Size"), text("Parameters"), text("Tools"), text("In memory"), ""]
        can = {True: text("yes"), False: text("no"), None: text("unknown")}
        rows: Iterable[Sequence[sb.Cell]] = (
            [
                each.name,
                size(each.size),
                each.parameters,
                can[each.calls_tools],
                text("yes") if each.loaded_context else text("no"),
                partial(self._use, each, found.address),
            ]
            for each in found.models
        )
        sb.table(columns, rows, label=text("Models in Ollama"))

    def _use(self, model: LocalModel, address: str) -> None:
        use = view.button(text("Use"), lambda: self._add(model, address), kind="flat")
        sb.named(use, text("Use {name}", name=model.name))

    def _download(self, address: str) -> None:
        with ui.element("div").classes("sb-pull"):
            with ui.element("div").classes("sb-grow"):
                name = text_field(text("Get another model"), hint=text("A name of ollama.com/library"))
            start = view.button(
                text("Download"), lambda: self._pull(name.value, address, place, start), icon="download"
            )
        place = ui.element("div").props("aria-live=polite")

    def _pull(self, name: str, address: str, place: ui.element, start: ui.button) -> None:
        name = (name or "").strip()
        if not name:
            raise InvalidMessage(text("Say which model"))
        with sb.refilled(place), sb.stack():
            words = sb.Words("p", text("Asking Ollama for {name}", name=name), "sb-small")
            bar = ui.linear_progress(0, show_value=False, color=None).classes("sb-pulled")
            sb.named(bar, text("Download of {name}", name=name))
            with sb.actions():
                stopped = text("Stopped. The next download goes on from here.")
                view.button(text("Stop the download"), lambda: end(stopped))
        start.set_enabled(False)

        def end(message: str) -> None:
            stop()
            start.set_enabled(True)
            with sb.refilled(place):
                sb.note(message)

        async def pull() -> None:
            try:
                async with view.api.follow(operations.pull, name, address) as steps:
                    async for step in steps:
                        if step.error is not None:
                            raise InvalidMessage(step.error.message, hint=step.error.hint)
                        if step.total:
                            came = step.completed or 0
                            bar.value = came / step.total
                            done, total = size(came), size(step.total)
                            words.set(text("{done} of {total}", done=done, total=total))
            except StrawberryError as error:
                with place:
                    view.fail(error)
                start.set_enabled(True)
                place.clear()
                return
            with place:
                view.notify(text("{name} is there", name=name))
            await self.look()

        stop = view.run(pull(), name=f"pull {name}")
