"""Wake words by microWakeWord: a thousandth of a core; its models are in the package."""

from collections.abc import Iterable
from pathlib import Path

from contracts.errors import ConfigError
from voice.installed import installed
from voice.settings import VoiceSettings


def open_engine(settings: VoiceSettings, address: str) -> "MicroWakeWords":
    """See `voice.engines`."""
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
        self._models = {}
        known = {model.value: model for model in library.Model}
        for name in names:
            if name in known:
                self._models[name] = library.MicroWakeWord.from_builtin(known[name])
            elif name.endswith(".json") and Path(name).is_file():
                self._models[Path(name).stem] = library.MicroWakeWord.from_config(name)
            else:
                raise unknown_wake_word(name, known)

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


def unknown_wake_word(name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a wake word without a model."""
    return ConfigError(
        f"there is no wake word {name!r}",
        hint=f"Set wake_words in [voice] to one of {', '.join(sorted(known))}, or to a model's file.",
    )
