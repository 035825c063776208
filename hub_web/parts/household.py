"""Form for the household: where it is, its language and units, and the rules for the assistant."""

from zoneinfo import available_timezones

from nicegui import ui

from agent_core.prompt import Household
from contracts.validation import validated
from contracts.wire import Part
from hub_server.system.first_steps import change_household
from hub_web import limits, sb
from hub_web.parts.calls.forms import choice, number_field, refuse, text_field
from hub_web.parts.network import show_restart
from hub_web.texts import language_names, text
from hub_web.view import view


class _Place(Part):
    """Where a browser says that it is."""

    zone: str = ""
    latitude: float | None = None
    longitude: float | None = None


def show_household(found: Household) -> None:
    """Show the settings of the household, with a button that asks the browser where it is."""
    sb.note(
        text("For sunrise and sunset, day and night, and all times of the home. The hub restarts with it.")
    )
    # Not all that Python knows are listed.
    zones = sorted({found.time_zone, *available_timezones()})
    with ui.element("div").classes("sb-form"):
        latitude = number_field(text("Latitude"), found.latitude, least=-90, most=90)
        longitude = number_field(text("Longitude"), found.longitude, least=-180, most=180)
        zone = choice(text("Time zone"), zones, found.time_zone)
        known = {found.language: found.language, **language_names()}
        language = choice(text("Language"), known, found.language)
        units = choice(text("Units"), {"metric": text("metric"), "imperial": text("imperial")}, found.units)
    hint = text("What the assistant must never do, or always: one rule in each line")
    rules = text_field(text("Rules for the assistant"), "\n".join(found.rules), hint=hint, lines=True)

    async def ask_browser(question: str) -> _Place:
        answer = await view.client.run_javascript(f"return await {question}", timeout=limits.BUILD_S)
        told = validated(_Place, answer or {})
        if told.zone not in zones:
            return _Place()
        zones.remove(told.zone)
        zones.insert(0, told.zone)
        zone.set_options(zones, value=zone.value)
        return told

    async def use_device() -> None:
        told = await ask_browser("strawberry.place()")
        zone.value = told.zone or zone.value
        if told.latitude is not None:
            latitude.value, longitude.value = told.latitude, told.longitude
        else:
            view.notify(text("This browser does not tell where it is: type it."), kind="warning")

    async def save() -> None:
        if not zone.value:
            refuse(zone, text("This is needed."))
        lines = map(str.strip, (rules.value or "").splitlines())
        # Checked by the operation, whose error names the field.
        household = Household.model_construct(
            latitude=latitude.value,
            longitude=longitude.value,
            time_zone=zone.value,
            language=language.value,
            units=units.value,
            rules=tuple(filter(None, lines)),
        )
        await view.api(change_household, household)
        show_restart()

    with sb.actions():
        view.button(text("Use where this device is"), use_device, icon="my_location")
        view.button(text("Save"), save, kind="primary")

    async def offer_zone() -> None:
        await ask_browser("strawberry.zone()")

    view.run(offer_zone(), name="time zone")
