"""The base class of the hub's own skills, and who calls them."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar, Final

from agent_core.skills.skill import Skill
from contracts.devices.rpc import Actor
from contracts.errors import CallError, ErrorCode
from contracts.wire import Json
from hub_agent.calls.audit import Origin
from hub_registry.access.accounts import User


@dataclass(frozen=True)
class Asking:
    """Who calls a method of the hub's own skills, and how.

    Attributes:
        user: The person on whose behalf it is called.
        actor: Through what it is called: a turn, a device, an agent, a watcher.
        origin: The token that it is called with.
        confirmed: Whether a person confirmed exactly this call.
        untrusted: Whether text that may be a stranger's was in the turn's context before the call.
        conversation: In which it is called, where there is one.
        waiting: See `SkillCall`.
    """

    user: User
    actor: Actor
    origin: Origin
    confirmed: bool = False
    untrusted: bool = False
    conversation: str | None = None
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext

    def need_confirmation(
        self, message: str, *, hint: str = "", shown: Mapping[str, Json] | None = None
    ) -> None:
        """Go on only with a person's confirmation of exactly this call; where one can be asked, it is.

        Args:
            hint: The hint of the error where it is not confirmed.
            shown: What the person is shown beside the arguments.

        Raises:
            CallError: ``needs_confirmation`` unless it was confirmed.
        """
        if not self.confirmed:
            raise CallError(ErrorCode.NEEDS_CONFIRMATION, message, hint=hint, shown=shown)


ASKING: Final[ContextVar[Asking]] = ContextVar("asking")
"""Set by the host for the time of a call."""


class HubSkill(Skill):
    """Base class of the hub's own skills.

    Methods are ``async`` and call the service that commands and routes call, too. One that returns text which
    people of this home did not write (payloads, names that devices give) is ``untrusted_output``.
    """

    # The service behind a skill has bounds of its own; a slow call must not keep others waiting.
    concurrency: ClassVar[int] = 64

    is_offered: bool = True
    """Whether it is there now; `OwnSkills.refresh` looks again."""

    @property
    def asking(self) -> Asking:
        """Return the caller of the running method.

        Raises:
            LookupError: Outside of a call.
        """
        return ASKING.get()
