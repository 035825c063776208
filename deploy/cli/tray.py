"""``strawberry tray``: the desktop program."""

import argparse
import os
import sys
from importlib.util import find_spec
from typing import Final

from contracts.errors import ConfigError
from deploy.cli.client import find_spoke
from deploy.cli.terminal.parser import Parser
from deploy.directory import Home
from deploy.logs.logs import set_up_logging
from deploy.service.plan import own_program

_MISSING: Final = ConfigError(
    "'strawberry tray' needs a package that is not installed",
    hint="Install it: pip install 'strawberry-home[desktop]'.",
)
_NO_DESKTOP: Final = ConfigError(
    "there is no desktop in this session", hint="Start it on the desktop, or use 'strawberry chat'."
)


def run(options: argparse.Namespace) -> int:
    """Show an icon and a quick chat on the desktop.

    Shows the state of this machine's spoke in the tray, and a small window to chat. Where a tray runs
    already, its window is shown. Needs: pip install 'strawberry-home[desktop]'.
    """
    if find_spec("PySide6") is None:
        raise _MISSING
    places = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    # Without a screen Qt would end the process with an abort.
    if sys.platform == "linux" and not any(os.environ.get(each) for each in places):
        raise _NO_DESKTOP
    try:
        from spoke.installing.installation import Installation
        from tray.app import TraySettings, run_tray
    except ImportError as error:
        raise ConfigError(
            f"Qt cannot be loaded: {error}",
            hint="Debian: apt install libegl1 libxcb-cursor0 libxkbcommon-x11-0",
        ) from None
    set_up_logging(debug=options.debug)
    home = Home.find()
    return run_tray(
        TraySettings(
            directory=home.directory / "tray",
            find=lambda: find_spoke(home),
            command=start_command(options),
            uploads=Installation(home.directory),
            shortcut="" if options.shortcut == "none" else options.shortcut,
            has_tray=not options.no_tray,
            shows_chat=options.chat,
        )
    )


def start_command(options: argparse.Namespace) -> list[str]:
    """Return how the same program is started at each login."""
    moved = os.environ.get("STRAWBERRY_HOME")
    words = [*own_program(), "tray", "--shortcut", options.shortcut]
    if options.no_tray:
        words.append("--no-tray")
    # Windows has no program to set a variable for another one.
    return ["env", f"STRAWBERRY_HOME={moved}", *words] if moved and sys.platform != "win32" else words


def register_tray(parser: Parser) -> None:
    """Declare 'strawberry tray'."""
    parser.runs(run)
    parser.add_flag("--chat", "show the window at once")
    parser.add_flag("--no-tray", "only the window; closing it ends the program")
    parser.takes(
        "--shortcut",
        "global shortcut of the window, none for none; default Ctrl+Alt+Space",
        metavar="KEYS",
        default="Ctrl+Alt+Space",
    )
