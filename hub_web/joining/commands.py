"""What a person types on a new device: how Strawberry is installed there, and how it joins."""

from typing import Final

from hub_web.joining.wheel import wheel_name

WHEELS: Final = "/join/"
"""Path below which the hub serves its own wheel."""

_INSTALLING: Final = {
    "Linux, Raspberry Pi": "sudo apt install -y pipx curl && pipx ensurepath && {fetch}pipx install {wheel}",
    "macOS": "brew install pipx && pipx ensurepath && {fetch}pipx install {wheel}",
    "Windows": "py -m pip install --user pipx; py -m pipx ensurepath; {fetch}py -m pipx install {wheel}",
}
FROM_HUB: Final = (
    "The hub itself gives the version that it runs; the packages of others that this needs come from the "
    "package index."
)
ADMITTING: Final = "The device shows a code and a fingerprint. An admin admits it on this page:"
RUNNING: Final = "strawberry spoke run --samples"


def install_lines(url: str, pin: str) -> dict[str, str]:
    """Return by platform the line for its terminal that installs what the hub at this address runs.

    Args:
        pin: SHA-256 of the public key of the hub's own TLS, in base64; empty where it has none. pip would not
            trust that certificate, and curl takes no other key.
    """
    name = wheel_name()
    wheel, fetch = f"{url}{WHEELS}{name}", dict.fromkeys(_INSTALLING, "")
    if pin and url.startswith("https://"):
        got = f'-fk --pinnedpubkey "sha256//{pin}" -O {wheel}'
        fetch = dict.fromkeys(_INSTALLING, f"curl {got} && ") | {"Windows": f"curl.exe {got}; "}
        wheel = f"./{name}"
    return {each: line.format(fetch=fetch[each], wheel=wheel) for each, line in _INSTALLING.items()}


def join_line(url: str) -> str:
    """Return the line by which a device joins the hub at this address."""
    return f"strawberry spoke join {url}" + (" --insecure" if url.startswith("http://") else "")
