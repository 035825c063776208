"""What runs on a new device: how Strawberry is installed there, and how it joins."""

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
