"""The page that one browser shows: its person's rights, controls, messages, and streams that end with it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, TypeVar, cast
from urllib.parse import quote
from zoneinfo import ZoneInfo

from nicegui import Client, ui
from pydantic import SecretStr
from starlette.requests import HTTPConnection

from agent_core.prompt import Household
from contracts.answers.live import Event
from contracts.errors import PasswordNeeded, StrawberryError, Unauthorized
from contracts.phrases import for_people
from contracts.rates import Backoff
from contracts.wire import Json
from hub_live.events import operations as events
from hub_live.events.kinds import EventData, Kept, with_data
from hub_live.world import operations as world
from hub_registry.http.sessions import confirm_password
from hub_web import limits, sb
from hub_web.api import Api
from hub_web.door import theme_of
from hub_web.feeds import Feeds
from hub_web.parts.calls.forms import switch, text_field
from hub_web.sockets import WebSession
from hub_web.texts import LANGUAGE, ZONE, ago, choose, text

_log = logging.getLogger(__name__)

T = TypeVar("T")

SEEN_COOKIE: Final = "strawberry_seen"


class View:
    """One page as one browser shows it.

    Args:
        connection: The request for it.
        household: Its language and time zone count where the person has none.
        tasks: Owns what the page follows.

    Attributes:
        api: The hub's routes with the rights of the session; what they raise and a handler does not catch is
            shown by `fail`.
        zone: The person's time zone.
        theme: Which of light and dark; ``auto`` is what the device says.
        seen: Id of the last notification that was seen in this browser.
        base_path: Prefix of every path in a page.
        feeds: The turns that pages have begun.
        client: NiceGUI's side of it.
    """

    client: Client

    def __init__(
        self,
        connection: HTTPConnection,
        session: WebSession,
        api: Api,
        *,
        household: Household,
        tasks: asyncio.TaskGroup,
        feeds: Feeds,
    ) -> None:
        self.user = user = session.user
        self.is_admin = session.is_admin
        self.may_change = not user.read_only
        self.api = api
        self.language = choose(user.language, connection.headers.get("accept-language"), household.language)
        self.zone = ZoneInfo(user.time_zone or household.time_zone)
        self.theme = theme_of(connection)
        seen = connection.cookies.get(SEEN_COOKIE, "")[:19]
        self.seen = int(seen) if seen.isascii() and seen.isdecimal() else 0
        self.base_path = str(connection.scope["root_path"])
        self.feeds = feeds
        self._tasks = tasks
        self._until_closed: set[asyncio.Task[Any]] = set()
        self._busy = 0
        self._is_closed = False
        self._listeners: list[tuple[type[EventData], Callable[[Event[Any]], Any], Any]] = []

    def enter(self) -> None:
        """Make this the page of the present task and of those that it begins."""
        _VIEW.set(self)
        LANGUAGE.set(self.language)
        ZONE.set(self.zone)

    def show_in(self, client: Client, *, title: sb.Words, progress: ui.element) -> None:
        self.client, self._title, self._progress = client, title, progress
        client.on_exception(self.fail)
        client.on_delete(self._close)

    def title(self, name: str) -> None:
        """Call the page something else than it is called in the navigation."""
        self._title.set(name)
        with self.client:
            ui.page_title(f"{name} · Strawberry")

    def href(self, path: str) -> str:
        return self.base_path + path

    def anchor(self, path: str, classes: str) -> ui.element:
        """Make a link to a path of ours around what is made in it."""
        made = ui.element("a").classes(classes)
        made.props["href"] = self.href(path)
        return made

    def go(self, path: str) -> None:
        # NiceGUI adds the base path.
        ui.navigate.to(path)

    # -- messages ---------------------------------------------------------------------------------

    def notify(self, message: str, *, kind: Literal["positive", "info", "warning"] = "positive") -> None:
        # What was pressed may be gone by now.
        with self.client:
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
            message, hint = text.sentence(error.message), text.sentence(for_people(error.hint))
        else:
            message, hint = text("This did not work; the log of the hub says why."), ""
        # As in `notify`.
        with self.client:
            ui.notify(
                message,
                caption=hint,
                type="negative",
                position="bottom",
                multi_line=True,
                timeout=10_000,
                close_button=text("Close"),
            )

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        self._busy += 1
        self._progress.classes(remove="sb-hidden")
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._progress.classes(add="sb-hidden")

    # -- dialogs ----------------------------------------------------------------------------------

    @contextmanager
    def dialog(self, title: str, *, wide: bool = False, close: str = "") -> Iterator[ui.dialog]:
        """Open a dialog with a heading; the block makes its content.

        It belongs to the page as a whole: what it was opened from may be made again meanwhile.

        Args:
            close: Words of a button that closes it.
        """
        with self.client.content, ui.element("div") as place:
            place.set_visibility(False)
            box = ui.dialog()
        box.on("hide", place.delete)
        box.on("hide", box.delete)
        sb.named(box, title)
        # An error from before would cover it.
        self.client.run_javascript(
            "document.querySelectorAll('.q-notification .q-btn').forEach(e => e.click())"
        )
        with (
            box,
            ui.element("div").classes(f"sb-dialog {'sb-wide' if wide else ''}"),
            # A line end in a field presses the button of type submit, where there is one, and sends nothing.
            ui.element("form").classes("sb-contents").on("submit.prevent", lambda: None),
        ):
            sb.heading(title)
            yield box
            if close:
                with sb.actions():
                    self.button(close, box.close, kind="primary")
        box.open()

    async def ask(
        self,
        question: str,
        more: str = "",
        *,
        yes: str = "",
        danger: bool = False,
        show: Callable[[], Any] | None = None,
    ) -> bool:
        """Ask before something is done that cannot be undone, and return whether the person said yes.

        Args:
            yes: Words of the button; say what it does.
            show: Makes what is asked about, below the text.
        """
        with self.dialog(question, wide=show is not None) as box:
            if more:
                sb.Words("p", more)
            if show is not None:
                show()
            with sb.actions():
                no = self.button(text("Cancel"), partial(box.submit, False), kind="flat")
                kind: Literal["danger", "primary"] = "danger" if danger else "primary"
                do = self.button(yes or text("Yes"), partial(box.submit, True), kind=kind)
                # What is long to read is not said yes to by a key that was pressed before it was read.
                (do if show is None else no).props("autofocus")
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

        with self.dialog(title, wide=wide) as box:
            yield box
            with sb.actions():
                self.button(no or text("Cancel"), box.close, kind="flat")
                self.button(yes or text("Save"), act, kind="primary").props("type=submit")

    async def _ask_again(self) -> None:
        if await self._confirm_password():
            with self.client:
                self.notify(text("Do it once more now"), kind="info")

    async def _confirm_password(self) -> bool:
        """Ask for the password again, until it is right; return whether it was given."""

        async def confirm() -> bool:
            await self.api(confirm_password, SecretStr(password.value))
            box.submit(True)
            # Closed by the one who waits for it, who would take a closed one for a no.
            return False

        with self.client, self.form(text("Type your password again"), confirm, yes=text("Continue")) as box:
            sb.Words("p", text("This can hand over control of the home."))
            password = text_field(text("Password"), secret=True)
            password.props("autocomplete=current-password autofocus")
        return bool(await box)

    # -- controls ---------------------------------------------------------------------------------

    def button(
        self,
        label: str,
        on_click: sb.Handler,
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
            sb.named(made, tip).tooltip(tip)
        runs = False

        async def click() -> None:
            nonlocal runs
            if runs:
                return  # pressed twice before the browser showed that it works
            runs = True
            made.props("loading")
            try:
                async with self.busy():
                    try:
                        await sb.handled(on_click)
                    except PasswordNeeded:
                        if await self._confirm_password():
                            await sb.handled(on_click)
            finally:
                runs = False
                if not made.is_deleted:
                    made.props(remove="loading")

        made.on_click(click)
        return made

    def tool(self, icon: str, tip: str, on_click: sb.Handler) -> ui.button:
        return self.button("", on_click, icon=icon, kind="flat", tip=tip)

    def switch(self, label: str, value: bool, change: Callable[[bool], Awaitable[None]]) -> ui.switch:
        """Make a switch that takes effect at once; where that fails, it is set back."""
        changing = asyncio.Lock()

        async def changed(wanted: bool) -> None:
            nonlocal value
            # Compared once the change before it has ended, which may have failed.
            async with changing:
                if wanted == value:
                    return
                try:
                    async with self.busy():
                        await change(wanted)
                    value = wanted
                except StrawberryError as error:
                    self.fail(error)
                    made.value = value

        return (made := switch(label, value, changed))

    def menu_item(self, label: str, on_click: sb.Handler) -> ui.menu_item:
        return ui.menu_item(label, self.showing(on_click)).props("role=menuitem")

    def showing(self, handler: sb.Handler) -> sb.Callback:
        """Make a handler show at once, at the top of the page, that it is under way."""

        async def run() -> None:
            async with self.busy():
                await sb.handled(handler)

        return run

    def link(self, label: str, path: str, *, classes: str = "") -> ui.link:
        # NiceGUI adds the base path.
        return ui.link(label, path).classes(f"sb-link {classes}")

    # -- time -------------------------------------------------------------------------------------

    def ago(self, moment: datetime | None) -> str:
        return ago(moment)

    def at(self, moment: datetime | None) -> str:
        return text.at(self.zone, moment) if moment is not None else ""

    def copy(self, content: str) -> None:
        ui.clipboard.write(content)
        self.notify(text("Copied"))

    # -- streams ----------------------------------------------------------------------------------

    def follow(
        self,
        open_stream: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]],
        on_event: Callable[[T], Any],
        *,
        on_open: sb.Callback | None = None,
    ) -> Callable[[], object]:
        """Call a function with each answer of a stream, as long as the page is there.

        The stream is opened again where it ends. What the function does to elements is sent on; where the
        browser is slow, only their latest state is.

        Returns:
            A function that stops it.
        """
        slot = ui.context.slot

        async def run() -> None:
            backoff, failed = Backoff(*limits.STREAM_RETRY_S), False
            while True:
                try:
                    async with open_stream() as events:
                        failed = False
                        if on_open is not None:
                            with slot:
                                await on_open()
                        async for event in events:
                            backoff.reset()
                            try:
                                await sb.tell(on_event, event, slot)
                            except StrawberryError:
                                raise
                            except Exception:  # noqa: BLE001  one event must not end the others
                                _log.exception("an event cannot be shown")
                except StrawberryError as error:
                    # Once: it is tried again and again.
                    if not failed:
                        with slot:
                            self.fail(error)
                    failed = True
                    if isinstance(error, Unauthorized):
                        return
                await asyncio.sleep(backoff.next())

        return self.run(run(), name="follow")

    def follow_devices(self, show: sb.Callback, *, every_s: float) -> None:
        """Call a function whenever a device has changed, and every so many seconds."""
        self.follow(partial(self.api.follow, world.follow, world.Wanted(kind="device")), lambda _: show())
        ui.timer(every_s, show, immediate=False)

    def follow_events(self, on_open: sb.Callback) -> None:
        """Follow the events of the home in one stream; `on_open` loads the state whenever it has opened."""
        self.follow(partial(self.api.follow, events.follow), self._happened, on_open=on_open)

    def on_event(self, kind: type[Kept], on_event: Callable[[Event[Kept]], Any]) -> None:
        self._listeners.append((kind, on_event, ui.context.slot))

    async def _happened(self, event: Event[Json]) -> None:
        for kind, on_event, slot in self._listeners:
            if event.kind == kind.KIND:
                await sb.tell(on_event, with_data(event, kind), slot)

    async def stored_events(self, kind: type[Kept], *, last: int, own: bool = False) -> list[Event[Kept]]:
        """Return the last events of a kind that were stored, the oldest first."""
        stored = self.api.follow(events.follow, kind.KIND, last, follow=False, own=own)
        async with stored as found:
            return [with_data(event, kind) async for event in found]

    def run(self, work: Coroutine[Any, Any, None], *, name: str) -> Callable[[], object]:
        """Run something beside the page until it ends, or the page does; return what stops it."""
        if self._is_closed:
            # Deleted before it was built, as one of too many.
            work.close()
            return lambda: None

        async def guarded() -> None:
            try:
                await work
            except StrawberryError as error:
                with self.client:
                    self.fail(error)
            except Exception as error:  # noqa: BLE001  one page must not end the others
                _log.error("a page failed", exc_info=error)

        task = self._tasks.create_task(guarded(), name=f"web: {name}")
        self.cancel_when_closed(task)
        return task.cancel

    def cancel_when_closed(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task if it still runs when the page is closed, or as the page is closed already."""
        self._until_closed.add(task)
        task.add_done_callback(self._until_closed.discard)
        if self._is_closed:
            task.cancel()

    def _close(self) -> None:
        self._is_closed = True
        for task in tuple(self._until_closed):
            task.cancel()


_VIEW: Final[ContextVar[View]] = ContextVar("view")


class _Present:
    def __getattr__(self, name: str) -> Any:
        return getattr(_VIEW.get(), name)


view: Final = cast(View, _Present())
"""The page that is built or that an event has come from, as ``ui`` is NiceGUI's side of it."""


def part(name: object) -> str:
    """Return a name as a part of a path."""
    return quote(str(name), safe="")
