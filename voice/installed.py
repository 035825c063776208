"""Libraries of the extra ``voice``, and what is made of them, imported when they are first needed."""

import importlib
from typing import Any

from contracts.errors import SpeechError


def installed(name: str) -> Any:
    """Import a library of the extra ``voice``, or a module of ours that imports one.

    Raises:
        SpeechError: If it is not installed, or a library of the system that it needs is not.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = (error.name or name).partition(".")[0]
        raise SpeechError(
            f"the package {package.replace('_', '-')} is not installed",
            hint="Install speech: pip install 'strawberry-home[voice]'",
        ) from None
    except OSError as error:
        raise SpeechError(f"{name} cannot be loaded: {error}", hint=_hint(str(error))) from None


def _hint(reason: str) -> str:
    if "PortAudio" in reason:
        return "Install PortAudio: apt install libportaudio2"
    return "Install the library of the system that it names."
