"""Wake words by openWakeWord: some percent of a core; its models are in the package."""

from collections.abc import Iterable
from typing import Final

from voice import limits
from voice.engines.wake_word import load_models
from voice.installed import installed
from voice.settings import VoiceSettings

_CHUNK_BYTES: Final = 2 * 1_280
"""What the models take at once: 80 ms."""


def open_engine(settings: VoiceSettings) -> "OpenWakeWords":
    return OpenWakeWords(settings.wake_words)


class OpenWakeWords:
    """Waits for several wake words at once; see `voice.engines.WakeWord`.

    Args:
        names: Of models in the package, such as ``hey_jarvis``, or paths of a ``.tflite`` file.

    Raises:
        ConfigError: If there is no such model.
        SpeechError: If the package is not installed.
    """

    def __init__(self, names: Iterable[str]) -> None:
        library = installed("pyopen_wakeword")
        self._features = library.OpenWakeWordFeatures.from_builtin()
        self._waiting = bytearray()
        kind = library.OpenWakeWord
        self._models = load_models(
            names, library, built_in=kind.from_builtin, from_file=kind.from_model, suffix=".tflite"
        )

    def heard(self, frame: bytes) -> str | None:
        """See `voice.engines.WakeWord`."""
        self._waiting += frame
        if len(self._waiting) < _CHUNK_BYTES:
            return None
        chunk, found = bytes(self._waiting), None
        self._waiting.clear()
        for embeddings in self._features.process_streaming(chunk):
            for name, model in self._models.items():
                for probability in model.process_streaming(embeddings):
                    if probability > limits.WAKE_WORD_THRESHOLD:
                        found = found or name
        return found

    def reset(self) -> None:
        """See `voice.engines.WakeWord`."""
        self._waiting.clear()
        self._features.reset()
        for model in self._models.values():
            model.reset()
