import pytest

from contracts import topics
from contracts.access import Action, Principal, allowed, covers, rights

CALL_ID = "0192d3a4-0000-7000-8000-000000000000"
LAMP = Principal("device", "lamp_pi", owner="anna")
HUB = Principal("hub", "main")
READER = Principal("client", "explorer", owner="anna")
CHATTER = Principal("client", "node-red", owner="anna", chat=True)

TABLE: list[tuple[Principal, Action, str, bool]] = [
    (LAMP, "publish", "devices/lamp_pi/status", True),
    (LAMP, "publish", "devices/lamp_pi/heartbeat", True),
    (LAMP, "publish", "devices/lamp_pi/skills/LampSkill", True),
    (LAMP, "publish", "devices/lamp_pi/state/LampSkill/power", True),
    (LAMP, "publish", "devices/lamp_pi/events/pressed", True),
    (LAMP, "publish", f"devices/lamp_pi/results/main/{CALL_ID}", True),
    (LAMP, "publish", "hub/chat/lamp_pi/request/1", True),
    (LAMP, "publish", "devices/lamp_pi/calls/LampSkill/turn_on", False),
    (LAMP, "publish", f"devices/lamp_pi/control/{CALL_ID}", False),
    (LAMP, "publish", "devices/lock_pi/status", False),
    (LAMP, "publish", f"devices/lock_pi/results/main/{CALL_ID}", False),
    (LAMP, "publish", "hub/main/status", False),
    (LAMP, "publish", "hub/chat/lock_pi/request/1", False),
    (LAMP, "publish", topics.BROKER_CONTROL.template, False),
    (LAMP, "subscribe", "devices/lamp_pi/calls/+/+", True),
    (LAMP, "subscribe", "devices/lamp_pi/control/+", True),
    (LAMP, "subscribe", "devices/lamp_pi/status", True),
    (LAMP, "subscribe", "devices/lamp_pi/skills/+", True),
    (LAMP, "subscribe", "hub/+/status", True),
    (LAMP, "subscribe", "hub/chat/lamp_pi/reply/+", True),
    (LAMP, "subscribe", "devices/+/calls/+/+", False),
    (LAMP, "subscribe", "devices/lamp_pi/#", False),
    (LAMP, "subscribe", "devices/lock_pi/calls/+/+", False),
    (LAMP, "subscribe", "#", False),
    (LAMP, "subscribe", "+/+/+", False),
    (LAMP, "subscribe", "users/anna/events/+", False),
    (HUB, "publish", "devices/lamp_pi/calls/LampSkill/turn_on", True),
    (HUB, "publish", "hub/main/status", True),
    (HUB, "publish", "users/anna/events/turn", True),
    (HUB, "publish", topics.BROKER_CONTROL.template, True),
    (HUB, "subscribe", "devices/+/skills/#", True),
    (HUB, "subscribe", "#", False),
    (HUB, "subscribe", "$SYS/#", False),
    (READER, "subscribe", "#", True),
    (READER, "publish", "devices/lamp_pi/state/LampSkill/power", False),
    (READER, "publish", "hub/chat/explorer/request/1", False),
    (READER, "receive", "devices/lamp_pi/status", True),
    (READER, "receive", "devices/lamp_pi/skills/LampSkill", True),
    (READER, "receive", "devices/lamp_pi/calls/LampSkill/turn_on", False),
    (READER, "receive", f"devices/lamp_pi/results/main/{CALL_ID}", False),
    (READER, "receive", "users/anna/events/turn", True),
    (READER, "receive", "users/ben/events/turn", False),
    (READER, "receive", "hub/chat/node-red/reply/1", False),
    (READER, "receive", "$SYS/broker/uptime", False),
    (CHATTER, "publish", "hub/chat/node-red/request/1", True),
    (CHATTER, "publish", "hub/chat/explorer/request/1", False),
    (CHATTER, "receive", "hub/chat/node-red/reply/1", True),
]


@pytest.mark.parametrize(("principal", "action", "topic", "expected"), TABLE)
def test_a_principal_may_do_what_the_table_lists_and_nothing_else(
    principal: Principal, action: Action, topic: str, expected: bool
) -> None:
    assert allowed(rights(principal), action, topic) is expected


@pytest.mark.parametrize(
    ("pattern", "filter_", "expected"),
    [
        ("#", "a/b", True),
        ("#", "#", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("a/#", "a", True),
        ("a/#", "a/#", True),
        ("a/+", "a/#", False),
        ("a/+", "a/+", True),
        ("a/b", "a/+", False),
        ("a/+/c", "a/b/c", True),
        ("a/b", "a/b/c", False),
        ("a/b/c", "a/b", False),
    ],
)
def test_a_pattern_covers_a_filter_only_if_it_matches_all_that_the_filter_matches(
    pattern: str, filter_: str, expected: bool
) -> None:
    assert covers(pattern, filter_) is expected
