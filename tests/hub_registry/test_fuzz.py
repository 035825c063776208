"""Whatever a device puts on its topics: the registry lives, says why, and other devices go on."""

import asyncio
import json
import logging

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus.link import Message
from hub_registry.devices.devices import Device
from hub_registry.devices.directory import Directory
from hub_registry.devices.ingest import Ingest
from hub_registry.devices.presence import PresenceState
from hub_registry.storage.tables import now
from identity.envelope import Seal
from identity.keys import KeyPair
from tests.hub_registry.spokes import FakeSpoke, registration

HUB = "hub-1"
KEY = KeyPair.generate()
OTHER_KEY = KeyPair.generate()

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        *("v", "kind", "state", "epoch", "connection", "seq", "hub_session", "skills", "version"),
        *("skill", "doc", "device_agnostic", "area", "methods", "uptime_s", "mode", "load", "memory_mb"),
    ]
)
LIKELY = st.sampled_from(["status", "online", "offline", "skill", "heartbeat", 1, 0, -1, 2**60, [], {}])
DOCUMENTS = st.dictionaries(FIELDS, LIKELY | JSON, min_size=1)
TOPICS = st.sampled_from(
    [
        "devices/tv/status",
        "devices/tv/heartbeat",
        "devices/tv/skills/MediaSkill",
        "devices/tv/skills/LampSkill",
    ]
)
STRANGE_TOPICS = st.sampled_from(
    [
        *("devices/tv/skills", "devices/tv/skills/A/b", "devices/tv/skills/", "devices/TV/status"),
        *("devices//status", "devices/nobody/status", "devices/hub/heartbeat", "devices/tv/skills/class!"),
    ]
)


class Journal:
    """Takes the notes of an ingest that is tried without a database."""

    def skill(self, *_: object) -> None: ...
    def skill_gone(self, *_: object) -> None: ...
    def high_water(self, *_: object) -> None: ...
    def alive(self, *_: object) -> None: ...


class Bus:
    """An ingest with two devices, fed by hand."""

    def __init__(self) -> None:
        self.directory = Directory()
        for name, key in (("tv", KEY), ("radio", OTHER_KEY)):
            self.directory.put(
                Device(name, "admin", name, name, (), None, None, key.public, False, None, now())
            )
        self.ingest = Ingest(
            self.directory,
            Journal(),  # type: ignore[arg-type]
            hub_id=HUB,
            on_manifest=lambda device, skills: None,
        )

    def send(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        message = Message(topic, payload, retain=retain)
        if topic.endswith("/status"):
            self.ingest.status(message)
        elif topic.endswith("/heartbeat"):
            self.ingest.heartbeat(message)
        else:
            self.ingest.registration(message)
        asyncio.run(self.ingest.settle())

    def others_go_on(self) -> None:
        """The radio comes online with a skill, as if nothing had happened."""
        radio = FakeSpoke(None, hub_id=HUB, device="radio", key=OTHER_KEY)
        payload = radio.registration_payload(registration())
        self.send(radio.skill_topic("MediaSkill"), payload)
        self.send(radio.status_topic, radio.status_payload(skills={"MediaSkill": payload}))
        entry = self.directory.get("radio")
        assert (entry.presence.state, set(entry.skills)) == (PresenceState.ONLINE, {"MediaSkill"})


quick = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def test_a_large_registration_of_a_device_that_is_revoked_while_it_is_read_is_left_out():
    bus, tv = Bus(), FakeSpoke(None, hub_id=HUB, device="tv", key=KEY)
    large = tv.registration_payload(registration("MediaSkill", *(f"method_{n}" for n in range(100))))
    bus.send(tv.status_topic, tv.status_payload(skills={"MediaSkill": large}))
    bus.ingest.registration(Message(tv.skill_topic("MediaSkill"), large))

    async def revoke_meanwhile() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bus.ingest.settle())
            await asyncio.sleep(0)
            bus.ingest.revoke(bus.directory.get("tv"))

    asyncio.run(revoke_meanwhile())
    assert not bus.directory.get("tv").skills


@quick
@given(topic=TOPICS | STRANGE_TOPICS, payload=st.binary(max_size=300), retain=st.booleans())
def test_any_bytes_are_refused_with_a_reason_and_change_nothing(caplog, topic, payload, retain):
    bus = Bus()
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        bus.send(topic, payload, retain=retain)
    if payload and retain and "that is not there" in caplog.text:
        # It may be of another hub's device on a shared broker: nothing to warn of.
        assert "/tv/" not in topic
        assert "WARNING" not in caplog.text
    elif payload:
        warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert [record.levelname for record in warnings] == ["WARNING"]
        assert "refused a message" in caplog.text
    assert not bus.directory.get("tv").connected
    assert not bus.directory.get("tv").skills
    bus.others_go_on()


@quick
@given(topic=TOPICS, document=DOCUMENTS | st.dictionaries(st.text(), JSON, min_size=1), retain=st.booleans())
def test_any_signed_document_is_taken_in_or_refused_with_a_reason(caplog, topic, document, retain):
    bus = Bus()
    caplog.clear()
    encoded = json.dumps(document).encode()
    payload = Seal(HUB, KEY).sign(topic, encoded)
    with caplog.at_level(logging.INFO):
        bus.send(topic, payload, retain=retain)
    entry = bus.directory.get("tv")
    refused = "refused a message" in caplog.text
    assert refused == bool(entry.problems)
    if refused:
        assert entry.presence.state is PresenceState.UNKNOWN
    bus.others_go_on()


@quick
@given(
    position=st.integers(min_value=0, max_value=10_000),
    replacement=st.integers(min_value=0, max_value=255),
    which=st.sampled_from(["status", "skill"]),
)
def test_one_changed_byte_anywhere_in_a_signed_message_is_refused(position, replacement, which):
    bus = Bus()
    spoke = FakeSpoke(None, hub_id=HUB, device="tv", key=KEY)
    made = spoke.registration_payload(registration())
    status = spoke.status_payload(skills={"MediaSkill": made})
    topic, payload = (
        (spoke.status_topic, status) if which == "status" else (spoke.skill_topic("MediaSkill"), made)
    )
    position %= len(payload)
    changed = payload[:position] + bytes([replacement]) + payload[position + 1 :]
    if which == "skill":
        bus.send(spoke.status_topic, status)
    bus.send(topic, changed)
    if changed != payload:
        assert bus.directory.get("tv").problems
        assert not bus.directory.get("tv").skills
    bus.others_go_on()
