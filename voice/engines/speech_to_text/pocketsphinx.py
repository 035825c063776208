"""Speech to text by a grammar, on this machine: quick, exact, and only for what the grammar has.

A grammar always finds the sentence that fits best, also where something else was said. So a sentence is
rejected where its words explain what was heard much worse than any sounds would, above all where one of them
does: "heater" where "hoover" was said. Beside a yes or no a second decoder follows the bare sounds: each word
and each silence must explain what was heard nearly as well.
"""

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from contracts.chat.vocabulary import Vocabulary
from contracts.errors import SpeechError
from voice.engines import Transcript
from voice.engines.pronunciation import pronounced
from voice.engines.wake_word import word_of
from voice.grammar import alike, choices, grammar_of, with_digits
from voice.installed import installed
from voice.settings import VoiceSettings
from voice.sound.audio import RATE

T = TypeVar("T")

_log = logging.getLogger(__name__)

_NOISE: Final = 98
"""Loudest sample of the noise that is mixed in, 0.003 of full scale: on digital silence, words are lost."""

_REJECTED_BELOW: Final = -5.3
"""How well a sentence must fit (`_fit`). Of 22 sentences by eight voices at two levels of noise, in a home
with 16 names, one in thirty had less; of others that sound alike, such as "turn on the hoover", one in eight
had more."""

_CHOICE_REJECTED_BELOW: Final = -2.1
"""How much worse than bare sounds yes and no may explain a frame, in thousandths of a natural logarithm."""

_SAFE_REJECTED_BELOW: Final = -5.6
"""The same of what does nothing, as a no: nearly every one of five German voices at three levels of noise was
between the two."""

_PART: Final = 0.4
"""How much worse one part of it may fit, a word or a silence: a silence is what other words before, within
and behind a yes are taken for. Words in the sounds of another language fit worse anyway, and do not count."""

_SHORTEST_PART: Final = 5
"""Frames; of less there is too little to say how well it fits."""

_FIRST: Final = 3 * RATE
"""Bytes of the sound by whose mean the voice and the microphone are evened out: 1.5 s. By the mean that the
model brings along, half of the sentences of a home with 16 names were lost; by that of 1 s, one in 50."""

_WAKE: Final = "_"
"""The word of the dictionary for what is heard of a wake word."""

_NOTHING: Final = ("", -math.inf)
_SENTENCES: Final = "sentences"
_MEAN: Final = "mean"
"""A grammar of one word: what it costs to hear it is little."""

_COEFFICIENTS, _WINDOW, _STEP = 13, 410, 160
"""Of the features: values of a frame, its samples, and samples from one to the next."""

_EXPECTED: Final = 500
"""Frames for which the decoder counts the mean that it is given."""

_BEAMS: Final = {"beam": 1e-100, "pbeam": 1e-100, "wbeam": 1e-80, "maxhmmpf": 6_000}
"""How unlikely a beginning may be that is still followed, and how many at once. By default most sentences of
a home with 16 names ended in nothing, as their end had been given up."""

_BLOCK: Final = 3_200
"""Bytes that are decoded at once: 100 ms, so that little is left to do when the speech ends."""

_WORDS: Final = {
    "ja": "Y AA",
    "nein": "N AY N",
    "nein(2)": "N AA IH N",
    "nein(3)": "D AY N",
    "bitte": "B IH T AH",
    "danke": "D AA NG K AH",
    "abbrechen": "AA P B R EH HH AH N",
    "stopp": "SH T AO P",
    "mach": "M AA HH",
    "mach(2)": "M AA K",
    "mach(3)": "M AH HH",
    "das": "D AA S",
    "das(2)": "D AH S",
    "aber": "AA B ER",
    "aber(2)": "B AH",
    "aber(3)": "B ER",
    "aber(4)": "B AA",
    "nicht": "N IH SH T",
    "gestern": "G EH S T ER N",
    "jawohl": "Y AA V OW L",
}
"""German words of the grammar of yes and no, in the sounds of the English model."""


def open_engine(settings: VoiceSettings) -> "PocketSphinx":
    return PocketSphinx(settings.wake_words)


