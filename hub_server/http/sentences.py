"""Declared sentences: what one would call, and which can be said, over HTTP and as the answer to "help"."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field

from agent_core.prompt import Household
from agent_core.search.catalogue import raised_flags
from agent_core.sentences.index import SentenceCall, SentenceChoice
from agent_core.sentences.responses import in_languages
from agent_core.skills.labels import labels_of
from agent_core.skills.skill import skill_method
from chat.operations import LOOK, Needs, Resource
from contracts.answers.skills import SentencesOfSkill
from contracts.chat.vocabulary import Vocabulary
from contracts.wire import Json, Part
from hub_agent.calls.own_skills import HubSkill
from hub_registry.access.accounts import User
from hub_registry.access.bearer import Bearer
from hub_registry.devices.directory import Entry
from hub_registry.registry import Registry

Language = Annotated[str | None, Field(max_length=35)]
_EACH: Final = 2
"""Sentences of a skill that are named: an answer is heard, too."""
_MOST: Final = 12


class CallOfSentence(Part):
    """A call that a sentence would make; ``unavailable`` is why it cannot be made now, or empty."""

    path: str
    device_name: str
    signature: str
    summary: str
    arguments: dict[str, Json]
    flags: list[str]
    unavailable: str


class SentenceTried(Part):
    """What a sentence would call; several calls come with a question, none with examples."""

    language: str
    calls: list[CallOfSentence]
    question: str | None
    examples: list[str]


@dataclass(frozen=True)
class Sentences:
    """Where sentences are found, and the language of a person."""

    registry: Registry
    household: Callable[[User], Household]

    async def listed(self, user: User, words: str, language: str | None) -> list[SentencesOfSkill]:
        """Return what a person can say, by room and skill; see `sayable`."""
        language = language or self.household(user).language
        found = await self.registry.search.sentences(
            language, user=user.id, near=words, read_only=user.read_only
        )
        directory, groups = self.registry.directory.seen_by(user.id), dict[tuple[str, str], list[str]]()
        for source, skill, text in found:
            groups.setdefault((source, skill), []).append(text)
        made = [
            SentencesOfSkill(
                device=entry.names[0] if entry is not None else "",
                area=next(iter(entry.places), "") if entry is not None else "",
                skill=skill,
                labels=own.registration.labels if own is not None else {},
                sentences=texts,
            )
            for (source, skill), texts in groups.items()
            for entry in (directory.get(source),)
            for own in ((entry or directory.hub).skills.get(skill),)
        ]
        return sorted(made, key=lambda each: (each.area, each.device, each.skill))


class HelpSkill(HubSkill):
    """What a person can say to this home."""

    labels = labels_of("HelpSkill", english={"help": "What can I say?"})

    def __init__(self, sentences: Sentences) -> None:
        self._sentences = sentences

    @skill_method(
        read_only=True,
        untrusted_output=True,
        responses=in_languages("You can say, for example: {result.sentences}."),
    )
    async def help(self) -> dict[str, Any]:
        """List what a person can say without a model, some sentences of each skill."""
        user = self.asking.bearer(LOOK).user
        groups = await self._sentences.listed(user, "", None)
        plain = [[text for text in group.sentences if "<" not in text][:_EACH] for group in groups]
        said = list(dict.fromkeys(text for texts in plain for text in texts))
        return {"sentences": [f"\u201c{text}\u201d" for text in said[:_MOST]]}


# What is said is no one resource: a sentence is of the skills, the vocabulary of the device that asks.
sentences: Resource[Sentences, Bearer] = Resource("sentences", "/api")


@sentences.get(Needs(("chat",), devices=True), "/vocabulary")
async def vocabulary(sentences: Sentences, asking: Bearer, language: Language = None) -> Vocabulary:
    """Return what can be said on the device that asks, for speech to text."""
    search = sentences.registry.search
    await search.catch_up()
    return await search.vocabulary(
        language or sentences.household(asking.user).language,
        current=asking.device,
        user=asking.user.id,
    )


@sentences.get(LOOK, "/sentences")
async def sayable(
    sentences: Sentences,
    asking: Bearer,
    q: Annotated[str, Field(max_length=300)] = "",
    language: Language = None,
) -> list[SentencesOfSkill]:
    """List what can be said without a model, by room and skill.

    Args:
        q: Words of the sentences that are wanted; where none has all of them, the nearest ones come.
        language: In which, where that is not yours.
    """
    return await sentences.listed(asking.user, q, language)


@sentences.get(Needs(("chat", "call"), devices=True), "/skills/sentence")
async def attempt(
    sentences: Sentences,
    asking: Bearer,
    q: Annotated[str, Field(min_length=1, max_length=1_000)],
    device: Annotated[str | None, Field(max_length=64)] = None,
    language: Language = None,
) -> SentenceTried:
    """Return what a sentence would call, which is not called.

    Several calls come with the question that would be asked, none with examples that work.

    Args:
        device: On which it would be said; the token of a device implies it.
        language: In which, where that is not the language of the user.
    """
    registry, user = sentences.registry, asking.user.id
    directory, current = registry.directory.seen_by(user), asking.device
    if current is None and device is not None:
        current = directory.resolve(device).id
    language = language or sentences.household(asking.user).language
    await registry.search.catch_up()
    matched = await registry.search.understand(q, language=language, current=current, user=user, patient=True)
    calls = matched.calls if isinstance(matched, SentenceChoice) else () if matched is None else (matched,)
    return SentenceTried(
        language=language,
        calls=[_shown(each, directory.get(each.target.device)) for each in calls],
        question=matched.question if isinstance(matched, SentenceChoice) else None,
        examples=[]
        if calls
        else registry.search.examples(language, user, near=q, read_only=asking.user.read_only),
    )


def _shown(call: SentenceCall, entry: Entry | None) -> CallOfSentence:
    target = call.target
    return CallOfSentence(
        path=target.path,
        device_name=target.device_name,
        signature=target.method.signature,
        summary=target.method.summary,
        arguments=call.arguments,
        flags=raised_flags(target.method.flags),
        unavailable=(entry.unavailable or "") if entry is not None else "",
    )
