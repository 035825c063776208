"""How a new device gets the program: lines to type, files to double-click, and one for a Raspberry Pi."""

import re
import shlex
from importlib.resources import files
from typing import Final

from hub_web.joining.wheel import wheel_name
from hub_web.texts import text

WHEELS: Final = "/join/"
"""Path below which the hub serves its own wheel, and the files that run these lines."""

LINUX, WINDOWS = "Linux, Raspberry Pi", "Windows"
FROM_HUB: Final = (
    "The hub itself gives the version that it runs; the packages of others that this needs come from the "
    "package index."
)
RUNNING: Final = "strawberry spoke run --samples"

FILES: Final = {WINDOWS: "strawberry-join.cmd", "Linux": "strawberry-join.sh"}
"""By system, the file that is double-clicked there."""

CARD_FILE: Final = "vendor-data"
"""A script that cloud-init runs from the boot partition; Raspberry Pi Imager writes `user-data` there."""


def install_steps(url: str, pin: str) -> dict[str, list[str]]:
    """Return by platform the commands that install what the hub at this address runs.

    Args:
        pin: SHA-256 of the public key of the hub's own TLS, in base64; empty where it has none. pip would not
            trust that certificate, and curl takes no other key.
    """
    name = wheel_name()
    wheel, fetch = f"{url}{WHEELS}{name}", ""
    if pin and url.startswith("https://"):
        fetch, wheel = f'curl -fk --pinnedpubkey "sha256//{pin}" -O {wheel}', f"./{name}"
    steps = {
        LINUX: ("sudo apt install -y pipx curl", "pipx ensurepath", fetch, f"pipx install {wheel}"),
        "macOS": ("brew install pipx", "pipx ensurepath", fetch, f"pipx install {wheel}"),
        WINDOWS: (
            "py -m pip install --user pipx",
            "py -m pipx ensurepath",
            fetch.replace("curl", "curl.exe", 1),
            f"py -m pipx install {wheel}",
        ),
    }
    return {platform: [each for each in commands if each] for platform, commands in steps.items()}


def install_lines(url: str, pin: str) -> dict[str, str]:
    """Return by platform the line for its terminal that does these steps."""
    steps = install_steps(url, pin)
    return {each: ("; " if each == WINDOWS else " && ").join(steps[each]) for each in steps}


def join_line(url: str) -> str:
    """Return the line by which a device joins the hub at this address."""
    return f"strawberry spoke join {url}" + (" --insecure" if url.startswith("http://") else "")


def terminal_lines(url: str, pin: str) -> dict[str, str]:
    """Return by its label each line for a terminal: one that installs, and those that follow it."""
    join, run = text("Then, in a new terminal window"), text("After it was admitted, in the same window")
    return install_lines(url, pin) | {join: join_line(url), run: RUNNING}


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
