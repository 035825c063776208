"""The routes of chat and conversations, served alike by a hub and by a spoke over a `ChatService`."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any, Final, Generic, Never, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from chat.export import as_markdown, exported
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
from chat.http.requests import Answer, Answered, NoBody, answer, read, reads
from chat.http.responses import ResponseAnswer, ResponseRequest, ResponseStream
from chat.http.streams import Connections, EventStream, farewell
from chat.service import ChatService
from chat.turns import Turn
from contracts.answers.record import Conversation, ConversationTitle
from contracts.chat import (
    ChatRequest,
    ConversationSummary,
    Mode,
    TurnError,
    TurnEvent,
    TurnFinal,
    TurnRecord,
    TurnState,
    unknown_agent,
)
from contracts.errors import InvalidMessage, NotFound
from contracts.names import Token
from contracts.text import shortened
from contracts.validation import explain
from contracts.wire import Part, Strict

Caller = TypeVar("Caller")

_TRUE: Final = ("true", "1", "yes", "on")

_TOKEN: TypeAdapter[str] = TypeAdapter(Token)
_LIMIT: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=1, le=1000)])


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _ChatBody(ChatRequest):
    """The body of ``POST /api/chat``; a field that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Approval(Strict):
    """A person's answer to a question."""

    approve: bool


class _Rename(Strict):
    """A title for a conversation; none, or an empty one, takes it away."""

    title: Annotated[str, AfterValidator(_one_line), Field(max_length=120)] | None


class ChatAnswer(Part):
    """A turn that has ended, with as many of its events as are shown."""

    answer: str
    mode: Mode
    device: str | None
    events: list[TurnEvent]
    conversation: str
    turn: str


class CancelledTurn(Part):
    """What a turn was when it was cancelled."""

    state: TurnState


