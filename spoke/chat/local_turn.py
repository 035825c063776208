"""A turn that a model of this device's own answers, with the skills of this device.

Imported when the first message needs it: a device without a model of its own never loads any of this.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, NoReturn

from agent_core.conversation import messages_of, notes_of
from agent_core.gateway.opening import open_gateway
from agent_core.gateway.protocol import Gateway
from agent_core.loop import TurnRequest, run_turn
from agent_core.models.entries import Model
from agent_core.prompt import Presence, context_block, system_prompt
from agent_core.provenance import Prompt
from agent_core.tools.native import native_mode
from agent_core.tools.toolset import Session, SkillToolset
from agent_core.turn import Emit
from chat.lazy import Lazy
from chat.turns import Turn
from contracts.chat import Exchange
from contracts.errors import SandboxError
from sandbox_host import Pool, PoolSettings, open_pool
from spoke.chat.own_skills import OwnCaller, OwnSkills
from spoke.settings import SpokeSettings

SANDBOXES: Final = 1
"""Processes for programs: one person talks to a device, and small machines have little memory."""

_NOTHING_CAN_BE_DONE: Final = Prompt(
    "In this turn nothing can be done, because the hub may be at work on the same message. "
    "Say so, and answer without tools what can be answered without."
)


@dataclass(frozen=True)
class _Means:
    """What answers: the gateway, and the sandbox where it is installed."""

    gateway: Gateway
    pool: Pool | None


class LocalAgent:
    """The offline agent.

    Args:
        tasks: Owns models and sandbox once they are open.
    """

    def __init__(
        self,
        skills: OwnSkills,
        *,
        settings: SpokeSettings,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._skills = skills
        self._household = settings.household
        self._limits = settings.limits
        self._means = Lazy(partial(_open_means, settings), tasks=tasks, name="offline agent")

    async def run(
        self,
        turn: Turn,
        emit: Emit,
        *,
        history: Sequence[Exchange],
        can_act: bool,
        caller: OwnCaller,
    ) -> None:
        """Answer, and emit what happens; ends with ``TurnFinal`` or ``TurnError``.

        Args:
            history: Earlier exchanges of the conversation.
            can_act: Whether anything may be executed.
        """
        means = await self._means.get()
        toolset = SkillToolset(
            self._skills,
            caller=caller,
            session=await _session(means.pool, turn.conversation),
            consent=turn.consent,
        )
        known = self._skills.own
        own = Presence(known.key, known.display_name, known.profile.area or "")
        request = TurnRequest(
            turn=turn.id,
            message=turn.request.message,
            system=system_prompt(self._household),
            history=messages_of(history, reader=known.id),
            context=context_block(
                self._household,
                datetime.now(UTC),
                current=own,
                devices=(own,),
                notes=notes_of(turn.request) if can_act else _NOTHING_CAN_BE_DONE,
            ),
            device=known.id,
            mode="offline",
        )
        events = run_turn(
            request,
            gateway=means.gateway,
            toolset=toolset if can_act else None,
            native=await native_mode(
                means.gateway.models,
                self._skills,
                toolset,
                system=system_prompt(self._household, "native"),
                # "And a bit louder?" is about what the message before was about.
                said=(*(exchange.question for exchange in history[-1:]), turn.request.message),
            ),
            limits=self._limits,
        )
        async with aclosing(events):
            async for event in events:
                emit(event)


@dataclass(frozen=True)
class _NoSandbox:
    """The session of a device where no sandbox is installed; no model there is asked for programs."""

    async def run(self, *_: object, **__: object) -> NoReturn:
        """See ``agent_core.tools.toolset.Session``."""
        raise SandboxError("this device has no sandbox", hint="Call the tools one by one.")


@asynccontextmanager
async def _open_means(settings: SpokeSettings) -> AsyncIterator[_Means]:
    async with AsyncExitStack() as stack:
        models, pool = settings.models, None
        try:
            sandbox = PoolSettings(settings.home / "sandbox", processes=SANDBOXES, spares=0)
            pool = await stack.enter_async_context(open_pool(sandbox))
        except SandboxError:
            models = replace(models, usable=tuple(map(_without_programs, models.usable)))
        yield _Means(await stack.enter_async_context(open_gateway(models, kind=settings.gateway)), pool)


def _without_programs(model: Model) -> Model:
    return replace(model, entry=model.entry.model_copy(update={"tools": "native"}))


async def _session(pool: Pool | None, conversation: str) -> Session:
    return _NoSandbox() if pool is None else await pool.session(conversation)
