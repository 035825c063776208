"""Watchers proposed for one sentence: by its shape, else by a model, which may mend its first plan."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from agent_core.finder import SkillFinder
from agent_core.search.targets import find_path
from agent_core.search.words import singular_words
from agent_core.sentences.index import SentenceCall
from agent_core.sentences.phrasebook import likely_language
from contracts.errors import CallError, GatewayError, InvalidMessage, NoModel, PredicateError
from contracts.phrases import Phrase
from contracts.validation import did_you_mean, validated
from contracts.wire import Json
from hub_live import limits
from hub_live.watchers.decisions.evaluation import Evaluations
from hub_live.watchers.decisions.model import Undecided
from hub_live.watchers.definition import WatcherRequest
from hub_live.watchers.words.reading import Reading, source_of, title_of
from hub_live.watchers.words.sentence import Naming
from hub_live.watchers.words.shapes import load_shapes

_LANGUAGES: Final = ("en", "de")
_HOLE: Final = re.compile(r"\{(\w+)\}")
_SKILL: Final = "devices.hub.WatcherSkill"

Check = Callable[[WatcherRequest], WatcherRequest]
"""Returns a watcher as it would be made, or raises what is wrong with it."""


@dataclass(eq=False)
class Proposals:
    """Makes watchers of sentences. What was proposed last is kept, so that a yes is for what was shown."""

    finder: SkillFinder
    evaluations: Evaluations
    _made: OrderedDict[tuple[str, str], WatcherRequest] = field(default_factory=OrderedDict)

    async def propose(
        self, sentence: str, naming: Naming, *, user: str, language: str, check: Check
    ) -> WatcherRequest:
        """Return the watcher that a person's sentence asks for.

        Raises:
            InvalidMessage: If none can be made of it; with the nearest sentences that can.
            GatewayError: If the model that is needed does not answer.
        """
        made = await self._read(sentence, naming, user=user, language=language)
        made = (
            check(made) if made is not None else await self._planned(sentence, naming, user=user, check=check)
        )
        if made is None:
            raise InvalidMessage(
                "no watcher can be made of this sentence",
                hint=await self._nearest(sentence, naming, user, likely_language(sentence, language)),
            )
        self._made[user, sentence] = made
        while len(self._made) > limits.MOST_PROPOSALS:
            self._made.popitem(last=False)
        return made

    def last(self, sentence: str, user: str) -> WatcherRequest | None:
        return self._made.get((user, sentence))

    async def meant(self, sentence: str, naming: Naming, *, user: str, language: str) -> SentenceCall | None:
        """Return the call that does once, or makes the watcher of, what a sentence says; None for others."""
        for reading in self._readings(naming, user=user, language=language):
            method, arguments = await reading.once(sentence[: limits.MOST_SENTENCE]) or ("", {})
            if not method and await reading.watcher(sentence[: limits.MOST_SENTENCE]) is not None:
                method, arguments = "watch", {"sentence": sentence}
            if method:
                target = find_path(naming.devices, f"{_SKILL}.{method}", current=None)
                return SentenceCall(target, arguments, likely_language(sentence, language))
        return None

    async def _read(
        self, sentence: str, naming: Naming, *, user: str, language: str
    ) -> WatcherRequest | None:
        for reading in self._readings(naming, user=user, language=language):
            if (made := await reading.watcher(sentence[: limits.MOST_SENTENCE])) is not None:
                return made
        return None

    def _readings(self, naming: Naming, *, user: str, language: str) -> Iterator[Reading]:
        for each in dict.fromkeys((language, *_LANGUAGES)):
            if (shapes := load_shapes(each)) is not None:
                understand = partial(
                    self.finder.understand, language=each, current=None, user=user, patient=True
                )
                yield Reading(naming, user, shapes, each, understand)

    async def _planned(
        self, sentence: str, naming: Naming, *, user: str, check: Check
    ) -> WatcherRequest | None:
        """Ask a model, and once more with what is wrong; None where it has no plan."""
        words, world = singular_words(sentence), naming.world
        things = {
            each.id: each for each in (*world.device_states(user), *world.entities.list()) if each.topic
        }
        nearest = sorted(things.values(), key=lambda each: -len(words & (each.words | each.kind_words)))
        shown = [world.current(each) for each in nearest[: limits.PLANNED_VALUES]]
        values = [f"{each.id} = {each.state} {each.unit or ''}"[:200] for each in shown]
        found = await self.finder.find(sentence, user=user, limit=limits.PLANNED_CALLS)
        calls = [f"{each.path}: {each.signature} {each.summary}" for each in found.results]
        asked = {each.path for each in found.results}
        mistake, model = "", self.evaluations.model
        for _ in range(2):
            model.check_tokens("")
            try:
                plan = await model.plan(sentence, values, calls, mistake=mistake)
            except (NoModel, Undecided):
                return None
            except GatewayError:
                raise GatewayError(
                    "the model did not answer, so no watcher was made",
                    hint="Try again. If it happens again, try the model on the page Models.",
                ) from None
            if not plan.get("then"):
                return None
            try:
                return check(validated(WatcherRequest, _request(plan, things, asked, sentence)))
            except (InvalidMessage, PredicateError, CallError) as error:
                mistake = f"{plan}: {error.message} {error.hint}"
        return None

    async def _nearest(self, sentence: str, naming: Naming, user: str, language: str) -> Phrase:
        """Return a hint with three sentences that work, with values and a call of the home."""
        shapes = load_shapes(language) or load_shapes("en")
        assert shapes is not None
        holes = {"number": "20"}
        for each in map(naming.world.current, naming.world.device_states(user)):
            name, _ = naming.named(source_of(each))
            said = str(name.values.get(language, name) if isinstance(name, Phrase) else name).replace(":", "")
            holes.setdefault("value", said)
            if isinstance(each.state, bool) or each.state in ("on", "off"):
                holes.setdefault("switch", said)
            elif isinstance(each.state, int | float):
                holes.setdefault("amount", said)
        near = self.finder.examples(language, user, near=sentence)
        for call in dict.fromkeys((*near, *self.finder.examples(language, user))):
            meaning = await self.finder.understand(call, language=language, current=None, user=user)
            if isinstance(meaning, SentenceCall) and not meaning.target.method.flags.read_only:
                holes["call"] = call
                break
        words = set(sentence.lower().split())
        ranked = sorted(shapes.data["examples"], key=lambda each: -len(words & set(each.lower().split())))
        usable = [each for each in ranked if all(hole in holes for hole in _HOLE.findall(each))]
        texts = [f"“{each.format(**holes)}”" for each in usable[: limits.NEAREST_SHAPES]]
        return Phrase("Say for example: {sentences}.", sentences="; ".join(texts)) if texts else Phrase("")


def _request(plan: dict[str, Json], things: dict[str, Any], asked: set[str], sentence: str) -> dict[str, Any]:
    given = plan.get("values")
    topics: dict[str, Any] = {}
    for name, wanted in given.items() if isinstance(given, dict) else ():
        if str(wanted) in asked:
            topics[name] = {"ask": wanted}
            continue
        if (thing := things.get(str(wanted))) is None:
            near = did_you_mean(str(wanted), things)
            raise InvalidMessage("there is no value {name!r}{near}", name=str(wanted)[:100], near=near)
        topics[name] = source_of(thing).model_dump()
    kept = {each: plan[each] for each in ("predicate", "schedule", "then") if plan.get(each)}
    return {"name": str(plan.get("title") or title_of(sentence))[:80], "topics": topics, **kept}
