"""Starting with the session: an XDG autostart file, or the ``Run`` key of Windows."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PySide6.QtCore import QSettings

_NAME: Final = "strawberry-tray"
_RUN_KEY: Final = r"HKEY_CURRENT_USER\Software\Microsoft\Windows\CurrentVersion\Run"
_RESERVED: Final = re.compile(r'(["`$\\])')


@dataclass(frozen=True)
class Autostart:
    """Whether a command is run at each login.

    Attributes:
        command: The program and its arguments.
    """

    command: Sequence[str]

    @property
    def is_on(self) -> bool:
        """Return whether the tray starts with the session."""
        if sys.platform == "win32":
            return QSettings(_RUN_KEY, QSettings.Format.NativeFormat).contains(_NAME)
        return _file().exists()

    def set(self, *, on: bool) -> None:
        """Run it at each login, or not any more.

        Raises:
            OSError: If the file cannot be written.
        """
        if sys.platform == "win32":
            run = QSettings(_RUN_KEY, QSettings.Format.NativeFormat)
            if on:
                run.setValue(_NAME, subprocess.list2cmdline(self.command))
            else:
                run.remove(_NAME)
        elif on:
            _file().parent.mkdir(parents=True, exist_ok=True)
            _file().write_text(self._entry(), "utf-8")
        else:
            _file().unlink(missing_ok=True)

    def _entry(self) -> str:
        return (
            "[Desktop Entry]\nType=Application\nName=Strawberry\nComment=Tray icon and quick chat\n"
            f"Exec={' '.join(map(_quoted, self.command))}\nX-GNOME-Autostart-enabled=true\n"
        )


def _file() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "autostart" / f"{_NAME}.desktop"


def _quoted(word: str) -> str:
    # The Desktop Entry Specification has the backslash as an escape in strings, too.
    return '"{}"'.format(_RESERVED.sub(r"\\\1", word).replace("\\", r"\\").replace("%", "%%"))
