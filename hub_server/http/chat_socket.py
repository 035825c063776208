"""``/api/chat/stream``: conversations over one WebSocket, whose turns outlive a connection that is lost.

A turn is followed here, not by the socket: its events are kept for a while, so that a client that comes back
resumes after the last one that it has.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol

from pydantic import BaseModel
from starlette.requests import Request
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from chat.http.errors import expected
from chat.http.limits import WITH_TOKEN
from chat.service import ChatService
from chat.tasks import happens
from chat.turns import Turn
from contracts.chat.messages import TurnError, TurnEvent, TurnState
from contracts.chat.stream import (
    CLIENT_FRAME,
    Ask,
    Begun,
    Cancel,
    Confirm,
    Missed,
    Refused,
    Resume,
    TurnEventFrame,
    TurnStateFrame,
)
from contracts.errors import Conflict, NotFound, StrawberryError, TooManyRequests, Unauthorized
from contracts.rates import Slots, TokenBucket
from contracts.validation import parsed
from hub_agent.chat.assistant import key_of
from hub_agent.parts import HubParts
from hub_registry.access.bearer import Bearer
from hub_server import limits

_log = logging.getLogger(__name__)

_PATH: Final = "/api/chat/stream"
_Frames = AsyncGenerator[bytes, None]


class _Followed:
    """A turn with its events.

    Attributes:
        given_up: Set when it can no longer be resumed.
    """

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.given_up = asyncio.Event()
        self._size = 0
        self._frames: list[bytes] = []
        self._forgotten = 0
        self._ended = False
        self._changed = asyncio.Event()
        self._clients = 0
        # A client may be gone before it follows what it asked for.
        self._abandon = self._wait_for_client()

    async def run(self) -> None:
        """Follow the turn to its end; it is cancelled where no client has been there for too long."""
        try:
            async with aclosing(self.turn.events()) as events:
                async for event in events:
                    self._keep(event)
        except Exception:  # noqa: BLE001  one turn must not end the hub
            _log.exception("the events of turn %s cannot be sent", self.turn.id)
            self._keep(TurnError(code="internal", message="an internal error occurred; see the log"))
        finally:
            self._ended = True
            self._tell()

    async def from_begin(self, *, ref: str = "", after: int = 0) -> _Frames:
        """Yield which turn it is, and then `frames`."""
        yield _json(Begun(ref=ref, turn=self.turn.id, conversation=self.turn.conversation_name))
        async with aclosing(self.frames(after)) as frames:
            async for frame in frames:
                yield frame

    async def frames(self, after: int) -> _Frames:
        """Yield the events after that one, to the end of the turn; where there are none, the last one."""
        self._clients += 1
        sent = False
        self._abandon.cancel()
        try:
            while True:
                if after < self._forgotten:
                    yield _json(Missed(turn=self.turn.id, events=self._forgotten - after))
                    after = self._forgotten
                while after - self._forgotten < len(self._frames):
                    after, sent = after + 1, True
                    yield self._frames[after - 1 - self._forgotten]
                    if after < self._forgotten:
                        break
                else:
                    if self._ended:
                        if not sent and self._frames:
                            # A client that lost its connection after it waits for an end.
                            yield self._frames[-1]
                        return
                    await self._changed.wait()
        finally:
            self._clients -= 1
            if not self._clients:
                self._shorten()
                self._abandon = self._wait_for_client()

    def _wait_for_client(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(limits.GRACE_S, self.turn.cancel)

    def _keep(self, event: TurnEvent) -> None:
        number = self._forgotten + len(self._frames) + 1
        turn, conversation = self.turn.id, self.turn.conversation_name
        self._frames.append(
            _json(TurnEventFrame(turn=turn, conversation=conversation, id=number, event=event))
        )
        self._size += len(self._frames[-1])
        self._shorten()
        self._tell()

    def _shorten(self) -> None:
        """Forget the first events where there are too many."""
        # One large event must not drive out all before it that are not sent yet: the newest does not count.
        earlier = self._size - len(self._frames[-1] if self._frames else b"")
        most = limits.MAX_FOLLOWED_BYTES if self._clients else limits.MAX_KEPT_BYTES
        if earlier > most:
            # A quarter at a time: each of them moves all others.
            while earlier > most * 3 // 4:
                size = len(self._frames.pop(0))
                self._size, earlier = self._size - size, earlier - size
                self._forgotten += 1

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class OtherReplicas(Protocol):
    """The turns of other replicas of this hub; each method does nothing where none of them has the turn."""

    async def frames(self, turn: str, caller: Bearer, after: int, ref: str = "") -> _Frames | None:
        """Return the frames of a turn after that event."""

    async def cancel(self, turn: str, caller: Bearer) -> TurnState | None:
        """Stop a turn, and return its state."""

    async def confirm(self, turn: str, question: str, caller: Bearer, *, approve: bool) -> bool:
        """Answer a question of a turn; return whether it was passed on."""


class ChatSockets:
    """The route, and the turns that its clients follow.

    Args:
        tasks: Owns the turns' followers, which outlive a connection.

    Attributes:
        others: Other replicas of the hub; None where it is alone.
    """

    def __init__(self, parts: HubParts, tasks: asyncio.TaskGroup) -> None:
        self.chat: ChatService[Bearer] = parts.agent.assistant
        self.gate = parts.gate
        self._authenticate = parts.gate.require("chat")
        self._connections = parts.connections
        self._tasks = tasks
        self.others: OtherReplicas | None = None
        self._followed: dict[tuple[str, str], _Followed] = {}
        # Of all connections that there may be at once, some are left for requests.
        most = parts.settings.http.connections * 2 // 3
        self._open = Slots(each=limits.SOCKETS_PER_TOKEN, total=most)

    def route(self) -> WebSocketRoute:
        return WebSocketRoute(_PATH, self._serve)

    def follow(self, turn: Turn) -> _Followed:
        """Begin to follow a turn; the oldest of its holder's is forgotten where there are too many."""
        key = (turn.user, turn.id)
        own = [each for each, known in self._followed.items() if known.turn.holder == turn.holder]
        if len(own) >= limits.TURNS_FOLLOWED:
            self._followed.pop(own[0]).given_up.set()
        self._followed[key] = followed = _Followed(turn)
        self._tasks.create_task(self._run(followed, key), name=f"follow turn {turn.id}")
        return followed

    def find(self, turn: str, caller: Bearer) -> _Followed:
        """Return a turn that the caller may follow.

        Raises:
            NotFound: If there is none, or its events are no longer kept.
        """
        return self._find(turn, caller.user.id, key_of(caller))

    def _find(self, turn: str, user: str, through: str | None) -> _Followed:
        followed = self._followed.get((user, turn))
        if followed is None or followed.turn.through not in (None, through):
            raise NotFound(
                f"the events of turn {turn!r} are not kept here", hint="Read its conversation for the answer."
            )
        return followed

    async def resume(self, turn: str, caller: Bearer, after: int) -> _Frames:
        """Return the frames of a turn after that event, wherever it runs.

        Raises:
            NotFound: If there is none, or its events are no longer kept.
        """
        try:
            return self.find(turn, caller).from_begin(after=after)
        except NotFound:
            if self.others is None or (found := await self.others.frames(turn, caller, after)) is None:
                raise
            return found

    async def cancel(self, turn: str, caller: Bearer) -> TurnState:
        """Stop a turn, wherever it runs; return its state."""
        if self.others is not None and (state := await self.others.cancel(turn, caller)) is not None:
            return state
        return await self.chat.cancel(turn, caller)

    async def confirm(self, turn: str, question: str, caller: Bearer, *, approve: bool) -> None:
        if self.others is None or not await self.others.confirm(turn, question, caller, approve=approve):
            await self.chat.confirm(turn, question, caller, approve=approve)

    def frames(self, turn: str, user: str, through: str | None, after: int, ref: str = "") -> _Frames:
        """Return the frames of a turn that runs here, for another replica.

        Raises:
            NotFound: If there is none, or its events are no longer kept.
        """
        return self._find(turn, user, through).from_begin(ref=ref, after=after)

    async def _run(self, followed: _Followed, key: tuple[str, str]) -> None:
        await followed.run()
        await happens(followed.given_up, within_s=limits.GRACE_S)
        if self._followed.get(key) is followed:
            del self._followed[key]

    async def _serve(self, websocket: WebSocket) -> None:
        try:
            bearer = await self._authenticate(_as_request(websocket))
            jti, left_s = bearer.claims.jti, bearer.claims.exp - time.time()
            if not self._open.take(jti):
                raise TooManyRequests(
                    f"this token has {limits.SOCKETS_PER_TOKEN} sockets open, or all together have too many",
                    hint="Close one.",
                )
        except StrawberryError as error:
            await websocket.send_denial_response(expected(_PATH, error))
            return
        reason = "the token has been revoked"
        try:
            await websocket.accept()
            with suppress(Unauthorized):  # revoked while it was accepted
                async with self._connections.hold(None, token=jti):
                    reason = await self._talk(websocket, bearer, left_s)
        finally:
            self._open.give_back(jti)
        if websocket.client_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect, RuntimeError):
                await websocket.close(1008, reason)

    async def _talk(self, websocket: WebSocket, bearer: Bearer, left_s: float) -> str:
        """Serve a client until it leaves or its token expires; return why it is to go."""
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s), asyncio.TaskGroup() as tasks:
                return await _Client(self, websocket, bearer, tasks).read()
        return "the token has expired"


