import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial

import pytest
from sqlmodel import select

from agent_core.search.directory import RegisteredSkill
from bus.link import Message
from contracts import topics
from contracts.devices.registration import Appearance, Method, MethodFlags, Registration, Unavailable
from contracts.errors import NotFound
from hub_registry import limits
from hub_registry.devices.presence import PresenceState
from hub_registry.devices.review import digest_of
from hub_registry.registry import open_registry
from hub_registry.settings import RegistrySettings
from hub_registry.storage.tables import DeviceRow, RegistrationRow, now
from identity.envelope import Seal, unseal
from identity.keys import KeyPair
from tests.hub_registry.hubs import open_hub
from tests.hub_registry.spokes import FakeSpoke, eventually, find, registration


async def rows(hub) -> set[tuple[str, str, str]]:
    def work(session):
        found = session.exec(select(RegistrationRow)).all()
        return {
            (row.device_id, row.skill, method["name"])
            for row in found
            for method in json.loads(row.payload)["methods"]
        }

    return await hub.registry.store.read(work)


async def stored(hub, expected: set[tuple[str, str, str]]) -> None:
    async def as_expected() -> bool:
        return await rows(hub) == expected

    await eventually(as_expected)


async def retained(hub, filter_: str) -> dict[str, bytes]:
    """What the broker keeps on these topics."""
    found: dict[str, bytes] = {}

    def collect(message):
        if message.topic.endswith("/marker"):
            found["marker"] = b""
        elif message.retain:
            found[message.topic] = message.payload

    stops = [await hub.outside.subscribe(each, collect) for each in (filter_, "test/marker")]
    await hub.outside.publish("test/marker", b"x")
    await eventually(lambda: "marker" in found)
    for stop in stops:
        await stop()
    del found["marker"]
    return found


async def test_a_spoke_that_comes_online_is_searchable_and_in_the_database(hub):
    spoke = await hub.joined("TV")
    await spoke.online(registration("MediaSkill", "set_volume", "play"))
    await eventually(lambda: find(hub.registry.search, "volume"))
    assert hub.state(spoke) is PresenceState.ONLINE
    await stored(hub, {("tv", "MediaSkill", "set_volume"), ("tv", "MediaSkill", "play")})


@pytest.mark.parametrize("manifest_first", [True, False])
async def test_manifest_and_registration_may_come_in_either_order(hub, manifest_first):
    spoke = await hub.joined("TV")
    payload = spoke.registration_payload(registration())
    status = spoke.status_payload(skills={"MediaSkill": payload})
    messages = [(spoke.status_topic, status), (spoke.skill_topic("MediaSkill"), payload)]
    for topic, sent in messages if manifest_first else reversed(messages):
        await spoke.send(topic, sent)
    await eventually(lambda: hub.skills(spoke) == {"MediaSkill"})


async def test_registering_again_replaces_the_rows(hub):
    spoke = await hub.joined("TV")
    await spoke.online(registration("MediaSkill", "old_name"), registration("LampSkill", "turn_on"))
    await eventually(lambda: hub.skills(spoke) == {"MediaSkill", "LampSkill"})
    await spoke.online(registration("MediaSkill", "new_name"))
    await stored(hub, {("tv", "MediaSkill", "new_name")})
    assert hub.skills(spoke) == {"MediaSkill"}


async def test_a_registration_that_no_manifest_lists_does_not_count(hub):
    spoke = await hub.joined("TV")
    await spoke.online()
    await spoke.send(spoke.skill_topic("MediaSkill"), spoke.registration_payload(registration()))
    await hub.settled()
    assert hub.skills(spoke) == set()


async def test_a_replayed_registration_does_not_bring_an_old_skill_back(hub):
    spoke = await hub.joined("TV")
    old = await spoke.online(registration("MediaSkill", "old_name"))
    await eventually(lambda: hub.skills(spoke) == {"MediaSkill"})
    await spoke.online(registration("MediaSkill", "new_name"))
    await spoke.send(spoke.skill_topic("MediaSkill"), old["MediaSkill"])
    await hub.settled()
    entry = hub.registry.directory.get("tv")
    assert list(entry.skills["MediaSkill"].methods) == ["new_name"]


