"""Which devices are there, and in which epoch, as the registry told the caller."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Seen:
    epoch: int
    connection: int
    online: bool


class Whereabouts:
    """The latest connection of every device."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def epoch(self, device: str) -> int | None:
        """Give the epoch of a device that is there; None for one that is not."""
        seen = self._seen.get(device)
        return seen.epoch if seen is not None and seen.online else None

    def come(self, device: str, epoch: int, connection: int) -> bool:
        """Take in that a device is there; give whether that is news.

        A connection that counted as offline because nobody confirmed it may turn out to be there after
        all. Of one that said goodbye itself the registry takes no such status.
        """
        seen = self._seen.get(device)
        if seen is not None:
            order, before = (epoch, connection), (seen.epoch, seen.connection)
            if order < before or (order == before and seen.online):
                return False
        self._seen[device] = _Seen(epoch, connection, online=True)
        return True

    def go(self, device: str, epoch: int, connection: int) -> bool:
        """Take in that a connection has ended; give whether it was the latest one."""
        seen = self._seen.get(device)
        if seen is not None and (epoch, connection) < (seen.epoch, seen.connection):
            return False
        self._seen[device] = _Seen(epoch, connection, online=False)
        return True
