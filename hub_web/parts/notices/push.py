"""Notifications on phones: switched on for this browser, and the others that have them."""

import json
from functools import partial
from typing import Any, Final

from nicegui import ui

from contracts.answers.live import PushDevice
from contracts.errors import StrawberryError
from contracts.wire import Part
from hub_live import push
from hub_web import sb
from hub_web.parts.network import show_trust
from hub_web.texts import text
from hub_web.view import view

_PROBLEMS: Final = {
    "insecure": "Notifications on this device need an encrypted address, which begins with https://.",
    "unsupported": "This browser has no notifications. On an iPhone or iPad, add this page to the home "
    "screen first.",
    "denied": "This browser does not allow notifications of this page. Allow them in its settings.",
    "no_service": "This browser could not reach its push service. Try again when it has a connection.",
    "untrusted": "This browser shows notifications only where it trusts the certificate, and it does not "
    "trust that of your home yet.",
    "unreachable": "The hub does not answer.",
}


class _Answer(Part):
    """What the script of a page answers: an id, one of `_PROBLEMS`, or the error of the hub."""

    id: str = ""
    problem: str = ""
    code: str = ""
    detail: str = ""
    hint: str = ""


async def show_push() -> None:
    """Show whether this browser receives notifications, with the others of the person."""
    told = _Answer.model_validate(await view.client.run_javascript("return await strawberry.told()"))
    await _show(ui.element("div"), told.id, told.problem)


async def _show(place: ui.element, own: str, problem: str) -> None:
    found = await view.api(push.devices)

    async def remove(device: PushDevice) -> None:
        await view.api(push.remove, device.id)
        view.client.run_javascript(f"strawberry.untell({json.dumps(device.id)})")
        await _show(place, "" if device.id == own else own, problem)

    async def answered(event: Any) -> None:
        told = _Answer.model_validate(event.args)
        if not told.id and told.code not in _PROBLEMS:
            raise StrawberryError(told.detail, hint=told.hint)
        await _show(place, told.id, told.code)

    with sb.refilled(place):
        sb.heading(text("On your phone"), level=3)
        if problem in _PROBLEMS:
            sb.note(text(_PROBLEMS[problem]))
            if problem == "untrusted":
                show_trust()
        elif own in {each.id for each in found.devices}:
            sb.note(text("This browser gets your notifications, also while no page is open."))
        else:
            # A browser asks its person only at a click that its own script hears.
            button = ui.button(text("Notify me on this device"), color=None)
            button.classes("sb-button sb-plain").props("no-caps unelevated type=button")
            button.on("click", answered, js_handler="async () => emit(await strawberry.tell())")
        with ui.element("ul").classes("sb-entries"):
            for device in found.devices:
                with ui.element("li").classes("sb-entry-row"):
                    sb.Words("p", f"{device.name} · {view.at(device.created_at)}", "sb-grow")
                    label = text("Stop notifications on {name}", name=device.name)
                    sb.icon_button("close", label, view.showing(partial(remove, device)))
