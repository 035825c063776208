"""How a device joins: its token and the ready command, to copy or to scan."""

import shlex
from collections.abc import Mapping
from typing import Any

import segno
from nicegui import ui

from hub_web.parts.code import code
from hub_web.parts.dialogs import actions, dialog
from hub_web.parts.layout import Words, facts, problem
from hub_web.view import View


def ready_line(invitation: Mapping[str, Any]) -> str:
    """Return the line for a terminal that lets a device join; its token is in no list of processes."""
    return f"HUB_DEVICE_TOKEN={shlex.quote(invitation['token'])} {invitation['command']}"


def show_invitation(view: View, name: str, invitation: Mapping[str, Any]) -> ui.dialog:
    """Open a dialog with an enrolment token.

    Args:
        invitation: As ``POST /api/devices`` gives it.
    """
    text, line = view.text, ready_line(invitation)

    def copy() -> None:
        ui.clipboard.write(line)
        view.notify(text("Copied"))

    with dialog(text("Let {name} join", name=name), wide=True) as box:
        if not invitation["reachable"]:
            problem(
                text("This address works on this machine only."),
                text("For other devices, start the hub with --lan."),
            )
        with ui.element("div").classes("sb-join"):
            with ui.element("div").classes("sb-qr"):
                ui.html(_drawn(line, text("The command as a QR code")), sanitize=False)
            with ui.element("div").classes("sb-stack"):
                Words("p", text("Run this on the device, or scan it there. It works once."))
                code(line, label=text("Command")).classes("sb-wrap")
                facts(
                    {
                        text("Expires"): view.at(invitation["expires_at"]),
                        text("Key of the hub"): invitation["hub_key"],
                    }
                )
        with actions():
            view.button(text("Copy"), copy, icon="content_copy")
            view.button(text("Done"), box.close, kind="primary")
    box.on("hide", box.delete)
    box.open()
    return box


def _drawn(line: str, label: str) -> str:
    """Return a QR code as SVG; nothing of it is text of others."""
    drawn = segno.make(line, error="l").svg_inline(omitsize=True, border=2, dark="#000", light="#fff")
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
