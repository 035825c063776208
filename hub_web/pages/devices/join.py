"""A new device: what to open or type there, the devices that ask to join, and when it is there."""

from functools import partial

from nicegui import ui

from contracts.answers.devices import InvitationAnswer
from hub_registry.http import devices as operations
from hub_server.system.first_steps import LanState, show_lan
from hub_web import limits, sb
from hub_web.joining.files import CARD_FILE, FILES, FROM_HUB, WHEELS, card_file, how_to_open, terminal_lines
from hub_web.pages.devices.devices import add_device, enter_code, refuse, state_of
from hub_web.parts import network
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import part, view


@page("/join", title="Add a device")
async def join() -> None:
    """Show how a device joins, and admit it."""
    if not view.is_admin:
        sb.note(text("An admin of this home adds devices."))
        return
    lan = await view.api(show_lan)
    _here(lan)
    await _Progress().open()
    if lan.url:
        _card(lan)
        _lines(lan)
    with sb.row():
        sb.note(text("Set it up without a code:"))
        view.button(text("Make a token"), add_device, kind="flat")


def _here(lan: LanState) -> None:
    with sb.card(text("On the computer that you want to add"), icon="qr_code_2"):
        if not lan.url:
            sb.problem(text("Devices cannot join yet: only this machine can reach the hub."))
        told = text("Open this address there, or share it from a phone that reads the code.")
        network.show_lan(lan, path="/join", told=told)
        if lan.url:
            with sb.folded(text("It is this computer")):
                for system, name in FILES.items():
                    view.link(text("Download for {system}", system=system), f"{WHEELS}{name}")
                    sb.note(how_to_open(system))


def _card(lan: LanState) -> None:
    def save(name: str, invitation: InvitationAnswer) -> None:
        content = card_file(lan.url, view.api.hub.pin(), token=invitation.token, hub_key=invitation.hub_key)
        ui.download.content(content, CARD_FILE, "application/octet-stream")
        view.notify(text("Save it as “{file}”: {name} joins with it.", file=CARD_FILE, name=name))

    with sb.card(text("A Raspberry Pi without a screen"), icon="memory"):
        with ui.element("ol").classes("sb-text"):
            steps = (
                text(
                    "Write its card with Raspberry Pi Imager: Raspberry Pi OS Lite (64-bit) or Ubuntu "
                    "Server. In its settings, give the Pi your Wi-Fi, a user name and a password."
                ),
                text(
                    "Make the file below and save it on the small partition of the card, “bootfs” or "
                    "“system-boot”, as “{file}”, without an ending. It is secret, works once, and for a day.",
                    file=CARD_FILE,
                ),
                text("Put the card in. In some ten minutes the Pi appears here; it needs no code."),
            )
            for step in steps:
                sb.Words("li", step)
        with sb.actions():
            make = partial(add_device, save, lifetime_s=limits.CARD_TOKEN_S)
            view.button(text("Make the file"), make, icon="download")


def _lines(lan: LanState) -> None:
    with sb.folded(text("With a terminal")):
        for label, line in terminal_lines(lan.url, view.api.hub.pin()).items():
            sb.Words("p", label, "sb-small sb-muted")
            with sb.row(wrap=False):
                sb.code(line, label=label).classes("sb-wrap sb-grow")
                view.tool("content_copy", text("Copy: {what}", what=label), partial(view.copy, line))
        sb.note(text(FROM_HUB))


class _Progress:
    """The devices that ask to join, and those that came since the page was opened."""

    async def open(self) -> None:
        self._before = {each.id for each in await view.api(operations.list_devices)}
        with sb.card(text("Admit it"), icon="how_to_reg"):
            self._place = ui.element("div").props("aria-live=polite")
        show = sb.one_at_a_time(self._show)
        view.follow_devices(show, every_s=limits.JOINING_REFRESH_S)
        await show()

    async def _show(self) -> None:
        waiting = await view.api(operations.list_waiting)
        came = [each for each in await view.api(operations.list_devices) if each.id not in self._before]
        with sb.refilled(self._place):
            for device in came:
                tone, state = state_of(device.state)
                words = text("{name} is admitted: {state}", name=device.name, state=state)
                if device.state == "online":
                    words = text("{name} is here", name=device.name)
                with sb.row():
                    sb.dot(tone, words)
                    view.link(text("Open its page"), f"/devices/{part(device.id)}")
            for each in waiting:
                with sb.row():
                    asks = text("{name} asks to join, from {address}", name=each.name, address=each.source)
                    sb.dot("warn", asks)
                    view.button(text("Enter its code"), enter_code, icon="pin", kind="primary")
                    view.button(text("Refuse"), partial(refuse, each.code, self._show), kind="danger")
            if not came and not waiting:
                sb.dot("plain", text("Waiting for a device that asks to join …"))
