"""Chat over MQTT, for automations: ``hub/chat/{principal}/request/{id}`` and ``…/reply/{id}``."""

from typing import Annotated, Final, Literal

from pydantic import Field

from contracts.events import TurnEvent
from contracts.names import Token
from contracts.wire import Wire

AGENTS: Final = ("assistant", "strawberry")
"""Names of the one agent that there is; the second is what other programs know it by."""

MAX_MESSAGE: int = 32_000
"""Characters of one message of a person; more belongs into a file."""


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
