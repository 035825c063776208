"""Sandbox sessions over a pool that opens when the first program is run."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent_core.lazy import Lazy
from contracts.wire import Json
from sandbox_host import Deadline, Pool, RunResult


@dataclass(frozen=True)
class ConversationSession:
    """The sandbox of one conversation; see ``agent_core.tools.toolset.Session``."""

    pool: Lazy[Pool]
    conversation: str
    owner: str

    async def run(
        self,
        code: str,
        call_handler: Callable[[str, list[Json], dict[str, Json]], Awaitable[Json]],
        *,
        deadline: Deadline | None = None,
    ) -> RunResult:
        """Run one program.

        Raises:
            SandboxError: If the sandbox is not installed or does not start.
        """
        pool = await self.pool.get()
        session = await pool.session(self.conversation, owner=self.owner)
        return await session.run(code, call_handler, deadline=deadline)


@dataclass(frozen=True)
class Sandbox:
    """The sandboxes of all conversations."""

    pool: Lazy[Pool]

    def session(self, user: str, conversation: str, *, owner: str) -> ConversationSession:
        """Return the sandbox of a conversation; users never share one.

        Args:
            owner: Holder of the token that asks: processes are shared evenly between holders.
        """
        return ConversationSession(self.pool, _place(user, conversation), owner)

    def forget(self, user: str, conversation: str) -> None:
        if (pool := self.pool.opened) is not None:
            pool.forget(_place(user, conversation))


def _place(user: str, conversation: str) -> str:
    # No user id contains a blank, so two pairs never make the same text.
    return f"{user} {conversation}"
