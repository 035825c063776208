"""How calls and controls get onto the bus, and what becomes of those that find no way."""

import asyncio
import logging
from contextlib import suppress

from bus.link import Link
from bus.rpc.composer import Composer
from bus.rpc.open_call import OpenCall, Phase, offline
from contracts.errors import Disconnected
from contracts.rpc import Call

_logger = logging.getLogger(__name__)

_ROOM_S = 0.02
"""When a control message that found too much in flight is tried again."""


class Dispatch:
    """Publishes what the hub says about its calls."""

    def __init__(self, link: Link, composer: Composer) -> None:
        self._link = link
        self._composer = composer

    async def publish(self, open_call: OpenCall) -> None:
        """Publish a call, or its ``start``; waits while too much is in flight.

        Raises:
            CallError: ``offline`` if there is no connection, so that it did not go out.
        """
        message = open_call.outgoing
        open_call.sent += 1
        try:
            await self._link.publish(
                message.topic,
                message.payload,
                expiry_s=message.expiry_s,
                response_topic=message.response_topic,
                correlation=message.correlation,
            )
        except Disconnected as error:
            open_call.sent -= 1
            # While it waited for room it may have been published again, and then it may run.
            if not open_call.sent:
                raise offline(open_call.request, f"cannot be reached: {error.message}") from None

    def publish_once_more(self, open_call: OpenCall) -> None:
        """Publish, byte for byte, what may not have reached the device."""
        if open_call.phase is Phase.RESERVED:
            return
        # Without a connection nothing is lost: coming back publishes all that is open.
        with suppress(Disconnected):
            self._link.publish_nowait(open_call.outgoing)
            open_call.sent += 1

    def control(self, device: str, call: Call, kind: str) -> None:
        """Send ``start`` or ``cancel``."""
        try:
            self._link.publish_nowait(self._composer.control(device, call, kind))
        except Disconnected as error:
            if self._link.connected:
                # Too much is in flight. A cancel that is dropped lets a device act that was told not to.
                asyncio.get_running_loop().call_later(_ROOM_S, self.control, device, call, kind)
                return
            _logger.info("the %s of call %s was not sent: %s", kind, call.id, error)
