"""What must never run and never be believed, where anybody may say anything on the bus."""

import contextlib
import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contracts import topics
from contracts.presence import CONFIRM_ONLINE_S, DeviceStatus
from contracts.registration import Registration
from contracts.rpc import Actor, Call, Control, Result
from identity.envelope import Seal
from identity.ids import uuid7
from identity.keys import KeyPair
from tests.e2e.bus import Bus, as_device, hub_seal, overhear, spoke_seal
from tests.e2e.house import PATIENCE_S, House, Spoke, wait_for
from tests.mosquitto import Mosquitto

Make = Callable[..., tuple[str, bytes]]


def _call_topic(device: str, method: str, skill: str = "JournalSkill") -> str:
    return topics.CALL.build(device=device, skill=skill, method=method)


def _status(bus: Bus, spoke: Spoke, state: str = "online") -> DeviceStatus:
    heard = bus.on(topics.STATUS.build(device=spoke.id), state=state)[-1]
    status = topics.STATUS.parse(heard.payload)
    assert isinstance(status, DeviceStatus)
    return status


def _maker(seal: Seal, spoke: Spoke, epoch: int) -> Make:
    """Makes calls that are right in everything that is not said otherwise."""

    def make(
        *, put_on: str = "", signed_for: str = "", by: Seal | None = None, **changes: Any
    ) -> tuple[str, bytes]:
        given: dict[str, Any] = {
            "id": uuid7(),
            "instance": "main",
            "epoch": epoch,
            "issued_at": datetime.now(UTC),
            "ttl_ms": 30_000,
            "actor": Actor(user="anna"),
            "args": ["forged"],
        }
        topic = put_on or _call_topic(spoke.id, "write")
        return topic, (by or seal).seal(signed_for or topic, Call(**{**given, **changes}))

    return make


def test_of_all_calls_only_the_one_that_the_hub_signed_for_here_and_now_runs_and_it_runs_once(
    foreign_house: House, journal: dict[str, str]
) -> None:
    house = foreign_house
    pc, pi = house.add_spoke("Bedroom PC", journal), house.add_spoke("Kitchen Pi", journal)
    hub = hub_seal(house)
    with overhear(house) as bus:
        bus.wait(topics.STATUS.build(device=pc.id), state="online")
        epoch = _status(bus, pc).epoch
        make = _maker(hub, pc, epoch)
        write, burn = _call_topic(pc.id, "write"), _call_topic(pc.id, "burn")
        past = datetime.now(UTC) - timedelta(minutes=2)
        topic, good = make(args=["good"])
        unsigned = good[: good.rindex(b',"sig"')] + b"}"

        # These are not even answered: whoever sent them is not the hub.
        for where, payload in (
            (topic, unsigned),
            (topic, good.replace(b'"good"', b'"evil"')),
            make(by=Seal(hub.hub_id, KeyPair.generate())),
            make(by=spoke_seal(house, pi)),
            make(by=spoke_seal(house, pc)),
            make(by=Seal("another-hub", hub.key)),
            make(put_on=burn, signed_for=write, args=[], confirmed=True),
            make(
                put_on=_call_topic(pc.id, "unlock", "LockSkill"),
                signed_for=_call_topic(pc.id, "turn_on", "LampSkill"),
            ),
            make(put_on=write, signed_for=_call_topic(pi.id, "write")),
        ):
            bus.publish(where, payload)
        # These are refused, and say why.
        for refused, code in (
            (make(epoch=epoch - 1), "stale_epoch"),
            (make(epoch=epoch + 1), "stale_epoch"),
            (make(issued_at=past, ttl_ms=30_000), "expired"),
            (make(put_on=burn, args=[]), "needs_confirmation"),
            (make(actor=Actor(user="guest", read_only=True)), "refused"),
            (make(put_on=_call_topic(pc.id, "unlock", "LockSkill")), "unknown_skill"),
        ):
            bus.publish(*refused)
            call = json.loads(refused[1])["id"]
            answer = bus.wait(topics.RESULT.build(device=pc.id, instance="main", call=call))
            assert answer.fields["code"] == code
        # What another device was told with the hub's own word does not run here, nor again there.
        bus.publish(topic.replace(pc.id, pi.id), good)
        reply = topics.RESULT.build(device=pc.id, instance="main", call=json.loads(good)["id"])
        bus.publish(topic, good)
        bus.wait(reply)
        for _ in range(3):
            bus.publish(topic, good)
        wait_for(lambda: len(bus.on(reply)) == 4, what="four answers")
        assert len({one.payload for one in bus.on(reply)}) == 1
        start = Control(kind="start", id=json.loads(good)["id"], instance="main", epoch=epoch)
        control = topics.CONTROL.build(device=pc.id, call=start.id)
        bus.publish(control, hub.seal(control, start))

        assert house.json("call", pc.id, "JournalSkill.write", "text=last") == "wrote last"
        assert house.json("call", pi.id, "JournalSkill.write", "text=last") == "wrote last"
    assert pc.journal() == ["good", "last"]
    assert pi.journal() == ["last"]
    for reason in ("not signed", "signature is not valid"):
        assert reason in house.log(pc.id)


