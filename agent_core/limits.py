"""How far a turn may go, and how tokens are estimated."""

from dataclasses import dataclass
from typing import Final

_ASCII_PER_TOKEN: Final = 4
"""A common rule for English and for code."""
_BYTES_PER_TOKEN: Final = 3
"""Of all other text in UTF-8. That is one token for a Chinese character, which models come near to, and two
for three letters of Cyrillic, Greek or Arabic, which none exceeds."""


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a text takes of a prompt; every model counts in its own way."""
    size = len(text.encode("utf-8", "surrogatepass"))
    ascii_size = size if text.isascii() else len(text.encode("ascii", "ignore"))
    return ascii_size // _ASCII_PER_TOKEN + (size - ascii_size) // _BYTES_PER_TOKEN


@dataclass(frozen=True)
class TurnLimits:
    """When a turn is stopped.

    Attributes:
        iterations: Questions to the model in which it may use tools; one more asks for a summary.
        seconds: Time, without that in which a person is asked.
        tokens: Input and output tokens of all questions together, as the models count them.
        context_tokens: Most tokens of one question; older exchanges are left out beyond it. The hub has them
            summarised when they take half of it.
    """

    iterations: int = 12
    seconds: float = 300.0
    tokens: int = 200_000
    context_tokens: int = 24_000