async def test_a_replayed_status_does_not_bring_old_skills_or_an_old_presence_back(hub):
    spoke = await hub.joined("TV")
    payload = spoke.registration_payload(registration())
    old = await spoke.status(skills={"MediaSkill": payload})
    await spoke.status("offline")
    await spoke.send(spoke.status_topic, old)
    await spoke.send(spoke.skill_topic("MediaSkill"), payload)
    await hub.settled()
    assert hub.state(spoke) is PresenceState.OFFLINE


async def test_a_late_will_of_an_earlier_connection_changes_nothing(hub):
    spoke = await hub.joined("TV")
    will = spoke.status_payload("offline", seq=0)
    await spoke.status()
    spoke.connection += 1
    await spoke.online(registration())
    await spoke.send(spoke.status_topic, will)
    await hub.settled()
    assert (hub.state(spoke), hub.skills(spoke)) == (PresenceState.ONLINE, {"MediaSkill"})


async def test_the_listeners_hear_of_coming_going_and_reconnecting(hub):
    spoke = await hub.joined("TV")
    await spoke.status()
    await spoke.status()
    await spoke.status("offline")
    spoke.connection += 1
    await spoke.status()
    await eventually(lambda: len(hub.changes) == 3)
    assert [(change.device, change.connected, change.epoch, change.connection) for change in hub.changes] == [
        ("tv", True, 1_000, 1),
        ("tv", False, 1_000, 1),
        ("tv", True, 1_000, 2),
    ]


async def test_an_offline_device_keeps_its_rows_and_its_place_in_the_search(hub):
    spoke = await hub.joined("TV")
    await spoke.online(registration())
    await stored(hub, {("tv", "MediaSkill", "set_volume")})
    await spoke.status("offline")
    await eventually(lambda: hub.state(spoke) is PresenceState.OFFLINE)
    (found,) = await find(hub.registry.search, "volume")
    assert (found.unavailable, found.offline) == ("tv: offline", {"tv": "offline"})
    assert await rows(hub) == {("tv", "MediaSkill", "set_volume")}


async def test_empty_payloads_clear_nothing_in_the_database(hub):
    spoke = await hub.joined("TV")
    await spoke.online(registration())
    await stored(hub, {("tv", "MediaSkill", "set_volume")})
    for topic in (spoke.skill_topic("MediaSkill"), spoke.status_topic):
        await spoke.send(topic, b"")
    await hub.settled()
    assert hub.skills(spoke) == {"MediaSkill"}
    assert hub.state(spoke) is PresenceState.ONLINE
    assert hub.problems(spoke) == ""


async def test_a_heartbeat_is_a_sign_of_life_of_a_device_that_is_there(hub):
    spoke = await hub.joined("TV")
    await spoke.status()
    await eventually(lambda: hub.state(spoke) is PresenceState.ONLINE)
    entry = hub.registry.directory.get("tv")
    before = entry.last_heartbeat
    await asyncio.sleep(0.005)
    await spoke.heartbeat()
    await eventually(lambda: entry.last_heartbeat > before)


async def test_what_another_device_signed_is_dropped_and_shown_to_the_owner(hub):
    tv, radio = await hub.joined("TV"), await hub.joined("Radio")
    await tv.online(registration())
    await eventually(lambda: hub.skills(tv) == {"MediaSkill"})
    forger = FakeSpoke(hub.outside, hub_id=hub.registry.hub_id, device="tv", key=radio.key, epoch=2_000)
    await forger.online(registration("LockSkill", "unlock"))
    await forger.status("offline")
    await hub.settled()
    assert (hub.state(tv), hub.skills(tv)) == (PresenceState.ONLINE, {"MediaSkill"})
    assert "signature" in hub.problems(tv)


async def test_a_registration_signed_for_another_topic_or_hub_is_dropped(hub):
    spoke = await hub.joined("TV")
    made = registration()
    moved = spoke.registration_payload(made, topic=spoke.skill_topic("LampSkill"))
    elsewhere = FakeSpoke(hub.outside, hub_id="hub-other", device="tv", key=spoke.key)
    foreign = elsewhere.registration_payload(made)
    for payload in (moved, foreign):
        await spoke.send(spoke.skill_topic("MediaSkill"), payload)
        await spoke.status(skills={"MediaSkill": payload})
    await hub.settled()
    assert hub.skills(spoke) == set()


