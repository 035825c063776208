"""Sentences follow what the devices are and have."""

import pytest

from agent_core import limits
from agent_core.skills.skill import Skill, skill_method
from contracts.errors import NotFound
from tests.hub_agent.home import Home
from tests.hub_agent.skills import LampSkill
from tests.hub_registry.spokes import eventually


class BellSkill(Skill):
    """A bell that any device can ring."""

    device_agnostic = True

    def __init__(self) -> None:
        self.rung = 0

    @skill_method(sentences={"en": ["ring the bell"]})
    def ring(self) -> str:
        """Ring."""
        self.rung += 1
        return "ding"


async def say(home: Home, message: str, *, conversation: str | None = None) -> str:
    body = {"message": message, **({} if conversation is None else {"conversation": conversation})}
    async with home.client() as client:
        answer = (await client.post("/api/chat", json=body)).json()
    return str(answer.get("answer", answer.get("code")))


async def test_what_any_device_can_do_is_done_once_and_needs_no_choice(home: Home) -> None:
    bells = [BellSkill(), BellSkill()]
    devices = [await home.device(name, bell) for name, bell in zip(("One", "Two"), bells, strict=True)]
    assert await say(home, "ring the bell") == "ding"
    assert sum(bell.rung for bell in bells) == 1

    await devices[0].spoke.online()
    entry = home.hub.registry.directory.get(devices[0].id)
    assert entry is not None
    await eventually(lambda: not entry.skills)
    assert await say(home, "ring the bell") == "ding"

    await devices[1].spoke.online()
    other = home.hub.registry.directory.get(devices[1].id)
    assert other is not None
    await eventually(lambda: not other.skills)
    assert await say(home, "ring the bell") == "no_model"


async def test_a_renamed_device_is_meant_by_its_new_name(home: Home) -> None:
    lamps = [LampSkill(), LampSkill()]
    for name, lamp in zip(("Bedroom PC", "Kitchen Pi"), lamps, strict=True):
        await home.device(name, lamp)
    async with home.client() as client:
        await client.patch("/api/devices/bedroom_pc", json={"name": "Study PC"})
    await say(home, "turn on the lamp on the study pc")
    assert [lamp.level for lamp in lamps] == [100, 0]


async def test_an_offline_device_is_told_of_and_not_forgotten(home: Home) -> None:
    device = await home.device("Bedroom PC", LampSkill())
    await device.spoke.status("offline")
    entry = home.hub.registry.directory.get(device.id)
    assert entry is not None
    await eventually(lambda: not entry.connected)
    answer = await say(home, "turn on the lamp")
    assert "Bedroom PC" in answer
    assert "offline" in answer


async def test_each_user_is_understood_in_the_own_language(home: Home) -> None:
    lamp = LampSkill()
    await home.device("Bedroom PC", lamp, shared=True)
    user = await home.hub.registry.accounts.add("Anna", role="member", language="de-AT")
    async with home.client(await home.token(user)) as client:
        answer = await client.post("/api/chat", json={"message": "Schalte das Licht ein"})
        assert answer.json()["mode"] == "sentence"
        other = await client.post("/api/chat", json={"message": "turn on the lamp"})
        assert other.json()["mode"] == "sentence"  # the other languages of the home are tried
    assert lamp.level == 100


class NotesSkill(Skill):
    """Notes, of which there are none."""

    @skill_method(sentences={"de": ["lies [die] Notiz {title}"]})
    def read(self, title: str) -> str:
        """Read a note."""
        raise NotFound("there is no note {title!r}", title=title)


async def test_why_a_call_failed_is_told_in_the_language_of_the_sentence(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("INTENT_WAIT_S", "FIRST_INTENT_WAIT_S"):
        monkeypatch.setattr(limits, each, 60.0)
    await home.device("Pi", NotesSkill())
    assert await say(home, "lies die Notiz Tee") == "Das hat nicht geklappt: Pi: es gibt keine Notiz „Tee“."
    assert await say(home, "lösche den Nudeltimer") == "Es gibt keinen Timer."
    assert await say(home, "cancel the noodle timer") == "There is no timer."


class PumpSkill(Skill):
    """A pump whose author says what is at stake."""

    def __init__(self) -> None:
        self.runs = 0

    @skill_method(destructive=True)
    def turn_on(self) -> str:
        """Empty the pool."""
        self.runs += 1
        return "empty"

    @skill_method(confirm=True)
    def turn_off(self) -> str:
        """Stop it."""
        self.runs -= 1
        return "off"


async def test_an_exact_sentence_is_a_persons_own_act_and_a_near_one_is_asked(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INTENT_WAIT_S", 60.0)  # a busy machine is no reason to fail
    pump = PumpSkill()
    await home.device("Garden", pump)
    assert await say(home, "please turn on the pmup") == "Did you mean: please turn on the pump?"
    assert pump.runs == 0
    await say(home, "please turn on the pump")
    assert pump.runs == 1
    assert "I need a yes" in await say(home, "turn off the pump")
    assert pump.runs == 1


async def test_a_yes_says_the_sentence_that_was_offered_once_and_a_no_forgets_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INTENT_WAIT_S", 60.0)
    monkeypatch.setattr(limits, "FIRST_INTENT_WAIT_S", 60.0)
    pump = PumpSkill()
    await home.device("Garden", pump)
    assert await say(home, "turn on the pmup", conversation="a") == "Did you mean: turn on the pump?"
    await say(home, "yes", conversation="b")
    await say(home, "yes but later", conversation="a")
    await say(home, "yes", conversation="a")
    assert pump.runs == 0

    await say(home, "turn on the pmup", conversation="a")
    assert await say(home, "Ja, bitte!", conversation="a") == "Turned on the switch."
    assert await say(home, "yes", conversation="a") == "no_model"
    assert pump.runs == 1

    await say(home, "turn on the pmup", conversation="a")
    assert await say(home, "No, thanks.", conversation="a") == "All right."
    assert await say(home, "yes", conversation="a") == "no_model"
    assert await say(home, "no", conversation="a") == "no_model"
    assert pump.runs == 1

    await say(home, "turn off the pmup", conversation="a")
    assert "I need a yes" in await say(home, "yes", conversation="a")  # as if the sentence had been said
    assert "Did you mean" in await say(home, "turn on the pmup in 5 minutes", conversation="a")
    await say(home, "yes", conversation="a")
    assert pump.runs == 1
