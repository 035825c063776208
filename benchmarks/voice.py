"""Speech: words that are understood, wake words heard and not heard, and how long it takes.

All of it from sound that espeak-ng and flite make, with white noise at three levels.
"""

import asyncio
import re
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from difflib import SequenceMatcher
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Final

from agent_core.texts import catalogue
from benchmarks.measure import Effort
from benchmarks.table import Reach, Row, not_measured
from contracts.chat.messages import ConfirmationWanted, TextDelta, TurnEvent, TurnFinal
from contracts.chat.vocabulary import SpokenSentence, SpokenSlot, Vocabulary
from tests.hub_agent.home import open_home
from tests.hub_agent.test_wake_words import listening
from tests.voice.spoken import HINT, NOISES, VOICES, can_speak, frames_of, noisy, other_speech, spoken
from voice.engines import SpeechToText, Transcript, WakeWord
from voice.engines.speech_to_text.pocketsphinx import PocketSphinx
from voice.engines.text_to_speech.espeak import Espeak
from voice.engines.wake_word.micro_wakeword import MicroWakeWords
from voice.engines.wake_word.open_wakeword import OpenWakeWords
from voice.grammar import with_digits
from voice.opening import Engines
from voice.pipeline import Pipeline
from voice.settings import VoiceSettings
from voice.sound.audio import FRAME_S, RATE, Loudspeaker, Microphone, Sound
from voice.speaking import answers, is_yes, refusals
from voice.vad import Endpointer, Pauses, Phase, load_vad

