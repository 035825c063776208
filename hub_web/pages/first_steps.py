"""First steps: from a model to the people of the home; each step shows whether it is done."""

from functools import partial

from nicegui import ui

from chat.conversations import list_conversations
from hub_registry.http.devices import list_devices
from hub_registry.http.users import list_users
from hub_server.system import models
from hub_server.system.first_steps import SkippedSteps, Step, list_skipped, show_lan, skip
from hub_server.system.operations import show_system
from hub_web import sb
from hub_web.pages.models.adding import Adding
from hub_web.pages.people import edit_person
from hub_web.parts.home.message_box import MessageBox
from hub_web.parts.home_assistant import HomeAssistantForm
from hub_web.parts.network import show_lan as show_access
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import view


@page("/first-steps", title="First steps", admin=True)
async def first_steps() -> None:
    """Show the steps, with the first open one unfolded."""
    sb.note(text("Skip what you do not need now. You find this page again on the page System."))
    await _Steps().show()


class _Steps:
    """The page as one browser shows it."""

    def __init__(self) -> None:
        self._place = sb.stack()

    async def show(self) -> None:
        """Read everything again, and unfold the first step that is neither done nor skipped."""
        self._skipped = (await view.api(list_skipped)).steps
        builders = (self._model, self._chat, self._phone, self._device, self._home_assistant, self._people)
        steps = [await each() for each in builders]
        open_ones = [name for name, _, done, _ in steps if not done and name not in self._skipped]
        with sb.refilled(self._place), ui.element("ol").classes("sb-first-steps"):
            for name, title, done, build in steps:
                await self._step(name, title, build, done=done, is_open=name in open_ones[:1])
        if not open_ones:
            with self._place, sb.row():
                sb.Words("p", text("That is all. Your home is ready."), "sb-strong")
                view.link(text("To the start page"), "/")

    async def _step(self, name: Step, title: str, build: sb.Callback, *, done: bool, is_open: bool) -> None:
        with ui.element("li"), ui.element("details").classes("sb-card sb-fold") as fold:
            fold.props["open"] = is_open
            with ui.element("summary"):
                icon = "check_circle" if done else "radio_button_unchecked"
                ui.icon(icon).classes("sb-step-done" if done else "").props("aria-hidden=true")
                sb.Words("h2", title, "sb-h2 sb-grow")
                if done:
                    sb.badge(text.of("a step", "done"), "good")
                elif name in self._skipped:
                    sb.badge(text.of("a step", "skipped"))
            with sb.stack():
                await build()
                if not done and name not in self._skipped:
                    with sb.actions():
                        view.button(text("Skip this step"), partial(self._skip, name), kind="flat")

    async def _skip(self, name: Step) -> None:
        await view.api(skip, SkippedSteps(steps=[*self._skipped, name]))
        await self.show()

    # -- the steps: name, title, whether it is done, and what makes its content ---------------------------

    async def _model(self) -> tuple[Step, str, bool, sb.Callback]:
        found = await view.api(models.list_models)

        async def build() -> None:
            if found.models:
                sb.note(text("{name} answers.", name=found.models[0].name))
                view.link(text("All models"), "/models")
                return
            sb.note(text("Simple sentences work without one. A language model understands everything else."))
            Adding(await view.api(models.show_settings), self.show).show()

        return "model", text("Add a language model"), bool(found.models), build

    async def _chat(self) -> tuple[Step, str, bool, sb.Callback]:
        asked = await view.api(list_conversations, 1)

        async def build() -> None:
            MessageBox(text("Who are you, and what is your job here?"), None if asked else self.show)

        return "chat", text("Try it"), bool(asked), build

    async def _phone(self) -> tuple[Step, str, bool, sb.Callback]:
        found = await view.api(show_lan)

        async def build() -> None:
            show_access(found)

        return "phone", text("Open it on your phone"), bool(found.url), build

    async def _device(self) -> tuple[Step, str, bool, sb.Callback]:
        joined = [each for each in await view.api(list_devices) if each.state in ("online", "offline")]

        async def build() -> None:
            sb.note(text("A computer or a Raspberry Pi: what it can do, the assistant can do."))
            with sb.actions():
                view.button(text("Add a device"), lambda: view.go("/join"), icon="add", kind="primary")

        # One of them is this machine's own.
        return "device", text("Add a device"), len(joined) > 1, build

    async def _home_assistant(self) -> tuple[Step, str, bool, sb.Callback]:
        health = (await view.api(show_system)).home_assistant

        async def build() -> None:
            if health is not None and health.error and not health.connected:
                sb.problem(text.message(health.error))
            sb.note(text("The assistant then uses the lights, heaters and sensors that you have there."))
            HomeAssistantForm(self.show)
            if health is not None:
                view.link(text("Show your devices in Home Assistant"), "/home-assistant")

        return "home-assistant", "Home Assistant", health is not None and health.connected, build

    async def _people(self) -> tuple[Step, str, bool, sb.Callback]:
        known = await view.api(list_users)

        async def build() -> None:
            sb.note(text("Each person gets a link, and chooses a password with it."))
            with sb.actions():
                add = partial(edit_person, None, self.show)
                view.button(text("Add a person"), add, icon="person_add", kind="primary")

        return "people", text("Add the people of your home"), len(known) > 1, build
