"""Searching the directory: an index that follows it."""

import logging
from datetime import timedelta

from agent_core.search.index import MAX_ANSWER_BYTES, IndexedDevice, SearchAnswer, SkillIndex
from hub_registry.devices.directory import Directory, Entry
from hub_registry.storage.tables import now

_log = logging.getLogger(__name__)


class SkillSearch:
    """Finds methods by words, over all devices that gave a sign of life not too long ago.

    Args:
        expiry_s: Without a sign of life for this long, a device's skills leave the search. Those of
            a device that is offline for less stay, marked as unavailable.
    """

    def __init__(self, directory: Directory, *, expiry_s: float) -> None:
        self._directory = directory
        self._expiry = timedelta(seconds=expiry_s)
        self._index = SkillIndex()
        self._indexed: dict[str, dict[str, str]] = {}
        self._changed = {entry.id for entry in directory.entries()}
        self._stop = directory.on_change(self._changed.add)

    def close(self) -> None:
        """Follow the directory no longer."""
        self._stop()
        self._index.close()

    def search(
        self,
        query: str = "",
        *,
        current: str | None = None,
        limit: int | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> SearchAnswer:
        """Find methods by any words; see ``SkillIndex.search``.

        Args:
            query: Words; none lists all.
            current: Id of the device on which the question was asked; what it has comes first.
            limit: How many results at most.
            max_bytes: How long the answer may be as JSON.
        """
        self.sync()
        return self._index.search(query, current=current, limit=limit, max_bytes=max_bytes)

    def expire(self) -> None:
        """Take out devices that gave no sign of life for too long, and back in those that did again."""
        since = now() - self._expiry
        self._changed.update(
            entry.id
            for entry in self._directory.entries()
            if entry.fresh(since=since) != (entry.id in self._indexed)
        )
        self.sync()

    def sync(self) -> None:
        """Bring the index up to the directory."""
        while self._changed:
            device = self._changed.pop()
            try:
                self._update(device)
            except Exception:  # noqa: BLE001
                # One device's skills may be missing from the search; those of the others must not be.
                _log.exception("indexing the skills of %s failed", device)

    def _update(self, device: str) -> None:
        entry = self._directory.get(device)
        if entry is None or not entry.fresh(since=now() - self._expiry):
            self._index.remove_device(device)
            self._indexed.pop(device, None)
        else:
            self._follow(entry)

    def _follow(self, entry: Entry) -> None:
        device = entry.device
        words = [*device.names, *(place for place in (device.area, device.floor) if place)]
        self._index.set_device(IndexedDevice(entry.id, entry.key, words, entry.unavailable or ""))
        indexed = self._indexed.setdefault(entry.id, {})
        for name in [name for name in indexed if name not in entry.skills]:
            self._index.remove_skill(entry.id, name)
            del indexed[name]
        for name, skill in entry.skills.items():
            if indexed.get(name) != skill.digest:
                self._index.put_skill(entry.id, skill.registration)
                indexed[name] = skill.digest
