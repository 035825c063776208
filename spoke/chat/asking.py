"""What a person on this machine says."""

from dataclasses import dataclass

from agent_core.conversation import Exchange


@dataclass(frozen=True)
class Asking:
    """A message.

    Attributes:
        can_confirm: Whether whoever follows the turn can show questions and answer them.
        history: Earlier exchanges as the client knows them; used where this device knows none.
        notes: Material of the client for the model, not instructions of ours.
    """

    message: str
    turn: str
    conversation: str
    agent: str
    can_confirm: bool = False
    history: tuple[Exchange, ...] = ()
    notes: str = ""
