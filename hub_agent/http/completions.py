"""Chat completions over the hub's HTTP; see ``chat.http.completions`` for their shapes."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from chat.http.completions import Completion, CompletionRequest, model_list, read
from chat.http.streams import Connections, EventStream, farewell
from contracts.names import Token
from contracts.wire import Json
from hub_agent.chat.incoming import Chat, Incoming
from hub_registry.access.bearer import Bearer, Gate
from identity.ids import uuid7


def make_router(chat: Chat, *, gate: Gate, connections: Connections) -> APIRouter:
    """Make the routes under ``/v1``."""
    router = APIRouter()

    @router.get("/v1/models", dependencies=[Depends(gate.require("chat"))])
    async def models() -> dict[str, Json]:
        return model_list()

    @router.post("/v1/chat/completions", response_model=None)
    async def complete(
        body: CompletionRequest,
        request: Request,
        bearer: Annotated[Bearer, Depends(gate.require("chat"))],
        x_strawberry_conversation: Annotated[Token | None, Header()] = None,
        x_strawberry_turn: Annotated[Token | None, Header()] = None,
        x_strawberry_device: Annotated[str | None, Header(max_length=64)] = None,
        x_strawberry_confirm: Annotated[bool, Header()] = False,
    ) -> Response:
        said = read(body.messages)
        turn = await chat.begin(
            bearer,
            Incoming(
                message=said.message,
                agent=body.model,
                turn=x_strawberry_turn or uuid7(),
                conversation=x_strawberry_conversation or uuid7(),
                device=x_strawberry_device,
                can_confirm=x_strawberry_confirm and body.stream,
                history=said.history,
                # What a device's own gateway adds is meant for the device's own model.
                notes="" if bearer.device else said.notes,
            ),
        )
        answer = Completion(turn, model=body.model, with_usage=body.with_usage)
        if body.stream:
            return EventStream(answer.stream(), connections=connections, headers=answer.headers)
        async with connections.hold(request.receive) as client:
            return JSONResponse(await answer.whole(), headers=answer.headers)
        return farewell(client)

    return router
