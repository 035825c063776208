"""Speech that is kept running: what is missing is reported and retried; muted on request."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from chat.tasks import happens, open_tasks
from contracts.chat.vocabulary import Vocabulary
from contracts.devices.presence import VoiceState, VoiceSummary
from contracts.errors import ConfigError, Conflict, StrawberryError
from contracts.rates import Backoff
from identity.files import write_private
from voice import limits
from voice.engines import Grammar, Transcript
from voice.opening import Engines, open_engines, open_loudspeaker, open_microphone
from voice.pipeline import Activity, Chat, MayAnswer, Pipeline
from voice.satellite.satellite import Names, Satellite, listen
from voice.serving import open_server
from voice.settings import SatelliteSettings, VoiceSettings

_log = logging.getLogger(__name__)

_PORTS: Final = {"wyoming": 10_700, "esphome": 6_053}
"""Those that Home Assistant expects."""


@dataclass(eq=False)
class VoiceService:
    """Speech of one device.

    Attributes:
        chat: Answers speech.
        vocabularies: Yields what can be said whenever that changes.
        language: Of the household.
        muted_file: There as long as it is muted, so that it stays so over a restart.
        changed: Called when the state has changed.
        may_answer: See `Pipeline`.
        names: What this device is called as a satellite.
        state: What it does now.
        reason: What is missing; also where it works without that.
        satellite_port: Where a server connects; None before it is a satellite.
    """

    settings: VoiceSettings
    _: KW_ONLY
    chat: Chat
    vocabularies: Callable[[], AsyncGenerator[Vocabulary, None]]
    language: str
    muted_file: Path
    changed: Callable[[], None]
    may_answer: MayAnswer | None = None
    names: Callable[[], Names] | None = None

    def __post_init__(self) -> None:
        self.muted = self.muted_file.exists()
        self._problems: dict[str, str] = {}
        self._pipeline: Pipeline | None = None
        self._engines: Engines | None = None  # kept over retries: models are large
        self._switched = asyncio.Event()
        self._backoff = Backoff(*limits.SERVICE_RETRY_S)
        self.state: VoiceState = "off"
        self.satellite_port: int | None = None

    @property
    def reason(self) -> str:
        return "; ".join(filter(None, self._problems.values()))

    def summary(self) -> VoiceSummary:
        """Return what the local HTTP shows."""
        return VoiceSummary(
            state=self.state,
            reason=self.reason,
            muted=self.muted,
            wake_words=self.settings.wake_words,
            microphone=self.settings.microphone,
            loudspeaker=self.settings.loudspeaker,
        )

    def mute(self, *, muted: bool) -> None:
        """Close the microphone, or open it again."""
        self.muted = muted
        self._switched.set()
        try:
            if muted:
                write_private(self.muted_file, b"")
            else:
                self.muted_file.unlink(missing_ok=True)
        except OSError as error:
            # The microphone is closed on a full disk too.
            _log.warning("%s holds only until a restart: %s", "mute" if muted else "unmute", error)

    def listen(self) -> None:
        """Listen now, without a wake word.

        Raises:
            Conflict: If it is muted, or broken.
        """
        if self._pipeline is None:
            hint = "'strawberry voice unmute' lets it." if self.muted else "It is tried again by itself."
            why = "it is muted" if self.muted else self.reason or self.state
            raise Conflict(f"this device does not listen: {why}", hint=hint)
        self._pipeline.listen()

    def activity(self, activity: Activity) -> None:
        """See `voice.pipeline.Observer`; the sound card works again."""
        self._backoff.reset()
        self.problem("sound", "")
        self._tell(activity)

    def understood(self, transcript: Transcript, engine: str) -> None:
        """See `voice.pipeline.Observer`."""

    def problem(self, engine: str, problem: str) -> None:
        """See `voice.pipeline.Observer`."""
        if problem and self._problems.get(engine, "") != problem:
            _log.warning("%s: %s", engine, problem)
        if self._problems.get(engine, "") != problem:
            self._problems[engine] = problem
            self.changed()

    async def run(self) -> None:
        """Listen until cancelled; a sound card that comes back is used again."""
        while True:
            self._switched.clear()
            if self.muted:
                self._tell("muted")
                await self._switched.wait()
                continue
            try:
                await self._until_switched()
                continue
            except StrawberryError as error:
                reason = " ".join(filter(None, (f"{error.message}.", error.hint)))
            except Exception:  # noqa: BLE001  a fault of ours is reported, too
                _log.exception("speech failed")
                reason = "Speech failed; the log says why. It is tried again."
            self.problem("sound", reason)
            self._tell("broken")
            await happens(self._switched, within_s=self._backoff.next())

    async def _until_switched(self) -> None:
        """Run the pipeline until it is to be muted, or its microphone ends."""
        satellite = self.settings.satellite if self.names is not None else None
        settings = self.settings
        if satellite is not None:
            settings = settings.model_copy(update={"speech_to_text": (), "text_to_speech": ()})
        if self._engines is None:
            self._engines = await asyncio.to_thread(open_engines, settings)
        engines = self._engines
        if engines.wake is not None:
            engines.wake.reset()
        if self._switched.is_set():
            return  # while they were loaded
        if satellite is not None and self.names is not None:
            await self._be_satellite(satellite, self.names(), engines)
            return
        pipeline = Pipeline(
            microphone=open_microphone(self.settings.microphone),
            loudspeaker=open_loudspeaker(self.settings.loudspeaker),
            engines=engines,
            chat=self.chat,
            settings=self.settings,
            language=self.settings.language or self.language,
            observer=self,
            may_answer=self.may_answer,
        )
        self._pipeline = pipeline
        try:
            async with open_tasks() as tasks:
                tasks.create_task(self._keep_learning(engines), name="vocabulary")
                running = tasks.create_task(pipeline.run(), name="voice pipeline")
                switched = tasks.create_task(self._switched.wait(), name="voice switch")
                await asyncio.wait((running, switched), return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    # A file that has been heard; anything else raises.
                    await self._switched.wait()
        finally:
            self._pipeline = None

    async def _be_satellite(self, settings: SatelliteSettings, names: Names, engines: Engines) -> None:
        """Lend microphone and loudspeaker to a server until it is to be muted."""
        if engines.wake is None:
            raise ConfigError("a satellite needs a wake word", hint="Set wake_words in [voice].")

        def changed(is_run: bool) -> None:
            self.problem("sound", "")
            self.problem("satellite", "" if is_run else "no Home Assistant runs this satellite")
            self._tell("listening" if is_run else "broken")

        loudspeaker = open_loudspeaker(self.settings.loudspeaker)
        device = Satellite(
            wake=engines.wake, loudspeaker=loudspeaker, may_answer=self.may_answer, changed=changed
        )
        async with loudspeaker, open_satellite(settings, device, names) as port, open_tasks() as tasks:
            self.satellite_port = port
            changed(False)
            microphone = partial(open_microphone, self.settings.microphone)
            tasks.create_task(listen(device, microphone), name="satellite microphone")
            await self._switched.wait()

    async def _keep_learning(self, engines: Engines) -> None:
        """Keep the grammar as the home's sentences and names are."""
        grammars = [each for each in engines.speech_to_text.values() if isinstance(each, Grammar)]
        if grammars:
            async with aclosing(self.vocabularies()) as vocabularies:
                async for vocabulary in vocabularies:
                    try:
                        for grammar in grammars:
                            await grammar.learn(vocabulary)
                    except StrawberryError as error:
                        # Other engines still understand speech.
                        self.problem("vocabulary", str(error))
                    else:
                        self.problem("vocabulary", "")

    def _tell(self, state: VoiceState) -> None:
        if state != self.state:
            self.state = state
            self.changed()


@asynccontextmanager
async def open_satellite(settings: SatelliteSettings, device: Satellite, names: Names) -> AsyncIterator[int]:
    """Serve for as long as the context is open; it yields its port.

    Raises:
        ConfigError: If it cannot listen there, or others than those allowed could use it.
        SpeechError: If a package is not installed.
    """
    if settings.protocol == "wyoming":
        from voice.satellite.wyoming import wyoming_satellite

        serve, protocol = wyoming_satellite(device, names), "Wyoming"
    else:
        from voice.satellite.esphome import esphome_satellite

        serve, protocol = esphome_satellite(device, names), "ESPHome"
    port = _PORTS[settings.protocol] if settings.port is None else settings.port
    async with open_server(
        serve, host=settings.host, port=port, allow=settings.allow, protocol=protocol
    ) as opened:
        yield opened
