"""An index over the skills of many devices.

The same class, name and parameters on several devices are one skill: one entry with a list of devices. So a
thousand devices that run the same skills cost the index little more than one.
"""

import json
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final

from agent_core import limits
from agent_core.search.catalogue import FoundMethod, SearchPage
from agent_core.search.directory import HUB_KEY
from agent_core.search.embeddings import Similar, fused
from agent_core.search.ranking import Document, Ranking
from agent_core.search.words import name_words, query_terms, query_words, sentence_words
from contracts.devices.registration import Method, Registration
from contracts.text import shortened

MAX_ANSWER_BYTES: Final = 4_096
"""What an answer has by default: a thousand tokens of a model's context at most."""

_ENVELOPE_BYTES: Final = 200


@dataclass(frozen=True)
class IndexedDevice:
    """What the search knows about a device.

    Attributes:
        id: Its id.
        key: Its name in generated code.
        words: Words that people use for it: display name, aliases, area, floor.
        unavailable: Why it cannot be called right now; empty if it can.
    """

    id: str
    key: str
    words: Collection[str] = ()
    unavailable: str = ""


@dataclass
class _Entry:
    """One skill method with the devices that have it."""

    row: int
    skill: str
    is_agnostic: bool
    method: str
    text: Document | None = None
    contracts: dict[str, Method] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)


_Key = tuple[str, str, bool, str]


