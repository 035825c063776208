"""Skills called, and programs run, for people and programs without a model of the hub."""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from pydantic import Field

from agent_core import limits
from agent_core.finder import DirectoryCatalogue
from agent_core.gateway.protocol import ToolCall
from agent_core.schemas.arguments import arguments_digest, check_arguments, without_secrets
from agent_core.search.catalogue import SkillCall, Target
from agent_core.search.targets import find_target
from agent_core.sentences.responses import response_text
from agent_core.skills.questions import labels_of_call, questions_of
from agent_core.tools.skill_calls import WHERE_TO_CONFIRM, Consent, SkillCalls, all_shown
from agent_core.tools.toolset import SkillToolset, ToolOutcome
from agent_core.turn import TurnContext
from chat.questions import Questions, TurnConfirmer
from chat.sandbox import Sandbox
from contracts.answers.skills import CallResult
from contracts.chat.messages import CallToConfirm, TurnEvent
from contracts.devices.rpc import Actor
from contracts.errors import CallError, ErrorCode
from contracts.names import MethodName, SkillName, Token
from contracts.wire import Json, Strict
from hub_agent.calls.audit import Origin
from hub_agent.calls.confirmations import Act, ConfirmationNeeded, ConfirmationTokens
from hub_agent.calls.device_manager import ActingCaller, DeviceManager
from hub_agent.calls.rate import Quotas
from hub_agent.settings import HubSettings
from hub_registry.access.bearer import Bearer, cannot_confirm
from hub_registry.registry import Registry
from identity.ids import uuid7
from sandbox_host import Deadline, RunResult

_EXEC: Final = "exec"
"""The conversation of programs that name none: their variables stay from one to the next."""
_WHERE: Final = (
    "Use a token with the scope 'confirm' and an MCP client that supports elicitation, "
    "or ask in 'strawberry chat'."
)


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


@dataclass(frozen=True)
class DirectCalls:
    """Calls skills and runs programs for those who ask without a model."""

    manager: DeviceManager
    registry: Registry
    sandbox: Sandbox
    questions: Questions
    quotas: Quotas
    settings: HubSettings
    confirmations: ConfirmationTokens

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
            self.confirmations.redeem(body.confirmation, _act(asking, target, arguments))
        call = SkillCall(target, arguments, confirmed=confirmed)
        origin = Origin.of(asking.claims, confirmed=confirmed)
        try:
            async with self.quotas.calls.turn(asking.claims, person=asking.may_confirm):
                value = await self.manager.call(_actor(asking), call, origin=origin)
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
                questions=questions_of(target, arguments),
                labels=labels_of_call(target.labels, target.skill, target.method.name, arguments),
                arguments=without_secrets(target.method, all_shown(arguments, error)),
            )
            token = self.confirmations.issue(_act(asking, target, arguments))
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
        caller = ActingCaller(self.manager, _actor(asking, device), partial(Origin.of, asking.claims))
        calls = SkillCalls(
            self._catalogue(asking, device),
            caller=caller,
            consent=Consent(None, on_refused=caller.note_refused),
            context=TurnContext(uuid7(), _unwatched, nullcontext),
            by_person=asking.may_confirm,
        )
        # Variables belong to a token: two programs of one user must not see each other's.
        claims = asking.claims
        place = f"{claims.jti} {body.conversation}"
        session = self.sandbox.session(asking.user.id, place, owner=claims.holder)
        deadline = Deadline(limits.PROGRAM_S)
        async with self.quotas.programs.turn(claims, person=asking.may_confirm):
            return await session.run(body.code, calls.handle, deadline=deadline)

    async def run_tool(
        self, asking: Bearer, call: ToolCall, context: TurnContext, *, place: str, asks: bool
    ) -> ToolOutcome:
        """Run a tool for a model outside of the hub.

        Args:
            place: What the variables of its programs belong to.
            asks: Whether its client can ask its person.
        """
        claims, user, person = asking.claims, asking.user, asking.may_confirm
        confirms = asks and person
        actor = Actor(user=user.id, turn=context.turn, read_only=user.read_only)
        caller = ActingCaller(self.manager, actor, partial(Origin.of, claims, confirmed=confirms))
        expires_s = self.settings.turns.confirm_s
        confirmer = TurnConfirmer(self.questions, user.id, context.turn, expires_s) if confirms else None
        toolset = SkillToolset(
            self._catalogue(asking, None),
            caller=caller,
            session=self.sandbox.session(user.id, place, owner=claims.holder),
            # What else the model of the client has read is not known here.
            consent=Consent(confirmer, untrusted=True, on_refused=caller.note_refused, where=_WHERE),
        )
        queue = self.quotas.programs if call.name == "python_exec" else self.quotas.calls
        async with queue.turn(claims, person=person):
            return await toolset.run(call, context)

    def _catalogue(self, asking: Bearer, device: str | None) -> DirectoryCatalogue:
        return DirectoryCatalogue(self.registry.search, device, user=asking.user.id)


def _act(bearer: Bearer, target: Target, arguments: dict[str, Json]) -> Act:
    method, digest = f"{target.skill}.{target.method.name}", arguments_digest(arguments)
    return Act(user=bearer.user.id, device=target.device, method=method, arguments=digest)


def _actor(bearer: Bearer, device: str | None = None) -> Actor:
    return Actor(user=bearer.user.id, device=bearer.device or device, read_only=bearer.user.read_only)


def _unwatched(_: TurnEvent) -> None:
    """Ignore events: a program that was started directly has no stream; its calls are in the audit."""
