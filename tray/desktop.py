"""The desktop over D-Bus: its global shortcut, from the portal, and its notifications."""

import asyncio
import html
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from threading import Thread
from typing import Any, Final

from dbus_fast import DBusError, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from tray import limits

PORTAL: Final = "org.freedesktop.portal.Desktop"
PATH: Final = "/org/freedesktop/portal/desktop"
SHORTCUTS: Final = "org.freedesktop.portal.GlobalShortcuts"
REQUEST: Final = "org.freedesktop.portal.Request"
NOTIFICATIONS: Final = "org.freedesktop.Notifications"
_NAMES: Final = {"ctrl": "CTRL", "alt": "ALT", "shift": "SHIFT", "super": "LOGO", "meta": "LOGO"}
_ID: Final = "quick-chat"
_SIGNALS: Final = ("ActionInvoked", "NotificationClosed")

_log = logging.getLogger(__name__)


def listen_for_keys(keys: str, pressed: Callable[[], None]) -> None:
    """Call a function, in a thread of its own, whenever the keys are pressed, whatever window is in front.

    Where the desktop has no such portal, nothing happens but a line in the log.

    Args:
        keys: For example ``Ctrl+Alt+Space``.
    """

    def run() -> None:
        try:
            asyncio.run(wait_for_keys(keys, pressed))
        except OSError as error:
            _log.info("the desktop assigns no shortcut %s: %s", keys, error)

    Thread(target=run, name="shortcut", daemon=True).start()


async def wait_for_keys(keys: str, pressed: Callable[[], None], *, address: str | None = None) -> None:
    """Call a function whenever the keys are pressed, until cancelled. The person may choose others.

    Args:
        keys: The ones to begin with, for example ``Ctrl+Alt+Space``.
        address: Of the bus; the session's if None.

    Raises:
        OSError: If there is no bus, no such portal, or the person does not want it.
    """
    async with session_bus(address) as bus:
        portal = _Portal(bus, pressed)
        await portal.bind(keys)
        await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


@asynccontextmanager
async def session_bus(address: str | None = None) -> AsyncIterator[MessageBus]:
    """Connect to a bus, the session's if no address is given.

    Raises:
        OSError: If there is none, it rejects the login, or it closes.
    """
    try:
        # An address that is none and a rejected login are a ValueError.
        bus = await MessageBus(bus_address=address).connect()
    except (EOFError, ValueError, DBusError) as error:
        raise OSError(str(error)) from error
    try:
        yield bus
    except (EOFError, DBusError) as error:
        raise OSError(str(error)) from error
    finally:
        bus.disconnect()


async def call(
    bus: MessageBus,
    owner: str,
    path: str,
    member: str,
    signature: str = "",
    body: Sequence[Any] = (),
    *,
    interface: str = "",
) -> list[Any]:
    """Call a method; return its results.

    Raises:
        OSError: If it fails, or nothing answers.
    """
    message = Message(
        destination=owner,
        path=path,
        interface=interface or owner,
        member=member,
        signature=signature,
        body=list(body),
    )
    reply = await bus.call(message)
    if reply is None or reply.message_type == MessageType.ERROR:
        raise OSError(f"{member}: {reply.body[0] if reply and reply.body else 'no answer'}")
    return reply.body


async def listen_to(bus: MessageBus, sender: str) -> None:
    """Receive the signals of a program."""
    rule = f"type='signal',sender='{sender}'"
    await call(bus, "org.freedesktop.DBus", "/org/freedesktop/DBus", "AddMatch", "s", [rule])


class _Portal:
    def __init__(self, bus: MessageBus, pressed: Callable[[], None]) -> None:
        self._bus = bus
        self._pressed = pressed
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._session = ""

    async def bind(self, keys: str) -> None:
        """Bind the keys of the shortcut."""
        self._bus.add_message_handler(self._take)
        await listen_to(self._bus, PORTAL)
        token = Variant("s", f"strawberry{secrets.token_hex(8)}")
        created = await self._request("CreateSession", "", [], {"session_handle_token": token})
        self._session = str(created["session_handle"].value)
        about = {
            "description": Variant("s", "Strawberry: quick chat"),
            "preferred_trigger": Variant("s", _trigger(keys)),
        }
        await self._request("BindShortcuts", "oa(sa{sv})s", [self._session, [[_ID, about]], ""], {})

    async def _request(
        self, member: str, signature: str, body: list[Any], options: dict[str, Variant]
    ) -> dict[str, Any]:
        """Call a method of the portal, which answers by a signal: it may ask the person first."""
        token = f"strawberry{secrets.token_hex(8)}"
        sender = str(self._bus.unique_name).removeprefix(":").replace(".", "_")
        path = f"{PATH}/request/{sender}/{token}"
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[path] = answer
        body = [*body, {**options, "handle_token": Variant("s", token)}]
        await call(self._bus, PORTAL, PATH, member, f"{signature}a{{sv}}", body, interface=SHORTCUTS)
        return await answer

    def _take(self, message: Message) -> None:
        if message.message_type != MessageType.SIGNAL:
            return
        if message.interface == REQUEST and message.member == "Response":
            answer = self._answers.pop(str(message.path), None)
            if answer is None:
                return
            if message.body[0] == 0:
                answer.set_result(message.body[1])
            else:
                answer.set_exception(OSError("the shortcut was refused"))
        elif (message.interface, message.member) == (SHORTCUTS, "Activated"):
            self._activate(*message.body[:2])

    def _activate(self, session: str, shortcut: str) -> None:
        if (session, shortcut) == (self._session, _ID):
            self._pressed()


def _trigger(keys: str) -> str:
    *modifiers, key = (each.strip().lower() for each in keys.split("+"))
    return "+".join((*(_NAMES.get(each, each) for each in modifiers), key))


def notify(title: str, text: str, *, shown_ms: int) -> bool | None:
    """Show a notification; return whether it was clicked, once it is over; None where none is shown."""
    try:
        return asyncio.run(_notify(title, text, shown_ms))
    except OSError as error:
        _log.info("the desktop shows no notifications: %s", error)
        return None


async def _notify(title: str, text: str, shown_ms: int) -> bool:
    signals: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    path = "/org/freedesktop/Notifications"

    def take(message: Message) -> None:
        if message.message_type == MessageType.SIGNAL and message.member in _SIGNALS:
            signals.put_nowait((message.member, message.body[0]))

    async with session_bus() as bus:
        bus.add_message_handler(take)
        await listen_to(bus, NOTIFICATIONS)
        (abilities,) = await call(bus, NOTIFICATIONS, path, "GetCapabilities")
        # A device has chosen what is in the text.
        body = html.escape(text, quote=False) if "body-markup" in abilities else text
        given = ["Strawberry", 0, "", title, body, ["default", title], {}, shown_ms]
        (number,) = await call(bus, NOTIFICATIONS, path, "Notify", "susssasa{sv}i", given)
        seen = ("", 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.CLICK_S):
                while seen[1] != number:
                    seen = await signals.get()
        return seen == ("ActionInvoked", number)
