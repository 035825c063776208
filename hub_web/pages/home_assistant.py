"""Home Assistant: what of this home appears there, and a switch for each part of it."""

import asyncio
from typing import Any

from nicegui import ui

from contracts.answers.system import ExposedEntity, ExposedItem, ExposedSkill, HomeBroker, OutwardState
from hub_home_assistant.outward.operations import expose, hide, look
from hub_server.system.first_steps import show_rules
from hub_web import sb
from hub_web.parts.home_assistant import HomeAssistantForm, show_broker_form, show_rules_form
from hub_web.parts.names import load_names
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import view


@page("/home-assistant", title="Home Assistant", icon="roofing", menu=305, admin=True)
async def home_assistant() -> None:
    await _HomeAssistant().open()


class _HomeAssistant:
    """The page as one browser shows it."""

    def __init__(self) -> None:
        self._opened: set[str] = set()
        # Each answer shows all that is on: an older one that comes later would take a switch back.
        self._one_change = asyncio.Lock()

    async def open(self) -> None:
        """Build the page."""
        found = await view.api(look)
        if found.address is None:
            with sb.card(text("Use what is in Home Assistant"), icon="lightbulb"):
                sb.note(text("The assistant then uses the lights, heaters and sensors that you have there."))
                HomeAssistantForm(self._reload)
        else:
            with sb.card(text("What the assistant may do in Home Assistant"), icon="rule"):
                show_rules_form(await view.api(show_rules))
        self._place = sb.stack().classes("sb-parts").props("aria-live=polite")
        self._names = await load_names()
        self._show(found)
        broker = found.broker
        title = (
            text("Show this home in Home Assistant") if broker is None else text("Another broker or login")
        )
        with sb.card(title, icon="sync_alt"):
            if broker is None:
                sb.note(
                    text("Your devices, skills and watchers appear there by MQTT, once you chose them here.")
                )
            show_broker_form(
                broker.url if broker is not None else found.address or "", broker.username if broker else ""
            )

    async def _reload(self) -> None:
        view.go("/home-assistant")

    def _show(self, found: OutwardState) -> None:
        self._place.clear()
        if found.broker is None:
            # Nothing can appear.
            return
        with self._place:
            self._connection(found, found.broker)
            with sb.card(text("This home"), icon="hub"):
                sb.note(
                    text("Everybody who uses Home Assistant sees and uses what is on here, on your behalf.")
                )
                own = {
                    "hub.chat": text("Chat"),
                    "hub.notify": text("Notify"),
                    "hub.watchers": text("Watchers"),
                }
                for each in found.hub:
                    self._part(each, own.get(each.path, each.name))
            if not found.devices:
                with sb.empty(
                    "devices", text("No devices yet"), text("Add a computer and its skills appear here.")
                ):
                    view.button(text("Add a device"), lambda: view.go("/devices"), icon="add")
            for device in found.devices:
                with sb.card(device.name, icon="memory"):
                    self._part(device, text("The whole device"))
                    for skill in device.skills:
                        self._skill(skill, self._names.label(device.path, skill.name)(skill.name))

    def _connection(self, found: OutwardState, broker: HomeBroker) -> None:
        with sb.card(text("Connection"), icon="sync_alt"):
            if broker.connected:
                sb.dot("good", text("connected"))
            else:
                sb.problem(text("The broker is away."), broker.error or "")
            said = {"online": text("is running"), "offline": text("is stopped")}
            sb.facts(
                (text("Home broker"), broker.url),
                ("Home Assistant", said.get(found.home_assistant, text("not heard yet"))),
                (text("Entities"), text.number(found.published)),
            )

    def _skill(self, skill: ExposedSkill, name: str) -> None:
        entities = skill.entities
        self._part(skill, name)
        if not entities:
            return
        shown = sum(each.shown for each in entities)
        label = text("{name}: {shown} of {n} parts", name=name, shown=shown, n=len(entities))
        with ui.expansion(label, value=skill.path in self._opened) as parts:
            for entity in entities:
                self._part(entity, entity.name)

        def note_opened(event: Any) -> None:
            (self._opened.add if event.value else self._opened.discard)(skill.path)

        parts.on_value_change(note_opened)

    def _part(self, item: ExposedItem, label: str) -> None:
        """Show a switch for something that can be exposed."""

        async def change(value: bool) -> None:
            async with self._one_change:
                self._show(await view.api(expose if value else hide, item.path))

        with sb.row():
            made = view.switch(label, item.shown, change).classes("sb-grow")
            made.props["title"] = item.path
            if item.kind not in ("device", "skill"):
                sb.badge(item.kind)
            if isinstance(item, ExposedEntity) and item.only_by_name and not item.shown:
                sb.Words("span", text("only by its own switch"), "sb-muted sb-small")
