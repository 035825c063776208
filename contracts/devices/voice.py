"""Which of several devices answers that heard the same wake word."""

from typing import Annotated, Final, Literal

from pydantic import Field

from contracts.names import CallId
from contracts.wire import Timestamp, Wire

COLLECT_S: Final = 0.08
"""How long the hub waits for other devices after the first one: microphones and wake words differ by less."""

VERDICT_S: Final = 0.15
"""How long a device waits for the hub, from its wake word on; then it answers by itself."""


class WakeHeard(Wire):
    """Spoke → hub, signed: a wake word was heard.

    Attributes:
        id: Of this question.
        word: Name of the wake word; only devices that heard the same one are compared.
        loudness: Decibels below full scale: 0 is the loudest.
        at: When, by the hub's clock.
    """

    kind: Literal["heard"] = "heard"
    id: CallId
    word: Annotated[str, Field(min_length=1, max_length=64)]
    loudness: Annotated[float, Field(ge=-96, le=0)]
    at: Timestamp


class WakeVerdict(Wire):
    """Hub → spoke, signed: whether it answers.

    Attributes:
        id: Of the question.
    """

    kind: Literal["verdict"] = "verdict"
    id: CallId
    answer: bool