class ChatRoutes(Generic[Caller]):
    """The endpoints.

    Args:
        service: Returns what answers; asked with each request, so that it can be loaded with the first.
        authenticate: Returns who makes a request, or raises ``Unauthorized`` or ``Forbidden``.
        connections: The clients that wait.
    """

    def __init__(
        self,
        service: Callable[[], Awaitable[ChatService[Caller]]],
        *,
        authenticate: Callable[[Request], Awaitable[Caller]],
        connections: Connections,
    ) -> None:
        self._service = service
        self._authenticate = authenticate
        self._connections = connections

    def routes(self) -> list[Route]:
        """Return them, to be put into an application that handles the errors of `contracts.errors`."""
        return [
            Route("/v1/models", self._models),
            Route("/v1/models/{model}", self._model),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/responses", self._respond, methods=["POST"]),
            Route("/api/chat", self._chat, methods=["POST"]),
            Route("/api/conversations", self._conversations),
            Route("/api/conversations/{conversation}", self._conversation),
            Route("/api/conversations/{conversation}", self._rename, methods=["PATCH"]),
            Route("/api/conversations/{conversation}", self._delete, methods=["DELETE"]),
            Route("/api/conversations/{conversation}/export", self._export),
            Route("/api/turns/{turn}/cancel", self._cancel, methods=["POST"]),
            Route("/api/turns/{turn}/confirmations/{question}", self._confirm, methods=["POST"]),
        ]

    async def _models(self, request: Request) -> Answer[ModelList]:
        caller = await self._authenticate(request)
        return answer(model_list(await (await self._service()).agent_names(caller)))

    async def _model(self, request: Request) -> Answer[ModelSummary]:
        caller, name = await self._authenticate(request), request.path_params["model"]
        known = await (await self._service()).agent_names(caller)
        if name not in known:
            raise unknown_agent(name, known)
        return answer(model_of(name))

    @reads(CompletionRequest)
    async def _complete(self, request: Request) -> Answer[CompletionAnswer] | EventStream:
        caller = await self._authenticate(request)
        body = await read(request, CompletionRequest)
        asked = body.chat_request(
            conversation=_header(request, "x-strawberry-conversation"),
            turn=_header(request, "x-strawberry-turn"),
            device=_device(request),
            can_confirm=request.headers.get("x-strawberry-confirm", "").lower() in _TRUE,
            replaces=_header(request, "x-strawberry-replaces"),
        )
        turn = await (await self._service()).ask(asked, caller)
        form = Completion(turn, body)
        return await self._told(request, turn, form.stream() if body.stream else None, form.whole)

    @reads(ResponseRequest)
    async def _respond(self, request: Request) -> Answer[ResponseAnswer] | EventStream:
        caller = await self._authenticate(request)
        body = await read(request, ResponseRequest)
        turn = await (await self._service()).ask(body.chat_request(device=_device(request)), caller)
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
            return EventStream(stream, connections=self._connections, headers=ids)
        async with self._connections.hold(request.receive) as client:
            last = await turn.last()
            if isinstance(last, TurnError):
                return _failed(request, turn, last)
            return answer(whole(last), headers=ids)
        return farewell(client)

    @reads(_ChatBody)
    async def _chat(self, request: Request) -> Answer[ChatAnswer]:
        caller = await self._authenticate(request)
        body = await read(request, _ChatBody)
        # Questions can be shown in a stream only.
        asked = body.model_copy(update={"can_confirm": False})
        turn = await (await self._service()).ask(asked, caller)
        async with self._connections.hold(request.receive) as client:
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

    async def _conversations(self, request: Request) -> Answer[list[ConversationSummary]]:
        caller, limit = await self._authenticate(request), _limit(request, limits.CONVERSATIONS_LISTED)
        words = request.query_params.get("q", "").strip()[: limits.MAX_SEARCH]
        known = await (await self._service()).conversations(caller, limit=limit, words=words)
        return answer(
            [
                each.model_copy(
                    update={"asked": shortened(_one_line(each.asked), limits.MAX_QUESTION_LISTED)}
                )
                for each in known
            ]
        )

    async def _conversation(self, request: Request) -> Answer[Conversation]:
        caller, limit = await self._authenticate(request), _limit(request, limits.TURNS_LISTED)
        conversation, before = _path_token(request, "conversation"), request.query_params.get("before")
        before = None if before is None else _token(before, "before")
        service = await self._service()
        turns = await service.turns(conversation, caller, limit=limit, before=before)
        if not turns and before is None:
            raise unknown_conversation(conversation)
        return answer(exported(conversation, await service.title(conversation, caller), turns))

    async def _export(self, request: Request) -> Answer[Conversation] | Annotated[Response, "text/markdown"]:
        caller, conversation = await self._authenticate(request), _path_token(request, "conversation")
        kind = request.query_params.get("format", "json")
        if kind not in ("json", "markdown"):
            raise InvalidMessage(f"format: json or markdown, not {kind[:64]!r}")
        service = await self._service()
        turns: list[TurnRecord] = []
        while page := await service.turns(
            conversation, caller, limit=limits.TURNS_EXPORTED_AT_ONCE, before=turns[0].turn if turns else None
        ):
            turns[:0] = page
            if len(page) < limits.TURNS_EXPORTED_AT_ONCE:
                break
        if not turns:
            raise unknown_conversation(conversation)
        title = await service.title(conversation, caller)
        if kind == "markdown":
            return PlainTextResponse(as_markdown(conversation, title, turns), media_type="text/markdown")
        return answer(exported(conversation, title, turns))

    @reads(_Rename)
    async def _rename(self, request: Request) -> Answer[ConversationTitle]:
        caller, conversation = await self._authenticate(request), _path_token(request, "conversation")
        title = (await read(request, _Rename)).title
        await (await self._service()).rename(conversation, title or None, caller)
        return answer(ConversationTitle(id=conversation, title=title or None))

    async def _delete(self, request: Request) -> NoBody:
        caller = await self._authenticate(request)
        await (await self._service()).delete(_path_token(request, "conversation"), caller)
        return NoBody()

    async def _cancel(self, request: Request) -> Answer[CancelledTurn]:
        caller, turn = await self._authenticate(request), _path_token(request, "turn")
        return answer(CancelledTurn(state=await (await self._service()).cancel(turn, caller)))

    @reads(Approval)
    async def _confirm(self, request: Request) -> Answer[Approval]:
        caller, turn = await self._authenticate(request), _path_token(request, "turn")
        given, question = await read(request, Approval), request.path_params["question"]
        await (await self._service()).confirm(turn, question, caller, approve=given.approve)
        return answer(given)


def unknown_conversation(conversation: str) -> NotFound:
    """Return the error for a conversation that the caller does not have."""
    return NotFound(
        "there is no conversation {conversation!r} here",
        conversation=conversation,
        hint="'strawberry history' lists them.",
    )


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
    return None if value is None else _token(value, name)


def _device(request: Request) -> str | None:
    device = request.headers.get("x-strawberry-device")
    if device is not None and len(device) > limits.MAX_DEVICE:
        raise InvalidMessage(f"x-strawberry-device: at most {limits.MAX_DEVICE} characters")
    return device


def _path_token(request: Request, name: str) -> str:
    return _token(request.path_params[name], name)


def _token(value: str, name: str) -> str:
    try:
        return _TOKEN.validate_python(value)
    except ValidationError:
        raise InvalidMessage(
            f"{name}: 1 to 64 letters, digits, dots, hyphens and underscores, not {value[:64]!r}"
        ) from None


def _limit(request: Request, usual: int) -> int:
    try:
        return _LIMIT.validate_python(request.query_params.get("limit", usual))
    except ValidationError as error:
        raise InvalidMessage(explain(error, root="limit")) from None
