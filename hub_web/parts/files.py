"""Files: links that save them, and fields that send them."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

from nicegui import ui

from contracts.chat.messages import ChatFile, ChatImage
from contracts.errors import InvalidMessage, PasswordNeeded
from contracts.limits import MAX_FILE_TEXT, MAX_FILES
from contracts.validation import validated
from contracts.wire import Json
from hub_web import limits, sb
from hub_web.feeds import Attached
from hub_web.texts import text
from hub_web.view import view


def download_link(name: str, path: str) -> None:
    """Make a link that saves a file of a route."""
    label = text("Download {name}", name=name)
    made = sb.named(ui.link("", path).classes("sb-button sb-flat sb-download"), label).tooltip(label)
    made.props["download"] = name
    with made:
        ui.icon("download")


class FileField:
    """A field for a file of this person's machine, with how much of it was sent."""

    def __init__(self, label: str) -> None:
        name = sb.Words("label", label, "sb-small sb-muted")
        with sb.row():
            self._file = ui.element("input").props("type=file").classes("sb-file")
            self._file.props["id"] = self._file.html_id
            name.props["for"] = self._file.html_id
            self._sent = sb.Words("span", "", "sb-small sb-muted").props("aria-live=polite")
            self._sent.props["id"] = self._sent.html_id

    async def send(self, path: str) -> None:
        """Send the chosen file to a route, piece by piece.

        Args:
            path: Where it ends with ``/``, the name of the file comes behind it.

        Raises:
            InvalidMessage: If none is chosen, or as the route says it.
        """
        await in_browser("send", path, self._file.html_id, self._sent.html_id)


class Attachments:
    """Button for pictures and text files that go with the next message, and what was chosen."""

    def __init__(self, place: ui.element) -> None:
        self._place = place
        self._chosen: list[Attached] = []
        self._input = ui.element("input").props("type=file multiple hidden tabindex=-1")
        self._input.props["accept"] = "image/*,text/*,.csv,.json,.log,.md,.toml,.yaml,.yml"
        self._input.props["id"] = self._input.html_id
        self._input.on("change", view.showing(self._take))
        button = sb.icon_button("attach_file", text("Add a photo or a text file"))
        button.on("click", js_handler=f"() => document.getElementById('{self._input.html_id}').click()")

    def put(self, files: list[Attached]) -> None:
        """Choose files in place of what was chosen."""
        self._chosen = files
        self._show()

    def take(self) -> list[Attached]:
        """Return what was chosen, which is then no longer."""
        chosen, self._chosen = self._chosen, []
        self._show()
        return chosen

    async def _take(self) -> None:
        most = MAX_FILE_TEXT - sum(len(each.text) for each in self._chosen if isinstance(each, ChatFile))
        try:
            # One at a time: each is a message of the page's socket.
            for number in range(2 * MAX_FILES):
                call = f"strawberry.attachment({json.dumps(self._input.html_id)}, {number}, {most})"
                answered = await view.client.run_javascript(f"return await {call}", timeout=limits.BUILD_S)
                if not isinstance(answered, dict) or len(self._chosen) == MAX_FILES:
                    break
                if code := answered.get("code"):
                    self._refuse(str(answered.get("name")), code)
                elif "data" in answered:
                    self._chosen.append(validated(ChatImage, answered, what="field"))
                else:
                    self._chosen.append(file := validated(ChatFile, answered, what="field"))
                    most -= len(file.text)
        finally:
            ui.run_javascript(f"document.getElementById({json.dumps(self._input.html_id)}).value = ''")
            self._show()

    def _refuse(self, name: str, code: str) -> None:
        message = text("{name} is neither a picture nor a text file.", name=name)
        if code == "long":
            most = text.number(MAX_FILE_TEXT)
            message = text("{name} is too long: {n} characters are the most.", name=name, n=most)
        view.notify(message, kind="warning")

    def _show(self) -> None:
        with sb.refilled(self._place):
            for each in self._chosen:
                with ui.element("span").classes("sb-badge sb-plain"):
                    ui.icon("image" if isinstance(each, ChatImage) else "description")
                    sb.Words("span", each.name)
                    leave = text("Leave {name} out", name=each.name)
                    sb.icon_button("close", leave, partial(self._leave_out, each))

    def _leave_out(self, file: Attached) -> None:
        self._chosen.remove(file)
        self._show()


def file_badges(files: Iterable[ChatFile]) -> None:
    for each in files:
        sb.badge(each.name, icon="description" if each.text else "image")


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