def test_a_call_from_before_a_restart_does_not_run_after_it(
    foreign_house: House, journal: dict[str, str]
) -> None:
    house = foreign_house
    pc = house.add_spoke("Bedroom PC", journal)
    with overhear(house) as bus:
        assert house.json("call", pc.id, "JournalSkill.write", "text=once") == "wrote once"
        recorded = bus.wait(_call_topic(pc.id, "write"))
        house.kill(pc.id)
        house.wait_until_offline(pc)
        bus.publish(recorded.topic, recorded.payload)
        bus.publish(recorded.topic, recorded.payload, retain=True)
        house.start_spoke(pc)
        house.wait_until_online(pc)
        bus.publish(recorded.topic, recorded.payload)
        bus.publish(recorded.topic, b"", retain=True)
        assert house.json("call", pc.id, "JournalSkill.write", "text=last") == "wrote last"
    assert pc.journal() == ["once", "last"]


@pytest.mark.slow
def test_late_wills_and_replayed_statuses_and_registrations_change_nothing(
    foreign_house: House, journal: dict[str, str]
) -> None:
    house = foreign_house
    pc = house.add_spoke("Bedroom PC", {**journal, "old.py": _ONCE})
    where = topics.STATUS.build(device=pc.id)
    with overhear(house) as bus:
        bus.wait(topics.SKILL.build(device=pc.id, skill="OldSkill"))
        old = [one for one in bus.heard if one.topic.startswith(f"devices/{pc.id}/skills/")]
        online = bus.wait(where, state="online")
        house.kill(pc.id)
        will = bus.wait(where, state="offline")
        # A replay of what was true once does not bring a device back that is gone.
        bus.publish(online.topic, online.payload, retain=True)
        for one in old:
            bus.publish(one.topic, one.payload, retain=True)
        bus.quiet(1)
        assert house.state_of(pc) == "offline"

        (pc.skills / "old.py").unlink()
        house.start_spoke(pc)
        house.wait_until_online(pc)
        # Nor does the will of then take it away, nor do skills come back that it no longer has.
        for late in (will, online, *old):
            bus.publish(late.topic, late.payload, retain=True)
        bus.quiet(1)
        assert house.state_of(pc) == "online"
        paths = [row["path"] for row in house.json("skills", "list")]
        assert not [path for path in paths if "OldSkill" in path]
        assert "no skill 'OldSkill'" in house.cli("call", pc.id, "OldSkill.once").stderr
        assert house.json("call", pc.id, "JournalSkill.write", "text=here") == "wrote here"
    assert pc.journal() == ["here"]


def _stored_skills(house: House) -> int:
    with contextlib.closing(sqlite3.connect(house.home / "hub" / "hub.db")) as database:
        return int(database.execute("SELECT count(*) FROM registration").fetchone()[0])