class SkillIndex:
    """Every method of every device, searchable."""

    def __init__(self) -> None:
        self._ranking = Ranking()
        self._devices: dict[str, IndexedDevice] = {}
        self._named: dict[str, set[str]] = {}
        self._entries: dict[_Key, _Entry] = {}
        self._by_row: dict[int, _Entry] = {}
        self._keys: dict[str, dict[str, list[_Key]]] = {}
        self._next_row = 1
        self._alphabetical: list[_Entry] | None = None
        self._news: dict[int, str] = {}

    def close(self) -> None:
        self._ranking.close()

    def set_device(self, device: IndexedDevice) -> None:
        """Set the names of a device and whether it can be called right now."""
        known = self._devices.get(device.id)
        if known is not None:
            self._unname(known)
        self._devices[device.id] = device
        for word in _device_words(device):
            self._named.setdefault(word, set()).add(device.id)

    def remove_device(self, device_id: str) -> None:
        """Remove a device and all its skills."""
        for skill in list(self._keys.get(device_id, ())):
            self.remove_skill(device_id, skill)
        device = self._devices.pop(device_id, None)
        if device is not None:
            self._unname(device)

    def put_skill(self, device_id: str, registration: Registration) -> None:
        """Add a skill of a device that is known, or replace it.

        Raises:
            KeyError: The device is not known.
        """
        for _ in self.putting(device_id, registration):
            pass

    def putting(self, device_id: str, registration: Registration) -> Iterator[None]:
        """Add a skill as `put_skill` does, one method in each step; to be begun again where it was left."""
        if device_id not in self._devices:
            raise KeyError(device_id)
        methods = {_key(registration, method): method for method in registration.methods}
        known = self._keys.setdefault(device_id, {}).setdefault(registration.skill, [])
        for key in [each for each in known if each not in methods]:
            known.remove(key)
            self._leave(key, device_id)
            yield
        for key, method in methods.items():
            if key not in self._entries or device_id not in self._entries[key].contracts:
                known.append(key)
            self._join(key, device_id, registration, method)
            yield
        self._keys[device_id][registration.skill] = list(methods)

    def remove_skill(self, device_id: str, skill: str) -> None:
        for key in self._keys.get(device_id, {}).pop(skill, ()):
            self._leave(key, device_id)

    def search(
        self,
        query: str = "",
        *,
        current: str | None = None,
        similar: Similar | None = None,
        among: Container[str] | None = None,
        limit: int | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> SearchPage:
        """Find methods by any words of a question; an empty one lists them all.

        Args:
            query: Words; names are split as in code, so ``setVolume`` does too.
            current: Id of the device on which the question was asked.
            similar: Methods near to the query in meaning, where that is known.
            among: Ids of the devices that are searched; None for all.
            limit: How many results at most.
            max_bytes: How long the answer may be as JSON.
        """
        query = query[: limits.MAX_QUERY]
        words = query_words(query)
        entries: Iterable[_Entry] = ()
        total = 0
        if words:
            ranked = self._ranked(query, words, current, similar, among)
            entries, total = ranked, len(ranked)
        elif not query.strip():
            entries, total = self._listed(current, among), self.count(among)
        named = self._named_by(words, among)
        results: list[FoundMethod] = []
        room = max_bytes - _ENVELOPE_BYTES
        for entry in islice(entries, limit):
            result = self._result(entry, current=current, named=named, among=among)
            room -= len(json.dumps(result.as_json(), ensure_ascii=False).encode()) + 1
            if room < 0 and results:
                break
            results.append(result)
        return SearchPage(tuple(results), total)

    def listing(self, among: Container[str] | None = None) -> Iterator[FoundMethod]:
        """List every method by name, one in each step; what is removed meanwhile is left out."""
        for entry in list(self._listed(None, among)):
            if _is_on(entry, among):
                yield self._result(entry, current=None, named=set(), among=among)

    def count(self, among: Container[str] | None = None) -> int:
        """Return how many methods the devices have, each counted once."""
        if among is None:
            return len(self._entries)
        return sum(_is_on(entry, among) for entry in self._entries.values())

    def news(self) -> dict[int, str]:
        """Return the texts, as of `texts`, that changed since it was last asked; an empty one is gone."""
        news, self._news = self._news, {}
        return news

    def texts(self) -> dict[int, str]:
        return {row: entry.text.sentence for row, entry in self._by_row.items() if entry.text is not None}

    def _ranked(
        self,
        query: str,
        words: list[str],
        current: str | None,
        similar: Similar | None,
        among: Container[str] | None,
    ) -> list[_Entry]:
        named = self._named_by(words, among)
        scored: list[tuple[float, _Entry]] = []
        # A word for a device says where, not what: methods need not have it.
        terms = [
            replace(term, missed=0.0) if self._named_by((term.word,), among) else term
            for term in query_terms(query)
        ]
        if similar is not None:
            similar = similar.standing_out(limits.MOST_SIMILAR)
        found = fused(self._ranking.search(terms, weak=similar is not None), similar)
        if similar is not None and max((score for _, score in found), default=0.0) < similar.least:
            found = []
        for row, score in found:
            if (entry := self._by_row.get(row)) is None or not _is_on(entry, among):
                continue  # it went away while its meaning was compared, or is on none of these devices
            if current in entry.contracts:
                score *= limits.FACTOR_ON_CURRENT_DEVICE
            if named and not named.isdisjoint(entry.contracts):
                score *= limits.FACTOR_ON_NAMED_DEVICE
            if all(self._reason(entry, device) for device in _devices_of(entry, among)):
                score *= limits.FACTOR_UNAVAILABLE
            scored.append((score, entry))
        if not scored and all(self._named_by((word,), among) for word in words):
            owned = chain.from_iterable(self._entries_of(device) for device in sorted(named))
            return list({entry.row: entry for entry in owned}.values())
        scored.sort(key=lambda pair: -pair[0])
        return [entry for _, entry in scored]

    def _listed(self, current: str | None, among: Container[str] | None) -> Iterator[_Entry]:
        if self._alphabetical is None:
            entries = self._entries.values()
            self._alphabetical = sorted(entries, key=lambda entry: (entry.skill, entry.method, entry.row))
        first = list(self._entries_of(current)) if current is not None else []
        shown = {entry.row for entry in first}
        yield from (entry for entry in first if _is_on(entry, among))
        yield from (entry for entry in self._alphabetical if entry.row not in shown and _is_on(entry, among))

    def _result(
        self, entry: _Entry, *, current: str | None, named: set[str], among: Container[str] | None
    ) -> FoundMethod:
        seen = [
            replace(self._devices[device], unavailable=self._reason(entry, device))
            for device in _devices_of(entry, among)
        ]
        if len(seen) > 1:
            seen.sort(
                key=lambda device: (
                    device.id != current,
                    bool(device.unavailable),
                    device.id not in named,
                    device.key,
                )
            )
        contract = entry.contracts[seen[0].id]
        keys = [device.key for device in seen[: limits.MOST_DEVICES_NAMED]]
        reasons = {
            device.key: device.unavailable
            for device in seen[: limits.MOST_DEVICES_NAMED]
            if device.unavailable
        }
        unavailable = seen[0].unavailable and f"{keys[0]}: {seen[0].unavailable}"
        if entry.is_agnostic:
            # Which device serves is the hub's choice, so the model sees only the hub.
            if any(not device.unavailable for device in seen):
                unavailable = ""
            reasons, seen, keys = {}, seen[:1], [HUB_KEY]
        return FoundMethod(
            path=f"devices.{keys[0]}.{entry.skill}.{entry.method}",
            signature=shortened(contract.signature, limits.MAX_SIGNATURE),
            summary=shortened(contract.summary, limits.MAX_SUMMARY),
            devices=tuple(keys),
            more_devices=len(seen) - len(keys),
            flags=contract.flags,
            unavailable=unavailable,
            offline=reasons,
        )

    def _join(self, key: _Key, device_id: str, registration: Registration, method: Method) -> None:
        entry = self._entries.get(key)
        if entry is None:
            entry = _Entry(self._next_row, registration.skill, registration.device_agnostic, method.name)
            self._next_row += 1
            self._entries[key] = self._by_row[entry.row] = entry
            self._alphabetical = None
        entry.contracts[device_id] = method
        why = registration.unavailable
        entry.unavailable[device_id] = why.text if why is not None and not why.is_callable else ""
        document = _document(registration, method)
        # A device whose documentation does not count must not blank that of the others.
        if entry.text is None or (document != entry.text and (document.summary or len(entry.contracts) == 1)):
            entry.text = document
            self._ranking.put(entry.row, document)
            self._news[entry.row] = document.sentence

    def _leave(self, key: _Key, device_id: str) -> None:
        entry = self._entries[key]
        del entry.contracts[device_id], entry.unavailable[device_id]
        if not entry.contracts:
            del self._entries[key], self._by_row[entry.row]
            self._ranking.remove(entry.row)
            self._news[entry.row] = ""
            self._alphabetical = None

    def _reason(self, entry: _Entry, device_id: str) -> str:
        return self._devices[device_id].unavailable or entry.unavailable[device_id]

    def _entries_of(self, device_id: str) -> Iterator[_Entry]:
        for _, keys in sorted(self._keys.get(device_id, {}).items()):
            yield from (self._entries[key] for key in keys)

    def _named_by(self, words: Iterable[str], among: Container[str] | None) -> set[str]:
        named = set().union(*(self._named.get(word, ()) for word in words))
        return named if among is None else {device for device in named if device in among}

    def _unname(self, device: IndexedDevice) -> None:
        for word in _device_words(device):
            self._named[word].discard(device.id)
            if not self._named[word]:
                del self._named[word]


def _devices_of(entry: _Entry, among: Container[str] | None) -> Iterator[str]:
    return (device for device in entry.contracts if among is None or device in among)


def _is_on(entry: _Entry, among: Container[str] | None) -> bool:
    if among is None:
        return bool(entry.contracts)
    return any(device in among for device in entry.contracts)


def _key(registration: Registration, method: Method) -> _Key:
    parameters = json.dumps(method.parameters, sort_keys=True, separators=(",", ":"))
    return registration.skill, method.name, registration.device_agnostic, parameters


def _document(registration: Registration, method: Method) -> Document:
    sentences = chain.from_iterable(method.sentences.values())
    summary, _, rest = method.doc.strip().partition("\n")
    properties = method.parameters.get("properties", ())
    about = registration.doc.strip().partition("\n")[0]
    labels = (
        each.get(name, "")
        for each in registration.labels.values()
        for name in (registration.skill, method.name)
    )
    return Document(
        method=" ".join(name_words(method.name)),
        skill=" ".join(word for word in name_words(registration.skill) if word != "skill"),
        summary=summary[: limits.INDEXED_SUMMARY],
        arguments=" ".join(chain.from_iterable(map(name_words, properties)))[: limits.INDEXED_TEXT],
        text="\n".join(
            (
                rest[: limits.INDEXED_TEXT],
                sentence_words(sentences)[: limits.INDEXED_TEXT],
                about[: limits.INDEXED_SUMMARY],
                " ".join(labels),
                registration.area or "",
            )
        ),
    )


def _device_words(device: IndexedDevice) -> set[str]:
    return set(query_words(" ".join([device.key, *device.words])))
