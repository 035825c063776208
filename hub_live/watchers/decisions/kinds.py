"""The kinds of decisions: what a model may choose, and what else stands in the history of a watcher.

One more kind that tells its owner, or does nothing, is one more entry here: prompts, limits, pages and Home
Assistant read what it can. What makes a new effect is carried out in `evaluation.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class Kind:
    """A kind of decision.

    Attributes:
        name: As it is stored, published, and chosen by the model.
        label: For people: what the watcher did.
        tone: How much a page makes of it.
        choice: Its description for the model; empty for one that it cannot choose.
        is_told: Whether the owner is notified of it, once for each time that the predicate becomes true.
        makes_calls: Whether it makes calls: they need approval and count as actions of the hour.
        is_decision: Whether something was evaluated.
    """

    name: str
    label: str
    tone: Literal["plain", "good", "accent", "warn", "bad"] = "plain"
    choice: str = ""
    is_told: bool = False
    makes_calls: bool = False
    is_decision: bool = True


NOTHING: Final = Kind(
    "nothing",
    label="did nothing",
    choice="the instruction asks for nothing at these values, or it was done already.",
)
NOTIFY: Final = Kind(
    "notify",
    label="notified",
    tone="good",
    choice="tell the owner; the reason is what the owner reads.",
    is_told=True,
)
ACT: Final = Kind(
    "act",
    label="acted",
    tone="accent",
    choice="make calls that the owner approved, in the order in which they are to be made, with arguments "
    "inside the approved ranges.",
    is_told=True,
    makes_calls=True,
)
FAILED: Final = Kind("failed", label="not decided", tone="bad")
WAIT: Final = Kind("wait", label="waits with its first step")
GAP: Final = Kind("gap", label="heard nothing", tone="warn", is_decision=False)

KINDS: Final[Mapping[str, Kind]] = {each.name: each for each in (NOTHING, NOTIFY, ACT, WAIT, FAILED, GAP)}
"""By name."""
CHOICES: Final[Mapping[str, Kind]] = {name: each for name, each in KINDS.items() if each.choice}


def kind_of(decision: str) -> Kind:
    return KINDS.get(decision) or Kind(decision, label=decision)
