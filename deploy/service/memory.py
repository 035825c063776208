"""How much memory a service may have: what it needs itself, what its sandboxes need, and a margin."""

import re
from typing import Final

from deploy.service.plan import Kind

SPOKE_SANDBOXES: Final = 1
HUB_SANDBOXES: Final = 5
"""Processes at the same time: four conversations of a hub and a spare one; a spoke has one conversation."""

_SPOKE_MB: Final = 80
_HUB_MB: Final = 280
"""With the library that asks models."""
_ANSWERING_MB: Final = 120
"""What a spoke loads besides, to answer by itself: that library, the agent, the conversation."""
_SANDBOX_MB: Final = 450
_MARGIN_MB: Final = 300
"""For what skills load; what comes on top of it is taken for a leak."""
_STEP_MB: Final = 128
_UNITS_MB: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}
_SIZE: Final = re.compile(r"([1-9][0-9]*)([KMG])")


def needed_mb(kind: Kind, *, models: bool) -> int:
    """Give what a service comes to at its busiest, without what its skills load.

    Args:
        models: Whether models are configured: a spoke with some answers by itself while the hub is away.
    """
    spoke = _SPOKE_MB + (_ANSWERING_MB + SPOKE_SANDBOXES * _SANDBOX_MB if models else 0)
    hub = _HUB_MB + HUB_SANDBOXES * _SANDBOX_MB
    return {"spoke": spoke, "hub": hub, "up": hub + spoke}[kind]


def cap(kind: Kind, *, models: bool) -> str:
    """Give the cap of a service, as systemd writes sizes."""
    wanted = needed_mb(kind, models=models) + _MARGIN_MB
    return f"{-(-wanted // _STEP_MB) * _STEP_MB}M"


def size_mb(text: str) -> int | None:
    """Read a size such as ``512M`` or ``2G``; None if it is none."""
    found = _SIZE.fullmatch(text)
    return None if found is None else int(int(found[1]) * _UNITS_MB[found[2]])
