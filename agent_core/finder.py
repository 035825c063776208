"""Search and declared sentences over a directory, and the catalogue that a turn gets of them."""

import asyncio
import hashlib
import json
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from agent_core import limits
from agent_core.search import targets
from agent_core.search.catalogue import FailingSkill, FoundMethod, SearchPage, Target
from agent_core.search.directory import HUB_KEY, DeviceEntry, RegisteredSkill
from agent_core.search.embeddings import Embeddings
from agent_core.search.index import MAX_ANSWER_BYTES, IndexedDevice, SkillIndex
from agent_core.search.targets import AnyDirectory
from agent_core.search.words import STOP_WORDS, name_words, query_words
from agent_core.sentences.index import SentenceCall, SentenceChoice, SentenceIndex
from agent_core.sentences.intents import Home
from agent_core.sentences.templates import short_texts, spoken_sentence
from agent_core.sentences.understanding import Rules, Said, Understanding
from contracts.chat.vocabulary import MAX_SENTENCES, Vocabulary
from contracts.wire import Json

_log = logging.getLogger(__name__)


class SkillFinder:
    """Finds methods by words and by declared sentences; both indexes follow the directory.

    Args:
        expiry_s: Without a sign of life for this long, a device's skills leave the search. Those of
            a device that is offline for less stay, marked as unavailable. None keeps them all.
        slice_s: How long a search may wait for the indexes to follow; what is left then is for `sync`.
            None waits for all of it.
        on_problem: Called with a device and why a sentence or skill of it was left out.
    """

    def __init__(
        self,
        directory: AnyDirectory,
        *,
        expiry_s: float | None = None,
        slice_s: float | None = None,
        on_problem: Callable[[str, str], None] = lambda device, problem: None,
    ) -> None:
        self.directory = directory
        self._expiry = None if expiry_s is None else timedelta(seconds=expiry_s)
        self._slice_s = slice_s
        self._on_problem = on_problem
        self._skills = SkillIndex()
        self._sentences = SentenceIndex()
        self._understanding = Understanding(self._sentences)
        self._embeddings: Embeddings | None = None
        self._indexed: dict[str, dict[str, RegisteredSkill]] = {}
        self._known: dict[str, dict[str, tuple[RegisteredSkill, str, str, str | None]]] = {}
        # By device-agnostic skill: its providers, and by audience the one whose sentences are in the index.
        self._providers: dict[str, dict[str, RegisteredSkill]] = {}
        self._leading: dict[str, dict[str | None, str]] = {}
        self._changed = dict.fromkeys(entry.id for entry in directory.entries())
        self._updates: dict[str, Iterator[None]] = {}
        self._stop = directory.on_change(self._note)

    def close(self) -> None:
        """Stop following the directory."""
        self._stop()
        self._skills.close()

    async def find(
        self,
        query: str = "",
        *,
        current: str | None = None,
        user: str | None = None,
        limit: int | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> SearchPage:
        """Find methods by words and, where a model for it is set and answers in time, by meaning.

        Args:
            user: Id of the person for whom it is; None where all devices are the same person's.
        """
        await self.catch_up()
        similar = await self._embeddings.similar(query) if self._embeddings and query.strip() else None
        found = self._skills.search(
            query,
            current=current,
            similar=similar,
            among=self.seen_by(user),
            limit=limit,
            max_bytes=max_bytes,
        )
        return replace(found, failing=tuple(islice(self.failing(query, user), limits.MOST_FAILING_SKILLS)))

    def failing(self, query: str = "", user: str | None = None) -> Iterator[FailingSkill]:
        """List skills that fail and whose names have a word of a query; all for an empty one."""
        words = set(query_words(query[: limits.MAX_QUERY])) - STOP_WORDS
        for entry in filter(self._is_searchable, self.seen_by(user).entries()):
            for skill in entry.skills.values():
                if not skill.problem or (skill.unavailable and skill.methods):
                    continue
                if not query.strip() or not words.isdisjoint((*name_words(skill.name), skill.name.lower())):
                    yield FailingSkill(entry.key, skill.name, skill.problem)

    async def listing(self, user: str | None = None) -> AsyncGenerator[FoundMethod, None]:
        """List every method by name; others have their turn in between."""
        await self.catch_up()
        until = time.monotonic() + limits.LISTING_SLICE_S
        for found in self._skills.listing(self.seen_by(user)):
            yield found
            if time.monotonic() >= until:
                await asyncio.sleep(0)
                until = time.monotonic() + limits.LISTING_SLICE_S

    def total(self, user: str | None = None) -> int:
        return self._skills.count(self.seen_by(user))

    async def catch_up(self) -> None:
        """Index each waiting device for a slice of time; most need no more.

        The hub's own skills are waited for longer: they are asked for in the first second of a hub.
        """
        until = time.monotonic() + limits.CATCH_UP_S
        waiting = {*self._changed, *self._updates}
        while waiting and time.monotonic() < until:
            unfinished = self.sync()
            waiting &= self._updates.keys()
            if unfinished is not None and unfinished != HUB_KEY:
                waiting.discard(unfinished)
            await asyncio.sleep(0)

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
        self, utterance: str, *, language: str, current: str | None, user: str | None = None
    ) -> SentenceCall | SentenceChoice | None:
        """Find the call that an utterance means; see ``SentenceIndex.match``."""
        self.sync()
        return self._sentences.match(
            utterance,
            language=language,
            current=current,
            is_connected=self._is_connected,
            hears=self._hears(user),
            on_problem=self._on_problem,
        )

    async def understand(
        self,
        utterance: str,
        *,
        language: str,
        current: str | None,
        user: str | None = None,
        patient: bool = False,
    ) -> SentenceCall | SentenceChoice | None:
        """Find the call that an utterance means, by declared sentences and by everyday ones.

        Args:
            patient: Whether nothing else answers, so that a language that is not loaded yet is waited for.
        """
        entry = None if current is None else self.directory.get(current)
        places = tuple(entry.places) if entry is not None else ()
        said = Said(
            utterance,
            language,
            current,
            here=places[0] if places else None,
            is_connected=self._is_connected,
            hears=self._hears(user),
            on_problem=self._on_problem,
            user=user,
        )
        self.sync()
        return await self._understanding.meaning(said, is_patient=patient)

    async def warm(self, language: str) -> None:
        await self._understanding.warm(language)

    def set_home(self, home: Home | None) -> None:
        """Set what knows the entities of Home Assistant; again where they changed."""
        self._understanding.intents.home = home
        self._understanding.intents.changed()

    def set_rules(self, rules: Rules) -> None:
        self._understanding.rules = rules

    @property
    def languages(self) -> list[str]:
        return self._sentences.languages

    def examples(
        self, language: str, user: str | None = None, *, near: str = "", read_only: bool = False
    ) -> list[str]:
        """Return some sentences that work, those first that are nearest to what was said.

        Args:
            read_only: Only of methods that change nothing.
        """
        self.sync()
        return self._understanding.examples(language, near=near, hears=self._hears(user, read_only=read_only))

    async def sentences(
        self, language: str, *, user: str | None = None, near: str = "", read_only: bool = False
    ) -> list[tuple[str, str, str]]:
        """Return sentences that work; see `examples` and `Understanding.listed`."""
        await self.catch_up()
        hears = self._hears(user, read_only=read_only)
        return await self._understanding.listed(language, near=near, hears=hears)

    async def vocabulary(self, language: str, *, current: str | None, user: str | None = None) -> Vocabulary:
        """Return what can be said on a device, for speech to text: declared and everyday sentences."""
        self.sync()
        names = [
            name
            for entry in self.seen_by(user).entries()
            if not entry.revoked
            for name in (*entry.names, *entry.places)
        ]
        hears = self._hears(user)
        declared = self._sentences.sayable(language, current=current, hears=hears)
        said = {text: spoken_sentence(text, method) for text, method in declared}
        said |= {each.text: each for each in await self._understanding.sayable(language, hears=hears)}
        return Vocabulary(
            language=language,
            sentences=tuple(said[text] for text in sorted(said))[:MAX_SENTENCES],
            names=short_texts(dict.fromkeys(names)),
        )

    async def words(self) -> str:
        """Return a digest of all that can be said by anybody; it changes where a vocabulary does."""
        names = [
            (each.id, each.audience, each.revoked, *each.names, *each.places)
            for each in self.directory.entries()
        ]
        things = self._understanding.intents.named().digest()
        said = json.dumps([names, things, await self._sentences.digest()], ensure_ascii=False)
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def expire(self) -> None:
        """Remove devices that gave no sign of life for too long, and add those that did again."""
        for entry in self.directory.entries():
            if self._is_searchable(entry) != (entry.id in self._indexed):
                self._note(entry.id)
        self.sync()

    @property
    def waiting(self) -> int:
        # Devices that are not fully indexed yet.
        return len(self._changed.keys() | self._updates.keys())

    def sync(self) -> str | None:
        """Bring both indexes up to the directory, for a slice of time.

        Devices take turns, so that one with very many skills does not keep the others waiting.

        Returns:
            The device at which the time was over, None when all is done.
        """
        is_changed = bool(self._changed or self._updates)
        until = math.inf if self._slice_s is None else time.monotonic() + self._slice_s
        while self._changed or self._updates:
            for device in self._changed:
                # What is being indexed may be out of date; it begins again and keeps what still holds.
                self._updates[device] = self._update(device)
            self._changed.clear()
            device = next(iter(self._updates))
            if self._proceed(device, until):
                return device
        if is_changed and (news := self._skills.news()) and self._embeddings is not None:
            self._embeddings.change(news)
        return None

    def _note(self, device: str) -> None:
        self._changed[device] = None

    def _proceed(self, device: str, until: float) -> bool:
        """Index a device as far as the time allows; return whether the time is over."""
        update = self._updates.pop(device)
        try:
            for _ in update:
                if time.monotonic() >= until:
                    self._updates[device] = update
                    return True
        except Exception:  # noqa: BLE001
            # One device's skills may be missing from the search; those of the others must not be.
            _log.exception("indexing the skills of %s failed", device)
            self._on_problem(device, "its skills cannot be indexed: not all of them can be found")
        return bool(self._updates) and time.monotonic() >= until

    def _update(self, device: str) -> Iterator[None]:
        """Index what is new of a device, one method in each step."""
        entry = self.directory.hub if device == HUB_KEY else self.directory.get(device)
        is_searchable = entry is not None and self._is_searchable(entry)
        if entry is None or not is_searchable:
            self._skills.remove_device(device)
            self._indexed.pop(device, None)
        else:
            words = (*entry.names, *entry.places)
            self._skills.set_device(IndexedDevice(entry.id, entry.key, words, entry.unavailable or ""))
        present = {} if entry is None or entry.revoked else dict(entry.skills)
        known = self._known.setdefault(device, {})
        for gone in [name for name in known if name not in present]:
            self._skills.remove_skill(device, gone)
            self._indexed.get(device, {}).pop(gone, None)
            self._forget_sentences(device, gone)
            del known[gone]
        if entry is None or not present:
            del self._known[device]
            return
        for name, skill in present.items():
            if is_searchable:
                indexed = self._indexed.setdefault(device, {})
                if indexed.get(name) != skill:
                    yield from self._skills.putting(device, skill.registration)
                    indexed[name] = skill
            # Names are part of the targets of sentences, so a renamed device is indexed again.
            version = (skill, entry.key, entry.display_name, entry.audience)
            if known.get(name) != version:
                self._forget_sentences(device, name)
                if skill.device_agnostic:
                    self._providers.setdefault(name, {})[device] = skill
                    yield from self._lead(name, device)
                else:
                    yield from self._add_sentences(entry, skill)
                known[name] = version
            elif skill.device_agnostic:
                for _ in self._lead(name, device):
                    pass

    def _lead(self, skill: str, device: str) -> Iterator[None]:
        """Use the sentences of the provider of a device-agnostic skill that is called first.

        People have different devices, so that is one of those that are shared, and one of each person.

        Args:
            device: A provider that is new, or whose presence may have changed.
        """
        audience, leads = self._audience(device), self._leading.setdefault(skill, {})
        leading = leads.get(audience)
        if leading not in (None, device) and self._place(skill, leading) <= self._place(skill, device):
            return
        providers = self._providers[skill]
        alike = (each for each in providers if self._audience(each) == audience)
        first = min(alike, key=lambda each: self._place(skill, each))
        entry = self.directory.get(first)
        if first != leading and entry is not None:
            if leading is not None:
                self._sentences.remove(leading, skill)
                self._understanding.intents.remove(leading, skill)
            leads[audience] = first
            yield from self._add_sentences(entry, providers[first])

    def _audience(self, device: str) -> str | None:
        entry = self.directory.get(device)
        return entry.audience if entry is not None else None

    def _place(self, skill: str, device: str) -> tuple[bool, int, str]:
        entry = self.directory.get(device)
        return entry is None or not entry.connected, self._providers[skill][device].rank, device

    def _add_sentences(self, entry: DeviceEntry, skill: RegisteredSkill) -> Iterator[None]:
        found = targets.skill_targets(self.directory, entry, skill)
        is_hub = entry.id == HUB_KEY
        self._understanding.intents.put(
            found,
            source=entry.id,
            kind=skill.registration.thing,
            names=() if is_hub else entry.names,
            places=(skill.registration.area,) if skill.registration.area else entry.places,
        )
        for target in found:
            if skill.device_agnostic and entry.id not in self._leading.get(skill.name, {}).values():
                return  # another provider took the lead meanwhile
            if target.method.sentences:
                yield from self._sentences.adding(target, source=entry.id, own=skill.own_sentences)
                yield
        for problem in self._sentences.problems.get((entry.id, skill.name), ()):
            self._on_problem(entry.id, problem)

    def _forget_sentences(self, device: str, skill: str) -> None:
        self._sentences.remove(device, skill)
        self._understanding.intents.remove(device, skill)
        providers = self._providers.get(skill, {})
        providers.pop(device, None)
        leads = self._leading.get(skill, {})
        for audience in [each for each, leading in leads.items() if leading == device]:
            del leads[audience]
            alike = [each for each in providers if self._audience(each) == audience]
            if alike:
                for _ in self._lead(skill, min(alike)):
                    pass

    def silent(self, user: str | None = None) -> list[str]:
        """Return the names of devices whose skills are left out because they were silent for too long."""
        return [
            entry.display_name
            for entry in self.seen_by(user).entries()
            if entry.skills and not entry.revoked and not self._is_searchable(entry)
        ]

    def _is_searchable(self, entry: DeviceEntry) -> bool:
        if self._expiry is None or entry.revoked:
            return not entry.revoked
        heard = entry.last_heartbeat
        return heard is not None and heard >= datetime.now(UTC) - self._expiry

    def seen_by(self, user: str | None) -> AnyDirectory:
        return self.directory if user is None else self.directory.seen_by(user)

    def _hears(self, user: str | None, *, read_only: bool = False) -> Callable[[str, Target], bool]:
        view = self.seen_by(user)

        def hears(source: str, target: Target) -> bool:
            if read_only and not target.method.flags.read_only:
                return False
            if source == HUB_KEY or target.device != HUB_KEY:
                return source in view
            leads = [each for each in self._leading.get(target.skill, {}).values() if each in view]
            return source in leads and source == min(leads, key=lambda each: self._place(target.skill, each))

        return hears

    def _is_connected(self, device: str) -> bool:
        entry: Any = self.directory.get(device)
        # The hub itself is; what any device can do is on no device, and the call finds one that is connected.
        return device == HUB_KEY or (entry is not None and entry.connected)


class DirectoryCatalogue:
    """A ``Catalogue`` over a directory.

    Attributes:
        current: Id of the current device, where there is one.
        user: Id of the person for whom it is; None where all devices are the same person's.
    """

    def __init__(self, finder: SkillFinder, current: str | None, *, user: str | None) -> None:
        self.finder = finder
        self.current = current
        self.user = user

    @property
    def directory(self) -> AnyDirectory:
        return self.finder.seen_by(self.user)

    async def search(self, query: str) -> SearchPage:
        return await self.finder.find(query, current=self.current, user=self.user)

    async def resolve(self, path: str) -> Target:
        return targets.find_path(self.directory, path, current=self.current)

    async def describe(self, path: str) -> str:
        return targets.describe(self.directory, path, current=self.current)

    async def describe_skill(self, name: str) -> dict[str, Json]:
        return targets.skill_info(self.directory, name, current=self.current)