class PocketSphinx:
    """Understands the home's sentences; see `voice.engines.Grammar`.

    Args:
        wake_words: Names of models, or paths of such: a sentence may follow the end of one.

    Raises:
        SpeechError: If the package is not installed.
    """

    def __init__(self, wake_words: Collection[str] = ()) -> None:
        self._library = installed("pocketsphinx")
        self._wake_words = wake_words
        self._noise = _noise()
        # Decoders keep to one thread, which is also what keeps uses of them in order.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pocketsphinx")
        self._decoder: Any = None
        self._sounds: Any = None
        self._searches: set[str] = set()
        self._is_open = False
        self._search = ""
        self._own_mean = True
        self._used: tuple[Any, ...] = ()
        self._pronounced: set[tuple[str, str]] = set()
        self._first = bytearray()
        self._vocabulary: Vocabulary | None = None

    async def learn(self, vocabulary: Vocabulary) -> None:
        """See `voice.engines.Grammar`."""
        if vocabulary != self._vocabulary:
            await self._run(lambda: self._learn(vocabulary))
            self._vocabulary = vocabulary
            _log.debug("the grammar has %d sentences", len(vocabulary.sentences))

    async def transcribe(self, frames: AsyncIterator[bytes], *, language: str) -> Transcript:
        """See `voice.engines.SpeechToText`."""
        heard, fit = await self._decode(_SENTENCES, frames)
        return Transcript(heard, certain=fit >= _REJECTED_BELOW, instead=alike(heard))

    def of(self, texts: Sequence[str], *, safe: Collection[str] = ()) -> "Choice":
        return Choice(self, tuple(texts), safe)

    async def choose(
        self, texts: tuple[str, ...], safe: Collection[str], frames: AsyncIterator[bytes], *, language: str
    ) -> Transcript:
        """Understand one of these texts."""
        name = " ".join(texts)
        await self._run(lambda: self._add(name, choices(texts)))
        # By the mean of the model 36 of 48 English yes are understood, by their own 30; of 30 German ones 20
        # and 24.
        own_mean = not language.lower().startswith("en")
        heard, fit = await self._decode(name, frames, own_mean=own_mean)
        limit = _SAFE_REJECTED_BELOW if heard in safe else _CHOICE_REJECTED_BELOW
        return Transcript(heard, certain=fit >= limit)

    async def _decode(
        self, search: str, frames: AsyncIterator[bytes], *, own_mean: bool = True
    ) -> tuple[str, float]:
        """Return what was heard, empty where nothing was, and how well it fits."""
        if not await self._run(lambda: self._begin(search, own_mean)):
            async for _ in frames:
                pass
            return _NOTHING
        block = bytearray()
        async for frame in frames:
            block += frame
            if len(block) >= _BLOCK:
                piece = bytes(block)
                block.clear()
                await self._run(lambda piece=piece: self._process(piece))  # type: ignore[misc]
        return await self._run(lambda: self._end(bytes(block)))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _load(self) -> None:
        path = self._library.get_model_path
        try:
            quiet = {"hmm": path("en-us/en-us"), "lm": None, "loglevel": "FATAL", "bestpath": False}
            self._decoder = self._library.Decoder(dict=path("en-us/cmudict-en-us.dict"), **quiet, **_BEAMS)
            self._sounds = self._library.Decoder(dict=None, **quiet)
            self._sounds.add_allphone_file("sounds", path("en-us/en-us-phone.lm.bin"))
            self._sounds.activate_search("sounds")
            self._cmn = self._decoder.get_cmn()
            self._decoder.add_jsgf_string(_MEAN, choices(["a"]))
        except (RuntimeError, ValueError) as error:
            raise SpeechError(
                f"the model of pocketsphinx cannot be loaded: {error}", hint="Install pocketsphinx again."
            ) from None
        for word, sounds in _WORDS.items():
            if not self._knows(word):
                self._add_word(word, sounds)
        for name in self._wake_words:
            self._add_wake_word(re.findall("[a-z]+", word_of(name).lower()))

    def _add_wake_word(self, words: list[str]) -> None:
        """Add each end of a wake word, from the whole to its last sound, as one way to say `_WAKE`."""
        missing = pronounced([word for word in words if not self._knows(word)], language="en")
        said = [missing.get(word) or self._decoder.lookup_word(word) for word in words]
        if all(said):
            sounds = " ".join(said).split()
            for at in range(len(sounds)):
                self._add_word(_WAKE, " ".join(sounds[at:]))

    def _add_word(self, word: str, sounds: str) -> None:
        """Add a word to the dictionary, or another way to say one that it has."""
        number, name = 1, word
        while self._knows(name):
            number += 1
            name = f"{word}({number})"
        self._decoder.add_word(name, sounds, False)

    def _knows(self, word: str) -> bool:
        return self._decoder.lookup_word(word) is not None

    def _learn(self, vocabulary: Vocabulary) -> None:
        if self._decoder is None:
            self._load()
        self._pronounce(vocabulary)
        grammar = grammar_of(vocabulary, self._knows, before=_WAKE if self._knows(_WAKE) else "")
        self._searches.discard(_SENTENCES)
        if grammar is not None:
            self._add(_SENTENCES, grammar)

    def _pronounce(self, vocabulary: Vocabulary) -> None:
        """Add the words of the vocabulary to the dictionary; in English those that it does not have."""
        language = vocabulary.language.partition("-")[0].lower()
        said: dict[str, None] = {}

        def collect(word: str) -> bool:
            said[word] = None
            return True

        grammar_of(vocabulary, collect)
        wanted = [
            word
            for word in said
            if (word, language) not in self._pronounced and not (language == "en" and self._knows(word))
        ]
        for word, sounds in pronounced(wanted, language=language).items():
            self._pronounced.add((word, language))
            self._add_word(word, sounds)

    def _add(self, name: str, grammar: str) -> None:
        if self._decoder is None:
            self._load()
        if name in self._searches:
            return
        try:
            self._decoder.add_jsgf_string(name, grammar)
        except (RuntimeError, ValueError):
            _log.warning("pocketsphinx does not take the grammar of %r", name)
        else:
            self._searches.add(name)

    def _begin(self, search: str, own_mean: bool) -> bool:
        if search not in self._searches:
            return False
        if self._is_open:
            # A turn that was stopped left it so.
            self._finish()
        self._search, self._own_mean = search, own_mean
        self._used = (self._decoder,) if search == _SENTENCES else (self._decoder, self._sounds)
        self._first.clear()
        return True

    def _process(self, sound: bytes) -> None:
        import numpy as np

        heard = np.frombuffer(sound, dtype="<i2").astype(np.int32)
        noisy = np.clip(heard + np.resize(self._noise, heard.size), -32_768, 32_767).astype("<i2").tobytes()
        if self._is_open:
            self._take(noisy)
            return
        self._first += noisy
        if len(self._first) >= _FIRST:
            self._start()

    def _start(self) -> None:
        """Begin to decode, with the mean of the first sound in place of that of the utterance before."""
        first = bytes(self._first)
        mean = self._mean_of(first) if self._own_mean else self._cmn
        self._decoder.activate_search(self._search)
        for decoder in self._used:
            decoder.set_cmn(mean)
            decoder.start_utt()
        self._is_open = True
        self._take(first)

    def _take(self, sound: bytes) -> None:
        for decoder in self._used:
            decoder.process_raw(sound, False, False)

    def _mean_of(self, sound: bytes) -> str:
        self._decoder.activate_search(_MEAN)
        self._decoder.set_cmn(",".join("0" * _COEFFICIENTS))
        self._decoder.start_utt()
        try:
            self._decoder.process_raw(sound, False, False)
            # It has added the mean that it was given, here nothing, as often as it expects.
            mixed = map(float, self._decoder.get_cmn(True).split(","))
        finally:
            self._decoder.end_utt()
        frames = max(1, (len(sound) // 2 - _WINDOW) // _STEP + 1)
        return ",".join(f"{each * (_EXPECTED + frames) / frames:.3f}" for each in mixed)

    def _finish(self) -> None:
        for decoder in self._used:
            decoder.end_utt()
        self._is_open = False

    def _end(self, rest: bytes) -> tuple[str, float]:
        if rest:
            self._process(rest)
        if not self._is_open:
            if not self._first:
                return _NOTHING
            self._start()
        self._finish()
        found = self._decoder.hyp()
        if found is None or not found.hypstr:
            return _NOTHING
        words = [each for each in self._decoder.seg() if each.word[0] not in "<([" + _WAKE]
        if not words:
            return _NOTHING
        fit = _fit(words) if self._search == _SENTENCES else self._worst(words)
        _log.debug("the grammar heard %r (%.2f)", found.hypstr, fit)
        return with_digits(found.hypstr.removeprefix(_WAKE)), fit

    def _worst(self, words: Sequence[Any]) -> float:
        """Return how well words fit, as a whole or in the part that fits worst."""
        fit = self._above_sounds(words)
        for part in self._decoder.seg():
            counts = part.word[0] in "<[" or not self._own_mean
            if counts and part.end_frame - part.start_frame + 1 >= _SHORTEST_PART:
                fit = min(fit, self._above_sounds([part]) + _PART)
        return fit

    def _above_sounds(self, words: Sequence[Any]) -> float:
        """Return how much better words explain their frames than bare sounds do."""
        first, last = int(words[0].start_frame), int(words[-1].end_frame)
        heard = _explained(self._decoder.seg(), first, last) - _explained(self._sounds.seg(), first, last)
        return 1_000 * heard / (last - first + 1)


def _fit(words: Iterable[Any]) -> float:
    """Return how well words explain their frames, 0 at best; those that explain them worst count most.

    The decoder gives the likelihood of a word as a share of that of the best sounds of each frame.
    """
    frames, unexplained = 0, 0.0
    for word in words:
        length = int(word.end_frame - word.start_frame + 1)
        likelihood = math.log(word.ascore) if word.ascore > 0 else 0.0
        frames += length
        unexplained += length * (1_000 * likelihood / length) ** 4
    return -math.sqrt(math.sqrt(unexplained / frames))


def _explained(segments: Iterable[Any], first: int, last: int) -> float:
    """Return the logarithm of how well segments explain the frames from the first to the last one."""
    whole = 0.0
    for each in segments:
        common = min(each.end_frame, last) - max(each.start_frame, first) + 1
        if common > 0 and each.ascore > 0:
            whole += math.log(each.ascore) * common / (each.end_frame - each.start_frame + 1)
    return whole


class Choice:
    """A speech to text for a few texts, such as yes and no; see `voice.engines.SpeechToText`."""

    def __init__(self, engine: PocketSphinx, texts: tuple[str, ...], safe: Collection[str]) -> None:
        self._engine = engine
        self._texts = texts
        self._safe = safe

    async def transcribe(self, frames: AsyncIterator[bytes], *, language: str) -> Transcript:
        return await self._engine.choose(self._texts, self._safe, frames, language=language)


def _noise() -> Any:
    np = installed("numpy")
    return np.random.default_rng(1).integers(-_NOISE, _NOISE, RATE, dtype=np.int32)
