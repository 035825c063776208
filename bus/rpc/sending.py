"""What the hub publishes for a call: the call itself, its start and its cancel."""

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from bus.limits import ROOM_S
from bus.link import Link, Message
from bus.rpc.open_call import OpenCall, Phase, offline
from bus.rpc.request import CallRequest
from contracts import topics
from contracts.devices.rpc import Call, Control
from contracts.errors import CallError, Disconnected, ErrorCode, InvalidTopic
from contracts.tracing.correlation import ids
from identity.envelope import Seal
from identity.ids import uuid7

_log = logging.getLogger(__name__)


class CallSender:
    """Writes, signs and publishes the calls of one hub process.

    Args:
        max_payload: Bytes that a signed call may have.
    """

    def __init__(self, link: Link, seal: Seal, instance: str, *, max_payload: int) -> None:
        self._link = link
        self._seal = seal
        self._instance = instance
        self._max_payload = max_payload

    def compose(self, request: CallRequest, epoch: int, ttl_ms: int, phase: Phase) -> OpenCall:
        """Make a call with a new id, signed and ready to be published.

        Raises:
            CallError: If it cannot be sent: ``bad_arguments``, ``unknown_skill`` if a name cannot stand in
                a topic, ``too_large``.
        """
        identifier = uuid7()
        try:
            call = Call(
                id=identifier,
                instance=self._instance,
                epoch=epoch,
                issued_at=datetime.now(UTC),
                ttl_ms=ttl_ms,
                accept=phase is Phase.RESERVING,
                actor=request.actor,
                request=ids().get("request"),
                confirmed=request.confirmed,
                args=list(request.args),
                kwargs=dict(request.kwargs),
            )
            topic = topics.CALL.build(device=request.device, skill=request.skill, method=request.method)
            payload = self._seal.seal(topic, call)
        except (ValidationError, PydanticSerializationError, ValueError) as error:
            first = str(error).partition("\n")[0]
            raise CallError(ErrorCode.BAD_ARGUMENTS, f"{request.path}: {first}") from None
        except InvalidTopic as error:
            raise CallError(ErrorCode.UNKNOWN_SKILL, f"{request.path}: {error.message}") from None
        if len(payload) > self._max_payload:
            raise CallError(
                ErrorCode.TOO_LARGE,
                f"the arguments of {request.path} have {len(payload):,} bytes; {self._max_payload:,} are "
                "allowed",
                hint="Pass a path or an address instead of the content.",
            )
        loop = asyncio.get_running_loop()
        reply_topic = topics.RESULT.build(device=request.device, instance=self._instance, call=identifier)
        return OpenCall(
            request=request,
            call=call,
            reply_topic=reply_topic,
            outgoing=Message(
                topic,
                payload,
                expiry_s=max(1, ttl_ms // 1000),
                response_topic=reply_topic,
                correlation=identifier.encode(),
            ),
            phase=phase,
            outcome=loop.create_future(),
            deadline=loop.time() + ttl_ms / 1000,
        )

    def start(self, open_call: OpenCall) -> Message:
        return self._control(open_call.request.device, open_call.call, "start")

    def cancel(self, device: str, call: Call) -> Message:
        """Publish the ``cancel`` of a call, and return it."""
        message = self._control(device, call, "cancel")
        try:
            self._link.publish_nowait(message)
        except Disconnected as error:
            if self._link.connected:
                # Too much is in flight. If this were dropped, the device would act although it was cancelled.
                asyncio.get_running_loop().call_later(ROOM_S, self.cancel, device, call)
            else:
                _log.info("the cancel of call %s was not sent: %s", call.id, error)
        return message

    async def publish(self, open_call: OpenCall) -> None:
        """Publish a call, or its ``start``; waits while too much is in flight.

        Raises:
            CallError: ``offline`` if there is no connection, so that it was not sent.
        """
        open_call.sent += 1
        try:
            await self._link.send(open_call.outgoing)
        except asyncio.CancelledError:
            open_call.sent -= 1
            raise
        except Disconnected as error:
            open_call.sent -= 1
            # While it waited for room it may have been published again, and then it may run.
            if not open_call.sent:
                raise offline(open_call.request, f"cannot be reached: {error.message}") from None

    def publish_again(self, open_call: OpenCall) -> None:
        """Publish, byte for byte, what may not have reached the device."""
        if open_call.phase is Phase.RESERVED:
            return
        # Ignore Disconnected: every reconnect publishes all that is open.
        with suppress(Disconnected):
            self._link.publish_nowait(open_call.outgoing)
            open_call.sent += 1

    def _control(self, device: str, call: Call, kind: Literal["start", "cancel"]) -> Message:
        topic = topics.CONTROL.build(device=device, call=call.id)
        control = Control(kind=kind, id=call.id, instance=self._instance, epoch=call.epoch)
        return Message(topic, self._seal.seal(topic, control), correlation=call.id.encode())