async def test_a_reserved_name_of_the_hub_cannot_be_registered(hub):
    spoke = await hub.joined("TV")
    await spoke.online(registration("MemorySkill", "recall"), registration())
    await hub.settled()
    assert hub.skills(spoke) == {"MediaSkill"}
    assert "reserved" in hub.problems(spoke)


async def test_a_device_that_was_enrolled_anew_starts_from_nothing(hub):
    spoke = await hub.joined("TV")
    await spoke.online(registration())
    await stored(hub, {("tv", "MediaSkill", "set_volume")})
    invitation = await hub.registry.invite("tv")
    key = KeyPair.generate()
    await hub.registry.enrolment.enrol(invitation.token, key.public.jwk())
    await spoke.online(registration("LampSkill", "turn_on"))
    await hub.settled()
    assert hub.skills(spoke) == set()
    assert await rows(hub) == set()

    renewed = FakeSpoke(hub.outside, hub_id=hub.registry.hub_id, device="tv", key=key, epoch=10)
    await renewed.online(registration("LampSkill", "turn_on"))
    await eventually(lambda: hub.skills(renewed) == {"LampSkill"})


async def test_more_than_the_bounds_is_refused_and_the_rest_goes_on(
    tmp_path, mosquitto, hub_key, monkeypatch
):
    for name, most in {"SKILLS": 3, "METHODS": 4, "REGISTRATION_BYTES": 4_000}.items():
        monkeypatch.setattr(limits, name, most)
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV")
        await spoke.online(*(registration(f"S{n}Skill") for n in range(4)))
        await hub.settled()
        assert hub.skills(spoke) == set()
        assert "4 skills" in hub.problems(spoke)

        await spoke.online(
            registration("ASkill", "one", "two", "three"), registration("BSkill", "four", "five")
        )
        await eventually(lambda: hub.skills(spoke))
        await hub.settled()
        assert len(hub.skills(spoke)) == 1
        assert "4 methods" in hub.problems(spoke)

        await spoke.online(registration("BigSkill", *(f"method_{n}" for n in range(100))))
        await hub.settled()
        assert "bytes" in hub.problems(spoke)


@pytest.mark.parametrize("kind", ["statuses", "registrations", "heartbeats"])
async def test_a_device_that_floods_is_cut_off_and_others_are_not(
    tmp_path, mosquitto, hub_key, kind, monkeypatch
):
    monkeypatch.setattr(limits, kind.upper(), 5)
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        flood, other = await hub.joined("TV"), await hub.joined("Radio")
        topic, payload = flood.skill_topic("MediaSkill"), flood.registration_payload(registration())
        sends: dict[str, Callable[[], Awaitable[object]]] = {
            "statuses": flood.status,
            "registrations": partial(flood.send, topic, payload, retain=False),
            "heartbeats": flood.heartbeat,
        }
        # More than may come in 19 s: a slow machine must not make them few enough.
        for _ in range(200):
            await sends[kind]()
        await other.online(registration())
        await eventually(lambda: hub.skills(other) == {"MediaSkill"})
        await eventually(lambda: f"too many {kind}" in hub.problems(flood))


async def test_the_hub_says_that_it_is_there_with_a_new_session_and_says_goodbye(
    tmp_path, mosquitto, hub_key
):
    topic = topics.HUB_STATUS.build(instance="main")
    said: dict[tuple[str, str], None] = {}  # said again where something else can be said

    def hear(message: Message) -> None:
        status = json.loads(message.payload)
        said[status["session"], status["state"]] = None

    async with open_hub(tmp_path / "looking-on", mosquitto.url, key=hub_key, instance="other") as on:
        await on.outside.subscribe(topic, hear)
        for _ in range(2):
            async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
                (payload,) = (await retained(hub, topic)).values()
                unseal(hub.registry.hub_id, topic, payload, hub_key.public)
        await eventually(lambda: len(said) == 4)
    sessions, states = zip(*said, strict=True)
    assert states == ("online", "offline") * 2
    assert sessions[0] == sessions[1] != sessions[2] == sessions[3]


