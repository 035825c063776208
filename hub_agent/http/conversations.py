"""What was said, for a person to read and to go on with."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from chat.http.conversations import (
    CONVERSATIONS,
    EXCHANGES,
    Limit,
    conversation_list,
    whole_conversation,
)
from contracts.names import Token
from contracts.wire import Json
from hub_agent.chat.conversations import Conversations
from hub_registry.access.bearer import Bearer, Gate


def make_router(conversations: Conversations, *, gate: Gate) -> APIRouter:
    """Make the routes ``/api/conversations…``; a device sees those in which it has taken part."""
    router = APIRouter()
    may_chat = Depends(gate.require("chat"))

    @router.get("/api/conversations", response_model=None)
    async def known(
        bearer: Annotated[Bearer, may_chat], limit: Annotated[Limit, Query()] = CONVERSATIONS
    ) -> list[Json]:
        return conversation_list(await conversations.known(bearer.user.id, limit=limit, device=bearer.device))

    @router.get("/api/conversations/{conversation}", response_model=None)
    async def said(
        conversation: Token, bearer: Annotated[Bearer, may_chat], limit: Annotated[Limit, Query()] = EXCHANGES
    ) -> dict[str, Json]:
        exchanges = await conversations.said(bearer.user.id, conversation, limit=limit, device=bearer.device)
        return whole_conversation(conversation, exchanges)

    return router
