"""A call that a device has accepted and that nobody has started yet."""

from typing import Protocol

from bus.rpc.open_call import OpenCall
from bus.rpc.request import OnProgress
from contracts.wire import Json


class Reserving(Protocol):
    """Who made a reservation, and can start it or give it back."""

    async def start(self, open_call: OpenCall, on_progress: OnProgress | None) -> Json:
        """Start the call and give its result."""

    def release(self, open_call: OpenCall) -> None:
        """Give it back without running it."""


class Reservation:
    """A call that a device has reserved and not run. Made by `Caller.reserve`."""

    def __init__(self, caller: Reserving, open_call: OpenCall) -> None:
        self._caller = caller
        self._open_call = open_call

    @property
    def device(self) -> str:
        """Id of the device that holds it."""
        return self._open_call.request.device

    @property
    def id(self) -> str:
        """Id of the call."""
        return self._open_call.call.id

    async def start(self, on_progress: OnProgress | None = None) -> Json:
        """Run it and give its result; from here on it never goes to another device.

        Raises:
            CallError: With the code that says why there is no result.
        """
        return await self._caller.start(self._open_call, on_progress)

    async def release(self) -> None:
        """Give it back without running it."""
        self._caller.release(self._open_call)
