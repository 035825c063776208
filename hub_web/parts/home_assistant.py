"""Form for Home Assistant: its address, found in the network, and a token, tried before they are kept."""

import asyncio
from collections.abc import Awaitable, Callable

from nicegui import ui
from pydantic import SecretStr

from contracts.answers.system import FoundHomeAssistant
from contracts.errors import StrawberryError
from hub_server.system.first_steps import connect_home_assistant, find_home_assistants
from hub_server.system.operations import show_system
from hub_web import limits
from hub_web.parts.calls.forms import refuse, text_field
from hub_web.parts.layout import actions, dot, note, refilled, row, stack
from hub_web.texts import text
from hub_web.view import view

_USUAL = "http://homeassistant.local:8123"


class HomeAssistantForm:
    """The form as one browser shows it.

    Args:
        done: Called once Home Assistant has taken the token.
    """

    def __init__(self, done: Callable[[], Awaitable[None]]) -> None:
        self._done = done
        self._found = stack().props("aria-live=polite")
        with ui.element("div").classes("sb-form"):
            hint = text("As you open it in the browser, for example {address}", address=_USUAL)
            self._address = text_field(text("Address of Home Assistant"), hint=hint)
            hint = text("It is written to the hub's own file of secrets, and never shown again.")
            self._token = text_field(text("Long-lived access token"), secret=True, hint=hint)
            self._token.props("autocomplete=off")
        note(
            text(
                "A token: open your profile in Home Assistant, then Security, then Long-lived access "
                "tokens, and create one. Copy it from there into the field."
            )
        )
        self._way = row()
        self._address.on_value_change(self._show_way)
        self._show_way()
        with actions():
            view.button(text("Look in the network"), self.look, icon="search")
            view.button(text("Test and save"), self._save, icon="check", kind="primary")

    async def look(self) -> None:
        """Look for Home Assistants, and take the only one."""
        try:
            found = await view.api(find_home_assistants)
        except StrawberryError as error:
            view.fail(error)
            found = []
        if len(found) == 1 and not self._address.value:
            self._address.value = found[0].url
        with refilled(self._found):
            if not found:
                note(text("None was found in the network: type its address."))
            for each in found:
                with row():
                    dot("good", f"{each.name} · {each.version} · {each.url}")
                    self._use(each)

    def _use(self, found: FoundHomeAssistant) -> None:
        use = view.button(text("Use"), lambda: self._address.set_value(found.url), kind="flat")
        use.props["aria-label"] = text("Use {name}", name=found.name)

    def _show_way(self) -> None:
        address = (self._address.value or "").strip().rstrip("/")
        with refilled(self._way):
            if address.startswith(("http://", "https://")):
                way = f"{address}/profile/security"
                ui.link(text("Open your profile in Home Assistant"), way, new_tab=True).classes("sb-link")

    async def _save(self) -> None:
        address, token = (self._address.value or "").strip(), (self._token.value or "").strip()
        if not address:
            refuse(self._address, text("Say the address"))
        if not token:
            refuse(self._token, text("Paste the token"))
        found = await view.api(connect_home_assistant, address, SecretStr(token))
        view.notify(
            text(
                "Home Assistant {version} with {entities} entities, {exposed} exposed to Assist",
                version=found.version,
                entities=found.entities,
                exposed=found.exposed,
            )
        )
        self._token.value = ""
        # The hub looks at its settings every second.
        for _ in range(limits.CONNECTED_LOOKS):
            health = (await view.api(show_system)).home_assistant
            if health is not None and health.connected:
                break
            await asyncio.sleep(1)
        await self._done()
