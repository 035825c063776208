"""What must never run and never be believed, where anybody may say anything on the bus."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from contracts import topics
from contracts.presence import DeviceStatus
from contracts.rpc import Actor, Call, Control
from identity.envelope import Seal
from identity.ids import uuid7
from identity.keys import KeyPair
from tests.e2e.bus import Bus, hub_seal, overhear, spoke_seal
from tests.e2e.house import House, Spoke, wait_for

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
