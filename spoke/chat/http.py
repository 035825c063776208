"""The chat contract on this machine: those who have the owner's token talk to the spoke as to a hub.

It listens on loopback only. ``spoke/run.json`` says where, ``spoke/http.token`` holds the token; both can
be read by the owner of the process alone.
"""

import hmac
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from chat.http.completions import Completion, CompletionRequest, model_list, read, whole_answer
from chat.http.conversations import (
    CONVERSATIONS,
    EXCHANGES,
    Limit,
    conversation_list,
    whole_conversation,
)
from chat.http.errors import expected, refused
from chat.http.guard import Guard
from chat.http.streams import Connections, EventStream, farewell
from contracts.chat import AGENTS, MAX_MESSAGE
from contracts.errors import InvalidMessage, StrawberryError, Unauthorized
from contracts.names import Token
from contracts.wire import Json
from identity.files import write_private
from identity.ids import uuid7
from spoke.chat.asking import Asking

if TYPE_CHECKING:
    from spoke.chat.agent import Agent

_Body = TypeVar("_Body", bound=BaseModel)

_ID: TypeAdapter[str] = TypeAdapter(Token)
_LIMIT: TypeAdapter[int] = TypeAdapter(Limit)
_TOKEN_FILE: Final = "http.token"  # noqa: S105  the name of a file
_RUN_FILE: Final = "run.json"


class _Exact(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Message(_Exact):
    message: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)]
    conversation: Token | None = None
    device: Annotated[str | None, Field(max_length=64)] = None
    agent: str = AGENTS[0]


class _Word(_Exact):
    approve: bool


class ChatRoutes:
    """The endpoints.

    Args:
        agent: Gives what answers; asked with each message, so that it is loaded with the first.
        device: Id of this device, which is the current one of every turn.
        health: Gives what ``/api/health`` shows to anybody.
    """

    def __init__(
        self,
        agent: Callable[[], Awaitable["Agent"]],
        *,
        device: str,
        token: str,
        connections: Connections,
        health: Callable[[], dict[str, Json]],
    ) -> None:
        self._agent = agent
        self._device = device
        self._token = token.encode()
        self._connections = connections
        self._health = health

    def app(self, *, max_body_bytes: int) -> ASGIApp:
        """Put the application together."""
        routes = [
            Route("/api/health", self._show_health),
            Route("/v1/models", self._let_in(self._models)),
            Route("/v1/chat/completions", self._let_in(self._complete), methods=["POST"]),
            Route("/api/chat", self._let_in(self._say), methods=["POST"]),
            Route("/api/conversations", self._let_in(self._conversations)),
            Route("/api/conversations/{conversation}", self._let_in(self._conversation)),
            Route("/api/turns/{turn}/cancel", self._let_in(self._cancel), methods=["POST"]),
            Route(
                "/api/turns/{turn}/confirmations/{question}", self._let_in(self._confirm), methods=["POST"]
            ),
        ]
        app = Starlette(
            routes=routes, exception_handlers={StrawberryError: _expected, HTTPException: _refused}
        )
        return Guard(app, max_body_bytes=max_body_bytes)

    def _let_in(self, serve: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Any]:
        async def served(request: Request) -> Response:
            kind, _, token = request.headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token):
                raise Unauthorized(
                    "this spoke serves its owner only", hint=f"The token is in spoke/{_TOKEN_FILE}."
                )
            return await serve(request)

        return served

    async def _show_health(self, _: Request) -> Response:
        return JSONResponse(self._health())

    async def _models(self, _: Request) -> Response:
        return JSONResponse(model_list())

    async def _complete(self, request: Request) -> Response:
        body = await _read(request, CompletionRequest)
        self._check_device(request.headers.get("x-strawberry-device"))
        said = read(body.messages)
        turn = await (await self._agent()).ask(
            Asking(
                message=said.message,
                turn=_id(request, "x-strawberry-turn"),
                conversation=_id(request, "x-strawberry-conversation"),
                agent=body.model,
                can_confirm=body.stream and request.headers.get("x-strawberry-confirm", "").lower() == "true",
                history=said.history,
                notes=said.notes,
            )
        )
        answer = Completion(turn, model=body.model, with_usage=body.with_usage)
        if body.stream:
            return EventStream(answer.stream(), connections=self._connections, headers=answer.headers)
        async with self._connections.hold(request.receive) as client:
            return JSONResponse(await answer.whole(), headers=answer.headers)
        return farewell(client)

    async def _say(self, request: Request) -> Response:
        body = await _read(request, _Message)
        self._check_device(body.device)
        asking = Asking(body.message, uuid7(), body.conversation or uuid7(), body.agent)
        turn = await (await self._agent()).ask(asking)
        async with self._connections.hold(request.receive) as client:
            return JSONResponse(await whole_answer(turn))
        return farewell(client)

    async def _conversations(self, request: Request) -> Response:
        limit = _limit(request, CONVERSATIONS)
        history = (await self._agent()).history
        return JSONResponse(conversation_list(await history.conversations(limit=limit)))

    async def _conversation(self, request: Request) -> Response:
        conversation, limit = _checked(request.path_params["conversation"]), _limit(request, EXCHANGES)
        history = (await self._agent()).history
        return JSONResponse(whole_conversation(conversation, await history.read(conversation, limit=limit)))

    def _check_device(self, named: str | None) -> None:
        if named not in (None, self._device):
            raise InvalidMessage(
                f"here {self._device} is the current device, not {named}",
                hint="Name the other device in the message, or ask the hub.",
            )

    async def _cancel(self, request: Request) -> Response:
        agent, turn = await self._agent(), _checked(request.path_params["turn"])
        return JSONResponse({"state": await agent.cancel(turn)})

    async def _confirm(self, request: Request) -> Response:
        body = await _read(request, _Word)
        turn, question = request.path_params["turn"], request.path_params["question"]
        agent = await self._agent()
        await agent.confirm(_checked(turn), question, approve=body.approve)
        return JSONResponse({"approve": body.approve})


@contextmanager
def announced(directory: Path, url: str, *, device: str) -> Iterator[None]:
    """Say in ``run.json`` where this spoke is reached, for as long as the block lasts."""
    file = directory / _RUN_FILE
    write_private(file, json.dumps({"url": url, "pid": os.getpid(), "device": device}).encode())
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def provide_token(directory: Path) -> str:
    """Make the token of this start; who listens on the port of an earlier one can do nothing with that."""
    token = secrets.token_urlsafe(32)
    write_private(directory / _TOKEN_FILE, token.encode())
    return token


async def _read(request: Request, kind: type[_Body]) -> _Body:
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise InvalidMessage(f"{where}: {first['msg']}") from None


def _id(request: Request, header: str) -> str:
    """Give the id that the client chose, or a new one."""
    chosen = request.headers.get(header)
    return uuid7() if chosen is None else _checked(chosen)


def _limit(request: Request, usual: int) -> int:
    try:
        return _LIMIT.validate_python(request.query_params.get("limit", usual))
    except ValidationError as error:
        raise InvalidMessage(f"limit: {error.errors(include_url=False)[0]['msg']}") from None


def _checked(id_: str) -> str:
    try:
        return _ID.validate_python(id_)
    except ValidationError:
        raise InvalidMessage("an id is made of letters, digits, dots, lines and underscores") from None


async def _expected(request: Request, error: Exception) -> Response:
    assert isinstance(error, StrawberryError)
    return expected(request.url.path, error)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refused(request.url.path, error)
