from itertools import product

import pytest

from contracts import topics
from contracts.access import Action, Principal, allowed, covers, overlaps, rights
from tests.broker.rights_table import rows

LAMP = Principal("device", "lamp_pi", owner="anna")
HUB = Principal("hub", "main")
READER = Principal("client", "explorer", owner="anna")
HOME_ASSISTANT = Principal("client", "home_assistant", owner="anna", home_assistant=True)
CHATTER = Principal("client", "node-red", owner="anna", chat=True)

PRINCIPALS = [HUB, LAMP, READER, CHATTER, HOME_ASSISTANT, Principal("user", "anna", owner="anna")]
CALLS = "devices/lamp_pi/calls/+/+"


@pytest.mark.parametrize("who", PRINCIPALS, ids=lambda who: f"{who.kind} {who.id}")
def test_rights_are_those_of_the_table_that_brokers_are_tried_by(who: Principal) -> None:
    given = rights(who)
    for row in rows(who, device="lamp_pi", other="lock_pi"):
        if row.way == "publish":
            is_allowed = allowed(given, "publish", row.topic)
        else:
            # A subscription is refused as a whole, or each message is checked when it is delivered.
            is_allowed = allowed(given, "subscribe", row.filter) and allowed(given, "receive", row.topic)
        assert is_allowed is row.allowed, row


@pytest.mark.parametrize(
    ("who", "action", "topic", "is_allowed"),
    [
        (LAMP, "publish", topics.BROKER_CONTROL.template, False),
        (HUB, "publish", topics.BROKER_CONTROL.template, True),
        (HUB, "subscribe", "$SYS/#", False),
        (READER, "receive", "$SYS/broker/uptime", False),
        (LAMP, "subscribe", "devices/lamp_pi/#", False),
        (LAMP, "subscribe", "devices/+/calls/+/+", False),
        (LAMP, "subscribe", "+/+/+", False),
        (LAMP, "subscribe", CALLS, True),
        (HUB, "publish", "homeassistant/sensor/x/y/config", True),
        (HUB, "publish", "strawberry/main/lamp_pi/state/x", True),
        (HUB, "publish", "zigbee2mqtt/lamp/set", False),
        (HOME_ASSISTANT, "subscribe", "homeassistant/#", True),
        (HOME_ASSISTANT, "receive", "strawberry/main/lamp_pi/state/x", True),
        (HOME_ASSISTANT, "publish", "strawberry/main/lamp_pi/set/x/brightness", True),
        (HOME_ASSISTANT, "publish", "strawberry/main/lamp_pi/state/x", False),
        (HOME_ASSISTANT, "publish", "strawberry/main/availability", False),
        (HOME_ASSISTANT, "publish", "homeassistant/status", True),
        (HOME_ASSISTANT, "publish", "homeassistant/sensor/x/y/config", False),
        (HOME_ASSISTANT, "subscribe", "#", False),
        (HOME_ASSISTANT, "publish", "devices/lamp_pi/calls/LampSkill/turn_on", False),
        (READER, "receive", "strawberry/main/lamp_pi/state/x", False),
        (LAMP, "publish", "strawberry/main/lamp_pi/set/x", False),
    ],
)
def test_what_is_on_no_line_of_the_table(
    who: Principal, action: Action, topic: str, is_allowed: bool
) -> None:
    assert allowed(rights(who), action, topic) is is_allowed


@pytest.mark.parametrize(
    ("pattern", "filter_", "is_covered"),
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
    pattern: str, filter_: str, is_covered: bool
) -> None:
    assert covers(pattern, filter_) is is_covered


def test_two_filters_overlap_where_a_topic_matches_both() -> None:
    # Any topic of these filters has one with at most four levels of these letters.
    found = ["/".join(levels) for count in range(1, 5) for levels in product("ab", repeat=count)]
    heads = [levels for count in range(1, 3) for levels in product("ab+", repeat=count)]
    filters = ["#", *("/".join(levels) for levels in heads), *("/".join((*levels, "#")) for levels in heads)]
    for one, other in product(filters, repeat=2):
        both = any(covers(one, topic) and covers(other, topic) for topic in found)
        assert overlaps(one, other) is both, (one, other)
    assert not overlaps("#", "$SYS/uptime")
    assert overlaps("$SYS/#", "$SYS/uptime")