class _Client:
    """A client at its socket."""

    def __init__(
        self, sockets: ChatSockets, websocket: WebSocket, bearer: Bearer, tasks: asyncio.TaskGroup
    ) -> None:
        self._sockets = sockets
        self._websocket = websocket
        self._bearer = bearer
        self._tasks = tasks
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._refusals = TokenBucket(burst=limits.SOCKET_REFUSALS, per_second=1)

    async def read(self) -> str:
        """Obey its messages until it leaves; return why it is to go, where it is."""
        try:
            while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
                await self._take(message.get("text") or message.get("bytes") or "")
                if self._refusals.empty:
                    return "too many messages were refused"
                # The next one may be here already, and those of others wait.
                await asyncio.sleep(0)
            return ""
        finally:
            for task in self._sending.values():
                task.cancel()

    async def _take(self, text: str | bytes) -> None:
        ref, turn = "", None
        try:
            self._sockets.gate.count(self._bearer.claims)
            WITH_TOKEN.check(text.encode() if isinstance(text, str) else text)
            frame = parsed(CLIENT_FRAME, text)
            ref, turn = getattr(frame, "ref", ""), frame.turn
            await self._obey(frame)
        except StrawberryError as error:
            await self._refuse(error, turn, ref=ref)

    async def _refuse(self, error: StrawberryError, turn: str | None, *, ref: str = "") -> None:
        self._refusals.charge(1)
        problem = json.loads(bytes(expected(_PATH, error).body))
        await self._send(_json(Refused(ref=ref, turn=turn, problem=problem)))

    async def _obey(self, frame: Ask | Resume | Cancel | Confirm) -> None:
        chat = self._sockets.chat
        match frame:
            case Ask(ref=ref):
                self._make_room()
                with suppress(NotFound):
                    # A client whose connection was lost does not know whether its message has arrived.
                    self._follow(self._sockets.find(frame.turn or "", self._bearer), ref=ref)
                    return
                try:
                    turn = await chat.ask(frame, self._bearer)
                except Conflict as used:
                    # Perhaps at another replica, before the connection to that was lost.
                    others, name = self._sockets.others, frame.turn or ""
                    found = await others.frames(name, self._bearer, 0, ref) if others is not None else None
                    if found is None:
                        raise
                    self._send_on(name, found, ref, used)
                    return
                self._follow(self._sockets.follow(turn), ref=ref)
            case Resume(turn=name, after=after):
                frames = await self._sockets.resume(name, self._bearer, after)
                self._make_room()
                self._send_on(name, frames)
            case Cancel(turn=name):
                # It waits for the skill that runs; the other conversations go on meanwhile.
                self._make_room()
                if f"cancel {name}" not in self._sending:
                    self._begin(f"cancel {name}", self._cancel(name))
            case Confirm(turn=name, question=question, approve=approve):
                await self._sockets.confirm(name, question, self._bearer, approve=approve)

    def _follow(self, followed: _Followed, *, ref: str = "") -> None:
        self._send_on(followed.turn.id, followed.from_begin(ref=ref))

    def _send_on(self, turn: str, frames: _Frames, ref: str = "", used: Conflict | None = None) -> None:
        if (before := self._sending.get(turn)) is not None:
            before.cancel()
        self._begin(turn, self._send_all(turn, frames, ref, used))

    def _begin(self, name: str, work: Any) -> None:
        task = self._sending[name] = self._tasks.create_task(work, name=f"socket: {name}")
        task.add_done_callback(lambda done: self._sending.get(name) is done and self._sending.pop(name))

    def _make_room(self) -> None:
        if len(self._sending) >= limits.TURNS_FOLLOWED:
            raise TooManyRequests(
                "this socket follows {turns} turns",
                turns=limits.TURNS_FOLLOWED,
                hint="Wait until one has ended.",
            )

    async def _send_all(self, turn: str, frames: _Frames, ref: str, used: Conflict | None) -> None:
        try:
            async with aclosing(frames):
                async for frame in frames:
                    await self._send(frame)
        except StrawberryError as error:
            # Of a turn that runs at another replica of the hub.
            error = used if used is not None and isinstance(error, NotFound) else error
            await self._refuse(error, turn, ref=ref)

    async def _cancel(self, turn: str) -> None:
        try:
            state = await self._sockets.cancel(turn, self._bearer)
            await self._send(_json(TurnStateFrame(turn=turn, state=state)))
        except StrawberryError as error:
            await self._refuse(error, turn)

    async def _send(self, frame: bytes) -> None:
        # A client that does not read is disconnected by the server's protocol.
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._websocket.send_text(frame.decode())


def _as_request(websocket: WebSocket) -> Request:
    """Return the handshake as a request, as which its token is checked."""
    # A cookie counts only from a page of the hub: without an origin it is good for reading alone.
    method = "GET" if "authorization" in websocket.headers else "POST"
    return Request({**websocket.scope, "type": "http", "method": method})


def _json(frame: BaseModel) -> bytes:
    return frame.model_dump_json().encode()
