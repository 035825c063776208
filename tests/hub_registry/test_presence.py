import time

import pytest

from contracts.devices.presence import CONFIRM_ONLINE_S, DeviceStatus
from hub_registry.bus.hub_presence import next_start
from hub_registry.devices.presence import HighWater, Presence, PresenceState


def status(state="online", *, epoch=1, connection=1, seq=0) -> DeviceStatus:
    return DeviceStatus(state=state, epoch=epoch, connection=connection, seq=seq)


def hear(presence, message, *, retained=False, at=0.0):
    return presence.hear(message, retained=retained, at=at)


@pytest.fixture
def presence() -> Presence:
    return Presence(HighWater())


def test_a_live_online_counts_at_once(presence):
    assert hear(presence, status()) is None
    assert presence.state is PresenceState.ONLINE


def test_a_retained_online_counts_until_ten_seconds_have_passed_without_confirmation(presence):
    hear(presence, status(), retained=True, at=100.0)
    assert presence.connected
    assert not presence.expire(at=100.0 + CONFIRM_ONLINE_S - 0.1)
    assert presence.expire(at=100.0 + CONFIRM_ONLINE_S)
    assert presence.state is PresenceState.OFFLINE


def test_a_live_status_confirms_a_retained_one(presence):
    hear(presence, status(), retained=True)
    hear(presence, status(seq=1), at=5.0)
    assert not presence.expire(at=1_000.0)
    assert presence.state is PresenceState.ONLINE


def test_a_retained_status_heard_again_confirms_nothing(presence):
    hear(presence, status(), retained=True, at=0.0)
    assert hear(presence, status(), retained=True, at=9.0) is not None
    assert presence.expire(at=CONFIRM_ONLINE_S)


def test_a_stale_online_does_not_come_back_once_it_has_expired(presence):
    hear(presence, status(), retained=True)
    presence.expire(at=CONFIRM_ONLINE_S)
    assert hear(presence, status(), retained=True, at=20.0) is not None
    assert presence.state is PresenceState.OFFLINE


def test_a_will_ends_its_connection_whatever_its_seq(presence):
    hear(presence, status(seq=7))
    assert hear(presence, status("offline", seq=0)) is None
    assert presence.state is PresenceState.OFFLINE
    assert presence.high == HighWater(1, 1, 7, ended=True)


def test_offline_is_final_within_a_connection(presence):
    hear(presence, status())
    hear(presence, status("offline", seq=1))
    assert hear(presence, status(seq=2)) is not None
    assert presence.state is PresenceState.OFFLINE


def test_a_late_will_of_an_earlier_connection_is_ignored(presence):
    hear(presence, status(connection=1))
    hear(presence, status(connection=2))
    assert hear(presence, status("offline", connection=1, seq=9)) is not None
    assert presence.state is PresenceState.ONLINE


@pytest.mark.parametrize(
    "replayed",
    [
        {"epoch": 4, "connection": 9, "seq": 9},
        {"epoch": 5, "connection": 2, "seq": 9},
        {"epoch": 5, "connection": 3, "seq": 3},
        {"epoch": 5, "connection": 3, "seq": 4},
    ],
)
def test_nothing_that_is_not_later_counts(presence, replayed):
    hear(presence, status(epoch=5, connection=3, seq=4))
    assert hear(presence, status(**replayed)) is not None
    assert presence.high == HighWater(5, 3, 4)


@pytest.mark.parametrize(
    ("ended", "seq", "state"),
    [
        (False, 4, PresenceState.UNCONFIRMED),
        (False, 3, PresenceState.UNKNOWN),
        (True, 9, PresenceState.OFFLINE),
    ],
    ids=["the latest that was known", "an older one", "of a connection that had ended"],
)
def test_which_retained_status_counts_after_a_restart_of_the_hub(ended, seq, state):
    presence = Presence(HighWater(5, 3, 4, ended=ended))
    ignored = hear(presence, status(epoch=5, connection=3, seq=seq), retained=True)
    assert (presence.state, bool(ignored)) == (state, state is not PresenceState.UNCONFIRMED)


def test_a_hub_that_was_away_from_the_broker_asks_for_confirmation(presence):
    hear(presence, status())
    presence.require_confirmation(at=50.0)
    assert presence.connected
    assert presence.expire(at=50.0 + CONFIRM_ONLINE_S)


def test_a_hub_whose_clock_was_set_back_starts_later_than_before(tmp_path, monkeypatch):
    first = next_start(tmp_path / "started")
    monkeypatch.setattr(time, "time_ns", lambda: int((first.timestamp() - 3_600) * 1e9))
    assert next_start(tmp_path / "started") > first
