"""The assistant as a Wyoming handle service: Home Assistant's pipelines give it a text and speak the answer.

Wyoming has no login. Any client that can connect acts as the one user of the settings, and confirms
calls only where the settings allow it, by the next message of a conversation that it names.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from wyoming.asr import Transcript
from wyoming.event import Event
from wyoming.handle import Handled, NotHandled
from wyoming.info import Attribution, Describe, HandleModel, HandleProgram, Info
from wyoming.ping import Ping, Pong

from chat.tasks import open_tasks
from contracts import own_version
from contracts.chat.messages import MAX_MESSAGE, ChatRequest, TurnFinal
from contracts.errors import NotFound, StrawberryError
from contracts.phrases import for_people
from hub_agent.chat.assistant import Ask
from hub_agent.settings import WyomingSettings
from hub_registry.access.bearer import Bearer
from hub_registry.registry import Registry
from voice.serving import open_server
from voice.speaking import phrase
from voice.wyoming.connection import WyomingConnection, read_as, text_of

_log = logging.getLogger(__name__)

_NAME: Final = "wyoming.handle"
"""What its turns and audit entries stand under; no login of the broker can have a dot."""


@asynccontextmanager
async def open_handle_service(
    settings: WyomingSettings, registry: Registry, ask: Ask, *, language: str
) -> AsyncIterator[int]:
    """Handle texts for as long as the context is open; it yields its port.

    Args:
        language: Of the household.

    Raises:
        ConfigError: If the port is taken, or others than those allowed could use it.
    """
    service = _HandleService(settings, registry, ask, language=language)
    async with open_server(
        service.serve, host=settings.host, port=settings.port, allow=settings.allow, protocol="Wyoming"
    ) as port:
        _log.info("Wyoming handle service on %s:%d, as %s", settings.host, port, settings.user)
        yield port


class _HandleService:
    def __init__(self, settings: WyomingSettings, registry: Registry, ask: Ask, *, language: str) -> None:
        self._settings = settings
        self._registry = registry
        self._ask = ask
        self._language = language

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection; what it asked for ends with it."""
        connection = WyomingConnection(reader, writer)
        async with open_tasks() as tasks:
            last: asyncio.Task[None] | None = None
            while (event := await connection.read()) is not None:
                if Describe.is_type(event.type):
                    search = self._registry.search
                    await search.catch_up()
                    languages = {self._language, *search.languages}
                    await connection.send(_info(sorted(languages)))
                elif Ping.is_type(event.type):
                    await connection.send(Pong())
                elif Transcript.is_type(event.type):
                    if last is not None:
                        await last  # one answer after the other
                    last = tasks.create_task(self._handle(event, connection), name="Wyoming handle")

    async def _handle(self, event: Event, connection: WyomingConnection) -> None:
        try:
            answer = await self._answered(event, connection.peer)
        except StrawberryError as error:
            _log.info("a text from %s was not handled: %s", connection.peer, error)
            answer = NotHandled(_said(error.message, error.hint))
        await connection.send(answer)

    async def _answered(self, event: Event, peer: str) -> Handled | NotHandled:
        heard = read_as(Transcript, event)
        if not (message := text_of(heard.text, most=MAX_MESSAGE)):
            return NotHandled(phrase("not understood", self._language))
        context = heard.context if isinstance(heard.context, dict) else {}
        request = ChatRequest(
            message=message, conversation=_conversation(peer, context.get("conversation_id"))
        )
        turn = await self._ask(request, await self._bearer())
        last = await turn.last()
        return (
            Handled(last.answer)
            if isinstance(last, TurnFinal)
            else NotHandled(_said(last.message, last.hint))
        )

    async def _bearer(self) -> Bearer:
        """Return the user of the settings with the right to chat, and to say yes where that is allowed.

        Raises:
            NotFound: If there is no such user.
        """
        try:
            user = await self._registry.accounts.find(self._settings.user)
        except NotFound:
            raise NotFound(
                f"[wyoming] user: there is no user {self._settings.user!r}",
                hint="Name one of 'strawberry users list'.",
            ) from None
        return Bearer.inside(self._registry.hub_id, _NAME, user, says_yes=self._settings.say_yes)


def _conversation(peer: str, given: object) -> str | None:
    """Return our name of the client's conversation: any text may be its name."""
    if not isinstance(given, str) or not given:
        return None
    return hashlib.sha256(f"{peer} {given}".encode(errors="replace")).hexdigest()[:32]


def _said(message: str, hint: str) -> str:
    return " ".join(filter(None, (f"{message.rstrip('.')}.", for_people(hint))))


def _info(tags: list[str]) -> Info:
    about, version = Attribution("Strawberry", ""), own_version()
    # Home Assistant greys out a service without the language of the pipeline.
    model = HandleModel("assistant", about, installed=True, description=None, version=version, languages=tags)
    program = HandleProgram(
        "strawberry",
        about,
        installed=True,
        description="The assistant of this home",
        version=version,
        models=[model],
        supports_home_control=True,
    )
    return Info(handle=[program])
