"""Turns that run at one replica, followed through another."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from chat.conversations import CancelledTurn, cancel, confirm
from contracts.chat.messages import TurnState
from hub_agent.chat.assistant import key_of
from hub_registry.access.bearer import Bearer
from hub_server.http.chat_socket import ChatSockets
from hub_server.replicas.passing import Passing
from hub_server.replicas.routing import Routing

_PATH: Final = "/api/replicas/turns"


class RemoteTurns:
    """Frames of turns, from and for other replicas."""

    def __init__(self, sockets: ChatSockets, routing: Routing, passing: Passing) -> None:
        self._sockets = sockets
        self._routing = routing
        self._passing = passing

    def route(self) -> Route:
        # For replicas alone.
        return Route(_PATH, self._serve, methods=["POST"])

    async def frames(
        self, turn: str, caller: Bearer, after: int, ref: str = ""
    ) -> AsyncGenerator[bytes, None] | None:
        """Return the frames of a turn that another replica runs; None where none does."""
        if (row := await self._routing.runs(caller.user.id, turn, ended=True)) is None:
            return None
        asked = {"turn": turn, "user": caller.user.id, "through": key_of(caller), "after": after}
        return self._passing.lines(row, _PATH, {**asked, "ref": ref})

    async def cancel(self, turn: str, caller: Bearer) -> TurnState | None:
        """Stop a turn that another replica runs, and return its state; None where none does."""
        if (row := await self._routing.runs(caller.user.id, turn)) is None:
            return None
        done: CancelledTurn = await self._passing.call(row, cancel, caller, {"turn": turn})
        return done.state

    async def confirm(self, turn: str, question: str, caller: Bearer, *, approve: bool) -> bool:
        """Answer a question of a turn that another replica runs; return whether one does."""
        if (row := await self._routing.runs(caller.user.id, turn)) is None:
            return False
        given = {"turn": turn, "question": question, "approve": approve}
        await self._passing.call(row, confirm, caller, given)
        return True

    async def _serve(self, request: Request) -> Response:
        asked = await self._passing.internal(request)
        frames = self._sockets.frames(**asked)

        async def lines() -> AsyncGenerator[bytes, None]:
            async with aclosing(frames):
                async for frame in frames:
                    yield frame + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")
