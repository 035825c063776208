"""Chat over MQTT, for automations: ``hub/chat/{principal}/request/{id}`` and ``…/reply/{id}``."""

from typing import Annotated, Final, Literal

from pydantic import Field

from contracts.errors import NotFound
from contracts.events import TurnEvent
from contracts.names import Token
from contracts.wire import Wire

AGENTS: Final = ("assistant", "strawberry")
"""Names of the one agent that there is; the second is what other programs know it by."""

MAX_MESSAGE: int = 32_000
"""Characters of one message of a person; more belongs into a file."""


def check_agent(name: str) -> None:
    """See that there is an agent of this name.

    Raises:
        NotFound: If there is none; lists those that can be asked.
    """
    if name not in AGENTS:
        raise NotFound(f"there is no agent {name!r}", hint=f"The agents are: {', '.join(AGENTS)}.")


class ChatRequest(Wire):
    """A message to the assistant."""

    kind: Literal["chat"] = "chat"
    message: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)]
    conversation: Token | None = None
    agent: str = "assistant"


class ChatReply(Wire):
    """One event of the turn; the last one is ``final`` or ``error``."""

    kind: Literal["reply"] = "reply"
    seq: Annotated[int, Field(ge=0)]
    event: TurnEvent
