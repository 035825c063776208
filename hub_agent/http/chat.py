"""Chat in the hub's own form, and what can be said to a turn that runs."""

from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from broker.ids import uuid7
from contracts.chat import MAX_MESSAGE
from contracts.errors import GatewayError, NoModel
from contracts.events import TurnError, TurnFinal
from contracts.names import Token
from contracts.wire import Json
from hub_agent.assistant import AGENTS
from hub_agent.chat import Chat, Incoming
from hub_agent.conversations import TurnKey
from hub_agent.http.streams import Connections, farewell
from hub_agent.turns import Turn
from hub_registry.bearer import Bearer, Gate


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
            return JSONResponse(await _answer(turn))
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


async def _answer(turn: Turn) -> dict[str, Json]:
    """Follow a turn to its end and give it as one object.

    Raises:
        GatewayError: If it ended without an answer.
    """
    events: list[dict[str, Any]] = []
    async with aclosing(turn.events()) as told:
        async for event in told:
            events.append(event.model_dump(mode="json"))
            match event:
                case TurnFinal():
                    return {
                        "answer": event.answer,
                        "mode": event.mode,
                        "device": event.device,
                        "events": events,
                        "conversation": turn.request.conversation,
                        "turn": turn.request.key.turn,
                    }
                case TurnError():
                    failure = NoModel if event.code == "no_model" else GatewayError
                    raise failure(event.message, hint=event.hint)
    raise GatewayError("the turn ended without an answer")
