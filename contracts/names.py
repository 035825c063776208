"""The names that stand in topics and in generated code, and the rules they keep."""

import keyword
import re
import unicodedata
from collections.abc import Container
from typing import Annotated, Final

from pydantic import AfterValidator, StringConstraints

from contracts import limits

RESERVED: Final = frozenset({"hub"})
"""Device ids and keys that no device may have: ``hub`` is the virtual device."""

HUB_SKILLS: Final = frozenset(
    {
        "AgentSkill",
        "BusSkill",
        "CaptureSkill",
        "DeviceSkill",
        "HelpSkill",
        "HomeAssistantSkill",
        "ListSkill",
        "MemorySkill",
        "NodeSkill",
        "WatcherSkill",
        "WorldSkill",
    }
)
"""Class names of the hub's own abilities; a spoke's skill may not take one."""

INSTALLATION_SKILL: Final = "InstallationSkill"
"""What each spoke serves without registering it: the hub calls it for the owner of the device."""

_DEVICE_ID: Final = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
_HUB_BRANCHES: Final = frozenset({"chat", "watchers", "captures"})


def is_device_id(text: str) -> bool:
    """Return whether the text can be a device's id: ``[a-z][a-z0-9_]{0,31}``, no keyword, not reserved."""
    return bool(_DEVICE_ID.match(text)) and not keyword.iskeyword(text) and text not in RESERVED


def _device_id(text: str) -> str:
    if not is_device_id(text):
        raise ValueError("a device id is [a-z][a-z0-9_]{0,31}, no Python keyword and not 'hub'")
    return text


def _instance_name(text: str) -> str:
    if text in _HUB_BRANCHES:
        raise ValueError(f"a hub process cannot be called {text!r}: hub/{text} is a branch of its own")
    return text


def device_key(display_name: str, taken: Container[str] = (), *, otherwise: str = "device") -> str:
    """Make the name a device has in generated code, from what a person calls it.

    Args:
        display_name: Any text, for example ``Bedroom PC``.
        taken: Keys that are in use already.
        otherwise: What it begins with where the text begins with no Latin letter.

    Returns:
        A valid device id that is not taken, for example ``bedroom_pc`` or ``bedroom_pc_2``.
    """
    # NFKD splits "ü" into "u" and a mark, so that accents vanish and the letter stays.
    plain = unicodedata.normalize("NFKD", display_name).encode("ascii", "ignore").decode().lower()
    base = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if not base or not base[0].isalpha():
        base = f"{otherwise}_{base}".rstrip("_")
    base = base[: limits.MAX_KEY].rstrip("_")
    candidate, number = base, 1
    while not is_device_id(candidate) or candidate in taken:
        number += 1
        suffix = f"_{number}"
        candidate = base[: limits.MAX_KEY - len(suffix)] + suffix
    return candidate


DeviceId = Annotated[str, AfterValidator(_device_id)]
SkillName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
MethodName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
InstanceName = Annotated[
    str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,31}$"), AfterValidator(_instance_name)
]
CallId = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"),
]
"""A UUIDv7 in its canonical lower-case form (RFC 9562)."""
Token = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
"""A level of a topic that is neither a device nor a skill: a principal, a chat id, an event name."""
