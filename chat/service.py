"""What a hub and a spoke each implement to serve chat."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from chat.turns import Turn
from contracts.chat.messages import ChatRequest, ConversationSummary, TurnRecord, TurnState
from contracts.errors import NotFound

Caller = TypeVar("Caller", contravariant=True)
"""Who asks, as the authentication of the server returns it."""


class ChatService(Protocol[Caller]):
    """Answers messages, and reads the record of conversations."""

    async def ask(self, request: ChatRequest, caller: Caller) -> Turn:
        """Start a turn.

        Raises:
            Conflict: If its id was used before, or cancelled before it arrived.
            Forbidden: If it replaces a turn and may not.
            NoModel: If nothing can answer; what a person asked is recorded all the same.
            NotFound: If there is no such agent or device, or no such turn to replace.
            TooManyRequests: If there are too many.
        """

    async def cancel(self, turn: str, caller: Caller) -> TurnState:
        """Stop a turn, or keep one that has not arrived from ever running; see `Turns.cancel`."""

    async def confirm(self, turn: str, question: str, caller: Caller, *, approve: bool) -> None:
        """Answer a question of a turn.

        Raises:
            NotFound: If this question was not asked in this turn.
            Conflict: If it was answered before, or the time to answer is over.
        """

    async def agent_names(self, caller: Caller) -> Sequence[str]:
        """Return the names of the agents that can be asked."""

    async def conversations(
        self, caller: Caller, *, limit: int, words: str = ""
    ) -> Sequence[ConversationSummary]:
        """Return the caller's conversations, newest first.

        Args:
            words: Only those in which all of these words were said, whose title has them, or which are
                about them by their meaning.
        """

    async def turns(
        self, conversation: str, caller: Caller, *, limit: int, before: str | None = None
    ) -> Sequence[TurnRecord]:
        """Return the last turns of a conversation, oldest first; none if the caller has no such one.

        Args:
            before: Id of a turn of it; only those before that one are returned.
        """

    async def title(self, conversation: str, caller: Caller) -> str | None:
        """Return the title that a person gave a conversation."""

    async def rename(self, conversation: str, title: str | None, caller: Caller) -> None:
        """Set the title of a conversation; None removes it.

        Raises:
            NotFound: If the caller has no such conversation.
            Forbidden: If the caller may read but not rename it.
        """

    async def delete(self, conversation: str, caller: Caller) -> None:
        """Delete a conversation, with the variables of its programs.

        Raises:
            NotFound: If the caller has no such conversation.
            Forbidden: If the caller may read but not delete it.
        """


def unknown_conversation(conversation: str) -> NotFound:
    """Return the error for a conversation that the caller does not have."""
    return NotFound(
        "there is no conversation {conversation!r} here",
        conversation=conversation,
        hint="'strawberry history' lists them.",
    )
