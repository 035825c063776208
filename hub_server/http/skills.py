"""Skills called, and programs run, without a model in between."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Annotated, Final, Never

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from agent_core.schemas.arguments import arguments_digest, check_arguments
from agent_core.search.catalogue import SkillCall, Target
from agent_core.search.targets import find_target
from agent_core.sentences.responses import response_text
from agent_core.tools.skill_calls import WHERE_TO_CONFIRM, Consent, SkillCalls, all_shown
from agent_core.turn import TurnContext
from chat.http.errors import CALL_STATUS, error_response
from chat.http.requests import Answer, answer, read, reads
from chat.http.streams import Client, Connections, farewell
from contracts.answers.skills import CallResult, RunSummary
from contracts.chat import CallToConfirm, TurnEvent
from contracts.devices.rpc import Actor
from contracts.errors import CallError, ErrorCode
from contracts.names import MethodName, SkillName, Token
from contracts.wire import Json, Strict
from hub_agent.calls.audit import Origin
from hub_agent.calls.confirmations import Act, ConfirmationTokens
from hub_agent.calls.device_manager import ActingCaller
from hub_agent.calls.rate import FairQueue
from hub_agent.chat.assistant import Assistant
from hub_registry.access.bearer import Bearer, Gate, cannot_confirm
from identity.ids import uuid7
from sandbox_host import Deadline, RunResult

_EXEC: Final = "exec"
"""The conversation of programs that name none: their variables stay from one to the next."""


class CallBody(Strict):
    """A call of a skill.

    Attributes:
        device: Key, id, display name or alias; ``hub`` for whichever device serves.
        confirmation: From an earlier answer ``needs_confirmation``, once a person has approved.
        text: Whether the result is wanted in words, too, in the language of the user.
    """

    device: Annotated[str, Field(min_length=1, max_length=64)]
    skill: SkillName
    method: MethodName
    args: list[Json] = []
    kwargs: dict[str, Json] = {}
    confirmation: Annotated[str | None, Field(max_length=64)] = None
    text: bool = False


class ExecBody(Strict):
    """A program for the sandbox."""

    code: Annotated[str, Field(min_length=1)]
    conversation: Token = _EXEC
    device: Annotated[str | None, Field(max_length=64)] = None


class DirectCalls:
    """The routes ``/api/skills/call`` and ``/api/exec``.

    Args:
        gate: Authenticates requests.
        connections: The clients that wait.
    """

    def __init__(self, assistant: Assistant, *, gate: Gate, connections: Connections) -> None:
        self._assistant = assistant
        self._authenticate = gate.require("call")
        self._connections = connections
        self._confirmations = ConfirmationTokens(expires_s=assistant.settings.turns.confirm_s)

    def routes(self) -> list[BaseRoute]:
        """Make the routes."""
        return [
            Route("/api/skills/call", self._call, methods=["POST"]),
            Route("/api/exec", self._execute, methods=["POST"]),
        ]

    def _held(self, request: Request, bearer: Bearer) -> AbstractAsyncContextManager[Client]:
        return self._connections.hold(request.receive, token=bearer.claims.jti)

    @asynccontextmanager
    async def _turn(self, bearer: Bearer, queue: FairQueue, *, method: str) -> AsyncIterator[None]:
        """Run the block in its turn, within `_held`: a client may leave or be revoked while it waits."""
        claims, person = bearer.claims, self._assistant.may_confirm(bearer)
        with self._assistant.trail.refusals(claims, method=method):
            async with queue.turn(claims, person=person):
                yield

    def route(self, path: str, method: str, kind: type[BaseModel]) -> Route:
        """Make a route that calls a method of one of the hub's own skills.

        Args:
            method: For example ``BusSkill.publish``.
            kind: The body: the method's parameters, and ``confirmation`` as in `CallBody`.
        """
        skill, _, name = method.partition(".")

        @reads(kind)
        async def call(request: Request) -> Answer[CallResult]:
            bearer = await self._authenticate(request)
            body = await read(request, kind)
            given = body.model_dump(exclude_unset=True)
            confirmation = given.pop("confirmation", None)
            asked = CallBody(device="hub", skill=skill, method=name, kwargs=given, confirmation=confirmation)
            return await self._answer(request, bearer, asked)

        return Route(path, call, methods=["POST"])

    @reads(CallBody)
    async def _call(self, request: Request) -> Answer[CallResult]:
        bearer = await self._authenticate(request)
        return await self._answer(request, bearer, await read(request, CallBody))

    async def _answer(self, request: Request, bearer: Bearer, body: CallBody) -> Answer[CallResult]:
        manager, quotas = self._assistant.manager, self._assistant.quotas
        directory = self._assistant.registry.directory.seen_by(bearer.user.id)
        target = find_target(directory, body.device, body.skill, body.method)
        arguments = check_arguments(target.method, body.args, body.kwargs)
        confirmed = body.confirmation is not None
        if body.confirmation is not None:
            if not self._assistant.may_confirm(bearer):
                raise cannot_confirm()
            self._confirmations.redeem(body.confirmation, _act(bearer, target, arguments))
        try:
            async with self._held(request, bearer) as client, self._turn(bearer, quotas.calls, method="call"):
                origin = Origin.of(bearer.claims, confirmed=confirmed)
                actor = _actor(bearer)
                call = SkillCall(target, arguments, confirmed=confirmed)
                value = await manager.call(actor, call, origin=origin)
                words = None
                if body.text:
                    language = bearer.user.language or self._assistant.settings.household.language
                    words = response_text(target.method, value, arguments, language=language, limit=None)
                return answer(CallResult(result=value, text=words))
        except CallError as error:
            if error.code is not ErrorCode.NEEDS_CONFIRMATION:
                raise
            if not self._assistant.may_confirm(bearer):
                hint = error.hint or WHERE_TO_CONFIRM
                raise CallError(error.code, error.message, hint=hint, device=error.device) from None
            confirmation = self._confirmations.issue(_act(bearer, target, arguments))
            return _asks(request.url.path, error, target, arguments, confirmation)
        return farewell(client)

    @reads(ExecBody)
    async def _execute(self, request: Request) -> Answer[RunSummary]:
        bearer = await self._authenticate(request)
        body, assistant = await read(request, ExecBody), self._assistant
        device = bearer.device
        if device is None and body.device is not None:
            device = assistant.registry.directory.seen_by(bearer.user.id).resolve(body.device).id
        origin = partial(Origin.of, bearer.claims)
        caller = ActingCaller(assistant.manager, _actor(bearer, device), origin)
        calls = SkillCalls(
            assistant.catalogue(bearer.user, device),
            caller=caller,
            consent=Consent(None, on_refused=caller.note_refused),
            context=TurnContext(uuid7(), _unwatched, nullcontext),
            by_person=assistant.may_confirm(bearer),
        )
        # Variables belong to a token: two programs of one user must not see each other's.
        claims = bearer.claims
        place = f"{claims.jti} {body.conversation}"
        session = assistant.sandbox.session(bearer.user.id, place, owner=claims.holder)
        deadline = Deadline(assistant.settings.turns.tools.exec_s)
        programs = assistant.quotas.programs
        async with self._held(request, bearer) as client, self._turn(bearer, programs, method="exec"):
            return answer(_ran(await session.run(body.code, calls.handle, deadline=deadline)))
        return farewell(client)


def _act(bearer: Bearer, target: Target, arguments: dict[str, Json]) -> Act:
    method, digest = f"{target.skill}.{target.method.name}", arguments_digest(arguments)
    return Act(user=bearer.user.id, device=target.device, method=method, arguments=digest)


def _actor(bearer: Bearer, device: str | None = None) -> Actor:
    return Actor(user=bearer.user.id, device=bearer.device or device, read_only=bearer.user.read_only)


def _asks(
    path: str, error: CallError, target: Target, arguments: dict[str, Json], confirmation: str
) -> Answer[Never]:
    """Make the answer that a person must approve, with all that the person should see."""
    shown = CallToConfirm(
        device=target.device,
        device_name=target.device_name,
        method=f"{target.skill}.{target.method.name}",
        summary=target.method.summary,
        arguments=all_shown(arguments, error),
    )
    return error_response(
        path,
        CALL_STATUS[error.code],
        error.code.value,
        error.message,
        "Ask the person, then send the same call again with this confirmation.",
        more={"confirmation": confirmation, **vars(shown)},
    )


def _ran(result: RunResult) -> RunSummary:
    return RunSummary(
        status=result.status,
        stdout=result.stdout,
        value=result.value if result.plain else result.repr,
        error=result.traceback or result.problem or None,
        truncated=result.truncated,
        fresh=result.fresh,
        notice=f"The variables of earlier runs are gone: {result.lost}." if result.lost else None,
    )


def _unwatched(_: TurnEvent) -> None:
    """Ignore events: a program that was started directly has no stream; its calls are in the audit."""