async def test_after_a_restart_the_hub_knows_the_skills_and_waits_for_confirmation(
    tmp_path, mosquitto, hub_key
):
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV")
        await spoke.online(registration())
        await spoke.heartbeat()
        await stored(hub, {("tv", "MediaSkill", "set_volume")})
    stopped_at = now()
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        await eventually(lambda: hub.state(spoke) is PresenceState.UNCONFIRMED)
        await hub.settled()
        assert hub.skills(spoke) == {"MediaSkill"}
        assert (hub.registry.directory.get("tv").last_heartbeat or stopped_at) <= stopped_at
        assert (await find(hub.registry.search, "volume"))[0].unavailable == ""
        again = FakeSpoke(
            hub.outside, hub_id=hub.registry.hub_id, device="tv", key=spoke.key, epoch=spoke.epoch
        )
        again.connection = 2
        await again.online(registration())
        await eventually(lambda: hub.state(spoke) is PresenceState.ONLINE)


async def test_after_a_broker_restart_every_device_must_confirm(tmp_path, mosquitto, hub_key):
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV")
        await spoke.online(registration())
        await eventually(lambda: hub.state(spoke) is PresenceState.ONLINE)
        mosquitto.kill()
        mosquitto.start()
        await eventually(lambda: hub.state(spoke) is PresenceState.UNCONFIRMED)
        await eventually(lambda: hub.outside.connected)
        await spoke.status(skills={"MediaSkill": spoke.registration_payload(registration())})
        await eventually(lambda: hub.state(spoke) is PresenceState.ONLINE)
        assert hub.skills(spoke) == {"MediaSkill"}


async def test_removing_a_device_empties_every_topic_that_the_broker_retained_of_it(hub, caplog):
    spoke = await hub.joined("TV")
    await spoke.online(registration())
    await spoke.heartbeat()
    state = topics.STATE.build(device="tv", skill="MediaSkill", property="volume")
    await spoke.send(state, b'{"v":1,"value":3,"at":"2026-01-01T00:00:00Z"}')
    await eventually(lambda: hub.skills(spoke) == {"MediaSkill"})
    await spoke.status("offline")
    await eventually(lambda: hub.state(spoke) is PresenceState.OFFLINE)
    assert state in await retained(hub, "devices/tv/#")
    await hub.service.remove_device("tv")

    async def cleared() -> bool:
        return not await retained(hub, "devices/tv/#")

    await eventually(cleared)
    assert "refused" not in caplog.text, "its own old messages are no attack"
    assert hub.registry.directory.get("tv") is None
    assert await rows(hub) == set()
    with pytest.raises(NotFound):
        await hub.service.remove_device("tv")


async def test_removing_a_connected_device_waits_for_its_will(hub):
    spoke = await hub.joined("TV")
    await spoke.status()
    await eventually(lambda: hub.state(spoke) is PresenceState.ONLINE)
    async with asyncio.TaskGroup() as tasks:
        removing = tasks.create_task(hub.service.remove_device("tv"))
        await asyncio.sleep(0.1)
        assert not removing.done()
        await spoke.status("offline")
    assert hub.registry.directory.get("tv") is None


async def test_a_revoked_device_is_no_longer_believed(hub):
    spoke = await hub.joined("TV")
    await spoke.online(registration())
    await eventually(lambda: hub.skills(spoke) == {"MediaSkill"})
    await hub.service.revoke_device("tv")
    assert not hub.changes[-1].connected
    await spoke.online(registration("LampSkill"))
    await hub.settled()
    assert hub.skills(spoke) == {"MediaSkill"}
    assert hub.registry.directory.resolve("tv").unavailable == "revoked"


@pytest.mark.sqlite
async def test_two_hub_processes_on_one_database_take_in_the_same_messages(tmp_path, mosquitto, hub_key):
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as one:
        spoke = await one.joined("TV")
        async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key, instance="second") as two:
            await spoke.online(registration())
            for hub in (one, two):
                await eventually(lambda hub=hub: hub.skills(spoke) == {"MediaSkill"})
                await stored(hub, {("tv", "MediaSkill", "set_volume")})


async def test_the_high_water_mark_survives_a_restart(tmp_path, mosquitto, hub_key):
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV")
        old = await spoke.status()
        spoke.connection = 7
        await spoke.status("offline")
        await eventually(lambda: hub.state(spoke) is PresenceState.OFFLINE)
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:

        def mark(session):
            row = session.get(DeviceRow, "tv")
            return row.epoch, row.connection, row.ended

        assert await hub.registry.store.read(mark) == (1_000, 7, True)
        await hub.outside.publish(spoke.status_topic, old)
        await hub.settled()
        assert hub.state(spoke) is not PresenceState.ONLINE


