"""Files: their sizes, links that save them, and fields that send them."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

from nicegui import ui

from agent_core.sentences.responses import bytes_text
from contracts.errors import InvalidMessage, PasswordNeeded
from contracts.wire import Json
from hub_web import limits
from hub_web.parts.layout import Words, row
from hub_web.texts import text
from hub_web.view import view


def size(count: float) -> str:
    return bytes_text(count, decimal=text.number(0.1, 1)[1])


def download_link(name: str, path: str) -> None:
    """Make a link that saves a file of a route."""
    made = ui.link("", path).classes("sb-button sb-flat sb-download")
    made.props["download"] = name
    made.props["aria-label"] = text("Download {name}", name=name)
    made.tooltip(text("Download {name}", name=name))
    with made:
        ui.icon("download")


class FileField:
    """A field for a file of this person's machine, with how much of it was sent."""

    def __init__(self, label: str) -> None:
        name = Words("label", label, "sb-small sb-muted")
        with row():
            self._file = ui.element("input").props("type=file").classes("sb-file")
            self._file.props["id"] = self._file.html_id
            name.props["for"] = self._file.html_id
            self._sent = Words("span", "", "sb-small sb-muted").props("aria-live=polite")
            self._sent.props["id"] = self._sent.html_id

    async def send(self, path: str) -> None:
        """Send the chosen file to a route, piece by piece.

        Args:
            path: Where it ends with ``/``, the name of the file comes behind it.

        Raises:
            InvalidMessage: If none is chosen, or as the route says it.
        """
        await in_browser("send", path, self._file.html_id, self._sent.html_id)


async def in_browser(function: str, *given: Any) -> None:
    """Run a function of ``strawberry.js`` in the browser.

    Raises:
        InvalidMessage: As the route that it asks says it.
        PasswordNeeded: If it wants the person's password first.
    """
    # A page that is left answers nothing.
    task = asyncio.current_task()
    assert task is not None
    view.cancel_when_closed(task)
    call = f"strawberry.{function}({', '.join(map(json.dumps, given))})"
    answered = await view.client.run_javascript(f"return await {call}", timeout=limits.FILE_TRANSFER_S)
    if error := cast("Mapping[str, Json] | None", answered):
        if error.get("code") == "password_needed":
            raise PasswordNeeded(str(error.get("detail")))
        own = {"no_file": text("Choose a file first"), "unreachable": text("The hub does not answer.")}
        message = own.get(str(error.get("code"))) or str(error.get("detail"))
        raise InvalidMessage(message, hint=str(error.get("hint", "")))
