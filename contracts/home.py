"""Topics of the hub on a broker beside the bus: all retained, nothing signed."""

from typing import Final

from pydantic import TypeAdapter, ValidationError

from contracts.errors import InvalidTopic
from contracts.names import InstanceName

ONLINE: Final = b"online"
OFFLINE: Final = b"offline"

_INSTANCE: Final[TypeAdapter[str]] = TypeAdapter(InstanceName)


def availability(instance: str) -> str:
    """Return the topic that tells whether a hub process is there, as Home Assistant understands it.

    It carries `ONLINE` or `OFFLINE`, the second also as the Last Will.

    Raises:
        InvalidTopic: If that is not the name of a hub process.
    """
    try:
        return f"strawberry/{_INSTANCE.validate_python(instance)}/availability"
    except ValidationError:
        raise InvalidTopic(f"{instance!r} is not the name of a hub process") from None
