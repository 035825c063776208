"""The declared sentences of all devices: an index that follows the directory."""

import logging
from collections.abc import Iterator

from agent_core.search.catalogue import Target
from agent_core.sentences.index import SentenceCall, SentenceChoice, SentenceIndex
from hub_registry.devices.directory import HUB_KEY, Directory, Entry, Found
from hub_registry.devices.registrations import RegisteredSkill
from hub_registry.devices.targets import of_any, on_device

_log = logging.getLogger(__name__)


class Sentences:
    """Matches what a person says with what the devices declare.

    A device-agnostic skill is one skill, called on the hub, however many devices have it.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._index = SentenceIndex()
        self._known: dict[str, dict[str, str]] = {}
        self._agnostic: dict[str, set[str]] = {}
        self._changed = {entry.id for entry in directory.entries()}
        self._stop = directory.on_change(self._changed.add)

    def close(self) -> None:
        """Follow the directory no longer."""
        self._stop()

    def match(
        self, utterance: str, *, language: str, current: str | None
    ) -> SentenceCall | SentenceChoice | None:
        """Find the call that an utterance means; see ``SentenceIndex.match``."""
        self._sync()
        return self._index.match(utterance, language=language, current=current)

    def examples(self, language: str) -> list[str]:
        """Give some sentences that work."""
        self._sync()
        return self._index.examples(language)

    def _sync(self) -> None:
        while self._changed:
            device = self._changed.pop()
            try:
                self._update(device)
            except Exception:  # noqa: BLE001
                _log.exception("indexing the sentences of %s failed", device)

    def _update(self, device: str) -> None:
        entry = self._directory.get(device)
        if entry is None or entry.device.revoked:
            for skill in self._known.pop(device, {}):
                self._remove(device, skill)
        else:
            self._follow(entry)

    def _follow(self, entry: Entry) -> None:
        known = self._known.setdefault(entry.id, {})
        for gone in [name for name in known if name not in entry.skills]:
            self._remove(entry.id, gone)
            del known[gone]
        for name, skill in entry.skills.items():
            # The display name is part of what is matched, so a renamed device is taken in anew.
            version = f"{skill.digest} {entry.device.display_name}"
            if known.get(name) != version:
                self._remove(entry.id, name)
                if skill.device_agnostic:
                    self._agnostic.setdefault(name, set()).add(entry.id)
                self._index.put(_targets(entry, skill))
                known[name] = version

    def _remove(self, device: str, skill: str) -> None:
        self._index.remove(device, skill)
        serving = self._agnostic.get(skill, set())
        serving.discard(device)
        if not serving:
            self._agnostic.pop(skill, None)
            self._index.remove(HUB_KEY, skill)


def _targets(entry: Entry, skill: RegisteredSkill) -> Iterator[Target]:
    for method in skill.methods.values():
        if not method.sentences:
            continue
        if skill.device_agnostic:
            yield of_any(skill.name, method)
        else:
            yield on_device(Found(entry, skill, method))