SENTENCES: Final = (
    "turn on the kitchen light",
    "set the volume to fifty percent",
    "stop the music",
    "play some jazz",
    "open the blinds in the bedroom",
    "what time is it",
    "lock the front door",
    "set the kitchen light to blue",
    "dim the desk lamp to thirty percent",
    "turn off the ceiling fan",
)
OTHERS: Final = (
    "how tall is the eiffel tower",
    "tell me a story about a dragon",
    "where did I leave my keys",
    "the meeting was moved to Thursday",
)
"""Sentences that are meant for nobody."""
ALIKE: Final = (
    "turn on the hoover",
    "play some mozart",
    "stop the engine",
    "add cheese to the shopping list",
)
"""Sentences that begin or end as one of the grammar."""
NEAR_YES: Final = {
    "en": """guess, guest, yet, yeah, yesterday, gas, chess, less, dress, is this, yesterday please, jazz,
        yet please, just a moment, i guess so, let me see, sure, maybe later, what was that, yes, yes please,
        yes but wait, yes but not now, yes do it later, yes do not, guess who did it, he has to do it,
        yes he did""",
    "de": """ja, ja ja, bitte, na ja, jawohl, gerne, ja aber, ach bitte nicht, ja bitte nicht, ja gestern,
        na gerne nicht, jetzt nicht, vielleicht, warte mal, was war das, Japan, ja gern geschehen,
        ja bitte, ja gerne, ja gern, na bitte, ja gleich, ja mach das, ja bitte lass das,
        ja bitte was ist das, ja bitte mach das nicht, bitte mach das nicht, wer macht das, ja sag das""",
}
"""What is no yes, the words that sound most like one among it."""
YES: Final = {"en": "yes do it", "de": "ja bitte mach das"}
NO: Final = {"en": "no, no thanks, stop", "de": "nein, nein danke, abbrechen"}
ANSWERING: Final = {
    "en": VOICES,
    "de": ("espeak:de", "espeak:de+f3", "espeak:de+m3", "espeak:de+m7", "espeak:de+f2"),
}
"""By whom; flite has no German voice."""
_PAGES: Final = [each for each in catalogue("de").items() if "{" not in each[0] and 8 < len(each[0]) < 40]
OTHER_SPEECH: Final = dict(zip(YES, zip(*_PAGES[:40], strict=True), strict=True))
"""Texts of the pages."""
_NUMBER: Final = SpokenSlot(is_number=True)
_NAME: Final = SpokenSlot()
VOCABULARY: Final = Vocabulary(
    language="en",
    names=(
        *(
            "kitchen light",
            "hall lamp",
            "desk lamp",
            "ceiling fan",
            "coffee machine",
            "washing machine",
            "heater",
        ),
        *("front door", "bedroom", "kitchen", "living room", "garden", "garage", "bathroom", "office", "tv"),
    ),
    sentences=(
        SpokenSentence(text="turn (on|off) [the] {name}", slots={"name": _NAME}),
        SpokenSentence(text="set the volume to {level} percent", slots={"level": _NUMBER}),
        SpokenSentence(text="(stop|pause) the music"),
        SpokenSentence(text="play some {kind}", slots={"kind": SpokenSlot(values=("jazz", "rock", "pop"))}),
        SpokenSentence(text="(open|close) the blinds in the {name}", slots={"name": _NAME}),
        SpokenSentence(text="what time is it"),
        SpokenSentence(text="(lock|unlock) [the] {name}", slots={"name": _NAME}),
        SpokenSentence(text="dim [the] {name} to {level} [percent]", slots={"name": _NAME, "level": _NUMBER}),
        SpokenSentence(
            text="set [the] {name} to {color}",
            slots={"name": _NAME, "color": SpokenSlot(values=("red", "green", "blue", "white"))},
        ),
        SpokenSentence(text="set a timer for {minutes} minutes", slots={"minutes": _NUMBER}),
        SpokenSentence(text="how warm is it [in the {name}]", slots={"name": _NAME}),
        SpokenSentence(
            text="(add|put) {item} (to|on) [the|my] shopping list",
            slots={"item": SpokenSlot(values=("milk", "bread", "eggs", "butter"))},
        ),
        SpokenSentence(text="good night"),
        SpokenSentence(text="next (song|track)"),
    ),
)
_HOUR_S: Final = 3_600
_IDLE_S: Final = 10
_WORD: Final = "okay_nabu"


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; what is spoken is kept in ``build/speech``."""
    if not can_speak():
        return [not_measured("speech", HINT)]
    if find_spec("pocketsphinx") is None:
        return [not_measured("speech", "pip install 'strawberry-home[voice]'")]
    voices = VOICES[::4] if effort.quick else VOICES
    await asyncio.to_thread(_speak, voices)
    sphinx = PocketSphinx([_WORD])
    await sphinx.learn(VOCABULARY)
    return [
        *[row for noise in NOISES for row in await _words(sphinx, voices, noise)],
        await _taken(sphinx, voices, "other sentences", OTHERS),
        await _taken(sphinx, voices, "sentences that sound alike", ALIKE),
        *[await _at_once(sphinx, engine, voices) for engine in (MicroWakeWords, OpenWakeWords)],
        *[row for language in YES for row in await _answers(sphinx, language)],
        *_wakes(voices),
        *await asyncio.to_thread(_false_wakes, effort),
        *await _latencies(sphinx, effort),
        await _idle(sphinx),
        await _verdicts(directory),
    ]


def _speak(voices: Sequence[str]) -> None:
    for voice in voices:
        for text in (*SENTENCES, "okay nabu", "hey jarvis"):
            spoken(text, voice=voice)


async def _words(engine: SpeechToText, voices: Sequence[str], noise: float) -> list[Row]:
    right = total = accepted = wrong = 0
    said = [
        (with_digits(text), spoken(text, voice=voice, noise=noise)) for text in SENTENCES for voice in voices
    ]
    for text, sound in said:
        heard = await engine.transcribe(_frames(sound), language="en")
        match = SequenceMatcher(a=text.split(), b=heard.text.split(), autojunk=False)
        right += sum(block.size for block in match.get_matching_blocks())
        total += len(text.split())
        accepted += heard.certain and heard.text == text
        wrong += heard.certain and heard.text != text
    return [
        Row(f"words right, by a grammar, noise {noise:g}", 100 * right / total, "%"),
        Row(f"sentences understood, noise {noise:g}", 100 * accepted / len(said), "%"),
        Row(f"sentences taken for another, noise {noise:g}", 100 * wrong / len(said), "%"),
    ]


async def _taken(engine: SpeechToText, voices: Sequence[str], which: str, texts: Sequence[str]) -> Row:
    """Say what the grammar does not have."""
    said = [(text, voice) for text in texts for voice in voices]
    taken = 0
    for text, voice in said:
        transcript = await engine.transcribe(_frames(spoken(text, voice=voice)), language="en")
        taken += transcript.certain and bool(transcript.text)
    return Row(f"{which} taken for one of the grammar", 100 * taken / len(said), "%")


async def _at_once(
    sphinx: PocketSphinx, engine: type[MicroWakeWords | OpenWakeWords], voices: Sequence[str]
) -> Row:
    """Say sentences in one breath with the wake word."""
    heard = right = 0
    for text in SENTENCES:
        for voice in voices:
            sound = spoken(f"okay nabu {text}", voice=voice, after_s=1.5)
            notes, microphone = _Observer(), _Paced(frames_of(sound), frame_s=0)
            await _pipeline(sphinx, microphone, _Chat(), _Silent(), notes, wake=engine([_WORD])).run()
            heard += len(notes.transcripts)
            right += sum(each.certain and each.text == with_digits(text) for each in notes.transcripts)
    name = "microWakeWord" if engine is MicroWakeWords else "openWakeWord"
    return Row(
        f"sentences said at once with the wake word, {name}, of {heard} that it heard",
        100 * right / heard,
        "%",
    )


async def _answers(sphinx: PocketSphinx, language: str) -> list[Row]:
    """Answer a question of the voice; see what is taken for a yes."""
    engine = sphinx.of(answers(language), safe=refusals(language))

    async def share(
        texts: str | Sequence[str], taken_for: bool, noises: Sequence[float]
    ) -> tuple[int, float]:
        each = re.split(r",\s+", texts) if isinstance(texts, str) else texts
        said = list(product(each, ANSWERING[language], noises))
        taken = 0
        for text, voice, noise in said:
            sound = spoken(text, voice=voice, noise=noise)
            transcript = await engine.transcribe(_frames(sound), language=language)
            taken += transcript.certain and is_yes(transcript.text, language) is taken_for
        return len(said), 100 * taken / len(said)

    rows = []
    for what, texts, taken_for, noises in (
        ("yes understood", YES[language], True, NOISES),
        ("no understood", NO[language], False, NOISES),
        ("no taken for yes", NO[language], True, NOISES),
        ("near words taken for yes", NEAR_YES[language], True, NOISES[1:2]),
        ("other speech taken for yes", OTHER_SPEECH[language], True, NOISES[1:2]),
    ):
        number, percent = await share(texts, taken_for, noises)
        rows.append(Row(f"answers in {language!r}: {what}, of {number}", percent, "%"))
    return rows


def _wakes(voices: Sequence[str]) -> list[Row]:
    made = []
    for name, engine in (
        ("microWakeWord", MicroWakeWords([_WORD])),
        ("openWakeWord", OpenWakeWords([_WORD])),
    ):
        for noise in NOISES:
            sounds = [spoken("okay nabu", voice=voice, noise=noise, after_s=1.5) for voice in voices]
            heard = sum(_heard(engine, sound) > 0 for sound in sounds)
            made.append(Row(f"wake word heard, {name}, noise {noise:g}", 100 * heard / len(sounds), "%"))
    return made


def _false_wakes(effort: Effort) -> list[Row]:
    made = []
    engines: tuple[tuple[str, WakeWord], ...] = (
        ("microWakeWord", MicroWakeWords([_WORD])),
        ("openWakeWord", OpenWakeWords([_WORD])),
    )
    for name, engine in engines:
        speech = list(other_speech(60 if effort.quick else _HOUR_S))
        seconds = sum(map(len, speech)) / 2 / RATE
        begun = time.process_time()
        wakes = sum(_heard(engine, sound) for sound in speech)
        busy = time.process_time() - begun
        about = f"{name}, {seconds / 60:.0f} min of other speech"
        made += [
            Row(f"false wakes: {about}", wakes * _HOUR_S / seconds, "an hour"),
            Row(f"processor time of {name}", 100 * busy / seconds, "% of a core"),
        ]
    return made


def _heard(engine: WakeWord, sound: bytes) -> int:
    """Return how often a wake word is heard; afterwards there is silence, as between two people."""
    engine.reset()
    times = 0
    for frame in frames_of(sound):
        if engine.heard(frame) is not None:
            times += 1
            engine.reset()
    return times


async def _frames(sound: bytes) -> AsyncIterator[bytes]:
    for frame in frames_of(sound):
        yield frame


async def _latencies(engine: SpeechToText, effort: Effort) -> list[Row]:
    """Say a wake word and a sentence in real time; see when the turn begins, and when its answer is heard."""
    acted, heard = [], []
    for text in SENTENCES[:: 3 if effort.quick else 2]:
        sound = spoken("okay nabu", after_s=0.4) + spoken(text) + bytes(2 * RATE)
        microphone, chat, loudspeaker = _Paced(frames_of(sound)), _Chat(), _Silent()
        await _pipeline(engine, microphone, chat, loudspeaker).run()
        if chat.asked is not None and loudspeaker.first is not None:
            acted.append((chat.asked - microphone.began - _end_of(sound)) * 1000)
            heard.append((loudspeaker.first - chat.said) * 1000)
    if not acted:
        return [not_measured("end of speech to the turn of a sentence", "failed: nothing was understood")]
    silence = round(1000 * VoiceSettings().silence_s)
    return [
        Row(
            f"end of speech ({silence} ms of silence) to its turn",
            statistics.median(acted),
            "ms",
            Reach(most=300),
        ),
        Row(
            "first sentence of an answer to its first sound", statistics.median(heard), "ms", Reach(most=700)
        ),
    ]


async def _idle(engine: SpeechToText) -> Row:
    """Wait for a wake word in a quiet room, in real time."""
    room = _Paced(frames_of(noisy(bytes(2 * RATE * _IDLE_S), NOISES[0])))
    await _pipeline(engine, room, _Chat(), _Silent()).run()
    # A loop of Python that never waits takes the whole core, or what others leave of it.
    return Row(
        "waiting for a wake word, beside a python -c loop",
        100 * (time.process_time() - room.busy) / _IDLE_S,
        "% of a core",
        Reach(ratio_most=0.06),
        reference=100.0,
    )


async def _verdicts(directory: Path) -> Row:
    """Have two devices hear wake words; see how long the hub takes to say which one answers."""
    took = []
    async with open_home(directory / "home") as home:
        loud, soft = [await listening(home, await home.device(name)) for name in ("Kitchen", "Hall")]
        for number in range(5):  # as often as a device may ask at once
            begun, word = time.monotonic(), f"word {number}"
            await asyncio.gather(loud.may_answer(word, -20), soft.may_answer(word, -30))
            took.append((time.monotonic() - begun) * 1000)
    work = "wake word heard by two devices, to the verdicts"
    return Row(work, statistics.median(took), "ms", Reach(most=150))


def _pipeline(
    engine: SpeechToText,
    microphone: "_Paced",
    chat: "_Chat",
    loudspeaker: "_Silent",
    observer: "_Observer | None" = None,
    *,
    wake: WakeWord | None = None,
) -> Pipeline:
    return Pipeline(
        microphone=microphone,
        loudspeaker=loudspeaker,
        engines=Engines(wake or MicroWakeWords([_WORD]), {"pocketsphinx": engine}, {"espeak": Espeak()}),
        chat=chat,
        settings=VoiceSettings(tones=False),
        language="en",
        observer=observer or _Observer(),
    )


def _end_of(sound: bytes) -> float:
    """Return after how many seconds the end of what follows the wake word is detected."""
    wake, listener = MicroWakeWords([_WORD]), None
    for number, frame in enumerate(frames_of(sound), 1):
        if listener is None:
            if wake.heard(frame) is not None:
                listener = Endpointer(load_vad(), Pauses(silence_s=VoiceSettings().silence_s))
        elif listener.heard(frame) is Phase.ENDED:
            return number * FRAME_S
    raise ValueError("the end of the speech is not detected")


class _Paced(Microphone):
    """A microphone that hears in real time, or as fast as it is read."""

    def __init__(self, frames: Sequence[bytes], *, frame_s: float = FRAME_S) -> None:
        self._frames = frames
        self._frame_s = frame_s
        self.began = self.busy = 0.0

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        self.began, self.busy = time.monotonic(), time.process_time()
        for number, frame in enumerate(self._frames, 1):
            await asyncio.sleep(self.began + number * self._frame_s - time.monotonic())
            yield frame


class _Silent(Loudspeaker):
    """A loudspeaker that notes when it is first given sound."""

    def __init__(self) -> None:
        self.first: float | None = None

    async def play(self, sound: AsyncIterator[Sound]) -> None:
        async for _ in sound:
            self.first = self.first or time.monotonic()


class _Chat:
    """Answers in two sentences, and notes when it was asked."""

    def __init__(self) -> None:
        self.asked: float | None = None
        self.said = 0.0

    async def ask(self, message: str) -> AsyncGenerator[TurnEvent, None]:
        self.asked = self.asked or time.monotonic()
        answer = "The light in the kitchen is on. There are three more."
        self.said = time.monotonic()
        yield TextDelta(text=answer)
        yield TurnFinal(answer=answer, mode="sentence")

    async def answer(self, wanted: ConfirmationWanted, *, approve: bool) -> None:
        pass


class _Observer:
    """Keeps what was understood."""

    def __init__(self) -> None:
        self.transcripts: list[Transcript] = []

    def activity(self, activity: str) -> None:
        pass

    def understood(self, transcript: Transcript, engine: str) -> None:
        self.transcripts.append(transcript)

    def problem(self, engine: str, problem: str) -> None:
        pass
