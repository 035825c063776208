"""The memory over HTTP: ``/api/memory``."""

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from chat.http.requests import Answer, answer, read, read_query
from contracts.wire import Strict
from hub_live.memory.memory import MAX_CATEGORY, MAX_TEXT, Memory, ShownEntry, shown
from hub_registry.access.bearer import Bearer, Gate


class _Query(Strict):
    q: Annotated[str, Field(max_length=MAX_TEXT)] = ""
    limit: Annotated[int, Field(ge=1, le=1_000)] | None = None


class EntryBody(Strict):
    """An entry to remember.

    Attributes:
        private: Whether it is for the person alone who sends it.
    """

    category: Annotated[str, Field(max_length=MAX_CATEGORY)]
    text: str
    private: bool = False


class EntryChange(Strict):
    """Changes of an entry; None leaves a value as it is."""

    category: Annotated[str, Field(max_length=MAX_CATEGORY)] | None = None
    text: str | None = None


def memory_routes(memory: Memory, gate: Gate) -> list[BaseRoute]:
    """Make the routes."""
    # A device gets what concerns a message through it, not all that its owner wants remembered.
    may_look, may_call = gate.require_user("chat"), gate.require_user("call")

    async def may_change(request: Request) -> Bearer:
        bearer = await may_call(request)
        bearer.user.require_writer()
        return bearer

    async def look(request: Request) -> Answer[list[ShownEntry]]:
        bearer, query = await may_look(request), read_query(request, _Query)
        if query.q.strip():
            found = await memory.recall(bearer.user.id, query.q, limit=query.limit or 10)
        else:
            found = memory.entries(bearer.user.id)[: query.limit]
        return answer([shown(entry) for entry in found])

    async def add(request: Request) -> Answer[ShownEntry]:
        bearer = await may_change(request)
        body = await read(request, EntryBody)
        entry = await memory.remember(bearer.user.id, body.category, body.text, private=body.private)
        return answer(shown(entry))

    async def forget(request: Request) -> Answer[ShownEntry]:
        bearer = await may_change(request)
        return answer(shown(await memory.forget(bearer.user.id, request.path_params["entry"])))

    async def change(request: Request) -> Answer[ShownEntry]:
        bearer = await may_change(request)
        body = await read(request, EntryChange)
        entry = await memory.change(
            bearer.user.id, request.path_params["entry"], category=body.category, text=body.text
        )
        return answer(shown(entry))

    async def undo(request: Request) -> Answer[ShownEntry]:
        bearer = await may_change(request)
        return answer(shown(await memory.undo(bearer.user.id)))

    return [
        Route("/api/memory", look),
        Route("/api/memory", add, methods=["POST"]),
        Route("/api/memory/undo", undo, methods=["POST"]),
        Route("/api/memory/{entry}", change, methods=["PATCH"]),
        Route("/api/memory/{entry:path}", forget, methods=["DELETE"]),
    ]