async def test_the_manifest_lists_the_hash_of_the_whole_payload_with_its_signature(hub):
    spoke = await hub.joined("TV")
    payloads = await spoke.online(registration())
    await eventually(lambda: hub.skills(spoke) == {"MediaSkill"})
    digest = hub.registry.directory.get("tv").skills["MediaSkill"].digest
    assert digest == hashlib.sha256(payloads["MediaSkill"]).hexdigest()


@pytest.mark.parametrize(
    "parameters",
    [{"properties": [1, 2]}, {"required": 5}, {"properties": {"a": {"items": {"type": 7}}}}],
    ids=str,
)
async def test_a_malformed_schema_is_a_problem_of_its_device_and_the_hub_goes_on(hub, parameters):
    spoke = await hub.joined("TV")
    method = Method(name="play", signature="play()", parameters=parameters)
    await spoke.online(Registration(skill="MediaSkill", methods=[method]))
    await eventually(lambda: hub.registry.directory.get("tv").problems)
    assert "MediaSkill.play: malformed JSON Schema" in hub.registry.directory.get("tv").problems[0].message
    other = await hub.joined("Radio")
    await other.online(registration("RadioSkill", "tune"))
    await eventually(lambda: find(hub.registry.search, "tune"))


async def test_a_sentence_that_takes_too_long_is_left_out_and_its_method_stays(hub):
    spoke = await hub.joined("TV")
    method = registration("LampSkill", "turn_on").methods[0]
    sentences = {"en": ["turn on the lamp" + "[ |  |]" * 11, "turn on the light"]}
    await spoke.online(
        Registration(skill="LampSkill", methods=[method.model_copy(update={"sentences": sentences})])
    )
    await eventually(lambda: hub.problems(spoke))
    assert "LampSkill.turn_on: 'turn on the lamp[ |  |]" in hub.problems(spoke)
    assert "more than 1,000 ways" in hub.problems(spoke)
    search = hub.registry.search
    assert search.match("turn on the lamp", language="en", current=None) is None
    assert search.match("turn on the light", language="en", current=None) is not None
    assert await find(search, "turn on")


async def test_a_device_that_registers_very_much_is_indexed_while_others_are_served(hub, monkeypatch):
    monkeypatch.setattr(hub.registry.search, "_slice_s", 0.001)
    large, other = await hub.joined("TV"), await hub.joined("Radio")
    await large.online(registration("LargeSkill", *(f"method_{number}" for number in range(200))))
    await other.online(registration("RadioSkill", "tune"))
    waited: list[bool] = []
    asyncio.get_running_loop().call_soon(lambda: _look(hub, waited))
    await eventually(lambda: hub.registry.search.total() == 201)
    assert any(waited), "others had their turn while it was being indexed"


@pytest.mark.parametrize(
    "faulty",
    ["hub_registry.devices.presence.Presence.hear", "hub_registry.devices.ingest.parse_registration"],
)
async def test_a_bug_that_one_device_meets_ends_nothing(hub, monkeypatch, faulty):
    spoke, other = await hub.joined("TV"), await hub.joined("Radio")
    with monkeypatch.context() as patched:
        patched.setattr(faulty, lambda *_, **__: 1 / 0)
        await spoke.online(registration())
        await eventually(lambda: "the hub cannot process it (ZeroDivisionError)" in hub.problems(spoke))
    await other.online(registration())
    await eventually(lambda: hub.skills(other) == {"MediaSkill"})


def _look(hub, waited: list[bool]) -> None:
    """Note at each turn of the event loop whether there is something, but not all."""
    total = hub.registry.search.total()
    waited.append(1 < total < 200)
    if total < 201:
        asyncio.get_running_loop().call_soon(_look, hub, waited)


