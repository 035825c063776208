"""Speech in a spoke: what a person says goes the way of every message of this device."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chat.http.requests import answer, read
from chat.tasks import happens
from contracts.chat.messages import ChatRequest, ConfirmationWanted, TurnError, TurnEvent
from contracts.chat.vocabulary import MAX_NAMES, MAX_SENTENCES, Vocabulary
from contracts.devices.presence import VoiceState, VoiceSummary
from contracts.errors import HubUnreachable, NotFound, StrawberryError
from contracts.rates import Backoff
from contracts.wire import Strict
from identity.files import write_private
from identity.ids import uuid7
from spoke import limits
from voice.settings import VoiceSettings

if TYPE_CHECKING:
    from spoke.chat.agent import Agent
    from voice.pipeline import MayAnswer
    from voice.satellite.satellite import Names
    from voice.service import VoiceService

_log = logging.getLogger(__name__)

VOCABULARY: Final = "vocabulary.json"
"""In the directory of a spoke: what could be said when the hub was asked last."""
MUTED: Final = "voice.muted"
"""There as long as the microphone is to stay closed."""
_NO_HUB: Final = "the hub cannot be reached"


class SpokenChat:
    """The chat of this device, as one person at it speaks; see `voice.pipeline.Chat`.

    Args:
        agent: Opens the agent of this spoke.
        may_confirm: Whether the owner lets a voice at this device confirm calls.
    """

    def __init__(self, agent: "Callable[[], Awaitable[Agent]]", *, may_confirm: Callable[[], bool]) -> None:
        self._agent = agent
        self._may_confirm = may_confirm
        self._conversation = ""
        self._spoken_at = 0.0

    async def ask(self, message: str) -> AsyncGenerator[TurnEvent, None]:
        """See `voice.pipeline.Chat`."""
        if not self._conversation or time.monotonic() - self._spoken_at > limits.CONVERSATION_PAUSE_S:
            self._conversation = uuid7()
        self._spoken_at = time.monotonic()
        request = ChatRequest(
            message=message, conversation=self._conversation, can_confirm=self._may_confirm()
        )
        turn = await (await self._agent()).ask(request, None)
        async with aclosing(turn.events()) as events:
            async for event in events:
                if isinstance(event, TurnError) and event.code == "no_model" and turn.is_without_hub:
                    raise HubUnreachable(_NO_HUB, hint=event.hint)
                yield event
        self._spoken_at = time.monotonic()

    async def answer(self, wanted: ConfirmationWanted, *, approve: bool) -> None:
        await (await self._agent()).confirm(wanted.turn, wanted.id, None, approve=approve)


@dataclass(eq=False)
class Speech:
    """The voice of one spoke, or what there is in its place where it is off.

    Attributes:
        agent: Opens the agent of this spoke.
        may_confirm: See `SpokenChat`.
        reaches_hub: Whether messages of this device reach the hub.
        language: Of the household.
        directory: Where the spoke keeps its own files.
        changed: Called when the state has changed.
        may_answer: Decides between the devices that heard a wake word; see `voice.pipeline.Pipeline`.
        names: What this device is called as a satellite.
    """

    settings: VoiceSettings
    _: KW_ONLY
    agent: "Callable[[], Awaitable[Agent]]"
    may_confirm: Callable[[], bool]
    reaches_hub: Callable[[], Awaitable[bool]]
    language: str
    directory: Path
    changed: Callable[[], None]
    may_answer: "MayAnswer | None" = None
    names: "Callable[[], Names] | None" = None

    def __post_init__(self) -> None:
        self.language = self.settings.language or self.language
        self._file = self.directory / VOCABULARY
        self._new_words = asyncio.Event()
        self._service: VoiceService | None = None
        if self.settings.enabled:
            from voice import service

            self._service = service.VoiceService(
                self.settings,
                chat=SpokenChat(self.agent, may_confirm=self.may_confirm),
                vocabularies=self.vocabularies,
                language=self.language,
                muted_file=self.directory / MUTED,
                changed=self.changed,
                may_answer=self.may_answer,
                names=self.names,
            )

    @property
    def state(self) -> VoiceState | None:
        return self._service.state if self._service is not None else None

    async def run(self) -> None:
        """Listen until cancelled."""
        if self._service is not None:
            await self._service.run()

    def learn(self) -> None:
        # The hub announced that its vocabulary has changed.
        self._new_words.set()

    async def vocabularies(self) -> AsyncGenerator[Vocabulary, None]:
        """Yield what can be said here whenever that changes.

        As the hub knows it; while it cannot be asked, as it did last, else of this device alone.
        """
        backoff = Backoff(*limits.WORDS_RETRY_S)
        while True:
            self._new_words.clear()
            wait_s = agent = vocabulary = None
            try:
                agent = await self.agent()
                vocabulary = await agent.vocabulary(self.language)
            except StrawberryError as error:
                _log.info("the hub does not say what can be said: %s", error)
                wait_s = backoff.next()
                try:
                    vocabulary = Vocabulary.model_validate_json(self._file.read_bytes())
                except (OSError, ValidationError):
                    vocabulary = None if agent is None else Vocabulary(language=self.language)
            else:
                backoff.reset()
                with suppress(OSError):  # a full disk costs the copy, not the voice
                    write_private(self._file, vocabulary.model_dump_json().encode())
            if vocabulary is not None:
                # The hub leaves out of a device's sentences what its owner has not approved.
                own = None if agent is None else await agent.own_vocabulary(self.language)
                yield vocabulary if own is None else _with(vocabulary, own)
            await happens(self._new_words, within_s=wait_s)

    def routes(self, authenticate: Callable[[Request], Awaitable[None]]) -> list[Route]:
        """Return the routes, for the owner of this machine."""

        async def show(request: Request) -> Response:
            await authenticate(request)
            reaches_hub = self._service is None or await self.reaches_hub()
            return self._answer("" if reaches_hub else _NO_HUB)

        async def mute(request: Request) -> Response:
            await authenticate(request)
            body = await read(request, _Mute)
            self._running().mute(muted=body.muted)
            return self._answer()

        async def listen(request: Request) -> Response:
            await authenticate(request)
            self._running().listen()
            return self._answer()

        return [
            Route("/api/voice", show),
            Route("/api/voice/mute", mute, methods=["POST"]),
            Route("/api/voice/listen", listen, methods=["POST"]),
        ]

    def _answer(self, missing: str = "") -> Response:
        shown = VoiceSummary() if self._service is None else self._service.summary()
        if self._service is not None and missing:
            shown = shown.model_copy(update={"reason": "; ".join(filter(None, (shown.reason, missing)))})
        return answer(shown)

    def _running(self) -> "VoiceService":
        if self._service is None:
            raise NotFound("this device has no voice", hint="Set enabled = true in [voice].")
        return self._service


def _with(home: Vocabulary, own: Vocabulary) -> Vocabulary:
    """Return what can be said in the home, with a device's own sentences in place of what the hub knows."""
    texts = {sentence.text for sentence in own.sentences}
    others = (sentence for sentence in home.sentences if sentence.text not in texts)
    names = tuple(dict.fromkeys((*own.names, *home.names)))[:MAX_NAMES]
    return home.model_copy(update={"sentences": (*own.sentences, *others)[:MAX_SENTENCES], "names": names})


class _Mute(Strict):
    muted: bool
