"""Lists of the household, as for shopping: each is a category of the memory, ``List: shopping``."""

from typing import Any, Final

from agent_core.sentences.responses import in_languages
from agent_core.skills.labels import labels_of
from agent_core.skills.skill import skill_method
from chat.operations import CHANGE, LOOK
from contracts.errors import NotFound
from hub_agent.calls.own_skills import HubSkill
from hub_live.memory.markdown import MemoryEntry
from hub_live.memory.memory import Memory

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
