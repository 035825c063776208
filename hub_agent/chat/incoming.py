"""A message of somebody who may chat, whichever way it came."""

from dataclasses import dataclass

from agent_core.conversation import Exchange
from chat.turns import Turn
from hub_agent.calls.rate import RateLimit
from hub_agent.chat.assistant import Asking, Assistant
from hub_registry.access.bearer import Bearer


@dataclass(frozen=True)
class Incoming:
    """A message as a client sent it.

    Attributes:
        device: Any name of the current device, where the client gives one.
    """

    message: str
    agent: str
    turn: str
    conversation: str
    device: str | None = None
    can_confirm: bool = False
    history: tuple[Exchange, ...] = ()
    notes: str = ""


@dataclass(frozen=True)
class Chat:
    """What every way of chatting goes through.

    Attributes:
        rate: How often each user may ask, whatever the way.
    """

    assistant: Assistant
    rate: RateLimit

    async def begin(self, bearer: Bearer, incoming: Incoming) -> Turn:
        """Begin the turn of a message.

        Raises:
            CallError: If there is no device of the given name.
            Conflict: If this turn came before, or was cancelled.
            NoModel: If nothing can answer.
            NotFound: If there is no such agent.
            Throttled: If the user sends too many.
        """
        self.rate.spend(bearer.user.id)
        device = bearer.device
        if device is None and incoming.device is not None:
            device = self.assistant.registry.directory.resolve(incoming.device).id
        return await self.assistant.ask(
            Asking(
                user=bearer.user,
                token=bearer.claims.jti,
                turn=incoming.turn,
                conversation=incoming.conversation,
                message=incoming.message,
                device=device,
                through=bearer.device,
                can_confirm=incoming.can_confirm,
                agent=incoming.agent,
                history=incoming.history,
                notes=incoming.notes,
            )
        )
