"""Phases of a watcher, and the one table of what moves it from one to another.

::

    draft ◀─── edit ──── active ─── pause ──▶ paused
      └───── approve ────▶ ▲ ◀──── resume ─────┘
                           ├─── snooze ─▶ snoozed ─ wake ─▶ active
                           └─── fail ───▶ failed ─ resume ─▶ active

    active:
                 plan            ask                fall
      quiet ────────────▶ due ────────▶ asking ───────────▶ overtaken
        ▲ ◀──── drop ─────┤ ▲             │                     │
        │            hold ▼ │ ask         │ decide              │ decide
        │ ◀─ drop ─── held up ─▶ asking   │                     │
        └─────────────────────────────────┴─────────────────────┘

A person may approve a watcher in any phase, and edit it (one with calls is a draft then), and pause, snooze
and resume one in any phase but draft. ``ask`` is also what a person does who wants an evaluation now.

Of the phase, `WatcherRow` stores ``state`` and ``snoozed_until``. After a restart one that is active is
quiet: what it has to ask the model follows from its values and its history.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum, auto
from typing import Any, Final, Literal

from contracts.errors import Conflict
from hub_live.watchers.tables import WatcherRow


class Phase(StrEnum):
    """What a watcher is doing.

    Attributes:
        DRAFT: It waits for a person's approval.
        PAUSED: It follows no values until it is resumed.
        FAILED: It cannot follow its values; its note says why.
        SNOOZED: It follows its values, and asks nothing for some time.
        QUIET: There is nothing to ask the model.
        DUE: The model is asked at a time that is set.
        HELD_UP: The model is to be asked, and the evaluations of a minute are used up.
        ASKING: The model is asked, or what it decided is done; or the steps of one that asks none.
        OVERTAKEN: Likewise, and the predicate was false meanwhile, so that what is done belongs to the past.
    """

    DRAFT = auto()
    PAUSED = auto()
    FAILED = auto()
    SNOOZED = auto()
    QUIET = auto()
    DUE = auto()
    HELD_UP = auto()
    ASKING = auto()
    OVERTAKEN = auto()

    @property
    def state(self) -> str:
        """The phase as it is stored and published."""
        if self in _STORED:
            return self.value
        return "paused" if self is Phase.SNOOZED else "active"

    @property
    def is_asking(self) -> bool:
        return self in _ASKING

    def stored(self, until: datetime | None = None) -> dict[str, Any]:
        """Return the fields of a `WatcherRow` that is in this phase."""
        # Times of its schedule that come while it does not watch are not missed, and its steps do not wait.
        planned = {"next_at": None, "step": None, "step_at": None, "pending": ""} if self in _STORED else {}
        return {"state": self.state, "snoozed_until": until, **planned}


_OfPeople = Literal["approve", "edit", "pause", "snooze", "resume", "fail", "wake"]
_OfEngine = Literal["plan", "drop", "hold", "ask", "fall", "decide"]
Trigger = _OfPeople | _OfEngine
"""What moves a watcher from one phase to another."""

_STORED: Final = (Phase.DRAFT, Phase.PAUSED, Phase.FAILED)
_ASKING: Final = (Phase.ASKING, Phase.OVERTAKEN)
_WAITING: Final = (Phase.DUE, Phase.HELD_UP)
_APPROVED: Final = tuple(each for each in Phase if each is not Phase.DRAFT)

TRANSITIONS: Final[Mapping[Trigger, Mapping[Phase, Phase]]] = {
    # People, and the hub for them.
    "approve": dict.fromkeys(Phase, Phase.QUIET),
    "edit": dict.fromkeys(Phase, Phase.DRAFT),
    "pause": dict.fromkeys(_APPROVED, Phase.PAUSED),
    "snooze": dict.fromkeys(_APPROVED, Phase.SNOOZED),
    "resume": dict.fromkeys(_APPROVED, Phase.QUIET),
    "fail": dict.fromkeys(_APPROVED, Phase.FAILED),
    "wake": {Phase.SNOOZED: Phase.QUIET},
    # The engine.
    "plan": {Phase.QUIET: Phase.DUE},
    "drop": dict.fromkeys(_WAITING, Phase.QUIET),
    "hold": dict.fromkeys(_WAITING, Phase.HELD_UP),
    "ask": dict.fromkeys((Phase.QUIET, *_WAITING), Phase.ASKING),
    "fall": {Phase.ASKING: Phase.OVERTAKEN},
    "decide": dict.fromkeys(_ASKING, Phase.QUIET),
}
"""In a phase that a trigger does not name, the engine goes on as it was, and a person is refused."""


def phase_of(row: WatcherRow, active: Phase = Phase.QUIET) -> Phase:
    """Return the phase of a watcher.

    Args:
        active: That in which it is if it is active.
    """
    if row.snoozed_until is not None:
        return Phase.SNOOZED
    return active if row.state == "active" else Phase(row.state)


def is_watching(row: WatcherRow) -> bool:
    # It is active, or only snoozed.
    return phase_of(row) not in _STORED


def requested(row: WatcherRow, phase: Phase, trigger: Trigger) -> Phase:
    """Return the phase after what a person asks for.

    Raises:
        Conflict: If it cannot be done in this phase.
    """
    if (after := TRANSITIONS[trigger].get(phase)) is not None:
        return after
    if phase is Phase.DRAFT:
        problem, hint = (
            "{title} is a draft",
            "Approve it first. 'strawberry watchers approve {name}' approves it.",
        )
    elif phase.is_asking:
        problem, hint = (
            "{title} is evaluated just now",
            "Try it again in a moment. 'strawberry watchers show {name}' shows it.",
        )
    else:
        problem = "{title} is not active: {state}"
        hint = "Resume it first. 'strawberry watchers resume {name}' lets it go on."
    raise Conflict(problem, title=row.display_name, name=row.name, state=phase.state, hint=hint)
