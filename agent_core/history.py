"""The part of a conversation that fits into a request to a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent_core.gateway.protocol import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from agent_core.prompt import estimate_tokens
from agent_core.provenance import Origin, Prompt, Text, render

MESSAGE_TOKENS: Final = 4
"""Overhead of one message: its role and delimiters."""


def tokens_of(message: Message) -> int:
    return estimate_tokens(text_of(message)) + MESSAGE_TOKENS


@dataclass(frozen=True)
class Summary:
    """What a model wrote of the beginning of a conversation.

    Attributes:
        exchanges: How many it is of.
        untrusted: Whether text that may be a stranger's was in them.
        skilled: Whether answers of skills were in them that no model had written.
    """

    text: str
    exchanges: int
    untrusted: bool = False
    skilled: bool = False


@dataclass(frozen=True)
class Beginning:
    """What came before the exchanges that a model is shown.

    Attributes:
        left_out: Exchanges that are neither shown nor in the summary.
        more: Whether there may be more of those, an unknown number.
        find: A sentence that tells the model how to find their words.
    """

    summary: Summary | None = None
    left_out: int = 0
    more: bool = False
    find: str = ""

    def messages(self, *, cut: int = 0) -> tuple[Message, ...]:
        """Return the model's account of it, as an exchange; nothing where all is shown.

        Args:
            cut: Further exchanges that are left out.
        """
        summary, left_out = self.summary, self.left_out + cut
        parts: list[Text | Prompt] = []
        reply: Prompt = Prompt("(Read.)")
        if summary is not None:
            parts.append(Prompt(f"[Summary of {summary.exchanges} earlier exchanges of this conversation]"))
            if summary.untrusted or summary.skilled:
                origin = Origin.OUTSIDE if summary.untrusted else Origin.SKILL
                parts.append(Text(origin, summary.text, "summary"))
            else:
                reply = render(Text(Origin.ASSISTANT, summary.text))
        if left_out or self.more:
            number = f"{left_out} earlier" if left_out else "Earlier"
            parts.append(Prompt(f"[{number} exchanges are not shown here. {self.find}".rstrip() + "]"))
        return (UserMessage(render(*parts)), AssistantMessage(reply)) if parts else ()


NOTHING: Final = Beginning()
"""Of a conversation that is shown whole."""


def trimmed(
    history: Sequence[Message],
    current: tuple[Message, ...],
    budget: int,
    *,
    beginning: Beginning,
) -> tuple[tuple[Message, ...], int]:
    """Keep the newest exchanges that fit beside the current turn, and say what came before them.

    Whole exchanges go, from one message of the user to the next, so that no tool result stands
    without its call. The current turn is never shortened.

    Args:
        current: The messages of the turn that runs.
        budget: Tokens, as ``tokens_of`` counts them.

    Returns:
        The messages, and how many exchanges of the history are left out.
    """
    left = budget - sum(map(tokens_of, (*beginning.messages(cut=1), *current)))
    kept: list[Message] = []
    exchanges = _exchanges(history)
    while exchanges and (left := left - sum(map(tokens_of, exchanges[-1]))) >= 0:
        kept[:0] = exchanges.pop()
    return (*beginning.messages(cut=len(exchanges)), *kept, *current), len(exchanges)


def without_calls(messages: Sequence[Message]) -> list[Message]:
    """Write tool calls and their results as text, for a request that offers no tools.

    Some providers refuse calls in a conversation where there is nothing to call.
    """
    made: list[Message] = []
    for message in messages:
        match message:
            case AssistantMessage(text, calls):
                lines = [text, *(Prompt(f"[You called {call.name} with {call.raw}]") for call in calls)]
                made.append(AssistantMessage(render(*filter(None, lines))))
            case ToolMessage(_, name, text):
                made.append(UserMessage(render(Prompt(f"[Result of {name}]"), text)))
            case _:
                made.append(message)
    return made


def _exchanges(history: Sequence[Message]) -> list[list[Message]]:
    exchanges: list[list[Message]] = []
    for message in history:
        if isinstance(message, UserMessage) or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return exchanges
