"""Notifications on a real session bus, to a server as a desktop has one."""

import sys
from contextlib import asynccontextmanager

import pytest

from contracts.errors import CallError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="D-Bus is Linux's")


@asynccontextmanager
async def desktop(*abilities):
    """Show notifications; yields what is on the screen: title, text, urgency."""
    from typing import Annotated

    from dbus_fast.aio import MessageBus
    from dbus_fast.annotations import DBusDict, DBusInt32, DBusSignature, DBusStr, DBusUInt32
    from dbus_fast.service import ServiceInterface, dbus_method

    Texts = Annotated[list[str], DBusSignature("as")]  # noqa: N806
    shown = []

    class Server(ServiceInterface):
        def __init__(self):
            super().__init__("org.freedesktop.Notifications")

        @dbus_method()
        def GetCapabilities(self) -> Texts:  # noqa: N802
            return list(abilities)

        @dbus_method()
        def Notify(  # noqa: N802
            self,
            app: DBusStr,
            replaces: DBusUInt32,
            icon: DBusStr,
            title: DBusStr,
            body: DBusStr,
            actions: Texts,
            hints: DBusDict,
            time: DBusInt32,
        ) -> DBusUInt32:
            shown.append((title, body, hints["urgency"].value if "urgency" in hints else None))
            return len(shown)

    bus = await MessageBus().connect()
    bus.export("/org/freedesktop/Notifications", Server())
    await bus.request_name("org.freedesktop.Notifications")
    try:
        yield shown
    finally:
        bus.disconnect()
        await bus.wait_for_disconnect()


async def test_a_text_is_shown_as_it_was_said(session_bus, opened):
    async with opened("notifications") as screen:
        with pytest.raises(CallError, match="refused GetCapabilities"):
            await screen.call("show", text="nobody shows it")
        async with desktop("body") as shown:
            assert await screen.answer("show dinner is ready on the screen") == "It is on the screen."
            await screen.call("show", text="<b>1 & 2</b>", title="Door", important=True)
            assert shown == [("Strawberry", "dinner is ready", None), ("Door", "<b>1 & 2</b>", 2)]
        async with desktop("body", "body-markup") as shown:
            await screen.call("show", text="<b>1 & 2</b>")
            assert shown[0][1] == "&lt;b&gt;1 &amp; 2&lt;/b&gt;"
