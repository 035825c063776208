"""Access for other machines: a switch, what it does, and the address with its QR code."""

from typing import Final

import segno
from nicegui import ui

from hub_server.system.first_steps import LanState, switch_lan
from hub_web import sb
from hub_web.texts import text
from hub_web.view import view

_TRUSTING: Final = {
    "Android": "In the phone's settings, look for “CA certificate”, choose “Install anyway”, and the file "
    "ca.crt. Open this page in Chrome: Firefox there has a list of its own.",
    "iPhone, iPad": "Open the certificate in Safari and allow the profile. In Settings, open “Profile "
    "Downloaded” and install it. Then switch it on in General, About, Certificate Trust Settings.",
    "Windows, macOS, Linux": "Windows: open the file and put it into “Trusted Root Certification "
    "Authorities”. macOS: open it, and choose “Always Trust” in Keychain Access. Firefox, and Chrome on "
    "Linux: import it as an authority in the settings for certificates.",
}
"""By system, what a person does with the certificate."""


def qr_code(content: str, label: str) -> None:
    """Show a text as a QR code; nothing of the SVG is text of others."""
    drawn = segno.make(content, error="l").svg_inline(omitsize=True, border=2, dark="#000", light="#fff")
    with ui.element("div").classes("sb-qr"):
        ui.html(drawn.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1), sanitize=False)


def show_trust(address: str = "") -> None:
    """Show how a phone or a browser comes to trust the certificate of the home, and what that means.

    Args:
        address: Of the hub as that device reaches it; by default the one that this page came from.
    """
    with sb.folded(text("Trust the certificate of your home")):
        sb.note(
            text(
                "Then the device warns no more, and its browser can show notifications. Do it only where you "
                "compared the fingerprint when it warned. It trusts what your home's key vouches for, and "
                "that is limited to the names of your home and to addresses of private networks. The key "
                "stays on the hub's machine."
            )
        )
        view.link(text("Get the certificate"), f"{address}/ca.crt")
        if address:
            sb.code(f"{address}/ca.crt", label=text("Address of the certificate")).classes("sb-wrap")
        for system, steps in _TRUSTING.items():
            with ui.element("div"):
                sb.Words("p", system, "sb-strong")
                sb.note(text(steps))


def show_restart(title: str = "", then: str = "") -> None:
    """Cover the page until the hub that restarts serves it again.

    Args:
        then: What comes after that, where it is not the same page.
    """
    with view.dialog(title or text("The hub restarts")) as waiting:
        waiting.props("persistent")
        sb.note(then or text("This takes some seconds. Then this page loads again by itself."))
        ui.spinner(size="lg", color=None).classes("sb-centre")


def show_lan(found: LanState, *, path: str = "", told: str = "", can_end: bool = False) -> None:
    """Show who can connect, with the switch where it can be changed.

    Args:
        path: Of the page that the QR code opens.
        told: What is done with the code.
        can_end: Whether access can be ended here, too.
    """
    if found.url:
        _address(found, found.url + path, told)
    if found.exposure == "insecure":
        sb.problem(text("The connection is not encrypted: everybody in your network can read along."))
    elif found.exposure == "loopback" and not found.url:
        sb.dot("warn", text("Only this machine can open this page."))
        sb.note(
            text(
                "If you allow it, phones, computers and devices in your network can connect, encrypted. "
                "Everybody still needs a password. The hub makes a certificate and restarts, which takes "
                "some seconds; you can undo this on the page System."
            )
        )
    if found.url and not found.devices:
        sb.note(text("Devices cannot join yet: their broker accepts this machine only. Restart it."))
    is_on = found.exposure != "loopback"
    if found.obstacle:
        if can_end or not found.url:
            sb.note(text("It cannot be changed here: {why}.", why=text.message(found.obstacle)))
        return

    async def switch() -> None:
        if is_on and not await view.ask(
            text("Cut off phones and other devices?"),
            text("They reach this home no more until you allow them again."),
            yes=text("Allow this machine only"),
            danger=True,
        ):
            return
        await view.api(switch_lan, not is_on)
        show_restart()

    with sb.actions():
        if not is_on:
            view.button(text("Allow other machines"), switch, icon="wifi", kind="primary")
        elif can_end:
            view.button(text("Allow this machine only"), switch, icon="link_off", kind="danger")


def _address(found: LanState, address: str, told: str) -> None:
    with ui.element("div").classes("sb-join"):
        qr_code(address, text("The address of this page as a QR code"))
        with sb.stack():
            sb.note(told or text("Point the camera of the phone at the code, and log in with your name."))
            sb.code(address, label=text("Address")).classes("sb-wrap")
            if found.fingerprint:
                warning = text(
                    "The browser warns once that it does not know the certificate: your home made it itself. "
                    "Continue if its SHA-256 fingerprint is this one:"
                )
                sb.note(warning)
                sb.code(found.fingerprint, label=text("Fingerprint of the certificate")).classes("sb-wrap")
                show_trust(found.url)