async def test_registrations_are_limited_by_their_size_together_and_over_time(
    tmp_path, mosquitto, hub_key, monkeypatch
):
    monkeypatch.setattr(limits, "REGISTERED_BYTES", 8_400)
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke, other = await hub.joined("TV"), await hub.joined("Radio")
        made = [registration(f"S{number}Skill", *(f"m{each}" for each in range(10))) for number in range(3)]
        await spoke.online(*made)
        await eventually(lambda: hub.problems(spoke))
        assert len(hub.skills(spoke)) == 2
        assert "its registrations would have more than the 8400 bytes" in hub.problems(spoke)
        for number in range(4):
            await spoke.online(registration("S0Skill", *(f"again{number}_{each}" for each in range(10))))
        await eventually(lambda: "too many bytes of registrations" in hub.problems(spoke))
        await other.online(registration())
        await eventually(lambda: hub.skills(other) == {"MediaSkill"})


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("parameters", '{"properties":{"a":{"default":NaN}}}', "NaN is no number"),
        ("parameters", '{"properties":{"a":{"maximum":1e400}}}', "1e400 is too large a number"),
        ("parameters", f'{{"properties":{{"a":{{"maximum":1{"0" * 400}}}}}}}', "is too large a number"),
        ("parameters", '{"title":"\\ud800"}', "no valid JSON"),
        ("parameters", f'{{"properties":{{"a":{{"maxLength":1{"0" * 30}}}}}}}', "maxLength must be a count"),
        ("parameters", f'{{"enum":["{"x" * 70_000}"]}}', "more than 65,536 characters"),
        ("parameters", f'{{"anyOf":[{",".join(["{}"] * 3_000)}]}}', "branches into 3,001 schemas"),
        (
            "parameters",
            '{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}}}',
            "back to itself",
        ),
        ("sentences", f'{{"en":["{"x" * 5_000}"]}}', "at most 4000 characters"),
        ("positional", f'["{"x" * 300}"]', "at most 200 characters"),
        ("doc", f'"{"x" * 9_000}"', "at most 8000 characters"),
    ],
    ids=lambda value: value[:40],
)
async def test_a_registration_beyond_the_bounds_is_refused_with_a_reason(hub, field, value, says):
    spoke = await hub.joined("TV")
    method = {"name": "play", "signature": "play()", "parameters": {}, field: "VALUE"}
    document = {"kind": "skill", "skill": "BadSkill", "methods": [method]}
    topic = spoke.skill_topic("BadSkill")
    bad = Seal(hub.registry.hub_id, spoke.key).sign(
        topic, json.dumps(document).replace('"VALUE"', value).encode()
    )
    good = spoke.registration_payload(registration())
    await spoke.send(topic, bad)
    await spoke.send(spoke.skill_topic("MediaSkill"), good)
    await spoke.status(skills={"BadSkill": bad, "MediaSkill": good})
    await eventually(lambda: hub.problems(spoke) and hub.skills(spoke))
    assert hub.skills(spoke) == {"MediaSkill"}
    assert says in hub.problems(spoke)


@pytest.mark.parametrize("counter", ["connection", "seq"])
async def test_a_counter_that_no_database_holds_is_refused_and_the_hub_goes_on(hub, counter):
    spoke = await hub.joined("TV")
    status = json.loads(spoke.status_payload())
    del status["sig"]
    forged = json.dumps(status | {counter: 10**30}).encode()
    await spoke.send(
        spoke.status_topic, Seal(hub.registry.hub_id, spoke.key).sign(spoke.status_topic, forged)
    )
    await eventually(lambda: hub.registry.directory.get("tv").problems)
    await spoke.online(registration())
    await stored(hub, {("tv", "MediaSkill", "set_volume")})


FULL = Registration(
    skill="MediaSkill",
    doc="Plays music.",
    uses=["kitchen.LampSkill.turn_on"],
    unavailable=Unavailable(kind="task", reason="the pump is dry"),
    device_agnostic=True,
    area="Kitchen",
    methods=[
        Method(
            name="set_volume",
            signature="set_volume(level: int = 30) -> bool",
            doc="Set the volume.",
            parameters={"type": "object", "properties": {"level": {"type": "integer"}}},
            positional=["level"],
            result={"type": "boolean"},
            flags=MethodFlags(**{**dict.fromkeys(MethodFlags.model_fields, True), "unknown": False}),
            timeout_ms=1_234,
            progress=True,
            sentences={"en": ["set the volume to {level}"]},
            responses={"en": "Set to {level}"},
        )
    ],
    homeassistant={"set_volume": Appearance(name="Volume")},
    labels={"de": {"set_volume": "Lautstärke"}},
    thing="light",
)


