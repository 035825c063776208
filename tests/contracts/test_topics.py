import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import topics
from contracts.devices.presence import Heartbeat
from contracts.errors import InvalidMessage, InvalidTopic

CALL_ID = "0192d3a4-0000-7000-8000-000000000000"


def test_every_row_finds_the_topics_it_builds() -> None:
    values = {
        "device": "bedroom_pc",
        "skill": "MusicSkill",
        "method": "set_volume",
        "property": "volume",
        "name": "doorbell",
        "call": CALL_ID,
        "instance": "main",
        "principal": "node-red",
        "request": "1",
        "watcher": "frost",
        "capture": "weather",
        "user": "owner",
        "kind": "turn",
    }
    for row in topics.TOPICS:
        built = row.build(**values)
        assert topics.find(built) == (row, {name: values[name] for name in row.names})


def test_a_hub_process_cannot_take_the_name_of_a_branch() -> None:
    assert topics.find("hub/watchers/status") is None
    with pytest.raises(InvalidTopic):
        topics.HUB_STATUS.build(instance="watchers")


@pytest.mark.parametrize("device", ["hub", "class", "Bedroom", "a/b", "", "+", "#", "ä", "a" * 33, "1a"])
def test_a_name_that_could_change_the_topic_is_refused(device: str) -> None:
    with pytest.raises(InvalidTopic):
        topics.STATUS.build(device=device)


def test_a_payload_of_another_kind_is_refused_with_the_place_of_the_fault() -> None:
    with pytest.raises(InvalidMessage, match=r"^seq"):
        topics.HEARTBEAT.parse(b'{"v": 1, "seq": -1, "uptime_s": 1}')


def test_unknown_fields_are_ignored_and_unknown_versions_are_not() -> None:
    assert topics.HEARTBEAT.parse(b'{"v":1,"seq":1,"uptime_s":2,"new":true}') == Heartbeat(seq=1, uptime_s=2)
    with pytest.raises(InvalidMessage, match="v must be"):
        topics.HEARTBEAT.parse(b'{"v":2,"seq":1,"uptime_s":2}')


@given(st.text(max_size=80), st.binary(max_size=200))
def test_any_text_and_any_bytes_give_a_message_or_a_clear_refusal(topic: str, payload: bytes) -> None:
    topics.find(topic)
    for row in topics.TOPICS:
        with contextlib.suppress(InvalidMessage):
            assert row.parse(payload)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00", "0001-01-01T00:00:00+14:00"])
def test_a_moment_without_a_zone_or_before_all_calendars_is_refused(at: str) -> None:
    with pytest.raises(InvalidMessage, match="at"):
        topics.STATE.parse(f'{{"v":1,"kind":"state","value":1,"at":"{at}"}}'.encode())
