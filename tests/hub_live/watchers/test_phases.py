"""Phases of watchers: what people may ask for in each, and that none is a dead end."""

import pytest

from contracts.errors import Conflict
from hub_live.watchers.phases import TRANSITIONS, Phase, requested
from hub_live.watchers.tables import WatcherRow
from hub_registry.storage.tables import now

FULL = WatcherRow(name="full", instance="hub", owner="ann", created_at=now(), instruction="")


@pytest.mark.parametrize(
    ("phase", "refused"),
    [
        (Phase.DRAFT, {"pause", "snooze", "resume", "ask"}),
        (Phase.PAUSED, {"ask"}),
        (Phase.SNOOZED, {"ask"}),
        (Phase.FAILED, {"ask"}),
        (Phase.HELD_UP, set()),
        (Phase.ASKING, {"ask"}),
    ],
)
def test_a_person_is_refused_what_a_phase_does_not_allow(phase: Phase, refused: set[str]) -> None:
    for trigger in ("approve", "edit", "pause", "snooze", "resume", "ask"):
        if trigger in refused:
            with pytest.raises(Conflict):
                requested(FULL, phase, trigger)
        else:
            assert requested(FULL, phase, trigger) is TRANSITIONS[trigger][phase]


def test_each_phase_is_reached_and_left() -> None:
    for phase in Phase:
        assert any(phase in after.values() for after in TRANSITIONS.values()), phase
        assert any(after.get(phase, phase) is not phase for after in TRANSITIONS.values()), phase