@pytest.mark.slow
def test_a_retained_online_that_nobody_confirms_counts_as_offline(
    foreign_house: House, journal: dict[str, str], mosquitto: Mosquitto
) -> None:
    house = foreign_house
    pc = house.add_spoke("Bedroom PC", journal)
    with overhear(house) as bus:
        online = bus.wait(topics.STATUS.build(device=pc.id), state="online")
    # The hub writes what it learns in batches; one that dies earlier learns it again from the spoke.
    wait_for(lambda: _stored_skills(house), what="the skills to be in the database")
    # Hub, broker and spoke die together: no will is left, only what says that the device is there.
    house.kill("hub")
    mosquitto.kill()
    house.kill(pc.id)
    mosquitto.start()
    with Bus(house.broker_url, "ear", prefix=house.topic_prefix) as bus:
        bus.publish(online.topic, online.payload, retain=True)
        house.start_hub()
        wait_for(
            lambda: house.state_of(pc) == "offline",
            what="the doubt to end",
            patience=CONFIRM_ONLINE_S + PATIENCE_S,
        )
        done = house.cli("call", pc.id, "JournalSkill.write", "text=x")
        assert done.returncode == 1
        assert "offline" in done.stderr
        assert not bus.on(_call_topic(pc.id, "write")), "a call to a device that is offline is never sent"
    assert pc.journal() == []


def test_what_one_device_says_in_the_name_of_another_is_dropped(
    foreign_house: House, journal: dict[str, str]
) -> None:
    house = foreign_house
    pc, evil = house.add_spoke("Bedroom PC", journal), house.add_spoke("Evil Pi", journal)
    forger = spoke_seal(house, evil)
    with overhear(house) as bus:
        bus.wait(topics.STATUS.build(device=pc.id), state="online")
        status = _status(bus, pc)
        call = house.begin("call", pc.id, "JournalSkill.held", "text=job", "--json")
        asked = topics.CALL.parse(bus.wait(_call_topic(pc.id, "held")).payload)
        assert isinstance(asked, Call)

        for device in (pc.id, evil.id):
            reply = topics.RESULT.build(device=device, instance="main", call=asked.id)
            forged = Result(id=asked.id, epoch=asked.epoch, value="forged")
            bus.publish(reply, forger.seal(reply, forged))
        where = topics.STATUS.build(device=pc.id)
        gone = status.model_copy(
            update={"state": "offline", "connection": status.connection + 1, "skills": {}}
        )
        bus.publish(where, forger.seal(where, gone))
        what = topics.SKILL.build(device=pc.id, skill="EvilSkill")
        bus.publish(what, forger.seal(what, Registration(skill="EvilSkill", methods=[])), retain=True)
        dropped = f"dropped a reply on devices/{evil.id}/results/"
        wait_for(lambda: dropped in house.log("hub"), what="the forged replies to be seen")
        pc.let_go()

        out, err = call.communicate(timeout=60)
        assert json.loads(out) == "wrote job", err
        assert house.state_of(pc) == "online"
        assert not [row for row in house.json("skills", "list") if "EvilSkill" in row["path"]]
    log = house.log("hub")
    assert f"dropped a reply on devices/{pc.id}/results/" in log
    assert dropped in log
    assert f"refused a message on 'devices/{pc.id}/status'" in log
    assert f"refused a message on 'devices/{pc.id}/skills/EvilSkill'" in log


def test_on_our_own_broker_a_device_cannot_even_speak_in_the_name_of_another(
    house: House, journal: dict[str, str]
) -> None:
    pc, evil = house.add_spoke("Bedroom PC", journal), house.add_spoke("Evil Pi", journal)
    house.kill(evil.id)
    with overhear(house) as ear, as_device(house, evil) as bus:
        forbidden = (
            topics.STATUS.build(device=pc.id),
            topics.SKILL.build(device=pc.id, skill="EvilSkill"),
            topics.RESULT.build(device=pc.id, instance="main", call=uuid7()),
            _call_topic(pc.id, "write"),
            topics.HUB_STATUS.build(instance="main"),
        )
        for topic in forbidden:
            bus.publish(topic, b'{"forged":true}', retain=True)
        own = topics.EVENT.build(device=evil.id, name="done")
        bus.publish(own, b'{"forged":false}')
        ear.wait(own, forged=False)
        assert not [one for one in ear.heard if one.fields.get("forged")]
        assert not bus.gone.is_set()
    assert house.json("call", pc.id, "JournalSkill.write", "text=here") == "wrote here"
    assert pc.journal() == ["here"]


_ONCE = '''
from spoke import Skill


class OldSkill(Skill):
    """Was here once."""

    def once(self) -> str:
        """Say so."""
        return "once"
'''
