"""All resources of the hub, in the order of the documentation."""

from typing import Any, Final

from chat.operations import Resource
from hub_live.captures.operations import captures
from hub_live.memory.operations import memory
from hub_registry.access.bearer import Bearer

RESOURCES: Final[tuple[Resource[Any, Bearer], ...]] = (captures, memory)
