"""What an utterance means without a model: declared sentences first, then everyday ones, then near ones."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ParamSpec, TypeVar

from agent_core import limits
from agent_core.search.words import STOP_WORDS
from agent_core.sentences.index import (
    Hears,
    OnProblem,
    SentenceCall,
    SentenceChoice,
    SentenceIndex,
    decide,
)
from agent_core.sentences.intents import EVERYWHERE, IntentIndex, Lists, distinct, is_risky, made_lists
from agent_core.sentences.matching import normalized, spoken
from agent_core.sentences.phrasebook import (
    Phrasebook,
    likely_language,
    load_phrasebook,
    other_languages,
)
from agent_core.sentences.responses import primary
from contracts.chat.vocabulary import SpokenSentence

P = ParamSpec("P")
T = TypeVar("T")

Meaning = SentenceCall | SentenceChoice | None
Rules = Callable[[str, str, str | None], Awaitable[SentenceCall | None]]
"""Gets what was said, its language, and the id of the person."""


@dataclass(frozen=True)
class Said:
    """An utterance, and who hears it.

    Attributes:
        language: BCP 47.
        current: Id of the current device.
        here: The area of the current device.
        is_connected: See `SentenceIndex.match`; so are the other functions.
        user: Id of the person, where there are several.
    """

    text: str
    language: str
    current: str | None
    here: str | None
    is_connected: Callable[[str], bool]
    hears: Hears
    on_problem: OnProblem
    user: str | None = None


class Understanding:
    """Finds the call that an utterance means.

    Attributes:
        intents: What everyday sentences can mean.
        rules: Finds the call that makes a rule of a sentence that no other one fits.
    """

    def __init__(self, declared: SentenceIndex) -> None:
        self.intents = IntentIndex()
        self.rules: Rules | None = None
        self._declared = declared
        self._books: OrderedDict[str, Phrasebook | None] = OrderedDict()
        self._loading: dict[str, asyncio.Future[Phrasebook | None]] = {}
        # One match at a time: hassil holds the interpreter's lock, so more would only be slower together.
        self._matching = asyncio.Lock()

    async def meaning(self, said: Said, *, is_patient: bool = False) -> Meaning:
        """Return the call that is meant, several to choose from, or None.

        Args:
            is_patient: Whether a language that is not loaded yet is waited for.
        """
        if (found := self._match(said, said.text, said.language)) is not None:
            return found
        if len(said.text) > limits.MAX_UTTERANCE or not normalized(said.text):
            return None
        spoken_in = primary(said.language)
        book = await self._book(said.language, is_patient=is_patient)
        if book is not None and (found := await self._in_language(said, book)) is not None:
            return found
        for language in other_languages(said.text, said.language) if self.intents else ():
            await self._book(language, is_patient=is_patient)
        for each in [each for each in self._books.values() if each is not None and each is not book]:
            if (found := await self._in_language(said, each)) is not None:
                return found
        for language in [each for each in self._declared.languages if each != spoken_in]:
            if (found := self._match(said, said.text, language)) is not None:
                return found
        if self.rules is not None and (found := await self.rules(said.text, said.language, said.user)):
            return found
        book = self._books.get(_key(likely_language(said.text, said.language)))
        return await self._near(said, book) if book is not None else None

    async def warm(self, language: str) -> None:
        """Load a language, if there is anything that its sentences can mean."""
        if self.intents:
            book = await self._load(language)
            if book is not None:
                lists = await self._lists(book)
                await self._in_thread(book.matches, "1", lists.values)

    def examples(self, language: str, *, near: str, hears: Hears) -> list[str]:
        """Return sentences that work; where something was said, the nearest to it, in its language."""
        if not near:
            return self._declared.examples(language, hears=hears)
        language = likely_language(near, language)
        book = self._books.get(_key(language))
        ours = [text for *_, text in self.intents.listed(book, hears)] if book is not None else []
        declared = self._declared.examples(language, limit=limits.MAX_EXAMPLES, hears=hears)
        texts = dict.fromkeys((*ours, *declared))
        words = set(spoken(near).split()) - STOP_WORDS
        ranked = sorted(texts, key=lambda text: -_likeness(words, set(spoken(text).split())))
        return ranked[: limits.NEAREST_EXAMPLES]

    async def listed(self, language: str, *, near: str, hears: Hears) -> list[tuple[str, str, str]]:
        """Return sentences that work, each with the id of its device and its skill.

        Args:
            near: Words of those that are wanted; where none has one of them, the nearest sentences.
        """
        book = await self._load(language) if self.intents else None
        found = self._declared.listed(language, hears=hears)
        found += self.intents.listed(book, hears) if book is not None else []
        known = dict.fromkeys(found)
        words = set(spoken(near).split())
        if not words:
            return list(known)
        whole = [each for each in known if words <= set(spoken(" ".join(each[1:])).split())]
        nearest = sorted(known, key=lambda each: -_likeness(words, set(spoken(each[2]).split())))
        return whole or nearest[: limits.NEAREST_EXAMPLES]

    async def sayable(self, language: str, *, hears: Hears) -> list[SpokenSentence]:
        """Return the everyday sentences that speech to text listens for."""
        book = await self._load(language) if self.intents else None
        return self.intents.sayable(book, hears) if book is not None else []

    async def _in_language(self, said: Said, book: Phrasebook) -> Meaning:
        for text in book.variants(said.text):
            if (found := self._match(said, text, book.language)) is not None:
                return found
        if (found := await self._everyday(said, book, said.text)) is not None:
            return found
        return await self._later(said, book)

    async def _later(self, said: Said, book: Phrasebook) -> Meaning:
        """Find what is to be done in some time."""
        for text in (normalized(said.text), *book.variants(said.text)):
            later = await self._in_thread(book.later, text)
            meaning = await self.meaning(replace(said, text=later[0])) if later is not None else None
            if later is None or meaning is None:
                continue
            if isinstance(meaning, SentenceChoice):
                return replace(meaning, is_later=True)
            if (call := self.intents.later(meaning, later[1], later[0], said.hears)) is not None:
                return call
        return None

    async def _near(self, said: Said, book: Phrasebook) -> Meaning:
        """Find the one sentence that was misspelt; what is risky is asked."""
        try:
            async with asyncio.timeout(limits.INTENT_WAIT_S):
                names = (await self._lists(book)).names if self.intents else frozenset()
                texts = await self._in_thread(book.corrected, said.text, names)
        except TimeoutError:
            return None
        found: dict[str, SentenceCall] = {}
        least = 0
        for replaced, text in texts:
            if found and replaced > least:
                break
            match = self._match(said, text, book.language)
            match = match or await self._everyday(said, book, text)
            if isinstance(match, SentenceChoice):
                return None
            if match is not None:
                found[text], least = match, replaced
        calls = distinct(found.values())
        if len(calls) != 1:
            return None
        return SentenceChoice((calls[0],), said=next(iter(found))) if is_risky(calls[0]) else calls[0]

    async def _everyday(self, said: Said, book: Phrasebook, text: str) -> Meaning:
        if not self.intents:
            return None
        area = said.here or EVERYWHERE
        try:
            async with asyncio.timeout(limits.INTENT_WAIT_S):
                lists = await self._lists(book)
                results = await self._in_thread(book.matches, text, lists.values, area)
        except TimeoutError:
            return None
        calls, is_for_all = self.intents.calls(
            results, book, lists, text, current=said.current, hears=said.hears
        )
        if is_for_all and len(calls := distinct(calls)) > 1:
            return SentenceChoice(tuple(calls))
        return decide(calls, said.current, said.is_connected)

    async def _lists(self, book: Phrasebook) -> Lists:
        """Return what may be said in a language; it is made where something changed."""
        if (known := self.intents.known_lists(book)) is not None:
            return known
        lists = await self._in_thread(made_lists, self.intents.named(), book)
        self.intents.keep(book, lists)
        return lists

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work beside the loop, after what runs; a caller that gives up does not let the next one in."""
        await self._matching.acquire()
        running = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
        running.add_done_callback(lambda _: self._matching.release())
        return await asyncio.shield(running)

    def _match(self, said: Said, text: str, language: str) -> Meaning:
        return self._declared.match(
            text,
            language=language,
            current=said.current,
            is_connected=said.is_connected,
            hears=said.hears,
            on_problem=said.on_problem,
        )

    async def _book(self, language: str, *, is_patient: bool) -> Phrasebook | None:
        wait = limits.FIRST_INTENT_WAIT_S if is_patient else limits.INTENT_WAIT_S
        try:
            async with asyncio.timeout(wait):
                return await asyncio.shield(self._load(language))
        except TimeoutError:
            return None  # it goes on loading for the next one

    def _load(self, language: str) -> asyncio.Future[Phrasebook | None]:
        key = _key(language)
        if key not in self._loading and key not in self._books:
            if len(self._loading) >= limits.MAX_LANGUAGES_LOADING:
                return _resolved(None)
            loading = asyncio.get_running_loop().run_in_executor(None, load_phrasebook, language)
            self._loading[key] = loading
            loading.add_done_callback(lambda done: self._keep(key, done))
        if key in self._loading:
            return self._loading[key]
        self._books.move_to_end(key)
        return _resolved(self._books[key])

    def _keep(self, key: str, done: asyncio.Future[Phrasebook | None]) -> None:
        del self._loading[key]
        if done.cancelled() or done.exception() is not None:
            return
        self._books[key] = done.result()
        while len(self._books) > limits.MAX_LANGUAGES:
            self._books.popitem(last=False)


def _resolved(book: Phrasebook | None) -> asyncio.Future[Phrasebook | None]:
    known: asyncio.Future[Phrasebook | None] = asyncio.get_running_loop().create_future()
    known.set_result(book)
    return known


def _key(language: str) -> str:
    return language.replace("_", "-").lower()


def _likeness(words: set[str], others: set[str]) -> float:
    """Return how alike two sets of words are; those that only begin alike count half."""
    shared = len(words & others)
    begun = sum(any(one[:4] == other[:4] for other in others) for one in words - others if len(one) > 3)
    return (shared + begun / 2) / (len(words | others) or 1)
