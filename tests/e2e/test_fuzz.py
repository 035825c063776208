"""A device that has gone mad says anything on every topic it may publish to; the home goes on."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts import topics
from contracts.access import Principal, rights
from contracts.devices.presence import DeviceStatus, State
from contracts.devices.registration import Registration
from contracts.devices.rpc import Failure
from identity.envelope import Seal
from identity.ids import uuid7
from tests.e2e.bus import Bus, as_device, overhear, spoke_seal
from tests.e2e.house import House, Spoke, wait_for

pytestmark = pytest.mark.slow

Mad = tuple[House, Spoke, Bus, Seal]

NAMES = st.sampled_from(["JournalSkill", "MemorySkill", "main", "other", "write", "x" * 64, "ö", "é" * 30])
CALLS = st.builds(uuid7) | st.sampled_from(["0", "not-a-call"])
TOPICS = st.sampled_from(
    [right.filter for right in rights(Principal(kind="device", id="mad_pi")) if right.action == "publish"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
# The field names of the contracts, so that noise gets past the first check and into the next one.
FIELDS = st.sampled_from(
    sorted(
        {*DeviceStatus.model_fields, *Registration.model_fields, *Failure.model_fields, *State.model_fields}
    )
)
KINDS = st.sampled_from(["status", "skill", "heartbeat", "state", "event", "result", "failure", "accepted"])
DOCUMENTS = st.builds(
    lambda fields, kind: {**fields, "v": 1, "kind": kind}, st.dictionaries(FIELDS, JSON, max_size=6), KINDS
)
PAYLOADS = st.one_of(
    st.binary(max_size=200),
    JSON.map(lambda value: json.dumps(value).encode()),
    DOCUMENTS.map(lambda value: json.dumps(value).encode()),
    st.integers(1, 5).map(lambda depth: b"[" * 10**depth),
)


@st.composite
def messages(draw: st.DrawFn) -> tuple[str, bytes, bool, bool]:
    """Topic, payload, whether it is retained, whether it is well signed."""
    levels = [draw(CALLS | NAMES) if level == "+" else level for level in draw(TOPICS).split("/")]
    if "results" in levels:
        levels[3] = "main"  # the instance that listens
    return "/".join(levels), draw(PAYLOADS), draw(st.booleans()), draw(st.booleans())


@pytest.fixture
def mad(any_house: House, journal: dict[str, str]) -> Mad:
    """A home with a device that works and one whose place the test has taken."""
    house = any_house
    house.add_spoke("Bedroom PC", journal)
    spoke = house.add_spoke("Mad Pi", journal)
    house.kill(spoke.id)
    return house, spoke, as_device(house, spoke), spoke_seal(house, spoke)


def test_whatever_a_device_says_the_hub_lives_says_why_and_other_devices_go_on(mad: Mad) -> None:
    house, spoke, device, seal = mad
    with device, overhear(house) as ear:

        @settings(max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(said=st.lists(messages(), min_size=1, max_size=6))
        def say(said: list[tuple[str, bytes, bool, bool]]) -> None:
            for topic, payload, retain, signed in said:
                if signed and payload.startswith(b"{") and payload.endswith(b"}") and len(payload) > 7:
                    payload = seal.sign(topic, payload)
                device.publish(topic, payload, retain=retain)

        say()
        # Whatever chance has said: one of each kind that is certainly wrong.
        device.publish(topics.STATUS.build(device=spoke.id), b'{"state":"mad"}')
        device.publish(topics.RESULT.build(device=spoke.id, instance="main", call=uuid7()), b"{}")
        own = topics.EVENT.build(device=spoke.id, name="last")
        device.publish(own, b'{"last":true}')
        ear.wait(own, last=True)
        assert not device.gone.is_set(), "the broker has not thrown it out for what it said on its own topics"

        assert len(ear.heard) > 100, "it got through to the hub"
        wait_for(house.healthy, what="the hub to answer")
        assert house.json("call", "bedroom_pc", "JournalSkill.write", "text=here") == "wrote here"
        house.ended("hub")
        log = house.log("hub")
        assert f"refused a message on 'devices/{spoke.id}/" in log
        assert f"dropped a reply on 'devices/{spoke.id}/results/main/" in log
        assert "Traceback" not in log
    # What the broker has kept of it does no harm to a hub that starts, nor to the device itself.
    house.kill("hub")
    house.start_hub()
    house.start_spoke(spoke)
    house.wait_until_online(spoke)
    assert house.json("call", spoke.id, "JournalSkill.write", "text=sane") == "wrote sane"
    assert "Traceback" not in house.log("hub")
