"""Speech to text by a grammar, on this machine: quick, exact, and only for what the grammar has.

A grammar always finds the sentence that fits best, also where something else was said. So a second decoder
follows the bare sounds beside it; where the sentence explains what was heard much worse than they do, it is
rejected.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from contracts.chat.vocabulary import Vocabulary
from contracts.errors import SpeechError
from voice.engines import Transcript
from voice.grammar import choices, grammar_of, with_digits
from voice.installed import installed
from voice.sound.audio import RATE

T = TypeVar("T")

_log = logging.getLogger(__name__)

_NOISE: Final = 98
"""Loudest sample of the noise that is mixed in, 0.003 of full scale: on digital silence, words are lost."""

_REJECTED_BELOW: Final = -3.1
"""How much worse than bare sounds a sentence may explain a frame, in thousandths of a natural logarithm. Of
six sentences by eight voices at two levels of noise, one in twenty had less; of others that sound alike,
such as "turn on the washing machine", one in ten had more."""

_CHOICE_REJECTED_BELOW: Final = -2.1
"""The same for yes and no: more other speech sounds like a short word."""

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
    "gerne": "G EH R N AH",
}
"""German words of the grammar of yes and no, in the sounds of the English model."""


class PocketSphinx:
    """Understands the home's sentences; see `voice.engines.SpeechToText`.

    Raises:
        SpeechError: If the package is not installed.
    """

    def __init__(self) -> None:
        self._library = installed("pocketsphinx")
        self._noise = _noise()
        # Decoders keep to one thread, which is also what keeps uses of them in order.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pocketsphinx")
        self._decoder: Any = None
        self._sounds: Any = None
        self._searches: set[str] = set()
        self._is_open = False
        self._vocabulary: Vocabulary | None = None

    async def learn(self, vocabulary: Vocabulary) -> None:
        """Make the grammar of what can be said; nothing happens where it has not changed."""
        if vocabulary != self._vocabulary:
            await self._run(lambda: self._learn(vocabulary))
            self._vocabulary = vocabulary
            _log.debug("the grammar has %d sentences", len(vocabulary.sentences))

    async def transcribe(self, frames: AsyncIterator[bytes], *, language: str) -> Transcript:
        """See `voice.engines.SpeechToText`."""
        return await self._decode("sentences", frames)

    def of(self, texts: Sequence[str]) -> "Choice":
        """Return a speech to text that understands nothing but these texts."""
        return Choice(self, tuple(texts))

    async def choose(self, texts: tuple[str, ...], frames: AsyncIterator[bytes]) -> Transcript:
        """Understand one of these texts."""
        name = " ".join(texts)
        await self._run(lambda: self._add(name, choices(texts)))
        return await self._decode(name, frames, rejected_below=_CHOICE_REJECTED_BELOW)

    async def _decode(
        self, search: str, frames: AsyncIterator[bytes], *, rejected_below: float = _REJECTED_BELOW
    ) -> Transcript:
        if not await self._run(lambda: self._begin(search)):
            async for _ in frames:
                pass
            return Transcript("", certain=False)
        block = bytearray()
        async for frame in frames:
            block += frame
            if len(block) >= _BLOCK:
                piece = bytes(block)
                block.clear()
                await self._run(lambda piece=piece: self._process(piece))  # type: ignore[misc]
        return await self._run(lambda: self._end(bytes(block), rejected_below))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _load(self) -> None:
        path = self._library.get_model_path
        try:
            quiet = {"hmm": path("en-us/en-us"), "lm": None, "loglevel": "FATAL", "bestpath": False}
            self._decoder = self._library.Decoder(dict=path("en-us/cmudict-en-us.dict"), **quiet)
            self._sounds = self._library.Decoder(dict=None, **quiet)
            self._sounds.add_allphone_file("sounds", path("en-us/en-us-phone.lm.bin"))
            self._sounds.activate_search("sounds")
            self._cmn = self._decoder.get_cmn()
        except (RuntimeError, ValueError) as error:
            raise SpeechError(
                f"the model of pocketsphinx cannot be loaded: {error}", hint="Install pocketsphinx again."
            ) from None
        for word, sounds in _WORDS.items():
            if not self._knows(word):
                self._decoder.add_word(word, sounds, False)

    def _knows(self, word: str) -> bool:
        return self._decoder.lookup_word(word) is not None

    def _learn(self, vocabulary: Vocabulary) -> None:
        if self._decoder is None:
            self._load()
        grammar = grammar_of(vocabulary, self._knows)
        self._searches.discard("sentences")
        if grammar is not None:
            self._add("sentences", grammar)

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

    def _begin(self, search: str) -> bool:
        if search not in self._searches:
            return False
        for decoder in (self._decoder, self._sounds):
            if self._is_open:
                # A turn that was stopped left it so.
                decoder.end_utt()
        self._decoder.activate_search(search)
        for decoder in (self._decoder, self._sounds):
            # It would carry the loudness of one voice over to the next.
            decoder.set_cmn(self._cmn)
            decoder.start_utt()
        self._is_open = True
        return True

    def _process(self, sound: bytes) -> None:
        import numpy as np

        heard = np.frombuffer(sound, dtype="<i2").astype(np.int32)
        noisy = np.clip(heard + np.resize(self._noise, heard.size), -32_768, 32_767).astype("<i2").tobytes()
        for decoder in (self._decoder, self._sounds):
            decoder.process_raw(noisy, False, False)

    def _end(self, rest: bytes, rejected_below: float) -> Transcript:
        if rest:
            self._process(rest)
        for decoder in (self._decoder, self._sounds):
            decoder.end_utt()
        self._is_open = False
        found = self._decoder.hyp()
        if found is None or not found.hypstr:
            return Transcript("", certain=False)
        words = [each for each in self._decoder.seg() if each.word[0] not in "<(["]
        if not words:
            return Transcript("", certain=False)
        first, last = words[0].start_frame, words[-1].end_frame
        heard = _explained(self._decoder.seg(), first, last) - _explained(self._sounds.seg(), first, last)
        fit = 1_000 * heard / (last - first + 1)
        _log.debug("the grammar heard %r (%.2f)", found.hypstr, fit)
        return Transcript(with_digits(found.hypstr), certain=fit >= rejected_below)


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

    def __init__(self, engine: PocketSphinx, texts: tuple[str, ...]) -> None:
        self._engine = engine
        self._texts = texts

    async def transcribe(self, frames: AsyncIterator[bytes], *, language: str) -> Transcript:
        """See `voice.engines.SpeechToText`."""
        return await self._engine.choose(self._texts, frames)


def _noise() -> Any:
    np = installed("numpy")
    return np.random.default_rng(1).integers(-_NOISE, _NOISE, RATE, dtype=np.int32)
