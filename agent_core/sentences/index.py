"""Declared sentences: which call an utterance means, without a model."""

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from agent_core import limits
from agent_core.search.catalogue import Target
from agent_core.sentences.matching import OutOfSteps, Steps, folded, normalized
from agent_core.sentences.responses import choice_text, near_text, primary
from agent_core.sentences.templates import BadTemplate, Template, compile_template
from contracts.devices.registration import Method
from contracts.wire import Json

_Owner = tuple[str, str]
"""Id of the device that registered it, and the name of one of its skills."""

OnProblem = Callable[[str, str], None]
"""Takes what is wrong with what a device, by its id, registered."""

Hears = Callable[[str, Target], bool]
"""Whether a sentence counts for who spoke: it gets the device that registered it, and what it calls."""


@dataclass(frozen=True)
class SentenceCall:
    """The one call that an utterance means.

    Attributes:
        language: In which it was said, ``en`` for example.
        answer: Says the result where the method has no response in this language; empty where it cannot.
    """

    target: Target
    arguments: dict[str, Json]
    language: str = "en"
    answer: Callable[[Json], str] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class SentenceChoice:
    """Calls that an utterance may mean; the user must say which.

    Attributes:
        said: What it is near to, where it was not said exactly.
        is_later: Whether it is to be made later: none of the calls is made for it.
    """

    calls: tuple[SentenceCall, ...]
    said: str = ""
    is_later: bool = False

    @property
    def offer(self) -> str:
        # A yes would leave out the time of a sentence for later.
        return "" if self.is_later else self.said

    @property
    def language(self) -> str:
        return self.calls[0].language

    @property
    def question(self) -> str:
        """Return the question for the user."""
        language = self.language
        if self.said:
            return near_text(self.said, language=language)
        names = sorted({call.target.device_name for call in self.calls})
        if len(names) > 1:
            return choice_text(names, of="devices", language=language)
        methods = sorted({f"{call.target.skill}.{call.target.method.name}" for call in self.calls})
        return choice_text(methods, of="methods", language=language)


@dataclass(frozen=True)
class _Entry:
    """A template of a method.

    Attributes:
        source: Id of the device that registered it.
        is_own: Whether only messages from that device may match.
    """

    target: Target
    template: Template
    source: str
    is_own: bool

    @property
    def owner(self) -> _Owner:
        return self.source, self.target.skill

    @property
    def key(self) -> tuple[int, str]:
        # Shared by devices with the same skill: a template is matched once for all of them.
        return id(self.template), self.target.method.name


