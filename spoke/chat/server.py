"""The chat of this machine: the owner talks to the spoke over HTTP as to a hub.

It listens on loopback only. ``spoke/run.json`` names the address, ``spoke/http.token`` holds the token; both
can be read by the owner of the process alone.
"""

import hmac
import json
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agent_core.lazy import Lazy
from agent_core.models.entries import GatewayKind, Models
from bus.ports import listen
from chat.conversations import conversations
from chat.http.errors import HANDLERS
from chat.http.guard import Guard
from chat.http.routes import ChatRoutes
from chat.http.server import serve
from chat.http.streams import Connections
from chat.operations import Needs, Operations
from chat.tasks import open_tasks, supervise
from contracts import own_version
from contracts.devices.presence import SpokeSummary
from contracts.errors import InvalidMessage, Unauthorized
from identity.files import write_private
from identity.keys import KeyPair
from identity.logins import challenges
from spoke import limits
from spoke.chat.database import FILE_NAME
from spoke.chat.speech import Speech
from spoke.membership.enrolment import Enrolment
from spoke.presence.clock import HubClock
from spoke.settings import ChatSettings, SpokeSettings
from spoke.skill_host import SkillHost

if TYPE_CHECKING:
    from spoke.chat.agent import Agent
    from voice.pipeline import MayAnswer
    from voice.satellite.satellite import Names

_HOST: Final = "127.0.0.1"
_TOKEN_FILE: Final = "http.token"  # noqa: S105  the name of a file
_RUN_FILE: Final = "run.json"


