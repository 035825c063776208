"""The session bus of a Linux desktop (D-Bus), as skills call programs on it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from contracts.errors import ConfigError
from contracts.phrases import Phrase

if TYPE_CHECKING:
    from dbus_fast.aio import MessageBus

_ANSWER_S: Final = 5.0
"""A program that has not answered by then hangs; healthy ones take milliseconds."""

_CONNECTED_S: Final = 2.0


class SessionBus:
    """An open session bus."""

    def __init__(self, bus: "MessageBus") -> None:
        self._bus = bus

    async def call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        body: list[Any] | None = None,
        *,
        name: str = "",
    ) -> list[Any]:
        """Call a method, and return what it answers.

        Args:
            name: Of the program, for errors.

        Raises:
            ConfigError: It does not answer, or refuses.
        """
        from dbus_fast import Message, MessageType

        message = Message(
            destination=destination,
            path=path,
            interface=interface,
            member=member,
            signature=signature,
            body=body or [],
        )
        name = name or destination
        try:
            async with asyncio.timeout(_ANSWER_S):
                reply = await self._bus.call(message)
        except TimeoutError:
            raise ConfigError("{name} does not answer", name=name, hint="Restart that program.") from None
        if reply is None or reply.message_type is MessageType.ERROR:
            reason = reply.body[0] if reply is not None and reply.body else "no reason given"
            raise ConfigError("{name} refused {member}: {reason}", name=name, member=member, reason=reason)
        return list(reply.body)


@asynccontextmanager
async def open_session_bus(what: str) -> AsyncIterator[SessionBus]:
    """Connect to the session bus.

    Args:
        what: What needs it, for the hint: ``Media players``.

    Raises:
        ConfigError: There is no session bus here.
    """
    hint = Phrase("{what} need a Linux desktop session: run the spoke inside one.", what=Phrase(what))
    try:
        from dbus_fast import BusType
        from dbus_fast.aio import MessageBus
        from dbus_fast.errors import DBusError, InvalidAddressError
    except ImportError:
        raise ConfigError("this system has no D-Bus", hint=hint) from None
    bus: MessageBus | None = None
    try:
        try:
            bus = MessageBus(bus_type=BusType.SESSION)
            async with asyncio.timeout(_CONNECTED_S):
                await bus.connect()
        except (OSError, EOFError, ValueError, DBusError, InvalidAddressError) as error:
            raise ConfigError("there is no D-Bus session", hint=hint) from error
        yield SessionBus(bus)
    finally:
        if bus is not None:
            bus.disconnect()
