"""Where Mosquitto and its plugin are installed."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.errors import ConfigError

__all__ = ["Installation", "find_installation"]

_PLUGIN: Final = "mosquitto_dynamic_security"

_BINARIES: Final = (
    "/usr/sbin",  # Debian, official image; not in an ordinary user's PATH
    "/usr/local/sbin",
    "/opt/homebrew/sbin",
    "/opt/homebrew/opt/mosquitto/sbin",
    "/usr/local/opt/mosquitto/sbin",
    "C:/Program Files/mosquitto",
)


@dataclass(frozen=True)
class Installation:
    """The program and the plugin that belongs to it."""

    binary: Path
    plugin: Path


def find_installation(*, binary: Path | None = None, plugin: Path | None = None) -> Installation:
    """Find Mosquitto.

    Args:
        binary: Where the program is, if it is not to be looked for.
        plugin: The same for the plugin.

    Raises:
        ConfigError: If one of them is missing; says how to install it.
    """
    binary = binary or _find_binary()
    if binary is None or not binary.is_file():
        raise ConfigError(f"Mosquitto is not installed{f' as {binary}' if binary else ''}", hint=_how())
    plugin = plugin or next((each for each in _plugins(binary) if each.is_file()), None)
    if plugin is None or not plugin.is_file():
        raise ConfigError(
            f"Mosquitto's plugin for dynamic security is missing{f': {plugin}' if plugin else ''}",
            hint=f"It comes with Mosquitto 2.0 and later. {_how()}",
        )
    return Installation(binary, plugin)


def _find_binary() -> Path | None:
    found = shutil.which("mosquitto")
    for folder in _BINARIES:
        found = found or shutil.which("mosquitto", path=folder)
    return Path(found) if found else None


def _plugins(binary: Path) -> Iterator[Path]:
    if sys.platform == "win32":
        yield binary.parent / f"{_PLUGIN}.dll"
        return
    # The program may be a link into another tree, as with Homebrew: what lies beside it is asked first.
    for root in (binary.parent.parent, binary.resolve().parent.parent, Path("/usr"), Path("/usr/local")):
        lib = root / "lib"
        yield lib / f"{_PLUGIN}.so"
        yield from sorted(lib.glob(f"*-linux-*/{_PLUGIN}.so"))  # Debian: one folder for each architecture
        yield root / "lib64" / f"{_PLUGIN}.so"


def _how() -> str:
    match sys.platform:
        case "darwin":
            return "Install it with: brew install mosquitto"
        case "win32":
            return "Its installer is at https://mosquitto.org/download"
    return "Install it with: sudo apt-get install mosquitto"
