"""The routes of chat, served alike by a hub and by a spoke over a `ChatService`."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Generic, Never, TypeVar

from pydantic import ConfigDict
from starlette.requests import Request
from starlette.routing import Route

from chat.http import limits
from chat.http.completions import (
    Completion,
    CompletionAnswer,
    CompletionRequest,
    ModelList,
    ModelSummary,
    followed,
    model_list,
    model_of,
)
from chat.http.errors import error_response
from chat.http.requests import Answer, Answered, answer, checked_token, read, reads
from chat.http.responses import ResponseAnswer, ResponseRequest, ResponseStream
from chat.http.streams import Connections, EventStream, farewell
from chat.service import ChatService
from chat.turns import Turn
from contracts.chat.messages import (
    ChatRequest,
    Mode,
    TurnError,
    TurnEvent,
    TurnFinal,
    unknown_agent,
)
from contracts.errors import InvalidMessage
from contracts.wire import Part

Caller = TypeVar("Caller")

_TRUE: Final = ("true", "1", "yes", "on")


class _ChatBody(ChatRequest):
    """The body of ``POST /api/chat``; a field that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ChatAnswer(Part):
    """A turn that has ended, with as many of its events as are shown."""

    answer: str
    mode: Mode
    device: str | None
    events: list[TurnEvent]
    conversation: str
    turn: str


@dataclass(eq=False)
class ChatRoutes(Generic[Caller]):
    """The endpoints.

    Attributes:
        service: Returns what answers; asked with each request, so that it can be loaded with the first.
        authenticate: Returns who makes a request, or raises ``Unauthorized`` or ``Forbidden``.
        connections: The clients that wait.
    """

    service: Callable[[], Awaitable[ChatService[Caller]]]
    _: KW_ONLY
    authenticate: Callable[[Request], Awaitable[Caller]]
    connections: Connections

    def routes(self) -> list[Route]:
        """Return them, to be put into an application that handles the errors of `contracts.errors`."""
        return [
            Route("/v1/models", self._models),
            Route("/v1/models/{model}", self._model),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/responses", self._respond, methods=["POST"]),
            Route("/api/chat", self._chat, methods=["POST"]),
        ]

    async def _models(self, request: Request) -> Answer[ModelList]:
        caller = await self.authenticate(request)
        return answer(model_list(await (await self.service()).agent_names(caller)))

    async def _model(self, request: Request) -> Answer[ModelSummary]:
        caller, name = await self.authenticate(request), request.path_params["model"]
        known = await (await self.service()).agent_names(caller)
        if name not in known:
            raise unknown_agent(name, known)
        return answer(model_of(name))

    @reads(CompletionRequest)
    async def _complete(self, request: Request) -> Answer[CompletionAnswer] | EventStream:
        caller = await self.authenticate(request)
        body = await read(request, CompletionRequest)
        asked = body.chat_request(
            conversation=_header(request, "x-strawberry-conversation"),
            turn=_header(request, "x-strawberry-turn"),
            device=_device(request),
            can_confirm=request.headers.get("x-strawberry-confirm", "").lower() in _TRUE,
            replaces=_header(request, "x-strawberry-replaces"),
        )
        turn = await (await self.service()).ask(asked, caller)
        form = Completion(turn, body)
        return await self._told(request, turn, form.stream() if body.stream else None, form.whole)

    @reads(ResponseRequest)
    async def _respond(self, request: Request) -> Answer[ResponseAnswer] | EventStream:
        caller = await self.authenticate(request)
        body = await read(request, ResponseRequest)
        turn = await (await self.service()).ask(body.chat_request(device=_device(request)), caller)
        form = ResponseStream(turn, body)
        return await self._told(request, turn, form.stream() if body.stream else None, form.whole)

    async def _told(
        self,
        request: Request,
        turn: Turn,
        stream: AsyncGenerator[bytes, None] | None,
        whole: Callable[[TurnFinal], Answered],
    ) -> Answer[Answered] | EventStream:
        ids = {"x-strawberry-conversation": turn.conversation_name, "x-strawberry-turn": turn.id}
        if stream is not None:
            return EventStream(stream, connections=self.connections, headers=ids)
        async with self.connections.hold(request.receive) as client:
            last = await turn.last()
            if isinstance(last, TurnError):
                return _failed(request, turn, last)
            return answer(whole(last), headers=ids)
        return farewell(client)

    @reads(_ChatBody)
    async def _chat(self, request: Request) -> Answer[ChatAnswer]:
        caller = await self.authenticate(request)
        body = await read(request, _ChatBody)
        # Questions can be shown in a stream only.
        asked = body.model_copy(update={"can_confirm": False})
        turn = await (await self.service()).ask(asked, caller)
        async with self.connections.hold(request.receive) as client:
            last, events = await followed(turn)
            if isinstance(last, TurnError):
                return _failed(request, turn, last)
            return answer(
                ChatAnswer(
                    answer=last.answer,
                    mode=last.mode,
                    device=last.device,
                    events=events,
                    conversation=turn.conversation_name,
                    turn=turn.id,
                )
            )
        return farewell(client)


def _failed(request: Request, turn: Turn, error: TurnError) -> Answer[Never]:
    more: dict[str, Any] = {
        "reason": error.code,
        "answer": error.answer,
        "conversation": turn.conversation_name,
        "turn": turn.id,
    }
    return error_response(request.url.path, 503, "no_model", error.message, error.hint, more=more)


def _header(request: Request, name: str) -> str | None:
    value = request.headers.get(name)
    return None if value is None else checked_token(value, name)


def _device(request: Request) -> str | None:
    device = request.headers.get("x-strawberry-device")
    if device is not None and len(device) > limits.MAX_DEVICE:
        raise InvalidMessage(f"x-strawberry-device: at most {limits.MAX_DEVICE} characters")
    return device
