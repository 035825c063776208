"""What a person types on a new device: how Strawberry is installed there, and how it joins."""

from typing import Final

INSTALLING: Final = {
    "Linux, Raspberry Pi": "sudo apt install -y pipx && pipx ensurepath && pipx install strawberry-home",
    "macOS": "brew install pipx && pipx ensurepath && pipx install strawberry-home",
    "Windows": "py -m pip install --user pipx; py -m pipx ensurepath; py -m pipx install strawberry-home",
}
"""By platform, the line for its terminal."""
FROM_FILE: Final = (
    "If your Strawberry came as a file, copy that file to the device and put its name in place of "
    "strawberry-home."
)
ADMITTING: Final = "The device shows a code and a fingerprint. An admin admits it on this page:"
RUNNING: Final = "strawberry spoke run --samples"


def join_line(url: str) -> str:
    """Return the line by which a device joins the hub at this address."""
    return f"strawberry spoke join {url}" + (" --insecure" if url.startswith("http://") else "")