class _Shares:
    """The steps of one utterance, divided among the devices whose templates may match it.

    Devices that are meant get the most that one may have. Then each of the others gets an equal share of what
    is left, those with the fewest templates first: what they do not need goes to those with more.

    Attributes:
        slow: Devices that took too much: the most that one may have, or most of their share for one template.
            Many sentences of many devices are no one's fault.

    Args:
        entries: All that may match.
        meant: Ids of the devices that are meant, two at most.
    """

    def __init__(self, entries: Iterable[_Entry], meant: Container[str | None]) -> None:
        self._entries: dict[str, list[_Entry]] = defaultdict(list)
        for entry in entries:
            self._entries[entry.source].append(entry)
        self._steps = {source: Steps(limits.MAX_MATCH_STEPS) for source in self._entries if source in meant}
        self._left = limits.MAX_MATCH_STEPS_OF_ALL - limits.MAX_MATCH_STEPS * len(self._steps)
        self._waiting = len(self._entries) - len(self._steps)
        self._order = sorted(
            self._entries, key=lambda source: (source not in self._steps, len(self._entries[source]), source)
        )
        self.slow: set[str] = set()

    def turns(self, device: str | None) -> Iterator[tuple[str, Steps, list[_Entry]]]:
        """Yield the entries of each source with the steps that they may still take.

        Args:
            device: Whose methods alone count; None in the last round, which passes on what is not needed.
        """
        for source in self._order:
            entries = [each for each in self._entries[source] if device in (None, each.target.device)]
            if not entries:
                continue
            if source not in self._steps:
                share = min(limits.MAX_MATCH_STEPS, self._left // self._waiting)
                self._waiting -= 1
                self._left -= share
                self._steps[source] = Steps(share)
            steps = self._steps[source]
            yield source, steps, entries
            if device is None:
                self._left += steps.left


@dataclass
class _Language:
    """The entries of one language, found by a word that an utterance must have."""

    by_word: dict[str, list[_Entry]] = field(default_factory=lambda: defaultdict(list))
    words: dict[_Owner, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, entry: _Entry) -> None:
        for word in _rarest(entry.template):
            self.by_word[word].append(entry)
            self.words[entry.owner].add(word)

    def remove(self, owner: _Owner) -> None:
        for word in self.words.pop(owner, ()):
            kept = [entry for entry in self.by_word[word] if entry.owner != owner]
            if kept:
                self.by_word[word] = kept
            else:
                del self.by_word[word]

    def candidates(self, folded: str) -> list[_Entry]:
        found: dict[int, _Entry] = {}
        possible: dict[int, bool] = {}
        for word, entries in self.by_word.items():
            if word not in folded:
                continue
            for entry in entries:
                # Devices with the same skill share the template.
                key = id(entry.template)
                if key not in possible:
                    possible[key] = entry.template.possible(folded)
                if possible[key]:
                    found[id(entry)] = entry
        return list(found.values())


class SentenceIndex:
    """The sentences of all skills, by language.

    Attributes:
        problems: Why templates were left out, by device and skill.
    """

    def __init__(self) -> None:
        self.problems: dict[_Owner, tuple[str, ...]] = {}
        self._languages: dict[str, _Language] = defaultdict(_Language)
        self._owners: dict[_Owner, set[str]] = {}
        self._count: Counter[_Owner] = Counter()
        self._count_of: Counter[str] = Counter()
        self._named: dict[str, Target] = {}
        # Devices that were reported since they last changed their sentences.
        self._slow: set[str] = set()
        self._compiled: dict[tuple[str, str], Template | BadTemplate] = {}
        self._version = 0
        # Of everything that can be said, with the version that it is of.
        self._digest = -1, ""

    def put(self, targets: Iterable[Target]) -> None:
        """Add methods at once."""
        for target in targets:
            for _ in self.adding(target, source=target.device):
                pass

    def adding(self, target: Target, *, source: str, own: Container[str] = ()) -> Iterator[None]:
        """Add one method, with a pause after each sentence: some take milliseconds to compile.

        Args:
            source: Id of the device that registered it, which the target of a device-agnostic one is not.
            own: Templates that match only messages from that device.
        """
        self._named[target.device] = target
        owner = (source, target.skill)
        schema = f"{target.method.name} {target.method.parameters_json}"
        for language, texts in target.method.sentences.items():
            first = primary(language)
            for text in texts:
                if self._count_of[source] < limits.MAX_SENTENCES:
                    template = self._compile(text, schema, target)
                else:
                    template = BadTemplate(
                        "the device has more than {max_sentences} sentences",
                        max_sentences=limits.MAX_SENTENCES,
                    )
                if isinstance(template, BadTemplate):
                    problem = f"{target.skill}.{target.method.name}: {template.message}"
                    self.problems[owner] = (*self.problems.get(owner, ())[: limits.MAX_PROBLEMS], problem)
                    yield
                    continue
                self._languages[first].add(_Entry(target, template, source, text in own))
                self._version += 1
                self._owners.setdefault(owner, set()).add(first)
                self._count[owner] += 1
                self._count_of[source] += 1
                yield

    def remove(self, device: str, skill: str) -> None:
        """Remove what a device registered of a skill, if it is known."""
        owner = (device, skill)
        self.problems.pop(owner, None)
        self._slow.discard(device)
        self._count_of[device] -= self._count.pop(owner, 0)
        for language in self._owners.pop(owner, ()):
            self._languages[language].remove(owner)
            self._version += 1

    def match(
        self,
        utterance: str,
        *,
        language: str,
        current: str | None,
        is_connected: Callable[[str], bool] = lambda device: True,
        hears: Hears = lambda source, target: True,
        on_problem: OnProblem = lambda device, problem: None,
    ) -> SentenceCall | SentenceChoice | None:
        """Find the call that an utterance means.

        Args:
            language: BCP 47; only its first part counts.
            current: Id of the current device, which wins a tie.
            is_connected: Whether a device, by its id, can be called right now; one that can wins a tie
                with those that cannot.
            hears: Which sentences count; with all others it is as if they were not there.
            on_problem: Called once for each device whose sentences took too long, so that they were given up.

        Returns:
            One call, several to choose from, or None where no sentence matches.
        """
        spoken = primary(language)
        known = self._languages.get(spoken)
        if known is None or len(utterance) > limits.MAX_UTTERANCE or not (text := normalized(utterance)):
            return None
        # The whole text has every word that a shorter one has.
        entries = [
            entry
            for entry in known.candidates(folded(text.casefold()))
            if (not entry.is_own or entry.source == current) and hears(entry.source, entry.target)
        ]
        shorter = self._without_device(text, hears)
        shares = _Shares(entries, meant={current, *(device for _, device in shorter)})
        calls: list[SentenceCall] = []
        for said, device in (*shorter, (text, None)):
            calls = _calls(shares, said, spoken, device)
            if calls:
                break
        for source in sorted(shares.slow - self._slow):
            on_problem(source, "its sentences take too long to match: not all of them are tried")
        self._slow |= shares.slow
        return decide(calls, current, is_connected)

    @property
    def languages(self) -> list[str]:
        return [language for language, known in self._languages.items() if known.by_word]

    def examples(
        self, language: str, *, limit: int = 5, hears: Hears = lambda source, target: True
    ) -> list[str]:
        """Return sentences that would work, one of each skill first, for an answer without a model."""
        # Those without slots first: they can be said as they stand.
        skills = {entry.template.example: entry.target.skill for entry in self._entries(language, hears)}
        seen = Counter[str]()
        ranked: list[tuple[bool, int, str]] = []
        for text in sorted(skills, key=lambda text: ("<" in text, text)):
            ranked.append(("<" in text, seen[skills[text]], text))
            seen[skills[text]] += 1
        return [text for *_, text in sorted(ranked)[:limit]]

    def listed(self, language: str, *, hears: Hears) -> list[tuple[str, str, str]]:
        """Return an example of each template, with the id of its device and its skill."""
        entries = self._entries(language, hears)
        return sorted({(each.source, each.target.skill, each.template.example) for each in entries})

    def sayable(
        self, language: str, *, current: str | None, hears: Hears = lambda source, target: True
    ) -> list[tuple[str, Method]]:
        """Return every template that counts for who speaks on a device, with its method."""
        entries = self._entries(language, hears, current)
        return [(entry.template.text, entry.target.method) for entry in entries]

    def _entries(self, language: str, hears: Hears, current: str | None = None) -> Iterator[_Entry]:
        known = self._languages.get(primary(language))
        for entry in chain.from_iterable(known.by_word.values()) if known is not None else ():
            if (not entry.is_own or entry.source == current) and hears(entry.source, entry.target):
                yield entry

    async def digest(self) -> str:
        """Return a digest of every template: its language, its parameters, and the one device it is for."""
        version, digest = self._digest
        if version != self._version:
            version = self._version
            entries = [
                (language, entry)
                for language, known in self._languages.items()
                for entry in chain.from_iterable(known.by_word.values())
            ]
            digest = await asyncio.to_thread(_digest, entries)
            self._digest = version, digest
        return digest

    def _compile(self, text: str, schema: str, target: Target) -> Template | BadTemplate:
        """Compile, or return what an equal method of another device compiled to."""
        key = (text, schema)
        if key not in self._compiled:
            if len(self._compiled) >= limits.MAX_COMPILED:
                self._compiled.clear()
            try:
                self._compiled[key] = compile_template(text, target.method)
            except BadTemplate as error:
                self._compiled[key] = error
        return self._compiled[key]

    def _without_device(self, text: str, hears: Hears) -> list[tuple[str, str]]:
        """Find a device's name at the end; return what may stand before it, each with the device."""
        folded = text.casefold()
        named = [
            (name, device)
            for device, target in self._named.items()
            if folded.endswith(f" {(name := target.device_name.casefold())}") and hears(device, target)
        ]
        if not named:
            return []
        name, device = max(named, key=lambda pair: len(pair[0]))
        words = text[: -len(name)].split()
        shorter = [" ".join(words[: len(words) - lead]) for lead in range(limits.DEVICE_LEAD_WORDS + 1)]
        return [(candidate, device) for candidate in shorter if candidate]


def _calls(shares: _Shares, text: str, language: str, device: str | None) -> list[SentenceCall]:
    """Return the calls that fit best: those whose sentence leaves the least to free slots.

    Args:
        device: Whose methods alone count, None for those of all.
    """
    tried: list[_Entry] = []
    matched: dict[tuple[int, str], dict[str, Json] | None] = {}
    for source, steps, entries in shares.turns(device):
        tried += entries
        for entry in entries:
            if entry.key in matched:
                continue
            left = steps.left
            try:
                matched[entry.key] = entry.template.arguments(text, entry.target.method, steps)
            except OutOfSteps:
                # The same template of another device has its own chance.
                if steps.most == limits.MAX_MATCH_STEPS or left > steps.most / 2:
                    shares.slow.add(source)
                break
    found = [
        (
            sum(len(str(value)) for value in arguments.values()),
            SentenceCall(entry.target, arguments, language),
        )
        for entry in tried
        if (arguments := matched.get(entry.key)) is not None
    ]
    least = min((free for free, _ in found), default=0)
    return [call for free, call in found if free == least]


def _digest(entries: list[tuple[str, _Entry]]) -> str:
    said = {
        (
            language,
            entry.template.text,
            entry.target.method.parameters_json,
            entry.source if entry.is_own else "",
        )
        for language, entry in entries
    }
    return hashlib.sha256(json.dumps(sorted(said)).encode()).hexdigest()


def decide(
    calls: list[SentenceCall], current: str | None, is_connected: Callable[[str], bool]
) -> SentenceCall | SentenceChoice | None:
    """Choose the call that is meant: on the current device, or on one that can be called; else ask."""
    here = [call for call in calls if call.target.device == current]
    connected = [call for call in calls if is_connected(call.target.device)]
    chosen = _distinct(here or connected or calls)
    if not chosen:
        return None
    return chosen[0] if len(chosen) == 1 else SentenceChoice(tuple(chosen))


def _distinct(calls: list[SentenceCall]) -> list[SentenceCall]:
    """Keep one template of each method: two of one method that both match are no tie."""
    seen: dict[str, SentenceCall] = {}
    for call in calls:
        key = (
            f"{call.target.device}/{call.target.skill}/{call.target.method.name}/{json.dumps(call.arguments)}"
        )
        seen.setdefault(key, call)
    return list(seen.values())


def _rarest(template: Template) -> frozenset[str]:
    # Long words are in fewer templates.
    return max(template.clauses, key=lambda clause: min(map(len, clause)), default=frozenset({""}))
