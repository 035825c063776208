"""Files that add a computer without a terminal: to double-click, or for the card of a Raspberry Pi."""

import re
import shlex
from importlib.resources import files
from typing import Final

from hub_web.joining.commands import LINUX, RUNNING, WINDOWS, install_lines, install_steps, join_line
from hub_web.texts import text

FILES: Final = {WINDOWS: "strawberry-join.cmd", "Linux": "strawberry-join.sh"}
"""By system, the file that is double-clicked there."""

CARD_FILE: Final = "vendor-data"
"""A script that cloud-init runs from the boot partition; Raspberry Pi Imager writes `user-data` there."""


def how_to_open(system: str) -> str:
    """Return what a person does with the file of this system."""
    if system == WINDOWS:
        return text(
            "Open the file with a double click. If Windows does not know its publisher, choose “More info”, "
            "then “Run anyway”. Its window shows what to do next: keep it open."
        )
    return text(
        "Right-click the file, and in its properties allow it to run as a program. Right-click it again, and "
        "choose “Run as a program”; on KDE and Raspberry Pi OS open it, and choose “Execute in Terminal”. "
        "Its window asks for your password, and shows what to do next: keep it open."
    )


def file_to_open(name: str, url: str, pin: str) -> bytes:
    """Return the file of `FILES` with this name: the lines of the page, and words about them.

    Args:
        url: Of the hub.
        pin: See `install_steps`.
    """
    words = {
        "about": text("Adds this computer to the home at {url}. Its hub made this file.", url=url),
        "installing": text("Installing Strawberry. This takes some minutes."),
        "joining": text("A new computer shows a code now. An admin enters it on the page Devices."),
        "running": text("This computer belongs to the home while this window is open."),
        "failed": text("It has ended. The lines above say why. To try again, open the file again."),
        "done": text("This computer is part of the home, and its skills start with it from now on."),
        "close": text("Press Enter to close this window."),
        "python": text("Python is missing. Install it from python.org/downloads, then open the file again."),
    }
    lines = {"join": join_line(url), "run": RUNNING}
    if name == FILES[WINDOWS]:
        steps = "\n".join(f"{step} || goto failed" for step in install_steps(url, pin)[WINDOWS])
        return _filled("join.cmd", words | lines | {"steps": steps}).replace(b"\n", b"\r\n")
    quoted = {key: shlex.quote(said) for key, said in words.items()} | {"about": words["about"]}
    return _filled("join.sh", quoted | lines | {"install": install_lines(url, pin)[LINUX]})


def card_file(url: str, pin: str, *, token: str, hub_key: str) -> bytes:
    """Return what a Raspberry Pi runs as root at its first start; its program then has a user of its own.

    Args:
        token: To enrol with: it has no screen that could show a code.
        hub_key: Fingerprint of the hub that it joins.
    """
    system, *own = install_steps(url, pin)[LINUX]
    given = {"install": " && ".join(own), "token": token, "url": url, "key": hub_key}
    made = {key: shlex.quote(value) for key, value in given.items()} | {"system": system}
    made["about"] = text("Adds this Raspberry Pi to the home at {url}. It works once.", url=url)
    return _filled("card.sh", made | {"insecure": " --insecure" if url.startswith("http://") else ""})


def _filled(name: str, values: dict[str, str]) -> bytes:
    content = (files("hub_web.joining") / name).read_text("utf-8")
    return re.sub("@([a-z]+)@", lambda found: values[found[1]], content).encode()
