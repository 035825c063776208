"""Declared sentences over HTTP: what one would call, and which can be said; nothing is called."""

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.routing import Route

from agent_core.search.catalogue import raised_flags
from agent_core.sentences.index import SentenceCall, SentenceChoice
from chat.http.requests import Answer, answer, read_query
from contracts.chat.vocabulary import Vocabulary
from contracts.wire import Json, Part, Strict
from hub_agent.chat.assistant import Assistant
from hub_registry.access.bearer import Gate
from hub_registry.devices.directory import Entry


class _Query(Strict):
    """Query parameters.

    Attributes:
        device: On which it would be said; the token of a device implies it.
        language: In which, where that is not the language of the user.
    """

    q: Annotated[str, Field(min_length=1, max_length=1_000)]
    device: Annotated[str | None, Field(max_length=64)] = None
    language: Annotated[str | None, Field(max_length=35)] = None


class _VocabularyQuery(Strict):
    language: Annotated[str | None, Field(max_length=35)] = None


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


def sentence_routes(assistant: Assistant, gate: Gate) -> list[Route]:
    """Make the routes: what a sentence would call, and what can be said on the device that asks."""
    may_look, may_chat = gate.require("chat", "call"), gate.require("chat")
    registry = assistant.registry

    async def try_sentence(request: Request) -> Answer[SentenceTried]:
        bearer, query = await may_look(request), read_query(request, _Query)
        user, directory = bearer.user.id, registry.directory.seen_by(bearer.user.id)
        device = bearer.device
        if device is None and query.device is not None:
            device = directory.resolve(query.device).id
        language = query.language or assistant.prompter.household(bearer.user).language
        await registry.search.catch_up()
        matched = registry.search.match(query.q, language=language, current=device, user=user)
        calls = (
            matched.calls if isinstance(matched, SentenceChoice) else () if matched is None else (matched,)
        )
        return answer(
            SentenceTried(
                language=language,
                calls=[_shown(each, directory.get(each.target.device)) for each in calls],
                question=matched.question if isinstance(matched, SentenceChoice) else None,
                examples=[] if calls else registry.search.examples(language, user),
            )
        )

    async def vocabulary(request: Request) -> Answer[Vocabulary]:
        bearer, query = await may_chat(request), read_query(request, _VocabularyQuery)
        language = query.language or assistant.prompter.household(bearer.user).language
        await registry.search.catch_up()
        device = bearer.device
        return answer(registry.search.vocabulary(language, current=device, user=bearer.user.id))

    return [Route("/api/skills/sentence", try_sentence), Route("/api/vocabulary", vocabulary)]


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
