"""Skills called, and programs run, without a model in between."""

from contextlib import nullcontext
from functools import partial
from typing import Annotated, Final

from pydantic import Field

from agent_core.finder import DirectoryCatalogue
from agent_core.schemas.arguments import arguments_digest, check_arguments
from agent_core.search.catalogue import SkillCall, Target
from agent_core.search.targets import find_target
from agent_core.sentences.responses import response_text
from agent_core.tools.skill_calls import WHERE_TO_CONFIRM, Consent, SkillCalls, all_shown
from agent_core.turn import TurnContext
from chat.operations import Needs, Resource
from chat.sandbox import Sandbox
from contracts.answers.skills import CallResult, RunSummary
from contracts.chat import CallToConfirm, TurnEvent
from contracts.devices.rpc import Actor
from contracts.errors import CallError, ErrorCode
from contracts.names import MethodName, SkillName, Token
from contracts.wire import Json, Strict
from hub_agent.calls.audit import Origin
from hub_agent.calls.confirmations import Act, ConfirmationNeeded, ConfirmationTokens
from hub_agent.calls.device_manager import ActingCaller, DeviceManager
from hub_agent.calls.rate import Quotas
from hub_agent.settings import HubSettings
from hub_live.topics.operations import PublishBody
from hub_registry.access.bearer import Bearer, cannot_confirm
from hub_registry.registry import Registry
from identity.ids import uuid7
from sandbox_host import Deadline, RunResult

_CALLS: Final = Needs(("call",), devices=True)
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
    """Calls skills and runs programs for those who ask without a model."""

    def __init__(
        self,
        *,
        manager: DeviceManager,
        registry: Registry,
        quotas: Quotas,
        sandbox: Sandbox,
        settings: HubSettings,
    ) -> None:
        self.registry = registry
        self.settings = settings
        self._manager = manager
        self._quotas = quotas
        self._sandbox = sandbox
        self._confirmations = ConfirmationTokens(expires_s=settings.turns.confirm_s)

    async def call(self, asking: Bearer, body: CallBody) -> CallResult:
        """Call a method.

        Raises:
            ConfirmationNeeded: If a person must confirm it first, and can through this token.
            CallError: If there is no result.
        """
        directory = self.registry.directory.seen_by(asking.user.id)
        target = find_target(directory, body.device, body.skill, body.method)
        arguments = check_arguments(target.method, body.args, body.kwargs)
        confirmed = body.confirmation is not None
        if body.confirmation is not None:
            if not asking.may_confirm:
                raise cannot_confirm()
            self._confirmations.redeem(body.confirmation, _act(asking, target, arguments))
        call = SkillCall(target, arguments, confirmed=confirmed)
        origin = Origin.of(asking.claims, confirmed=confirmed)
        try:
            async with self._quotas.calls.turn(asking.claims, person=asking.may_confirm):
                value = await self._manager.call(_actor(asking), call, origin=origin)
        except CallError as error:
            if error.code is not ErrorCode.NEEDS_CONFIRMATION:
                raise
            if not asking.may_confirm:
                hint = error.hint or WHERE_TO_CONFIRM
                raise CallError(error.code, error.message, hint=hint, device=error.device) from None
            shown = CallToConfirm(
                device=target.device,
                device_name=target.device_name,
                method=f"{target.skill}.{target.method.name}",
                summary=target.method.summary,
                arguments=all_shown(arguments, error),
            )
            token = self._confirmations.issue(_act(asking, target, arguments))
            raise ConfirmationNeeded(error, call=shown, confirmation=token) from None
        words = None
        if body.text:
            language = asking.user.language or self.settings.household.language
            words = response_text(target.method, value, arguments, language=language, limit=None)
        return CallResult(result=value, text=words)

    async def run(self, asking: Bearer, body: ExecBody) -> RunResult:
        """Run a program in the sandbox."""
        device = asking.device
        if device is None and body.device is not None:
            device = self.registry.directory.seen_by(asking.user.id).resolve(body.device).id
        caller = ActingCaller(self._manager, _actor(asking, device), partial(Origin.of, asking.claims))
        calls = SkillCalls(
            DirectoryCatalogue(self.registry.search, device, user=asking.user.id),
            caller=caller,
            consent=Consent(None, on_refused=caller.note_refused),
            context=TurnContext(uuid7(), _unwatched, nullcontext),
            by_person=asking.may_confirm,
        )
        # Variables belong to a token: two programs of one user must not see each other's.
        claims = asking.claims
        place = f"{claims.jti} {body.conversation}"
        session = self._sandbox.session(asking.user.id, place, owner=claims.holder)
        deadline = Deadline(self.settings.turns.tools.exec_s)
        async with self._quotas.programs.turn(claims, person=asking.may_confirm):
            return await session.run(body.code, calls.handle, deadline=deadline)


calls: Resource[DirectCalls, Bearer] = Resource("calls", "/api")


@calls.post(_CALLS, "/skills/call", is_held=True)
async def call_skill(calls: DirectCalls, asking: Bearer, body: CallBody) -> CallResult:
    """Call a method of a skill; with `"text": true` the result comes in words, too."""
    return await calls.call(asking, body)


@calls.post(_CALLS, "/exec", is_held=True)
async def run_program(calls: DirectCalls, asking: Bearer, body: ExecBody) -> RunSummary:
    """Run Python in the sandbox."""
    return _ran(await calls.run(asking, body))


@calls.post(_CALLS, "/bus/publish", is_held=True)
async def publish(calls: DirectCalls, asking: Bearer, body: PublishBody) -> CallResult:
    """Publish a message, as `BusSkill.publish` does."""
    given = body.model_dump(exclude_unset=True)
    confirmation = given.pop("confirmation", None)
    asked = CallBody(
        device="hub", skill="BusSkill", method="publish", kwargs=given, confirmation=confirmation
    )
    return await calls.call(asking, asked)


def _act(bearer: Bearer, target: Target, arguments: dict[str, Json]) -> Act:
    method, digest = f"{target.skill}.{target.method.name}", arguments_digest(arguments)
    return Act(user=bearer.user.id, device=target.device, method=method, arguments=digest)


def _actor(bearer: Bearer, device: str | None = None) -> Actor:
    return Actor(user=bearer.user.id, device=bearer.device or device, read_only=bearer.user.read_only)


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
