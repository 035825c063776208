"""A turn that a model of this device's own answers, with the skills of this device.

Imported when the first message needs it: a device without a model of its own never loads any of this.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, NoReturn

from agent_core.conversation import attached, messages_of, notes_of
from agent_core.gateway.opening import LiveGateway, ModelState
from agent_core.history import Beginning
from agent_core.lazy import Lazy
from agent_core.loop import TurnRequest, run_turn
from agent_core.models.entries import Model, Models
from agent_core.prompt import PromptDevice, context_block, context_sections, devices_section, system_prompt
from agent_core.provenance import Prompt
from agent_core.tools.native import native_mode
from agent_core.tools.toolset import SkillToolset
from agent_core.turn import Emit
from chat.turns import Turn
from contracts.chat.messages import Exchange
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


class LocalAgent:
    """The offline agent.

    Args:
        tasks: Owns models and sandbox once they are open.
    """

    def __init__(
        self,
        skills: OwnSkills,
        *,
        settings: Callable[[], SpokeSettings],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._skills = skills
        self._settings = settings
        self._gateway = Lazy(partial(LiveGateway, Models()), tasks=tasks, name="gateway")
        sandbox = PoolSettings(settings().home / "sandbox", processes=SANDBOXES, spares=0)
        self._pool = Lazy(partial(open_pool, sandbox), tasks=tasks, name="sandbox")

    def states(self) -> list[ModelState]:
        return [] if self._gateway.opened is None else self._gateway.opened.states()

    def forget(self, conversation: str) -> None:
        if (pool := self._pool.opened) is not None:
            pool.forget(conversation)

    async def run(
        self,
        turn: Turn,
        emit: Emit,
        *,
        history: Sequence[Exchange],
        beginning: Beginning,
        can_act: bool,
        caller: OwnCaller,
    ) -> None:
        """Answer, and emit what happens; ends with ``TurnFinal`` or ``TurnError``.

        Args:
            history: Earlier exchanges of the conversation.
            beginning: What came before those.
            can_act: Whether anything may be executed.
        """
        pool = await self._opened_pool()
        gateway, settings = await self._gateway.get(), self._settings()
        household, models = settings.household, settings.models
        if pool is None:
            models = replace(models, usable=tuple(map(_without_programs, models.usable)))
        gateway.reload(models, kind=settings.gateway)
        toolset = SkillToolset(
            self._skills,
            caller=caller,
            session=_NoSandbox() if pool is None else await pool.session(turn.conversation),
            consent=turn.consent,
        )
        known = self._skills.own
        own = PromptDevice(known.key, known.display_name, known.profile.area or "")
        request = TurnRequest(
            turn=turn.id,
            message=turn.request.message,
            system=system_prompt(household),
            history=messages_of(history, reader=known.id),
            beginning=beginning,
            context=context_block(
                context_sections(
                    household,
                    datetime.now(UTC),
                    current=own,
                    more=(devices_section((own,)),),
                    notes=notes_of(turn.request) if can_act else _NOTHING_CAN_BE_DONE,
                )
            ),
            device=known.id,
            mode="offline",
            attached=attached(turn.request.files),
            images=turn.request.images,
        )
        await run_turn(
            request,
            gateway=gateway,
            toolset=toolset if can_act else None,
            emit=emit,
            native=await native_mode(
                models,
                self._skills,
                toolset,
                system=system_prompt(household, "native"),
                # "And a bit louder?" is about what the message before was about.
                said=(*(exchange.question for exchange in history[-1:]), turn.request.message),
            ),
            limits=settings.limits,
        )

    async def _opened_pool(self) -> Pool | None:
        """Return the sandbox; None as long as it is not installed."""
        try:
            return await self._pool.get()
        except SandboxError:
            return None


@dataclass(frozen=True)
class _NoSandbox:
    """The session of a device where no sandbox is installed; no model there is asked for programs."""

    async def run(self, *_: object, **__: object) -> NoReturn:
        raise SandboxError("this device has no sandbox", hint="Call the tools one by one.")


def _without_programs(model: Model) -> Model:
    return replace(model, entry=model.entry.model_copy(update={"tools": "native"}))
