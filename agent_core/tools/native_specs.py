"""Methods of skills as tools that a model calls by itself: names, descriptions and schemas."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_core.gateway.protocol import ToolSpec
from agent_core.search.catalogue import FoundMethod, Target
from contracts.wire import Json

_MAX_NAME: Final = 64
"""What every provider takes; letters, digits, ``_`` and ``-`` only."""

_MAX_DESCRIPTION: Final = 400
_DEVICE_ARGUMENTS: Final = ("device", "on_device", "which_device")


@dataclass(frozen=True)
class NativeTool:
    """One method as a tool.

    Attributes:
        path: Of the method, on the first of its devices.
        paths: By the key of each device, where it is on several.
        device_argument: The argument that chooses among them; empty where there is no choice.
    """

    spec: ToolSpec
    path: str
    paths: Mapping[str, str]
    device_argument: str = ""

    @property
    def size(self) -> int:
        """UTF-8 bytes that it takes of a prompt."""
        return len(
            json.dumps(
                [self.spec.name, self.spec.description, self.spec.parameters], ensure_ascii=False
            ).encode()
        )

    def aim(self, arguments: Mapping[str, Json]) -> tuple[str, dict[str, Json]]:
        """Tell apart which device is meant and what the method gets.

        Gives the path, and the arguments of the method; a device that is none of its own is left to the
        catalogue, which knows how to say so.
        """
        given = dict(arguments)
        if not self.device_argument or given.get(self.device_argument) is None:
            given.pop(self.device_argument, None)
            return self.path, given
        key = str(given.pop(self.device_argument))
        return self.paths.get(key) or _on(self.path, key), given


def native_tool(found: FoundMethod, target: Target, *, taken: Collection[str]) -> NativeTool:
    """Make the tool of a method.

    Args:
        found: How it was found, with the devices that have it.
        target: The same method on the first of them.
        taken: Names that other tools have.
    """
    first = found.path.split(".")[1]
    several = found.devices if first in found.devices and len(found.devices) > 1 else ()
    parameters = {**target.method.parameters, "type": "object"}
    properties: dict[str, Any] = dict(parameters.get("properties", {}))
    argument = ""
    if several:
        argument = next((name for name in _DEVICE_ARGUMENTS if name not in properties), "")
    if argument:
        properties[argument] = _which_device(several, found.more_devices)
    parameters["properties"] = properties
    return NativeTool(
        spec=ToolSpec(_name(found.path, taken), _description(found, target, several), parameters),
        path=found.path,
        paths={key: _on(found.path, key) for key in several} if argument else {},
        device_argument=argument,
    )


def _which_device(keys: tuple[str, ...], more: int) -> dict[str, Json]:
    made: dict[str, Json] = {
        "type": "string",
        "description": f"Which device; {keys[0]} where the user names none",
    }
    if more:
        # An enum would forbid those that are not listed.
        made["description"] = (
            f"{made['description']}. The key of any that has it: {', '.join(keys)} and {more} more"
        )
    else:
        made["enum"] = list(keys)
    return made


def _on(path: str, key: str) -> str:
    root, _, *rest = path.split(".")
    return ".".join((root, key, *rest))


def _name(path: str, taken: Collection[str]) -> str:
    """Name it by class and method, and by more where another tool has that name."""
    _, device, skill, method = path.split(".")
    for words in ((skill, method), (device, skill, method)):
        name = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(words))
        if name not in taken and len(name) <= _MAX_NAME:
            return name
    mark = hashlib.sha256(path.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', f'{skill}_{method}')[: _MAX_NAME - 9]}_{mark}"


def _description(found: FoundMethod, target: Target, several: tuple[str, ...]) -> str:
    doc = " ".join(target.method.doc.split())
    parts = [doc if len(doc) <= _MAX_DESCRIPTION else f"{doc[: _MAX_DESCRIPTION - 1]}…"]
    if not several:
        parts.append(f"Device: {target.device_name}.")
    if found.flags.confirm:
        parts.append("The user is asked first.")
    if found.unavailable:
        parts.append(f"Cannot be called right now: {found.unavailable}.")
    return " ".join(filter(None, parts))
