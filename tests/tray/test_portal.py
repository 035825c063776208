"""The shortcut by the portal, against a portal that assigns what it is asked for."""

import asyncio
from typing import Any

import pytest
from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from tests.tray.desktop import Desktop
from tray.desktop import PATH, PORTAL, REQUEST, SHORTCUTS, wait_for_keys

_SESSION = f"{PATH}/session/one"


class Portal:
    """Takes calls of ``GlobalShortcuts``, and notes what is bound."""

    def __init__(self, bus: MessageBus, *, response: int) -> None:
        self._bus = bus
        self._response = response
        self.bound: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def take(self, message: Message) -> bool:
        """Answer as a portal does: with a handle, then with a signal."""
        if message.message_type != MessageType.METHOD_CALL or message.interface != SHORTCUTS:
            return False
        sender = message.sender.removeprefix(":").replace(".", "_")
        handle = f"{PATH}/request/{sender}/{message.body[-1]['handle_token'].value}"
        self._bus.send(Message.new_method_return(message, "o", [handle]))
        results = {"session_handle": Variant("s", _SESSION)}
        self.signal(handle, REQUEST, "Response", "ua{sv}", [self._response, results])
        if message.member == "BindShortcuts":
            self.bound.set_result(message.body[1])
        return True

    def signal(self, path: str, interface: str, member: str, signature: str, body: list[Any]) -> None:
        """Send a signal."""
        self._bus.send(Message.new_signal(path, interface, member, signature, body))

    def press(self, session: str) -> None:
        """Say that the keys were pressed."""
        self.signal(PATH, SHORTCUTS, "Activated", "osta{sv}", [session, "quick-chat", 1, {}])


async def test_the_keys_are_bound_and_pressed(bare: Desktop) -> None:
    address = bare.environment["DBUS_SESSION_BUS_ADDRESS"]
    bus = await MessageBus(bus_address=address).connect()
    portal = Portal(bus, response=0)
    bus.add_message_handler(portal.take)
    await bus.request_name(PORTAL)
    pressed, times = asyncio.Event(), []

    def press() -> None:
        times.append(1)
        pressed.set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(wait_for_keys("Ctrl+Alt+Space", press, address=address))
        ((name, about),) = await portal.bound
        assert (name, about["preferred_trigger"].value) == ("quick-chat", "CTRL+ALT+space")
        portal.press(f"{PATH}/session/of_another")
        portal.press(_SESSION)
        await pressed.wait()
        assert times == [1]
        waiting.cancel()
    bus.disconnect()


async def test_a_portal_that_refuses_or_is_missing_gives_no_shortcut(bare: Desktop) -> None:
    address = bare.environment["DBUS_SESSION_BUS_ADDRESS"]
    with pytest.raises(OSError, match="CreateSession"):
        await wait_for_keys("Ctrl+Alt+Space", lambda: None, address=address)
    bus = await MessageBus(bus_address=address).connect()
    bus.add_message_handler(Portal(bus, response=1).take)
    await bus.request_name(PORTAL)
    with pytest.raises(OSError, match="refused"):
        await wait_for_keys("Ctrl+Alt+Space", lambda: None, address=address)
    bus.disconnect()
