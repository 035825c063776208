"""How far a turn may go."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TurnLimits:
    """When a turn is stopped.

    Attributes:
        iterations: Questions to the model in which it may use tools; one more asks for a summary.
        seconds: Time, without that in which a person is asked.
        tokens: Input and output tokens of all questions together, as the models count them.
        context_tokens: Most tokens of one question; older exchanges are left out beyond it.
    """

    iterations: int = 12
    seconds: float = 300.0
    tokens: int = 200_000
    context_tokens: int = 24_000
