"""Sandbox sessions over a pool that opens when the first program is run."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from chat.lazy import Lazy
from contracts.wire import Json
from sandbox_host import Deadline, Pool, RunLimits, RunResult


@dataclass(frozen=True)
class ConversationSession:
    """The sandbox of one conversation; see ``agent_core.tools.toolset.Session``."""

    pool: Lazy[Pool]
    conversation: str

    async def run(
        self,
        code: str,
        call_handler: Callable[[str, list[Json], dict[str, Json]], Awaitable[Json]],
        *,
        limits: RunLimits | None = None,
        deadline: Deadline | None = None,
    ) -> RunResult:
        """Run one program.

        Raises:
            SandboxError: If the sandbox is not installed or does not start.
        """
        pool = await self.pool.get()
        session = await pool.session(self.conversation)
        return await session.run(code, call_handler, limits=limits, deadline=deadline)


@dataclass(frozen=True)
class Sandbox:
    """The sandboxes of all conversations."""

    pool: Lazy[Pool]

    def session(self, user: str, conversation: str) -> ConversationSession:
        """Return the sandbox of a conversation; users never share one."""
        # No user id contains a blank, so two pairs never make the same text.
        return ConversationSession(self.pool, f"{user} {conversation}")
