"""What the hub puts on the bus for a call: the call itself, its start and its cancel."""

import asyncio
from datetime import UTC, datetime

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from bus.link import Message
from bus.rpc.open_call import OpenCall, Phase
from bus.rpc.request import CallRequest
from contracts import topics
from contracts.errors import CallError, ErrorCode, InvalidTopic
from contracts.rpc import Call, Control
from identity.envelope import Seal
from identity.ids import uuid7


class Composer:
    """Writes and signs calls of one hub process.

    Args:
        max_payload: Bytes that a signed call may have.
    """

    def __init__(self, seal: Seal, instance: str, *, max_payload: int) -> None:
        self._seal = seal
        self._instance = instance
        self._max_payload = max_payload

    def compose(self, request: CallRequest, epoch: int, ttl_ms: int, phase: Phase) -> OpenCall:
        """Make a call with a new id, signed and ready to be published.

        Raises:
            CallError: If it cannot be put on the bus: ``bad_arguments``, ``unknown_skill`` where a
                name cannot stand in a topic, ``too_large``.
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
                f"the arguments of {request.path} have {len(payload):,} bytes;"
                f" {self._max_payload:,} are allowed",
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

    def control(self, device: str, call: Call, kind: str) -> Message:
        """Make the ``start`` or ``cancel`` of a call."""
        topic = topics.CONTROL.build(device=device, call=call.id)
        control = Control.model_validate(
            {"kind": kind, "id": call.id, "instance": self._instance, "epoch": call.epoch}
        )
        return Message(topic, self._seal.seal(topic, control), correlation=call.id.encode())
