"""Forms for Home Assistant: its address and token, its broker, and what it changes only after a question."""

import asyncio
from contextlib import suppress

from nicegui import ui
from pydantic import SecretStr

from contracts.addresses import bracketed, host_of
from contracts.answers.system import FoundHomeAssistant, HomeAssistantRules
from contracts.errors import StrawberryError
from hub_server.system.first_steps import (
    change_rules,
    connect_home_assistant,
    connect_home_broker,
    find_home_assistants,
)
from hub_server.system.operations import show_system
from hub_web import limits, sb
from hub_web.parts.calls.forms import choice, number_field, refuse, text_field
from hub_web.parts.network import show_restart
from hub_web.texts import text
from hub_web.view import view

_USUAL = "http://homeassistant.local:8123"
_USUAL_BROKER = "mqtt://homeassistant.local:1883"


class HomeAssistantForm:
    """The form as one browser shows it.

    Args:
        done: Called once Home Assistant has taken the token.
    """

    def __init__(self, done: sb.Callback) -> None:
        self._done = done
        self._found = sb.stack().props("aria-live=polite")
        with ui.element("div").classes("sb-form"):
            hint = text("As you open it in the browser, for example {address}", address=_USUAL)
            self._address = text_field(text("Address of Home Assistant"), hint=hint)
            hint = text("Kept in the hub's own file of secrets, and never shown again.")
            self._token = text_field(text("Long-lived access token"), secret=True, hint=hint)
            self._token.props("autocomplete=off")
        sb.note(
            text(
                "A token: open your profile in Home Assistant, then Security, then Long-lived access "
                "tokens, and create one. Copy it from there into the field."
            )
        )
        self._way = sb.row()
        self._address.on_value_change(self._show_way)
        self._show_way()
        with sb.actions():
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
        with sb.refilled(self._found):
            if not found:
                sb.note(text("None was found in the network: type its address."))
            for each in found:
                with sb.row():
                    sb.dot("good", f"{each.name} · {each.version} · {each.url}")
                    self._use(each)

    def _use(self, found: FoundHomeAssistant) -> None:
        use = view.button(text("Use"), lambda: self._address.set_value(found.url), kind="flat")
        sb.named(use, text("Use {name}", name=found.name))

    def _show_way(self) -> None:
        address = (self._address.value or "").strip().rstrip("/")
        with sb.refilled(self._way):
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


def show_broker_form(known: str, username: str) -> None:
    """Show the form for the broker of Home Assistant.

    Args:
        known: Address that is set, or of Home Assistant; empty for none, which is looked for.
        username: That is set.
    """
    with ui.element("div").classes("sb-form"):
        hint = text("Often that of Home Assistant itself, for example {address}", address=_USUAL_BROKER)
        address = text_field(text("Address of the broker"), known and _broker_url(known), hint=hint)
        hint = text(
            "Of a user in Home Assistant that is for Strawberry alone, or one of the broker's own. "
            "Empty: without a login"
        )
        user = text_field(text("User name"), username, hint=hint).props("autocomplete=off")
        hint = text("Kept in the hub's own file of secrets, and never shown again.")
        password = text_field(text("Password"), secret=True, hint=hint).props("autocomplete=new-password")

    async def save() -> None:
        url = (address.value or "").strip()
        if not url:
            refuse(address, text("Say the address"))
        secret = SecretStr(password.value) if password.value else None
        await view.api(connect_home_broker, url, (user.value or "").strip(), secret)
        show_restart()

    async def offer() -> None:
        # Where the network cannot be searched, nothing is offered.
        with suppress(StrawberryError):
            found = await view.api(find_home_assistants)
            address.value = address.value or (_broker_url(found[0].url) if found else "")

    sb.note(text("The hub logs in there once before it keeps this, and restarts with it."))
    with sb.actions():
        view.button(text("Test and save"), save, icon="check", kind="primary")
    if not known:
        view.run(offer(), name="look for Home Assistant")


def _broker_url(url: str) -> str:
    # The broker of a Home Assistant mostly is on its machine.
    return url if url.startswith(("mqtt", "bus")) else f"mqtt://{bracketed(host_of(url))}:1883"


def show_rules_form(rules: HomeAssistantRules) -> None:
    """Show what of Home Assistant is used, and what is changed only after a question."""
    with ui.element("div").classes("sb-form"):
        hint = text("One request that changes more things than this, such as lights, is asked about first.")
        unasked = number_field(text("Changed without a question"), rules.unasked, least=0, step=1, hint=hint)
        which = {"assist": text("what is exposed to Assist there"), "all": text("everything")}
        expose = choice(text("Used of Home Assistant"), which, rules.expose)
        hint = text("Entity IDs of Home Assistant, such as switch.heater_*, one in each line")
        confirm = text_field(text("Always ask before"), "\n".join(rules.confirm), hint=hint, lines=True)
    sb.note(
        text("Locks, alarms, garages, gates and doors are always asked about, except to lock or close them.")
    )

    async def save() -> None:
        # Checked by the operation, whose error names the field.
        changed = HomeAssistantRules.model_construct(
            unasked=unasked.value, expose=expose.value, confirm=tuple((confirm.value or "").split())
        )
        await view.api(change_rules, changed)
        view.notify(text("Saved"))

    with sb.actions():
        view.button(text("Save"), save, kind="primary")
