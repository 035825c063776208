"""Which way each model is asked, and what it is offered."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from itertools import groupby

from agent_core.gateway.fallback import AllFailed, Backend, Began, Failure, Piece
from agent_core.gateway.protocol import ModelRequest
from agent_core.models.entries import Model, ToolStyle


class Routes:
    """A ``Backend`` over several: neighbours that go the same way and act alike are asked together.

    Args:
        way: Gives the backend that asks a model.
    """

    def __init__(self, way: Callable[[Model], Backend]) -> None:
        self._way = way

    async def ask(self, request: ModelRequest, models: tuple[Model, ...]) -> AsyncGenerator[Piece, None]:
        """See ``fallback.Backend.ask``."""
        failures: tuple[Failure, ...] = ()
        for backend, style, group in self._groups(models):
            failed = False
            async with aclosing(backend.ask(request.for_style(style), group)) as pieces:
                async for piece in pieces:
                    match piece:
                        case AllFailed():
                            failed = True
                            failures += piece.failures
                        case Began():
                            yield Began(piece.model, failures + piece.failures)
                        case _:
                            yield piece
            if not failed:
                return
        yield AllFailed(failures)

    def _groups(self, models: tuple[Model, ...]) -> Iterator[tuple[Backend, ToolStyle, tuple[Model, ...]]]:
        for _, group in groupby(models, lambda model: (id(self._way(model)), model.entry.tools)):
            members = tuple(group)
            yield self._way(members[0]), members[0].entry.tools, members
