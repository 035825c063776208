"""A new device: what to type there, the devices that ask to join, and when it is there."""

from functools import partial

from nicegui import ui

from hub_registry.http import devices as operations
from hub_registry.http import joining
from hub_server.system.first_steps import LanState, show_lan
from hub_web import limits
from hub_web.api import part
from hub_web.handlers import one_at_a_time
from hub_web.joining.commands import FROM_HUB, RUNNING, install_lines, join_line
from hub_web.pages.devices.devices import add_device, enter_code, state_of
from hub_web.parts import network
from hub_web.parts.layout import Words, card, code, dot, note, problem, refilled, row
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import view


@page("/join", title="Add a device")
async def join() -> None:
    """Show how a device joins, and admit it."""
    if not view.is_admin:
        note(text("An admin of this home adds devices."))
        return
    lan = await view.api(show_lan)
    _here(lan)
    if lan.url:
        _lines(lan)
    await _Progress().open()
    with row():
        note(text("Set it up without a code:"))
        view.button(text("Make a token"), add_device, kind="flat")


def _here(lan: LanState) -> None:
    with card(text("On the device, or on a phone beside it"), icon="qr_code_2"):
        if not lan.url:
            problem(text("Devices cannot join yet: only this machine can reach the hub."))
        told = text("Scan the code with a phone, or type the address into the browser of the device.")
        network.show_lan(lan, path="/join", told=told)


def _lines(lan: LanState) -> None:
    with card(text("What to type on the device"), icon="terminal"):
        Words("h3", f"1. {text('Install Strawberry')}", "sb-h3")
        for platform, line in install_lines(lan.url, view.api.pin()).items():
            _line(line, platform)
        note(text(FROM_HUB))
        Words("h3", f"2. {text('Join this home')}", "sb-h3")
        _line(join_line(lan.url), text("In a new terminal window"))
        Words("h3", f"3. {text('Let it run')}", "sb-h3")
        _line(RUNNING, text("After you have admitted it below"))


def _line(line: str, label: str) -> None:
    Words("p", label, "sb-small sb-muted")
    with row(wrap=False):
        code(line, label=label).classes("sb-wrap sb-grow")
        tip = text("Copy: {what}", what=label)
        view.button("", partial(view.copy, line), icon="content_copy", kind="flat", tip=tip)


class _Progress:
    """The devices that ask to join, and those that came since the page was opened."""

    async def open(self) -> None:
        self._before = {each.id for each in await view.api(operations.list_devices)}
        with card(text("Admit it"), icon="how_to_reg"):
            self._place = ui.element("div").props("aria-live=polite")
        show = one_at_a_time(self._show)
        view.follow_devices(show, every_s=limits.JOINING_REFRESH_S)
        await show()

    async def _show(self) -> None:
        waiting = await view.api(joining.list_waiting)
        came = [each for each in await view.api(operations.list_devices) if each.id not in self._before]
        with refilled(self._place):
            for device in came:
                tone, state = state_of(device.state)
                is_here = device.state == "online"
                words = text("{name} is admitted: {state}", name=device.name, state=state)
                with row():
                    dot(tone, text("{name} is here", name=device.name) if is_here else words)
                    view.link(text("Open its page"), f"/devices/{part(device.id)}")
            for each in waiting:
                with row():
                    dot(
                        "warn",
                        text("{name} asks to join, from {address}", name=each.name, address=each.source),
                    )
                    view.button(text("Enter its code"), enter_code, icon="pin", kind="primary")
                    view.button(text("Refuse"), partial(self._refuse, each.code), kind="danger")
            if not came and not waiting:
                dot("plain", text("Waiting for a device that asks to join …"))

    async def _refuse(self, code: str) -> None:
        await view.api(joining.refuse, code)
        await self._show()
