"""From the wake word to the spoken answer, and back to the wake word.

One task hears: each frame of the microphone goes to the wake word, or to what is being said. Another one
answers: speech to text, the chat, and the answer sentence by sentence while it still comes. A wake word while
an answer is spoken cuts it, and the turn with it, short.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass, field
from itertools import permutations
from typing import Final, Literal, Protocol, Self, TypeVar

from chat.tasks import open_tasks
from contracts.chat.messages import ConfirmationWanted, TextDelta, TurnError, TurnEvent, TurnFinal
from contracts.errors import SoundError, SpeechError, StrawberryError
from voice import limits
from voice.engines import Grammar, SpeechToText, TextToSpeech, Transcript
from voice.opening import Engines
from voice.settings import VoiceSettings
from voice.sound.audio import FRAME_S, LOUDNESS_FRAMES, Loudspeaker, Microphone, Sound, level
from voice.speaking import (
    Sentences,
    Tone,
    answers,
    error_phrase,
    is_yes,
    number_question,
    phrase,
    question,
    refusals,
    tone,
)
from voice.vad import Detector, Endpointer, Pauses, Phase, Utterance, load_vad

T = TypeVar("T")

_log = logging.getLogger(__name__)

Activity = Literal["listening", "hearing", "thinking", "talking"]

MayAnswer = Callable[[str, float], Awaitable[bool]]
"""Says whether this device answers to a wake word, which it heard this loud (`voice.sound.audio.level`)."""

_OF_WAKE_WORD: Final = round(0.5 / FRAME_S)
"""Frames before a wake word is found that a grammar gets: a command said at once begins before that. With a
second of them, more sentences were taken for another."""


class Chat(Protocol):
    """Answers what was said."""

    def ask(self, message: str) -> AsyncGenerator[TurnEvent, None]:
        """Start a turn and yield its events to the last one; closing it cancels the turn.

        Raises:
            StrawberryError: If nothing can answer.
        """

    async def answer(self, wanted: ConfirmationWanted, *, approve: bool) -> None:
        """Answer a question of the turn.

        Raises:
            StrawberryError: If it cannot be answered any more.
        """


class Observer(Protocol):
    """Follows what a pipeline does."""

    def activity(self, activity: Activity) -> None:
        """Report a changed activity."""

    def understood(self, transcript: Transcript, engine: str) -> None:
        """Report what was said."""

    def problem(self, engine: str, problem: str) -> None:
        """Report why an engine failed; empty where it works again."""


@dataclass(eq=False, kw_only=True)
class Pipeline:
    """Listens and speaks until its microphone ends, or a sound card goes.

    Attributes:
        language: That is spoken.
        may_answer: Asked after each wake word.
    """

    microphone: Microphone
    loudspeaker: Loudspeaker
    engines: Engines
    chat: Chat
    settings: VoiceSettings
    language: str
    observer: Observer
    may_answer: MayAnswer | None = None

    def __post_init__(self) -> None:
        self._pauses = Pauses(silence_s=self.settings.silence_s)
        self._begun: asyncio.Queue[Utterance] = asyncio.Queue()
        self._now: Utterance | None = None
        self._levels: deque[float] = deque(maxlen=LOUDNESS_FRAMES)
        self._recent: deque[bytes] = deque(maxlen=_OF_WAKE_WORD)
        self._activity: Activity | None = None
        self._over_speech: Endpointer | None = None
        self._is_over = False
        self._is_asked = False
        self._vad: Detector | None = None
        self._idle = asyncio.Event()

    async def run(self) -> None:
        """Run until the microphone ends, and what was said then is answered.

        Raises:
            SoundError: If the microphone or the loudspeaker cannot be opened, or goes.
            SpeechError: If speech cannot be detected, as its package is not installed.
        """
        self._vad = load_vad()
        if self._is_asked:
            self._begin("")
        async with self.microphone, self.loudspeaker, open_tasks() as tasks:
            self._tasks = tasks
            serving = tasks.create_task(self._serve(), name="voice answers")
            await tasks.create_task(self._hear(), name="voice hears")
            self._is_over = True
            if self._now is not None:
                await self._now.close()
            await self._idle.wait()
            serving.cancel()

    def listen(self) -> None:
        """Listen now, or as soon as it runs, without a wake word; what is being said is cut short."""
        if self._vad is None:
            self._is_asked = True
        else:
            self._begin("")

    async def _hear(self) -> None:
        async for frame in self.microphone:
            self._levels.append(level(frame))
            self._recent.append(frame)
            now = self._now
            if now is not None and not now.ended:
                await now.put(frame)
            elif not self._is_barge_in_off():
                word = self.engines.wake.heard(frame) if self.engines.wake is not None else None
                if word is not None or self._speaks_over(frame):
                    self._begin(word or "")

    def _is_barge_in_off(self) -> bool:
        return self.settings.barge_in == "off" and self._activity in ("thinking", "talking")

    def _speaks_over(self, frame: bytes) -> bool:
        """Return whether a person speaks while an answer is spoken, where that interrupts it."""
        if self.settings.barge_in != "speech" or self._activity != "talking":
            self._over_speech = None
            return False
        if self._over_speech is None:
            assert self._vad is not None
            self._over_speech = Endpointer(self._vad, Pauses(wait_s=float("inf")))
        return self._over_speech.heard(frame) is Phase.SPEECH

    def _begin(self, word: str) -> None:
        """Begin a new utterance."""
        if self.engines.wake is not None:
            self.engines.wake.reset()
        self._idle.clear()
        self._now = self._listen(word)
        self._begun.put_nowait(self._now)

    def _listen(self, word: str = "", *, follows: int = 0) -> Utterance:
        loudness = max(self._levels, default=-96.0)
        assert self._vad is not None
        self._vad.reset()
        endpointer = Endpointer(self._vad, self._pauses)
        overlap = tuple(self._recent) if word else ()
        utterance = Utterance(endpointer, wake_word=word, loudness=loudness, overlap=overlap, follows=follows)
        utterance.ended = self._is_over
        return utterance

    async def _serve(self) -> None:
        while True:
            if not self._begun.qsize():
                self._tell("listening")
                self._idle.set()
            utterance: Utterance | None = await self._begun.get()
            while utterance is not None:
                utterance = await self._converse(utterance)

    async def _converse(self, utterance: Utterance) -> Utterance | None:
        """Answer an utterance; return the one that interrupted it or that the answer asks for."""
        word = utterance.wake_word
        if word and self.may_answer is not None and not await self.may_answer(word, utterance.loudness):
            _log.debug("another device answers to %s", word)
            await utterance.close()
            return None
        self._tell("hearing")
        working = self._tasks.create_task(self._answered(utterance), name="voice turn")
        interrupting = self._tasks.create_task(self._begun.get(), name="voice barge-in")
        try:
            await asyncio.wait((working, interrupting), return_when=asyncio.FIRST_COMPLETED)
            if interrupting.done():
                await utterance.close()
                return interrupting.result()
            return working.result()
        finally:
            working.cancel()
            interrupting.cancel()
            # Speech has stopped, and the turn is cancelled, before anything else begins.
            await asyncio.wait((working, interrupting))

    async def _answered(self, utterance: Utterance) -> Utterance | None:
        if not await self._heard_speech(utterance):
            await self._chime("nothing")
            return None
        transcript = await self._understood(utterance, self.engines.speech_to_text)
        if transcript is None:
            return None
        text = await self._meant(transcript) if transcript.instead else transcript.text
        if text is None:
            await self._say(phrase("not understood", self.language))
            return None
        self._tell("thinking")
        await self._chime("understood")
        return await self._answer(text, follows=utterance.follows)

    async def _heard_speech(self, utterance: Utterance) -> bool:
        await self._chime("awake")
        return await utterance.began()

    async def _understood(
        self, utterance: Utterance, engines: Mapping[str, SpeechToText]
    ) -> Transcript | None:
        """Return what was said; None where no engine understood it, which is reported by voice."""
        failure: SpeechError | None = None
        for name, engine in engines.items():
            try:
                frames = utterance.frames(with_overlap=isinstance(engine, Grammar))
                transcript = await engine.transcribe(frames, language=self.language)
            except SoundError:
                raise
            except SpeechError as error:
                failure = error
                self.observer.problem(name, error.message)
                continue
            self.observer.problem(name, "")
            self.observer.understood(transcript, name)
            if transcript.text.strip() and transcript.certain:
                return transcript
        await self._say(
            phrase("not understood", self.language)
            if failure is None
            else error_phrase(failure, self.language)
        )
        return None

    async def _answer(self, text: str, *, follows: int) -> Utterance | None:
        """Ask, and speak the answer as it comes; return what follows it, where it is a question."""
        sentences, last = Sentences(), ""
        async with self._speech() as speech:
            try:
                async with aclosing(self.chat.ask(text)) as events:
                    async for event in events:
                        match event:
                            case TextDelta():
                                for last in sentences.add(event.text):
                                    speech.say(last)
                            case ConfirmationWanted():
                                await speech.finish()
                                await self._confirm(event)
                            case TurnError():
                                for last in sentences.rest():
                                    speech.say(last)
                                speech.say(error_phrase(event, self.language))
                            case TurnFinal() if not speech.has_spoken:
                                # A sentence without a model may answer at once.
                                sentences = Sentences()
                                for last in sentences.add(event.answer):
                                    speech.say(last)
            except StrawberryError as error:
                speech.say(error_phrase(error, self.language))
            for last in sentences.rest():
                speech.say(last)
            await speech.finish()
        if not last.endswith("?") or follows == limits.MOST_FOLLOWING:
            return None
        self._now = self._listen(follows=follows + 1)
        return self._now

    async def _confirm(self, wanted: ConfirmationWanted) -> None:
        """Ask whether a call may be made; silence and anything unclear is a no."""
        approve = await self._agreed(question(wanted, self.language))
        if approve is None:
            await self._say(phrase("not answered", self.language))
        self._tell("thinking")
        with suppress(StrawberryError):
            # It may be too late by now, or answered elsewhere.
            await self.chat.answer(wanted, approve=bool(approve))

    async def _meant(self, transcript: Transcript) -> str | None:
        """Ask which of two numbers that sound alike was said; None where it was neither."""
        for text, other in permutations((transcript.text, transcript.instead)):
            if is_agreed := await self._agreed(number_question(text, other, self.language)):
                return text
            if is_agreed is None:
                return None
        return None

    async def _agreed(self, asked: str) -> bool | None:
        """Ask for a yes or a no; None where neither was understood."""
        for _ in range(limits.QUESTION_TRIES):
            await self._say(asked)
            self._now = utterance = self._listen()
            self._tell("hearing")
            if not await self._heard_speech(utterance):
                continue
            transcript = await self._understood(utterance, self._answers())
            is_agreed = is_yes(transcript.text, self.language) if transcript is not None else None
            if is_agreed is not None:
                return is_agreed
        return None

    def _answers(self) -> dict[str, SpeechToText]:
        """Return the engines, those with a grammar for nothing but yes and no.

        What is found in the network is left out: the first to answer there could say yes.
        """
        texts, safe = answers(self.language), refusals(self.language)
        return {
            name: engine.of(texts, safe=safe) if isinstance(engine, Grammar) else engine
            for name, engine in self.engines.speech_to_text.items()
            if name != "wyoming"
        }

    async def _say(self, text: str) -> None:
        async with self._speech() as speech:
            speech.say(text)
            await speech.finish()

    async def _chime(self, kind: Tone) -> None:
        if self.settings.tones:
            await self.loudspeaker.play(_one(tone(kind)))

    def _speech(self) -> "_Speech":
        return _Speech(
            self.engines.text_to_speech,
            self.loudspeaker,
            language=self.language,
            tasks=self._tasks,
            observer=self.observer,
            talks=lambda: self._tell("talking"),
        )

    def _tell(self, activity: Activity) -> None:
        if activity != self._activity:
            self._activity = activity
            self.observer.activity(activity)


@dataclass(eq=False)
class _Speech:
    """Speaks sentences as they are added, each while the next one is still being written."""

    engines: Mapping[str, TextToSpeech]
    loudspeaker: Loudspeaker
    _: KW_ONLY
    language: str
    tasks: asyncio.TaskGroup
    observer: Observer
    talks: Callable[[], None]
    _sentences: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue, init=False)
    _playing: asyncio.Task[None] | None = field(default=None, init=False)
    has_spoken: bool = field(default=False, init=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._playing is not None:
            self._playing.cancel()
            await asyncio.wait((self._playing,))

    def say(self, sentence: str) -> None:
        """Speak a sentence after those before it."""
        self.has_spoken = True
        self._sentences.put_nowait(sentence)
        if self._playing is None:
            self._playing = self.tasks.create_task(self._play(), name="voice speaks")

    async def finish(self) -> None:
        """Wait until all of it was heard."""
        if self._playing is not None:
            self._sentences.put_nowait(None)
            await self._playing
            self._playing = None

    async def _play(self) -> None:
        # Closed at once where it is cut short: the engine holds a process, or a connection.
        async with aclosing(self._sounds()) as sounds:
            await self.loudspeaker.play(sounds)

    async def _sounds(self) -> AsyncGenerator[Sound, None]:
        while (sentence := await self._sentences.get()) is not None:
            async with aclosing(self._spoken(sentence)) as sounds:
                async for sound in sounds:
                    self.talks()
                    yield sound

    async def _spoken(self, sentence: str) -> AsyncGenerator[Sound, None]:
        """Yield a sentence as the first engine that works speaks it."""
        for name, engine in self.engines.items():
            has_begun = False
            try:
                async with aclosing(engine.say(sentence, language=self.language)) as sounds:
                    while (sound := await _within(limits.ENGINE_S, anext(sounds, None))) is not None:
                        has_begun = True
                        yield sound
            except SpeechError as error:
                self.observer.problem(name, error.message)
                if has_begun:
                    return
            else:
                self.observer.problem(name, "")
                return


async def _within(seconds: float, made: Awaitable[T]) -> T:
    """Return what an engine makes; one that hangs must not make the device deaf."""
    try:
        async with asyncio.timeout(seconds):
            return await made
    except TimeoutError:
        raise SpeechError(
            "the engine does not answer", hint="Restart it, or set another one in [voice]."
        ) from None


async def _one(sound: Sound) -> AsyncIterator[Sound]:
    yield sound
