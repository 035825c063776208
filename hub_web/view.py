"""What a page works with: the API with its person's rights, texts, messages, and streams that end with it."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from nicegui import Client, ui

from contracts.errors import PasswordNeeded, StrawberryError, Unauthorized
from contracts.rates import Backoff
from hub_registry.access.accounts import User
from hub_web.api import Api
from hub_web.feeds import Feeds
from hub_web.parts import dialogs, times
from hub_web.parts.forms import text_field
from hub_web.parts.layout import Words
from hub_web.texts import Text
from hub_web.visit import Visit

_log = logging.getLogger(__name__)

Handler = Callable[[], Awaitable[Any] | Any]

_RETRY_S: Final = (0.5, 15.0)
"""Shortest and longest wait until a stream that has ended is opened again."""


class View:
    """One page as one browser shows it.

    Attributes:
        api: The hub's routes; what they raise and a handler does not catch is shown by `fail`.
        text: Translates.
        client: NiceGUI's side of it.
    """

    def __init__(self, visit: Visit, client: Client, *, title: Words, progress: ui.element) -> None:
        self.api: Api = visit.api
        self.text: Text = visit.text
        self.client = client
        self._visit = visit
        self._title = title
        self._progress = progress
        self._busy = 0
        client.on_exception(self.fail)

    @property
    def user(self) -> User:
        """The person who is logged in."""
        return self._visit.session.user

    @property
    def zone(self) -> ZoneInfo:
        """The person's time zone."""
        return self._visit.zone

    @property
    def feeds(self) -> Feeds:
        """The turns that pages have begun."""
        return self._visit.feeds

    @property
    def is_admin(self) -> bool:
        """Whether to show what only an admin may do; the routes decide."""
        return self._visit.session.is_admin

    def title(self, text: str) -> None:
        """Call the page something else than it is called in the navigation."""
        self._title.set(text)
        self.client.title = f"{text} · Strawberry"

    def href(self, path: str) -> str:
        """Return the address of a path of ours, for a link."""
        return self._visit.base_path + path

    def go(self, path: str) -> None:
        """Open another page of ours."""
        # NiceGUI adds the base path.
        ui.navigate.to(path)

    # -- messages ---------------------------------------------------------------------------------

    def notify(self, message: str, *, kind: Literal["positive", "info", "warning"] = "positive") -> None:
        """Show a short message."""
        ui.notify(message, type=kind, position="bottom", timeout=4_000)

    def fail(self, error: Exception) -> None:
        """Show an error with what to do about it; what we did not expect is in the log of the hub."""
        if isinstance(error, Unauthorized):
            self.client.run_javascript("location.reload()")
            return
        if isinstance(error, PasswordNeeded):
            self.run(self._ask_again(), name="password")
            return
        if isinstance(error, StrawberryError):
            message, hint = error.message, error.hint
        else:
            message, hint = self.text("This did not work; the log of the hub says why."), ""
        ui.notify(
            message,
            caption=hint,
            type="negative",
            position="bottom",
            multi_line=True,
            timeout=10_000,
            close_button=self.text("Close"),
        )

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Show at the top of the page that something is under way."""
        self._busy += 1
        self._progress.classes(remove="sb-hidden")
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._progress.classes(add="sb-hidden")

    async def ask(
        self,
        question: str,
        text: str = "",
        *,
        yes: str = "",
        no: str = "",
        danger: bool = False,
        show: Callable[[], Any] | None = None,
    ) -> bool:
        """Ask before something is done that cannot be undone, and return whether the person said yes.

        Args:
            yes: Words of the button; say what it does.
            show: Makes what is asked about, below the text.
        """
        yes, no = yes or self.text("Yes"), no or self.text("Cancel")
        return await dialogs.ask(question, text, yes=yes, no=no, danger=danger, show=show)

    # -- controls ---------------------------------------------------------------------------------

    def button(
        self,
        label: str,
        on_click: Handler,
        *,
        icon: str = "",
        kind: Literal["primary", "plain", "danger", "flat"] = "plain",
        tip: str = "",
    ) -> ui.button:
        """Make a button that shows at once that it works, and cannot be pressed again until it has.

        Args:
            label: Empty for an icon alone, which then needs `tip` as its name.
        """
        made = ui.button(label, icon=icon or None, color=None)
        made.classes(f"sb-button sb-{kind}").props("no-caps unelevated")
        if tip:
            made.props["aria-label"] = tip
            made.tooltip(tip)

        async def click() -> None:
            made.props("loading")
            try:
                async with self.busy():
                    try:
                        await _handled(on_click)
                    except PasswordNeeded:
                        if await self._confirm_password():
                            await _handled(on_click)
            finally:
                if not made.is_deleted:
                    made.props(remove="loading")

        made.on_click(click)
        return made

    async def _ask_again(self) -> None:
        if await self._confirm_password():
            with self.client:
                self.notify(self.text("Do it once more now"), kind="info")

    async def _confirm_password(self) -> bool:
        """Ask for the password again, until it is right; return whether it was given."""
        text = self.text
        with self.client, dialogs.dialog(text("Type your password again")) as box:
            Words("p", text("This can hand the home to somebody else."))
            password = text_field(text("Password"), secret=True)
            password.props("autocomplete=current-password autofocus")

            async def confirm() -> None:
                await self.api.post("/api/session/confirm", {"password": password.value})
                box.submit(True)

            password.on("keydown.enter", confirm)
            with dialogs.actions():
                self.button(text("Cancel"), lambda: box.submit(False), kind="flat")
                self.button(text("Continue"), confirm, kind="primary")
        box.open()
        return bool(await box)

    @contextmanager
    def form(
        self, title: str, do: Callable[[], Awaitable[Any]], *, yes: str = "", no: str = "", wide: bool = False
    ) -> Iterator[ui.dialog]:
        """Open a dialog with the fields that the block makes.

        Args:
            do: What is done with them; the dialog closes once it has worked, unless it returns False.
            yes: Words of the button; "Save" where none are given.
        """

        async def act() -> None:
            if await do() is not False:
                box.close()

        with dialogs.dialog(title, wide=wide) as box:
            yield box
            with dialogs.actions():
                self.button(no or self.text("Cancel"), box.close, kind="flat")
                self.button(yes or self.text("Save"), act, kind="primary").props("type=submit")
        box.open()

    def link(self, label: str, path: str, *, classes: str = "") -> ui.link:
        """Make a link to a page of ours."""
        return ui.link(label, self.href(path)).classes(f"sb-link {classes}")

    # -- time -------------------------------------------------------------------------------------

    def ago(self, moment: str | datetime | None) -> str:
        """Return how long ago a moment was, in words; empty for None."""
        return times.ago(self.text, moment)

    def at(self, moment: str | datetime | None) -> str:
        """Return a moment as this person's clock and calendar show it; empty for None."""
        return times.at(self.text, self._visit.zone, moment)

    # -- streams ----------------------------------------------------------------------------------

    def follow(self, path: str, on_event: Callable[[Any], Any], **query: Any) -> Callable[[], None]:
        """Call a function with each event of a server-sent stream, as long as the page is there.

        The stream is opened again where it ends. What the function does to elements is sent on; where the
        browser is slow, only their latest state is.

        Returns:
            A function that stops it.
        """
        slot = ui.context.slot

        async def run() -> None:
            backoff, failed = Backoff(*_RETRY_S), False
            while True:
                try:
                    async with self.api.stream("GET", path, **query) as (_, events):
                        failed = False
                        async for event in events:
                            backoff.reset()
                            with slot:
                                result = on_event(event)
                                if inspect.isawaitable(result):
                                    await result
                except StrawberryError as error:
                    # Once: it is tried again and again.
                    if not failed:
                        with slot:
                            self.fail(error)
                    failed = True
                    if isinstance(error, Unauthorized):
                        return
                await asyncio.sleep(backoff.next())

        return self.run(run(), name=f"follow {path}")

    def run(self, work: Coroutine[Any, Any, None], *, name: str) -> Callable[[], None]:
        """Run something beside the page until it ends, or the page does; return what stops it."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001  one page must not end the others
                _log.error("a page failed", exc_info=error)

        task = self._visit.tasks.create_task(guarded(), name=f"web: {name}")

        def stop() -> None:
            task.cancel()

        self.client.on_delete(stop)
        return stop


async def _handled(handler: Handler) -> None:
    result = handler()
    # To await a dialog, which ``close`` returns, would open it again.
    if inspect.isawaitable(result) and not isinstance(result, ui.element):
        await result
