"""Speech: words that are understood, wake words heard and not heard, and how long it takes.

All of it from sound that espeak-ng and flite make, with white noise at three levels.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

from benchmarks.measure import Effort
from benchmarks.table import Row, not_measured
from contracts.chat.vocabulary import SpokenSentence, SpokenSlot, Vocabulary
from tests.voice.spoken import HINT, NOISES, VOICES, can_speak, frames_of, other_speech, spoken
from voice.audio import RATE
from voice.engines import SpeechToText, WakeWord
from voice.engines.micro_wakeword import MicroWakeWords
from voice.engines.open_wakeword import OpenWakeWords
from voice.engines.pocketsphinx import PocketSphinx

SENTENCES: Final = (
    "turn on the kitchen light",
    "set the volume to fifty percent",
    "stop the music",
    "play some jazz",
    "open the blinds in the bedroom",
    "what time is it",
)
_VOLUME: Final = SpokenSlot(is_number=True)
VOCABULARY: Final = Vocabulary(
    language="en",
    names=("kitchen light", "hall lamp", "bedroom", "kitchen", "living room", "garden"),
    sentences=(
        SpokenSentence(text="turn (on|off) [the] {name}", slots={"name": SpokenSlot()}),
        SpokenSentence(text="set the volume to {level} percent", slots={"level": _VOLUME}),
        SpokenSentence(text="(stop|pause) the music"),
        SpokenSentence(text="play some {kind}", slots={"kind": SpokenSlot(values=("jazz", "rock", "pop"))}),
        SpokenSentence(text="(open|close) the blinds in the {name}", slots={"name": SpokenSlot()}),
        SpokenSentence(text="what time is it"),
    ),
)
_HOUR_S: Final = 3_600
_IDLE_S: Final = 10
_WORD: Final = "okay_nabu"


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; what is spoken is kept in ``build/speech``."""
    if not can_speak():
        return [not_measured("speech", HINT)]
    voices = VOICES[::4] if effort.quick else VOICES
    await asyncio.to_thread(_speak, voices)
    sphinx = PocketSphinx()
    await sphinx.learn(VOCABULARY)
    return [
        *[row for noise in NOISES for row in await _words(sphinx, voices, noise)],
        await _others(sphinx, voices),
        *_wakes(voices),
        *await asyncio.to_thread(_false_wakes, effort),
    ]


def _speak(voices: Sequence[str]) -> None:
    for voice in voices:
        for text in (*SENTENCES, "okay nabu", "hey jarvis"):
            spoken(text, voice=voice)


async def _words(engine: SpeechToText, voices: Sequence[str], noise: float) -> list[Row]:
    right = total = accepted = wrong = 0
    said = [
        (text.replace("fifty", "50"), spoken(text, voice=voice, noise=noise))
        for text in SENTENCES
        for voice in voices
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


async def _others(engine: SpeechToText, voices: Sequence[str]) -> Row:
    """Say what the grammar does not have."""
    others = ("how tall is the eiffel tower", "tell me a story about a dragon", "where did I leave my keys")
    said = [(text, voice) for text in others for voice in voices]
    taken = 0
    for text, voice in said:
        transcript = await engine.transcribe(_frames(spoken(text, voice=voice)), language="en")
        taken += transcript.certain and bool(transcript.text)
    return Row("other sentences taken for one of the grammar", 100 * taken / len(said), "%")


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
    engines: tuple[tuple[str, WakeWord, int], ...] = (
        ("microWakeWord", MicroWakeWords([_WORD]), _HOUR_S),
        # It takes 30 times as long.
        ("openWakeWord", OpenWakeWords([_WORD]), _HOUR_S // 12),
    )
    for name, engine, wanted in engines:
        speech = list(other_speech(60 if effort.quick else wanted))
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
