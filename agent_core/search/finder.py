"""Search and declared sentences over a directory, and the catalogue that a turn gets of them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from agent_core.search import targets
from agent_core.search.catalogue import SearchPage, Target
from agent_core.search.directory import HUB_KEY, DeviceEntry, RegisteredSkill
from agent_core.search.embeddings import Embeddings
from agent_core.search.index import MAX_ANSWER_BYTES, IndexedDevice, SkillIndex
from agent_core.search.targets import AnyDirectory
from agent_core.sentences.index import SentenceCall, SentenceChoice, SentenceIndex
from contracts.wire import Json

_log = logging.getLogger(__name__)


class SkillFinder:
    """Finds methods by words and by declared sentences; both indexes follow the directory.

    Args:
        expiry_s: Without a sign of life for this long, a device's skills leave the search. Those of
            a device that is offline for less stay, marked as unavailable. None keeps them all.
    """

    def __init__(self, directory: AnyDirectory, *, expiry_s: float | None = None) -> None:
        self.directory = directory
        self._expiry = None if expiry_s is None else timedelta(seconds=expiry_s)
        self._skills = SkillIndex()
        self._sentences = SentenceIndex()
        self._embeddings: Embeddings | None = None
        self._searchable: set[str] = set()
        self._known: dict[str, dict[str, tuple[RegisteredSkill, str, str]]] = {}
        # By device-agnostic skill: its providers, and the one whose sentences are in the index.
        self._providers: dict[str, set[str]] = {}
        self._leading: dict[str, str] = {}
        self._changed = {entry.id for entry in directory.entries()}
        self._stop = directory.on_change(self._changed.add)

    def close(self) -> None:
        """Stop following the directory."""
        self._stop()
        self._skills.close()

    def search(
        self,
        query: str = "",
        *,
        current: str | None = None,
        limit: int | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> SearchPage:
        """Find methods by any words; see ``SkillIndex.search``."""
        self.sync()
        return self._skills.search(query, current=current, limit=limit, max_bytes=max_bytes)

    async def find(
        self, query: str = "", *, current: str | None = None, limit: int | None = None
    ) -> SearchPage:
        """Find methods by words and, where a model for it is set and answers in time, by meaning."""
        self.sync()
        similar = await self._embeddings.similar(query) if self._embeddings and query.strip() else None
        return self._skills.search(query, current=current, similar=similar, limit=limit)

    @contextmanager
    def using(self, embeddings: Embeddings) -> Iterator[None]:
        """Search by meaning, too, within the block."""
        self._embeddings = embeddings
        embeddings.keep(self._skills.texts())
        try:
            yield
        finally:
            self._embeddings = None

    def match(
        self, utterance: str, *, language: str, current: str | None
    ) -> SentenceCall | SentenceChoice | None:
        """Find the call that an utterance means; see ``SentenceIndex.match``."""
        self.sync()
        return self._sentences.match(
            utterance, language=language, current=current, is_connected=self._is_connected
        )

    def examples(self, language: str) -> list[str]:
        """Return some sentences that work."""
        self.sync()
        return self._sentences.examples(language)

    def catalogue(self, current: str | None = None) -> "DirectoryCatalogue":
        """Return the skills as they are seen from a device."""
        return DirectoryCatalogue(self, current)

    def expire(self) -> None:
        """Remove devices that gave no sign of life for too long, and add those that did again."""
        for entry in self.directory.entries():
            if self._is_searchable(entry) != (entry.id in self._searchable):
                self._changed.add(entry.id)
        self.sync()

    def sync(self) -> None:
        """Bring both indexes up to the directory."""
        is_changed = bool(self._changed)
        while self._changed:
            device = self._changed.pop()
            try:
                self._update(device)
            except Exception:  # noqa: BLE001
                # One device's skills may be missing from the search; those of the others must not be.
                _log.exception("indexing the skills of %s failed", device)
        if is_changed and self._embeddings is not None:
            self._embeddings.keep(self._skills.texts())

    def _update(self, device: str) -> None:
        entry = self.directory.get(device)
        if entry is None or not self._is_searchable(entry):
            self._skills.remove_device(device)
            self._searchable.discard(device)
        else:
            words = (*entry.names, *entry.places)
            self._skills.set_device(IndexedDevice(entry.id, entry.key, words, entry.unavailable or ""))
        if entry is None or entry.revoked:
            for skill in self._known.pop(device, {}):
                self._forget_sentences(device, skill)
        else:
            self._follow(entry)

    def _follow(self, entry: DeviceEntry) -> None:
        known = self._known.setdefault(entry.id, {})
        is_new = entry.id not in self._searchable and self._is_searchable(entry)
        if is_new:
            self._searchable.add(entry.id)
        for gone in [name for name in known if name not in entry.skills]:
            self._skills.remove_skill(entry.id, gone)
            self._forget_sentences(entry.id, gone)
            del known[gone]
        for name, skill in entry.skills.items():
            # Names are part of the targets of sentences, so a renamed device is indexed again.
            version = (skill, entry.key, entry.display_name)
            is_changed = known.get(name) != version
            if entry.id in self._searchable and (is_new or is_changed):
                self._skills.put_skill(entry.id, skill.registration)
            if is_changed:
                self._forget_sentences(entry.id, name)
                known[name] = version
                self._add_sentences(entry, skill)

    def _add_sentences(self, entry: DeviceEntry, skill: RegisteredSkill) -> None:
        if skill.device_agnostic:
            self._providers.setdefault(skill.name, set()).add(entry.id)
            leading = self._leading.setdefault(skill.name, entry.id)
            if leading != entry.id and self._known[leading][skill.name][0].rank <= skill.rank:
                return
            self._leading[skill.name] = entry.id
        self._sentences.put(
            (each for each in targets.skill_targets(self.directory, entry, skill) if each.method.sentences),
            own=skill.own_sentences,
            only_on=entry.id,
        )

    def _forget_sentences(self, device: str, skill: str) -> None:
        self._sentences.remove(device, skill)
        self._providers.get(skill, set()).discard(device)
        if self._leading.get(skill) == device:
            self._sentences.remove(HUB_KEY, skill)
            del self._leading[skill]
            others = [
                (self._known[other][skill][0].rank, other, entry)
                for other in self._providers[skill]
                if (entry := self.directory.get(other)) is not None
            ]
            if others:
                _, first, entry = min(others, key=lambda each: each[:2])
                self._add_sentences(entry, self._known[first][skill][0])

    def _is_searchable(self, entry: DeviceEntry) -> bool:
        if self._expiry is None or entry.revoked:
            return not entry.revoked
        heard = entry.last_heartbeat
        return heard is not None and heard >= datetime.now(UTC) - self._expiry

    def _is_connected(self, device: str) -> bool:
        entry: Any = self.directory.get(device)
        # What any device can do is on no device of the directory; the call finds one that is connected.
        return device == HUB_KEY or (entry is not None and entry.connected)


class DirectoryCatalogue:
    """A ``Catalogue`` over a directory.

    Attributes:
        current: Id of the current device, where there is one.
    """

    def __init__(self, finder: SkillFinder, current: str | None = None) -> None:
        self.finder = finder
        self.current = current

    async def search(self, query: str) -> SearchPage:
        """See ``agent_core.search.catalogue.Catalogue``."""
        return await self.finder.find(query, current=self.current)

    async def resolve(self, path: str) -> Target:
        """See ``agent_core.search.catalogue.Catalogue``."""
        return targets.find_path(self.finder.directory, path, current=self.current)

    async def describe(self, path: str) -> str:
        """See ``agent_core.search.catalogue.Catalogue``."""
        return targets.describe(self.finder.directory, path, current=self.current)

    async def describe_skill(self, name: str) -> dict[str, Json]:
        """See ``agent_core.search.catalogue.Catalogue``."""
        return targets.skill_info(self.finder.directory, name, current=self.current)
