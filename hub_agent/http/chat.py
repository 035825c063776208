"""Chat in the hub's own form, and what can be said to a turn that runs."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from chat.http.completions import whole_answer
from chat.http.streams import Connections, farewell
from chat.turns import TurnKey
from contracts.chat import AGENTS, MAX_MESSAGE
from contracts.names import Token
from hub_agent.chat.incoming import Chat, Incoming
from hub_registry.access.bearer import Bearer, Gate
from identity.ids import uuid7


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ChatBody(_Body):
    """A message to the assistant."""

    message: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)]
    conversation: Token | None = None
    device: Annotated[str | None, Field(max_length=64)] = None
    agent: str = AGENTS[0]


class AnswerBody(_Body):
    """A person's answer to a question."""

    approve: bool


def make_router(chat: Chat, *, gate: Gate, connections: Connections) -> APIRouter:
    """Make the routes ``/api/chat`` and ``/api/turns/…``."""
    router = APIRouter()
    may_chat = Depends(gate.require("chat"))
    assistant = chat.assistant

    @router.post("/api/chat", response_model=None)
    async def say(body: ChatBody, request: Request, bearer: Annotated[Bearer, may_chat]) -> Response:
        incoming = Incoming(
            message=body.message,
            agent=body.agent,
            turn=uuid7(),
            conversation=body.conversation or uuid7(),
            device=body.device,
        )
        turn = await chat.begin(bearer, incoming)
        async with connections.hold(request.receive) as client:
            return JSONResponse(await whole_answer(turn))
        return farewell(client)

    @router.post("/api/turns/{turn}/cancel")
    async def cancel(turn: Token, bearer: Annotated[Bearer, may_chat]) -> dict[str, str]:
        return {"state": await assistant.turns.cancel(TurnKey(bearer.user.id, turn))}

    @router.post("/api/turns/{turn}/confirmations/{question}")
    async def confirm(
        turn: Token, question: str, body: AnswerBody, bearer: Annotated[Bearer, may_chat]
    ) -> dict[str, bool]:
        assistant.questions.answer(bearer.user.id, turn, question, approve=body.approve)
        return {"approve": body.approve}

    return router
