"""Wake words by microWakeWord: a thousandth of a core; its models are in the package."""

from collections.abc import Iterable

from voice.engines.wake_word import load_models
from voice.installed import installed
from voice.settings import VoiceSettings


def open_engine(settings: VoiceSettings) -> "MicroWakeWords":
    return MicroWakeWords(settings.wake_words)


class MicroWakeWords:
    """Waits for several wake words at once; see `voice.engines.WakeWord`.

    Args:
        names: Of models in the package, such as ``hey_jarvis``, or paths of a model's JSON file.

    Raises:
        ConfigError: If there is no such model.
        SpeechError: If the package is not installed.
    """

    def __init__(self, names: Iterable[str]) -> None:
        library = installed("pymicro_wakeword")
        self._features = library.MicroWakeWordFeatures()
        kind = library.MicroWakeWord
        self._models = load_models(
            names, library, built_in=kind.from_builtin, from_file=kind.from_config, suffix=".json"
        )

    def heard(self, frame: bytes) -> str | None:
        """See `voice.engines.WakeWord`."""
        found = None
        for features in self._features.process_streaming(frame):
            for name, model in self._models.items():
                if model.process_streaming(features):
                    found = found or name
        return found

    def reset(self) -> None:
        """See `voice.engines.WakeWord`."""
        self._features.reset()
        for model in self._models.values():
            model.reset()
