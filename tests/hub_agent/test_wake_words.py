"""Several devices hear the same wake word: the hub decides which one answers."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bus.rpc import EpochClock
from contracts import topics
from contracts.devices.voice import WakeHeard
from hub_agent.bus import wake_words
from identity.envelope import Seal
from identity.ids import uuid7
from identity.keys import KeyPair
from spoke.presence.wake_words import WakeWords
from tests.hub_agent.home import Device, Home, within_patience

PATIENT = 30.0
"""So long a device waits here for its verdict: that it comes is tested, not when."""


async def listening(home: Home, device: Device, *, wait_s: float = PATIENT, online: bool = True) -> WakeWords:
    registry = home.hub.registry
    words = WakeWords(
        device.spoke.link,
        Seal(registry.hub_id, device.key),
        device=device.id,
        hub_key=registry.key.public,
        clock=EpochClock(),
        hub_is_online=lambda: online,
        wait_s=wait_s,
    )
    await words.listen()
    return words


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions of one moment are one decision also on a machine that stands still now and then."""
    monkeypatch.setattr(wake_words, "COLLECT_S", 2.0)
    monkeypatch.setattr("hub_agent.limits.DECISION_SETTLED_S", 600.0)


async def verdicts(*asked: Any) -> list[bool]:
    return await asyncio.wait_for(asyncio.gather(*asked), 60)


async def test_the_loudest_answers_and_who_comes_late_does_not(home: Home) -> None:
    kitchen, hall, attic = [
        await listening(home, await home.device(name)) for name in ("Kitchen", "Hall", "Attic")
    ]
    both = verdicts(kitchen.may_answer("hey_jarvis", -30.0), hall.may_answer("hey_jarvis", -20.5))
    assert await both == [False, True]
    assert await verdicts(attic.may_answer("hey_jarvis", -1.0)) == [False]


async def test_devices_that_heard_different_words_all_answer(home: Home) -> None:
    kitchen, hall = [await listening(home, await home.device(name)) for name in ("Kitchen", "Hall")]
    assert await verdicts(kitchen.may_answer("hey_jarvis", -30), hall.may_answer("alexa", -20)) == [
        True,
        True,
    ]


async def test_a_private_device_silences_nobody_elses(home: Home) -> None:
    async with home.client() as client:
        made = await client.post("/api/users", json={"name": "Ben", "role": "member"})
        assert made.status_code < 300, made.text
        await home.device("Kitchen", shared=True)
        bens = await home.device("Bens phone")
        moved = await client.patch(f"/api/devices/{bens.id}", json={"owner": "Ben"})
        assert moved.status_code < 300, moved.text
    shared = await home.device("Hall", shared=True)
    kitchen, loud = await listening(home, shared), await listening(home, bens)
    assert await verdicts(kitchen.may_answer("alexa", -40), loud.may_answer("alexa", 0)) == [True, True]
    both = verdicts(kitchen.may_answer("hey_jarvis", -10), loud.may_answer("hey_jarvis", -40))
    assert await both == [True, False]


async def test_without_an_answer_of_the_hub_a_device_answers_itself(home: Home) -> None:
    device = await home.device("Kitchen")
    assert await (await listening(home, device, online=False)).may_answer("alexa", -30)
    hasty = await listening(home, device, wait_s=0.001)  # the hub takes longer to collect
    assert await hasty.may_answer("alexa", -30)


async def test_what_is_forged_or_old_is_not_compared(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    device, other = await home.device("Kitchen"), await home.device("Hall")
    words, topic = await listening(home, device), topics.WAKE_HEARD.build(device=other.id)
    hub_id, now = home.hub.registry.hub_id, datetime.now(UTC)

    def loud(at: datetime) -> WakeHeard:
        return WakeHeard(id=uuid7(), word="alexa", loudness=0, at=at)

    with caplog.at_level(logging.WARNING):
        await other.spoke.link.publish(topic, Seal(hub_id, KeyPair.generate()).seal(topic, loud(now)))
        old = loud(now - timedelta(minutes=1))
        await other.spoke.link.publish(topic, Seal(hub_id, other.key).seal(topic, old), confirmed=True)
        await within_patience(_logged(caplog))
    assert await verdicts(words.may_answer("alexa", -90)) == [True]


async def _logged(caplog: pytest.LogCaptureFixture) -> None:
    while "signature" not in caplog.text:  # noqa: ASYNC110  a log has no event
        await asyncio.sleep(0.01)
