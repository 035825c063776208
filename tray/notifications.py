"""A notification of the desktop by ``org.freedesktop.Notifications``."""

import asyncio
import html
import logging
from contextlib import suppress
from typing import Final

from dbus_fast import Message, MessageType

from tray import limits
from tray.portal import call, listen_to, session_bus

_log = logging.getLogger(__name__)

NAME: Final = "org.freedesktop.Notifications"
PATH: Final = "/org/freedesktop/Notifications"
_SIGNALS: Final = ("ActionInvoked", "NotificationClosed")


def notify(title: str, text: str, *, shown_ms: int) -> bool | None:
    """Show a notification; return whether it was clicked, once it is over; None where none is shown."""
    try:
        return asyncio.run(_notify(title, text, shown_ms))
    except OSError as error:
        _log.info("the desktop shows no notifications: %s", error)
        return None


async def _notify(title: str, text: str, shown_ms: int) -> bool:
    signals: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    def take(message: Message) -> None:
        if message.message_type == MessageType.SIGNAL and message.member in _SIGNALS:
            signals.put_nowait((message.member, message.body[0]))

    async with session_bus() as bus:
        bus.add_message_handler(take)
        await listen_to(bus, NAME)
        (abilities,) = await call(bus, NAME, PATH, "GetCapabilities")
        # A device has chosen what is in the text.
        body = html.escape(text, quote=False) if "body-markup" in abilities else text
        given = ["Strawberry", 0, "", title, body, ["default", title], {}, shown_ms]
        (number,) = await call(bus, NAME, PATH, "Notify", "susssasa{sv}i", given)
        seen = ("", 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.CLICK_S):
                while seen[1] != number:
                    seen = await signals.get()
        return seen == ("ActionInvoked", number)
