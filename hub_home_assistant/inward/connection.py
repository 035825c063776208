"""One connection to Home Assistant's WebSocket API."""

import asyncio
import json
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pydantic_core import from_json
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from agent_core.schemas.nearest import suggestion
from chat.tasks import open_tasks
from contracts.errors import CallError, Disconnected, ErrorCode, LinkError, LoginRefused
from contracts.wire import Json
from hub_agent.settings import HomeAssistantAccess
from hub_home_assistant import limits
from hub_home_assistant.inward.entities import clean

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_SILENT: Final = logging.getLogger(f"{__name__}.frames")
"""Of the library, which would log the token at its lowest level."""
_SILENT.setLevel(logging.CRITICAL)
_WRONG: Final = frozenset({"invalid_format", "not_found", "service_validation_error"})
"""Codes of a service that does not exist, or not with these arguments; others are failures of the device."""
TOKEN_HINT: Final = "'strawberry setup home-assistant' takes a new token."  # noqa: S105 - no token


class Refused(LinkError):
    """Home Assistant refuses a command.

    Attributes:
        code: As Home Assistant calls it: ``unknown_command``, ``not_found``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"Home Assistant refuses: {message or code}")
        self.code = code


class _NoAnswer(Disconnected):
    """A command was sent, and what became of it is not known."""


class HomeAssistantConnection:
    """An authenticated connection. Made by `open_connection`.

    Attributes:
        version: Of Home Assistant.
    """

    def __init__(self, socket: "ClientConnection", version: str) -> None:
        self.version = version
        self._socket = socket
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._listeners: dict[int, Callable[[Any], None]] = {}
        self._closed = asyncio.Event()

    async def ask(self, kind: str, *, within_s: float = limits.ANSWER_S, **fields: Json) -> Any:
        """Send a command and return its result.

        Raises:
            Refused: If Home Assistant refuses it.
            Disconnected: If it was not sent, or there is no answer.
        """
        return await self._ask(next(self._ids), kind, within_s, fields)

    async def call_service(self, domain: str, service: str, *, within_s: float, **fields: Json) -> None:
        """Call a service and wait until it is done.

        Raises:
            Disconnected: If it was not sent.
            CallError: If Home Assistant refuses it; ``outcome_unknown`` if there is no answer.
        """
        try:
            await self.ask("call_service", within_s=within_s, domain=domain, service=service, **fields)
        except _NoAnswer as error:
            raise CallError(
                ErrorCode.OUTCOME_UNKNOWN, "{text}: perhaps it was done", text=error.message
            ) from None
        except Refused as error:
            known = await self.ask("get_services") if error.code == "not_found" else {}
            names = (f"{one}.{each}" for one in known for each in known[one])
            code = ErrorCode.BAD_ARGUMENTS if error.code in _WRONG else ErrorCode.SKILL_ERROR
            raise CallError(code, error.message, hint=suggestion(f"{domain}.{service}", names)) from None

    async def subscribe(self, listener: Callable[[Any], None], kind: str, **fields: Json) -> None:
        """Hand the events of a subscription to a plain function, as long as there is the connection.

        Raises:
            Refused: If Home Assistant refuses it.
            Disconnected: If there is no answer.
        """
        number = next(self._ids)
        self._listeners[number] = listener
        await self._ask(number, kind, limits.ANSWER_S, fields)

    async def closed(self) -> None:
        await self._closed.wait()

    async def _ask(self, number: int, kind: str, within_s: float, fields: dict[str, Json]) -> Any:
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send(json.dumps({"id": number, "type": kind, **fields}))
        except ConnectionClosed:
            raise Disconnected("Home Assistant is not connected", hint="It is tried again.") from None
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            raise _NoAnswer("Home Assistant gave no answer in {within_s:.0f} s", within_s=within_s) from None
        finally:
            del self._waiting[number]

    async def read(self) -> None:
        """Handle what arrives until the connection ends."""
        try:
            async for text in self._socket:
                received = from_json(text)
                for message in received if isinstance(received, list) else [received]:
                    self._handle(message)
        except (ConnectionClosed, ValueError):
            pass
        finally:
            self._closed.set()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_NoAnswer("the connection to Home Assistant was lost"))

    def _handle(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if message.get("type") == "event" and number in self._listeners:
            self._listeners[number](message["event"])
        elif message.get("type") == "result" and number in self._waiting:
            answer = self._waiting[number]
            if answer.done():
                return
            if message.get("success"):
                answer.set_result(message.get("result"))
            else:
                error = message.get("error") or {}
                answer.set_exception(Refused(clean(error.get("code")), clean(error.get("message"))))


@asynccontextmanager
async def open_connection(settings: HomeAssistantAccess) -> AsyncIterator[HomeAssistantConnection]:
    """Connect to Home Assistant with its token for as long as the context is open.

    Raises:
        LoginRefused: If it refuses the token.
        LinkError: If it cannot be reached, or is no Home Assistant.
    """
    # 8 ms to import, for homes without Home Assistant, too.
    from websockets.asyncio.client import connect

    url = f"ws{settings.url.removeprefix('http').rstrip('/')}/api/websocket"
    try:
        trust = ssl.create_default_context(cadata=settings.ca) if url.startswith("wss") else None
        socket = await connect(
            url,
            ssl=trust,
            proxy=None,
            open_timeout=limits.CONNECT_S,
            close_timeout=1,
            max_size=limits.MAX_MESSAGE_BYTES,
            logger=_SILENT,
        )
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ConnectionClosed) as error:
        where = urlsplit(settings.url).netloc.rpartition("@")[2]
        reason = str(error) or "it does not answer"
        if isinstance(error, ConnectionError) and error.errno:
            reason = os.strerror(error.errno)
        raise LinkError(
            "there is no Home Assistant at {address}: {reason}", address=where, reason=reason[:200]
        ) from None
    async with socket:
        version = await _log_in(socket, settings)
        connection = HomeAssistantConnection(socket, version)
        async with open_tasks() as tasks:
            tasks.create_task(connection.read(), name="messages of Home Assistant")
            yield connection


async def _log_in(socket: "ClientConnection", settings: HomeAssistantAccess) -> str:
    """Show the token; return the version."""
    try:
        async with asyncio.timeout(limits.CONNECT_S):
            await socket.recv()
            token = settings.token.get_secret_value()
            await socket.send(json.dumps({"type": "auth", "access_token": token}))
            answer = from_json(await socket.recv())
    except (ConnectionClosed, TimeoutError, ValueError) as error:
        raise LinkError(
            "what answers there is no Home Assistant: {reason}", reason=type(error).__name__
        ) from None
    if not isinstance(answer, dict) or answer.get("type") != "auth_ok":
        raise LoginRefused("Home Assistant refuses the token", hint=TOKEN_HINT)
    return clean(answer.get("ha_version"))
