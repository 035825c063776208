"""The memory and the lists of the household as skills of the hub."""

from dataclasses import asdict
from typing import Any, Final

from agent_core.sentences.responses import in_languages
from agent_core.skills.labels import labels_of
from agent_core.skills.skill import skill_method
from chat.operations import CHANGE, LOOK
from contracts.errors import NotFound
from contracts.wire import Json, rfc3339
from hub_agent.calls.own_skills import HubSkill
from hub_agent.chat.history import Histories
from hub_live.memory.markdown import MemoryEntry
from hub_live.memory.memory import Memory, shown


class MemorySkill(HubSkill):
    """What is remembered from one conversation to the next: facts, preferences and plans of the home."""

    labels = labels_of("MemorySkill", english={"private": "For me alone"})

    def __init__(self, memory: Memory, histories: Histories) -> None:
        self._memory = memory
        self._histories = histories

    @property
    def _reader(self) -> str:
        return self.asking.bearer(LOOK).user.id

    @skill_method(idempotent=True)
    async def remember(self, category: str, text: str, private: bool = False) -> dict[str, Json]:
        """Remember a fact or a preference beyond this conversation, for everybody in the household.

        Args:
            category: A heading, for example Chores or Preferences; one that is there already if it fits.
            text: One sentence that can be understood alone: with names, and dates instead of "tomorrow".
            private: True if it is for the person who asks alone.
        """
        asking = self.asking
        if asking.untrusted:
            asking.need_confirmation("text of strangers was read in this turn, so that a person must agree")
        entry = await self._memory.remember(
            asking.bearer(CHANGE).user.id,
            category,
            text,
            private=private,
            device=asking.origin.through,
            conversation=asking.conversation,
            untrusted=asking.untrusted,
        )
        return _json(entry)

    @skill_method(
        sentences={
            "en": ["remember that {text}", "(make|take) a note [that] {text}", "note that {text}"],
            "de": ["merk[e] dir [dass] {text}", "notier[e] dass {text}"],
        },
        responses=in_languages("I will remember that."),
    )
    async def remember_this(self, text: str) -> dict[str, Json]:
        """Remember what the user just said, for everybody in the household.

        Args:
            text: One sentence, in the user's words.
        """
        return await self.remember("Notes", text)

    @skill_method(
        sentences={
            "en": [
                "what do you (know|remember) about {query}",
                "what did (i|we) (say|tell you) about {query}",
                "do you remember {query}",
            ],
            "de": ["was weißt du (über|von) {query}", "was hast du dir (über|zu) {query} gemerkt"],
        },
        responses=in_languages("[{result.entries.text}.]{result.is_empty:I know nothing about that.|}"),
        read_only=True,
    )
    async def recall(self, query: str = "") -> dict[str, Json]:
        """Find what is remembered, best match first; without a query, the newest.

        Args:
            query: A few words of what is looked for.
        """
        found = await self._memory.recall(self._reader, query)
        hidden = sum(entry.untrusted for entry in found)
        more = f"{hidden} more were written after text of strangers was read: recall_untrusted(query)"
        entries: list[Json] = [_json(entry) for entry in found if not entry.untrusted]
        return {"entries": entries, "is_empty": not entries, **({"more": more} if hidden else {})}

    @skill_method(read_only=True, untrusted_output=True)
    async def recall_untrusted(self, query: str = "") -> list[dict[str, Json]]:
        """Find what was remembered after text of strangers had been read, which may have put it there.

        Args:
            query: A few words of what is looked for.
        """
        found = await self._memory.recall(self._reader, query)
        return [_json(entry) for entry in found if entry.untrusted]

    @skill_method(destructive=True)
    async def forget(self, entry: str) -> dict[str, Json]:
        """Forget something that is remembered, for good.

        Args:
            entry: Its id, or a part of its text.
        """
        forgotten = await self._memory.forget(self._reader, entry)
        # The model has not read text of strangers because it names what is to go.
        return {**_json(forgotten), **({"text": "(untrusted)"} if forgotten.untrusted else {})}

    @skill_method(read_only=True, untrusted_output=True)
    async def search_conversations(self, query: str, limit: int = 5) -> list[dict[str, Json]]:
        """Find what was said before, in this conversation and in earlier ones, best match first.

        For what people talked about, mentioned, discussed, asked, told or decided at any time.

        Args:
            query: A few words that were used.
            limit: At most so many questions with their answers, up to 20.
        """
        asking = self.asking
        found = await self._histories.search(
            asking.user.id,
            query,
            turn=asking.actor.turn,
            device=asking.origin.through,
            limit=max(1, min(limit, 20)),
        )
        return [{**asdict(each), "at": rfc3339(each.at)} for each in found]


def _json(entry: MemoryEntry) -> dict[str, Json]:
    return shown(entry).model_dump(mode="json", by_alias=True)


SHOPPING: Final = "shopping"
_CATEGORY: Final = "List: "
"""Begins the categories that are lists, so that no other one is read or emptied as one."""


class ListSkill(HubSkill):
    """Lists of the household: for shopping, to do, to pack. Everybody at home sees them."""

    labels = labels_of("ListSkill", english={"ListSkill": "Lists"})

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @skill_method(responses=in_languages("Added {result.added} to the list."))
    async def add_item(self, item: str, name: str = SHOPPING) -> dict[str, Any]:
        """Put something on a list.

        Args:
            item: What, for example milk.
            name: Which list.
        """
        asking = self.asking
        if asking.untrusted:
            asking.need_confirmation("text of strangers was read in this turn, so that a person must agree")
        user = asking.bearer(CHANGE).user.id
        if not self._found(user, name, item):
            category = f"{_CATEGORY}{name}"
            await self._memory.remember(user, category, item, private=False, conversation=asking.conversation)
        return {"added": item}

    @skill_method(
        destructive=True,
        responses=in_languages("Took {result.removed} off the list."),
    )
    async def remove_item(self, item: str, name: str = SHOPPING) -> dict[str, Any]:
        """Remove something from a list; what is not on it is an error.

        Args:
            item: What, as it was put there.
            name: Which list.
        """
        user = self.asking.bearer(CHANGE).user.id
        found = self._found(user, name, item)
        if not found:
            raise NotFound("{item!r} is not on the list", item=item[:100])
        await self._memory.forget(user, found[0].id)
        return {"removed": found[0].text}

    @skill_method(
        read_only=True,
        untrusted_output=True,
        responses=in_languages("[{result.items}.]{result.is_empty:There is nothing on the list.|}"),
    )
    async def read_list(self, name: str = SHOPPING) -> dict[str, Any]:
        """Read a list.

        Args:
            name: Which list.
        """
        items = [each.text for each in self._on(self.asking.bearer(LOOK).user.id, name)]
        return {"items": items, "is_empty": not items}

    def _on(self, user: str, name: str) -> list[MemoryEntry]:
        wanted = f"{_CATEGORY}{name}".casefold()
        return [each for each in self._memory.entries(user) if each.category.casefold() == wanted]

    def _found(self, user: str, name: str, item: str) -> list[MemoryEntry]:
        return [each for each in self._on(user, name) if each.text.casefold() == item.casefold()]
