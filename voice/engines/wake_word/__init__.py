"""Engines that wait for wake words."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from contracts.errors import ConfigError


def word_of(name: str) -> str:
    # A wake word may be the path of a model's file.
    return Path(name).stem


def load_models(
    names: Iterable[str],
    library: Any,
    *,
    built_in: Callable[[Any], Any],
    from_file: Callable[[str], Any],
    suffix: str,
) -> dict[str, Any]:
    """Return the models of wake words by name.

    Args:
        names: Of models in the package, or paths of files with this suffix.

    Raises:
        ConfigError: If there is no such model.
    """
    known = {model.value: model for model in library.Model}
    models = {}
    for name in names:
        if name in known:
            models[name] = built_in(known[name])
        elif name.endswith(suffix) and Path(name).is_file():
            models[word_of(name)] = from_file(name)
        else:
            raise ConfigError(
                f"there is no wake word {name!r}",
                hint=f"Set wake_words in [voice] to one of {', '.join(sorted(known))}, or to a model's file.",
            )
    return models
