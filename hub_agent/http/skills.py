"""Skills called, and programs run, without a model in between."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from agent_core.search.catalogue import Target
from agent_core.search.targets import find_target
from agent_core.skills.arguments import arguments_digest, check_arguments
from agent_core.tools.skill_calls import SkillCalls
from agent_core.turn import TurnContext
from chat.http.errors import CALL_STATUS, error_response
from chat.http.streams import Connections, farewell
from contracts.errors import CallError, ErrorCode, Forbidden
from contracts.events import TurnEvent
from contracts.names import MethodName, SkillName, Token
from contracts.rpc import Actor
from contracts.wire import Json
from hub_agent.calls.confirmations import Act, Slips
from hub_agent.calls.device_manager import ActingCaller
from hub_agent.chat.assistant import Assistant
from hub_registry.access.bearer import Bearer, Gate
from identity.ids import uuid7
from sandbox_host import Deadline, RunResult

_EXEC: Final = "exec"
"""The conversation of programs that name none: their variables stay from one to the next."""


@dataclass(frozen=True)
class Direct:
    """What direct calls need.

    Attributes:
        slips: Confirmations for calls outside of any turn.
        connections: The clients that wait.
    """

    assistant: Assistant
    gate: Gate
    slips: Slips
    connections: Connections


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CallBody(_Body):
    """A call of a skill.

    Attributes:
        device: Key, id, display name or alias; ``hub`` for whichever device serves.
        confirmation: From an earlier answer ``needs_confirmation``, once a person has said yes.
    """

    device: Annotated[str, Field(min_length=1, max_length=64)]
    skill: SkillName
    method: MethodName
    args: list[Json] = []
    kwargs: dict[str, Json] = {}
    confirmation: Annotated[str | None, Field(max_length=64)] = None


class ExecBody(_Body):
    """A program for the sandbox."""

    code: Annotated[str, Field(min_length=1)]
    conversation: Token = _EXEC
    device: Annotated[str | None, Field(max_length=64)] = None


def make_router(direct: Direct) -> APIRouter:
    """Make the routes ``/api/skills/call`` and ``/api/exec``."""
    router = APIRouter()
    may_call = Depends(direct.gate.require("call"))
    assistant = direct.assistant

    @router.post("/api/skills/call", response_model=None)
    async def call(body: CallBody, request: Request, bearer: Annotated[Bearer, may_call]) -> Response:
        target = find_target(assistant.registry.directory, body.device, body.skill, body.method)
        arguments = check_arguments(target.method, body.args, body.kwargs)
        actor = _actor(bearer)
        act = Act(
            user=bearer.user.id,
            device=target.device,
            method=f"{target.skill}.{target.method.name}",
            arguments=arguments_digest(arguments),
        )
        if body.confirmation is not None:
            _require_person(bearer)
            direct.slips.redeem(body.confirmation, act)
        try:
            async with direct.connections.hold(request.receive, token=bearer.claims.jti) as client:
                confirmed = body.confirmation is not None
                value = await assistant.manager.call(actor, target, arguments, confirmed=confirmed)
                return JSONResponse({"result": value})
        except CallError as error:
            if error.code is not ErrorCode.NEEDS_CONFIRMATION or bearer.claims.kind != "user":
                raise
            return _asks(request.url.path, error, target, arguments, direct.slips.issue(act))
        return farewell(client)

    @router.post("/api/exec", response_model=None)
    async def execute(body: ExecBody, request: Request, bearer: Annotated[Bearer, may_call]) -> Response:
        device = bearer.device
        if device is None and body.device is not None:
            device = assistant.registry.directory.resolve(body.device).id
        calls = SkillCalls(
            assistant.catalogue(device),
            caller=ActingCaller(assistant.manager, _actor(bearer, device)),
            confirmer=None,
            context=TurnContext(uuid7(), _unwatched, _unpaused),
        )
        session = assistant.sandbox.session(bearer.user.id, body.conversation)
        deadline = Deadline(assistant.settings.turns.tools.exec_s)
        async with direct.connections.hold(request.receive, token=bearer.claims.jti) as client:
            result = await session.run(body.code, calls.handle, deadline=deadline)
            return JSONResponse(_ran(result))
        return farewell(client)

    return router


def _actor(bearer: Bearer, device: str | None = None) -> Actor:
    return Actor(user=bearer.user.id, device=bearer.device or device, read_only=bearer.user.read_only)


def _require_person(bearer: Bearer) -> None:
    if bearer.claims.kind != "user":
        raise Forbidden("a device cannot confirm a call", hint="A person does, in strawberry chat or call.")


def _asks(
    path: str, error: CallError, target: Target, arguments: dict[str, Any], confirmation: str
) -> JSONResponse:
    """Answer that a person must say yes, with all that the person should see."""
    return error_response(
        path,
        CALL_STATUS[error.code],
        error.code.value,
        error.message,
        "Ask the person, then send the same call again with this confirmation.",
        more={
            "confirmation": confirmation,
            "device": target.device,
            "device_name": target.device_name,
            "method": f"{target.skill}.{target.method.name}",
            "arguments": arguments,
        },
    )


def _ran(result: RunResult) -> dict[str, Json]:
    return {
        "status": result.status.value,
        "stdout": result.stdout,
        "value": result.value if result.plain else result.repr,
        "error": result.traceback or result.problem or None,
        "truncated": result.truncated,
        "fresh": result.fresh,
        "notice": f"The variables of earlier runs are gone: {result.lost}." if result.lost else None,
    }


def _unwatched(_: TurnEvent) -> None:
    """Nobody follows a program that was started directly; its calls are in the audit."""


def _unpaused() -> AbstractContextManager[object]:
    return nullcontext()
