"""The memory: ``/api/memory``, ``strawberry memory`` and its page."""

from typing import Annotated

from pydantic import Field

from chat.operations import CHANGE, LOOK, Command, Resource
from contracts.answers.live import ShownEntry
from hub_live.memory.memory import MAX_CATEGORY, MAX_TEXT, Memory, shown
from hub_registry.access.bearer import Bearer

# A device gets what concerns a message through it, not all that its owner wants remembered.
memory: Resource[Memory, Bearer] = Resource("memory", "/api/memory")

Category = Annotated[str, Field(max_length=MAX_CATEGORY)]


@memory.get(LOOK)
async def entries(
    memory: Memory,
    asking: Bearer,
    q: Annotated[str, Field(max_length=MAX_TEXT)] = "",
    limit: Annotated[int, Field(ge=1, le=1_000)] | None = None,
) -> list[ShownEntry]:
    """List what you may see of what is remembered.

    Args:
        q: Words that are looked for; best match first then, at most 10 without a limit.
    """
    if q.strip():
        found = await memory.recall(asking.user.id, q, limit=limit or 10)
    else:
        found = memory.entries(asking.user.id)[:limit]
    return [shown(entry) for entry in found]


@memory.post(CHANGE, command=Command("add CATEGORY TEXT...", says="Remembered as {id}."))
async def add(
    memory: Memory, asking: Bearer, category: Category, text: str, private: bool = False
) -> ShownEntry:
    """Remember something.

    Args:
        category: for example Chores
        text: what to remember
        private: for you alone, not for the household
    """
    return shown(await memory.remember(asking.user.id, category, text, private=private))


@memory.post(CHANGE, "/undo")
async def undo(memory: Memory, asking: Bearer) -> ShownEntry:
    """Bring back the entry that you changed or removed last."""
    return shown(await memory.undo(asking.user.id))


@memory.patch(CHANGE, "/{entry}")
async def change(
    memory: Memory, asking: Bearer, entry: str, category: Category | None = None, text: str | None = None
) -> ShownEntry:
    """Change an entry; what is left out or null stays."""
    return shown(await memory.change(asking.user.id, entry, category=category, text=text))


@memory.delete(CHANGE, "/{entry:path}")
async def forget(memory: Memory, asking: Bearer, entry: str) -> ShownEntry:
    """Forget an entry for good; `entry` is its id or a part of its text."""
    return shown(await memory.forget(asking.user.id, entry))