@dataclass
class ChatServer:
    """The chat server of one spoke.

    Attributes:
        enrolment: Returns what is known of the hub now.
        key: This device's key.
        epoch: Of this start.
        connected: Whether the spoke is on the bus.
        hub_online: Whether the hub was there when the bus last said so.
        voice_changed: Called when the voice of this device does something else.
        may_answer: Decides between the devices that heard a wake word; see `voice.pipeline.Pipeline`.
        speech: The voice of this device, once the server was opened.
    """

    settings: SpokeSettings
    chat: ChatSettings
    enrolment: Callable[[], Enrolment]
    key: KeyPair
    epoch: int
    host: SkillHost
    clock: HubClock
    connected: Callable[[], bool]
    hub_online: Callable[[], bool]
    voice_changed: Callable[[], None] = lambda: None
    may_answer: "MayAnswer | None" = None
    speech: "Speech | None" = field(default=None, init=False)
    _agent: "Lazy[Agent] | None" = field(default=None, init=False)

    @property
    def _opened(self) -> "Agent | None":
        return self._agent.opened if self._agent is not None else None

    def skills_changed(self) -> None:
        # This applies to turns that begin from now on.
        if (agent := self._opened) is not None:
            agent.skills.offer(self.host.registrations)

    def reload_models(self, models: Models, *, kind: GatewayKind) -> bool:
        """Ask other models of this device from the next turn on; return whether they are others."""
        before = self.settings
        self.settings = before.model_copy(update={"models": models, "gateway": kind})
        return self.settings != before

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Serve until the block is left; yields the address. The agent is loaded with the first message.

        Raises:
            ConfigError: If the port is taken, or a file cannot be written.
        """
        directory = self.settings.directory
        async with AsyncExitStack() as stack:
            listener = stack.enter_context(listen(_HOST, self.chat.port, purpose="chat"))
            tasks = await stack.enter_async_context(open_tasks())
            agent = self._agent = Lazy(self._open_agent, tasks=tasks, name="agent")
            token = _make_token(directory)

            async def prove(request: Request) -> Response:
                challenge = request.query_params.get("challenge", "")
                if not re.fullmatch(challenges.FORM, challenge):
                    raise InvalidMessage("a challenge is 22 to 86 letters of base64url")
                host = request.headers["host"]
                return JSONResponse({"proof": challenges.spoke_proof(token, challenge=challenge, host=host)})

            async def authenticate(request: Request) -> None:
                kind, _, given = request.headers.get("authorization", "").partition(" ")
                matches = hmac.compare_digest(given.strip().encode(), token.encode())
                if kind.lower() != "bearer" or not matches:
                    raise Unauthorized(
                        "this spoke serves its owner only", hint=f"The token is in spoke/{_TOKEN_FILE}."
                    )

            async def models(request: Request) -> Response:
                await authenticate(request)
                states = [] if self._opened is None else self._opened.model_states()
                return JSONResponse({"models": list(map(vars, states))})

            async def summary(request: Request) -> Response:
                await authenticate(request)
                return JSONResponse(self._summary().model_dump(mode="json"))

            speech = self.speech = self._speech(agent.get)
            connections = Connections(tasks)
            chat = ChatRoutes(agent.get, authenticate=authenticate, connections=connections)
            operations: Operations[Any] = Operations(_OwnerDoor(authenticate), connections)
            app = Starlette(
                routes=[
                    Route("/api/health", self._health),
                    Route("/api/models", models),
                    Route("/api/spoke", summary),
                    Route(challenges.PATH, prove),
                    *speech.routes(authenticate),
                    *chat.routes(),
                    *operations.mount(conversations, agent.get),
                ],
                exception_handlers=HANDLERS,
            )
            guarded = Guard(app, max_body_bytes=self.chat.max_body_bytes)
            await stack.enter_async_context(serve(guarded, listener))
            # The server waits for its streams, and these end with their turns.
            stack.callback(self._cancel_turns)
            url = f"http://{_HOST}:{listener.getsockname()[1]}"
            stack.enter_context(_announced(directory, url, device=self.enrolment().device))
            if (directory / FILE_NAME).exists():
                # The outbox may hold what was said before an abrupt end.
                agent.start()
            # The skills and the chat of this device go on without it.
            supervise(tasks, speech.run, name="speech")
            yield url

    def _speech(self, agent: "Callable[[], Awaitable[Agent]]") -> Speech:
        def may_confirm() -> bool:
            return self.settings.voice.confirm and self.enrolment().profile.may_confirm

        def names() -> "Names":
            from voice.engines.wake_word import word_of
            from voice.satellite.satellite import Names

            enrolment, settings = self.enrolment(), self.settings
            profile, words = enrolment.profile, tuple(map(word_of, settings.voice.wake_words))
            return Names(enrolment.device, profile.name, profile.area or "", words, own_version())

        return Speech(
            self.settings.voice,
            agent=agent,
            may_confirm=may_confirm,
            reaches_hub=self._reaches_hub,
            language=self.settings.household.language,
            directory=self.settings.directory,
            changed=self.voice_changed,
            may_answer=self.may_answer,
            names=names,
        )

    @asynccontextmanager
    async def _open_agent(self) -> AsyncIterator["Agent"]:
        from spoke.chat.agent import Agent
        from spoke.chat.hub_health import HubHealth
        from spoke.chat.hub_turn import HubTurns
        from spoke.chat.own_skills import OwnSkills
        from spoke.chat.record import open_record
        from spoke.chat.sync import Sync

        enrolment = self.enrolment()
        owner = enrolment.claims(enrolment.token).own
        async with AsyncExitStack() as stack:
            record = await stack.enter_async_context(
                open_record(
                    self.settings.directory,
                    home=f"{enrolment.hub_id}/{owner}",
                    clock=self.clock.now,
                    recorded=lambda: sync.wake(),
                )
            )
            skills = OwnSkills(
                self.host.registrations,
                device=enrolment.device,
                profile=lambda: self.enrolment().profile,
            )
            stack.callback(skills.close)
            tasks = await stack.enter_async_context(open_tasks())
            health = HubHealth(self.enrolment, key=self.key, settings=self.chat, tasks=tasks)
            stack.callback(health.close)
            sync = Sync(record, health)
            tasks.create_task(sync.run(), name="sync")
            language = self.settings.household.language
            tasks.create_task(skills.finder.warm(language), name="load sentences")
            yield Agent(
                lambda: self.settings,
                chat=self.chat,
                skills=skills,
                host=self.host,
                owner=owner,
                epoch=self.epoch,
                hub=HubTurns(health, settings=self.chat, push=sync.push),
                record=record,
                sync=sync,
                tasks=tasks,
            )

    async def _health(self, _: Request) -> Response:
        connected = self.connected()
        return JSONResponse(
            {
                "status": "ok" if connected else "degraded",
                "version": own_version(),
                "device": self.enrolment().device,
                "broker": {"connected": connected},
            }
        )

    def _summary(self) -> SpokeSummary:
        enrolment, connected = self.enrolment(), self.connected()
        return SpokeSummary(
            device=enrolment.device,
            name=enrolment.profile.name,
            version=own_version(),
            connected=connected,
            hub_online=self._is_hub_there(),
            hub_url=enrolment.hub_url,
        )

    def _is_hub_there(self) -> bool:
        return self.connected() and self.hub_online()

    async def _reaches_hub(self) -> bool:
        """Return whether messages reach the hub, for display: asking for that changes no message's way.

        The hub is asked, now and then, where the bus does not say that it is there.
        """
        health = self._opened.hub.health if self._opened is not None else None
        if health is None or (self._is_hub_there() and not health.is_silent):
            return self._is_hub_there()
        return not health.is_silent and await health.is_alive(known_s=limits.SHOWN_STATE_S)

    def _cancel_turns(self) -> None:
        if (agent := self._opened) is not None:
            agent.cancel_all()


@dataclass(frozen=True)
class _OwnerDoor:
    """Admits the owner to every operation."""

    authenticate: Callable[[Request], Awaitable[None]]

    async def admit(self, request: Request, needs: Needs, what: str) -> None:
        await self.authenticate(request)

    def recording(self, what: str, asking: None) -> AbstractContextManager[None]:
        return nullcontext()


@contextmanager
def _announced(directory: Path, url: str, *, device: str) -> Iterator[None]:
    """Keep the address of this spoke in ``run.json`` for as long as the block lasts."""
    file = directory / _RUN_FILE
    write_private(file, json.dumps({"url": url, "pid": os.getpid(), "device": device}).encode())
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _make_token(directory: Path) -> str:
    """Make the token of this start: a process that takes over the port of an earlier one has none."""
    token = secrets.token_urlsafe(32)
    write_private(directory / _TOKEN_FILE, token.encode())
    return token