async def test_every_field_of_the_contract_survives_a_restart(tmp_path, mosquitto, hub_key):
    for part in (FULL, FULL.methods[0], FULL.methods[0].flags):
        defaults = {name: field.default for name, field in type(part).model_fields.items()}
        same = {name for name, value in part if value == defaults[name]} - {"kind", "v"}
        assert not same, "give each field of the contract a value here that is not its default"
    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV")
        await spoke.online(FULL)
        await stored(hub, {("tv", "MediaSkill", "set_volume")})
    settings = RegistrySettings(database=tmp_path / "hub" / "hub.db")
    async with open_registry(settings, key=hub_key) as registry:
        assert registry.directory.get("tv").skills["MediaSkill"].registration == FULL


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("change", "has_skills"),
    [
        ("device SET public_key = 'x'", False),
        ("device SET public_key = '[1]'", False),
        ("device SET aliases = 'x'", True),
        ("device SET created_at = 'x', last_seen = 7", True),
        ("approval SET known = 'x'", True),
        ("""approval SET known = '{"flags": 1}'""", True),
    ],
)
async def test_an_altered_row_keeps_no_hub_from_starting_loosens_nothing_and_can_be_mended(
    tmp_path, mosquitto, hub_key, change, has_skills
):
    method = Method(name="open", signature="open()", parameters={}, flags=MethodFlags(confirm=True))
    first = Registration(skill="LockSkill", methods=[method], device_agnostic=True)
    looser = first.model_copy(update={"methods": [method.model_copy(update={"flags": MethodFlags()})]})

    async with open_hub(tmp_path / "hub", mosquitto.url, key=hub_key) as hub:
        spoke = await hub.joined("TV", trusted=False)
        await spoke.online(first)
        await eventually(lambda: hub.skills(spoke))
        digest = hashlib.sha256((await spoke.online(looser))["LockSkill"]).hexdigest()
        there = hub.registry.directory.get("tv").skills
        await eventually(lambda: digest in [each.digest for each in there.values()])
    with closing(sqlite3.connect(tmp_path / "hub" / "hub.db")) as database, database:
        database.execute(f"UPDATE {change}")
    settings = RegistrySettings(database=tmp_path / "hub" / "hub.db")
    async with open_registry(settings, key=hub_key) as registry:
        entry = registry.directory.get("tv")
        assert all(skill.methods["open"].flags.confirm for skill in entry.skills.values())
        assert bool(entry.skills) == has_skills
        assert bool(entry.problems) == ("key" in change or "aliases" in change)
        radio = await registry.devices.add("Radio", owner=registry.admin.id)
        registry.directory.put_skill(radio.id, RegisteredSkill.of(first, repr(first)))
        assert not registry.directory.get(radio.id).skills["LockSkill"].device_agnostic
        await registry.decide(entry, digest_of(entry.items), approve=False)
        await registry.revoke_device("tv")
        await registry.enrolment.enrol((await registry.invite("tv")).token, spoke.key.public.jwk())
    async with open_registry(settings, key=hub_key) as registry:
        entry = registry.directory.get("tv")
        assert (entry.device.revoked, entry.device.public_key) == (False, spoke.key.public)
        assert entry.skills["LockSkill"].methods["open"].flags.confirm


@pytest.mark.parametrize("change", ["parameters", "signature"])
async def test_a_stored_registration_that_does_not_hold_is_skipped_at_the_next_start(
    tmp_path, hub_key, change
):
    settings = RegistrySettings(database=tmp_path / "hub.db")
    async with open_registry(settings, key=hub_key) as registry:
        device = await registry.devices.add("TV", owner=registry.admin.id)
        key = KeyPair.generate()
        await registry.enrolment.enrol((await registry.invite(device.id)).token, key.public.jwk())
        document = registration().model_dump_json().encode()
        if change == "parameters":
            document = document.replace(b'"properties":{"level":{"type":"integer"}}', b'"properties":[1,2]')
        signer = key if change == "parameters" else KeyPair.generate()
        payload = Seal(registry.hub_id, signer).sign(
            topics.SKILL.build(device="tv", skill="MediaSkill"), document
        )
        row = RegistrationRow(device_id="tv", skill="MediaSkill", key_id=key.kid, payload=payload.decode())
        await registry.store.write(lambda session: session.add(row))
    async with open_registry(settings, key=hub_key) as registry:
        entry = registry.directory.get("tv")
        assert entry.skills == {}
        assert "its stored MediaSkill was left out" in entry.problems[0].message
        assert await find(registry.search, "") == ()
