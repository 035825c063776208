"""The hub's operations as the pages call them: in this process, with the rights of one session."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from starlette.requests import HTTPConnection

from chat.conversations import CHAT
from chat.operations import Needs, Operation, Stream
from chat.turns import Turn
from contracts.chat.messages import ChatRequest
from hub_registry.access.bearer import Bearer
from hub_server.service import Hub

P = ParamSpec("P")
Answered = TypeVar("Answered")


@dataclass(frozen=True)
class Api:
    """Calls operations with a session's token, so that what a page may do is what its person may do.

    Args:
        token: That of the session.
        connection: The request for the page.
    """

    hub: Hub
    token: str
    connection: HTTPConnection

    async def __call__(
        self, operation: Operation[P, Answered], /, *args: P.args, **kwargs: P.kwargs
    ) -> Answered:
        """Call an operation of the hub.

        Raises:
            StrawberryError: As the operation says it.
        """
        return await self.hub.operations.call(operation, self._admit, *args, **kwargs)

    def follow(
        self, stream: Stream[P, Answered], /, *args: P.args, **kwargs: P.kwargs
    ) -> AbstractAsyncContextManager[AsyncIterator[Answered]]:
        """Open a stream of the hub; yield its answers, until the block is left.

        Raises:
            StrawberryError: As the stream says it.
        """
        return self.hub.operations.follow(stream, self._admit, *args, **kwargs)

    async def ask(self, request: ChatRequest) -> Turn:
        return await self.hub.agent.assistant.ask(request, await self._admit(CHAT, "chat"))

    @property
    def hub_name(self) -> str:
        """Id and public key of the hub, by which a page recognises it; without the key behind a proxy."""
        registry, has_proxy = self.hub.registry, self.hub.settings.http.has_proxy
        return f"{registry.hub_id} {'' if has_proxy else registry.key.public.jwk()['x']}"

    async def _admit(self, needs: Needs, what: str) -> Bearer:
        return await self.hub.gate.admit_session(self.token, self.connection, needs, what)
