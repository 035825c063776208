"""Watchers made of one sentence, in English and German, without a model and with one."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_core.prompt import Household
from agent_core.sentences.understanding import Said, Understanding
from agent_core.skills.skill import Skill, skill_method
from contracts import topics
from contracts.devices.presence import State
from hub_live.watchers.words.sentence import plain
from hub_registry.storage.tables import now
from tests.hub_agent.home import open_home
from tests.hub_registry.spokes import eventually
from tests.model_server import Fails, Reply, ScriptedModel, SeenRequest, calls


class LampSkill(Skill):
    """A lamp."""

    @skill_method()
    def turn_on(self) -> None:
        """Turn it on."""

    @skill_method()
    def turn_off(self) -> None:
        """Turn it off."""


class TankSkill(Skill):
    """A tank with a drain, a lamp and a door beside it."""

    labels = {
        "de": {
            "TankSkill": "Zisterne",
            "level": "Füllstand",
            "door": "Tür",
            "lamp": "Lampe",
            "motion": "Bewegung",
        }
    }

    @skill_method(
        sentences={"en": ["drain the tank"], "de": ["leere die zisterne"]},
    )
    def drain(self) -> None:
        """Open the drain."""

    @skill_method(
        sentences={"en": ["set [the] pump to {speed}"], "de": ["stelle [die] pumpe auf {speed}"]},
    )
    def pump(self, speed: float) -> None:
        """Run the pump."""


VALUES: dict[str, tuple[Any, str | None]] = {
    "level": (99, "%"),
    "lamp": (True, None),
    "door": ("open", None),
    "leak": (False, None),
    "motion": (False, None),
}
LAMP = "When Tank lamp (yard, now on)"
DOOR = "When Tank door (yard, now open)"
ON, OFF = "Lamp: Turn on (yard)", "Lamp: Turn off (yard)"
LEVEL = "When Tank level (yard, now 99 %)"
DRAIN = {"call": "devices.yard.TankSkill.drain"}
SENTENCES: list[tuple[str, str, dict[str, Any]]] = [
    (
        "Tell me when the tank level is above 95 %",
        "When Tank level (yard, now 99 %) goes above 95 %: tell me “Tank level: {level} %”.",
        {"predicate": "level > 95"},
    ),
    (
        "please drain the tank and tell me that it ran over if the level goes over 95.5",
        f"{LEVEL} goes above 95.5 %: drain the tank (yard), then tell me “It ran over”.",
        {"then": [DRAIN, {"notify": "It ran over"}]},
    ),
    (
        "when the lamp has been on for 10 minutes, set the pump to 30, then after 5 min drain the tank",
        f"{LAMP} is on for 10 min: set the pump to 30 (yard), then after 5 min, drain the tank (yard).",
        {"predicate": 'lamp for "10m"'},
    ),
    (
        "let me know if the door is open at night",
        "When Tank door (yard, now open) is open and the sun is down: tell me “Tank door: open”.",
        {"predicate": 'door == "open" and sun == "down"'},
    ),
    ("when the leak sensor is wet, drain the tank", "", {}),
    (
        "when the leak stops drain the tank and when the door changes drain the tank",
        "",
        {},
    ),
    (
        "when there is a leak and it is between 10 pm and 6:30, drain the tank",
        "When Tank leak (yard, now off) is on and it is between 22:00 and 06:30: drain the tank (yard).",
        {},
    ),
    (
        "when the leak is on and it is between 10 pm and 6:30, drain the tank",
        "When Tank leak (yard, now off) is on and it is between 22:00 and 06:30: drain the tank (yard).",
        {},
    ),
    (
        "Tell me when the tank level is below minus 18 %",
        f"{LEVEL} goes below -18 %: tell me “Tank level: {{level}} %”.",
        {"predicate": "level < -18"},
    ),
    (
        "Sag mir Bescheid, wenn der Füllstand der Zisterne unter −18,5 % fällt",
        f"{LEVEL} goes below -18.5 %: tell me “Zisterne: Füllstand: {{level}} %”.",
        {"predicate": "level < -18.5"},
    ),
    ("At 22:00 drain the tank.", "Every day at 22:00: drain the tank (yard).", {"then": [DRAIN]}),
    ("drain the tank at sunset", "Every day at sunset: drain the tank (yard).", {"schedule": "sunset"}),
    ("On weekdays at 7 drain the tank", "On weekdays at 07:00: drain the tank (yard).", {}),
    ("drain the tank every monday at 7:30 pm", "Every Monday at 19:30: drain the tank (yard).", {}),
    ("every 15 minutes drain the tank", "Every 15 min: drain the tank (yard).", {}),
    ("set the pump every evening at 10 to 40", "Every day at 22:00: set the pump to 40 (yard).", {}),
    ("remind me every monday at 19:00 to clean", "Every Monday at 19:00: tell me “Clean”.", {}),
    (
        "when there is a leak, turn on the lamp and turn it off after five minutes",
        f"When Tank leak (yard, now off) is on: {ON}, then after 5 min, {OFF}.",
        {},
    ),
    (
        "if the lamp stays on for half an hour, turn it off",
        f"{LAMP} is on for 30 min: {OFF}.",
        {},
    ),
    ("drain the tank", "", {}),
    ("tell me when the next train leaves", "", {}),
    (
        "Sag mir Bescheid, wenn der Füllstand der Zisterne über 95 % steigt",
        f"{LEVEL} goes above 95 %: tell me “Zisterne: Füllstand: {{level}} %”.",
        {},
    ),
    (
        "Wenn die Lampe länger als 10 Minuten an ist, leere die Zisterne und melde es mir",
        f"{LAMP} is on for 10 min: drain the tank (yard), then tell me “Zisterne: Lampe: an”.",
        {},
    ),
    (
        "Melde dich, wenn die Tür nachts offen ist",
        "When Tank door (yard, now open) is open and the sun is down: tell me “Zisterne: Tür: offen”.",
        {},
    ),
    ("Um 22 Uhr leere die Zisterne", "Every day at 22:00: drain the tank (yard).", {}),
    ("Bei Sonnenuntergang leere bitte die Zisterne", "Every day at sunset: drain the tank (yard).", {}),
    ("Werktags um 6:30 Uhr stelle die Pumpe auf 40", "On weekdays at 06:30: set the pump to 40 (yard).", {}),
    (
        "Wenn die Lampe 10 Minuten an ist, schalte sie aus",
        f"{LAMP} is on for 10 min: {OFF}.",
        {},
    ),
    ("Schalte werktags um 7 die Lampe ein", f"On weekdays at 07:00: {ON}.", {}),
    (
        "Bei Bewegung schalte die Lampe an und nach zehn Minuten wieder aus",
        f"When Tank motion (yard, now off) is on: {ON}, then after 10 min, {OFF}.",
        {},
    ),
    (
        "Wenn die Tür zwischen 22 und 6 Uhr aufgeht, sag mir, dass die Tür offen ist, und mach die Lampe an",
        f"{DOOR} is open and it is between 22:00 and 06:00: tell me “Die Tür ist offen”, then {ON}.",
        {},
    ),
    (
        "Leere die Zisterne 30 Minuten vor Sonnenaufgang",
        "Every day 30 min before sunrise: drain the tank (yard).",
        {},
    ),
]


@pytest.fixture
async def yard(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[httpx.AsyncClient]:
    household = Household(latitude=52.5, longitude=13.4)
    async with open_home(tmp_path / "home", model_url=model.base_url, household=household) as home:
        device = await home.device("yard", TankSkill(), LampSkill())
        for name, (value, unit) in VALUES.items():
            topic = topics.STATE.build(device=device.id, skill="TankSkill", property=name)
            await device.spoke.send(topic, State(value=value, at=now(), unit=unit).model_dump_json().encode())
        states = home.hub.live.world.device_states
        await eventually(lambda: len(list(states(home.hub.registry.admin.id))) == len(VALUES))
        async with home.client() as client:
            yield client


async def propose(yard: httpx.AsyncClient, sentence: str, **more: Any) -> tuple[int, dict[str, Any]]:
    answer = await yard.post("/api/watchers/from-words", json={"sentence": sentence, **more})
    return answer.status_code, answer.json()


async def test_the_commonest_sentences_need_no_model(yard: httpx.AsyncClient, model: ScriptedModel) -> None:
    model.script = lambda _: calls("plan", title="", then=[])
    wrong: list[tuple[str, str]] = []
    for sentence, said, parts in SENTENCES:
        status, answer = await propose(yard, sentence, language="de" if sentence[0] in "SWMUBL" else "en")
        told = plain(answer["sentence"]) if status == 200 else ""
        watcher = answer.get("watcher", {})
        if told != said or not parts.items() <= watcher.items():
            wrong.append((sentence, told or answer["detail"]))
    assert not wrong, "\n".join(map(str, wrong))
    status, answer = await propose(yard, "drain the tank")
    assert status == 422
    assert answer["detail"] == "no watcher can be made of this sentence"
    assert answer["hint"].count("“") == 3
    _, answer = await propose(yard, "Wenn es regnet, schalte die Lampe aus")
    assert "“wenn Zisterne Lampe 10 Minuten lang an ist, melde dich”" in answer["hint"]
    assert "schalte Lampe" in answer["hint"]


async def test_other_sentences_are_for_a_model_that_may_mend_its_first_plan(
    yard: httpx.AsyncClient, model: ScriptedModel
) -> None:
    sentence = "Whenever the pond might overflow, get rid of the water"
    plans = [
        {"title": "Pond", "values": {"level": path}, "predicate": "level > 95", "then": [DRAIN]}
        for path in ("devices.yard.TankSkill.levle", "devices.yard.TankSkill.level")
    ]
    seen: list[str] = []

    def reply(request: SeenRequest) -> Reply:
        assert request.tools == ["plan"]
        seen.append(request.said("user")[-1])
        return calls("plan", **plans[min(len(seen), 2) - 1])

    model.script = reply
    status, answer = await propose(yard, sentence)
    assert (status, len(seen)) == (200, 2)
    assert plain(answer["sentence"]) == f"{LEVEL} goes above 95 %: drain the tank (yard)."
    assert "devices.yard.TankSkill.level = 99 %" in seen[0]
    assert "there is no value 'devices.yard.TankSkill.levle'; did you mean" in seen[1]
    made = (await yard.post("/api/watchers", json=answer["watcher"])).json()
    assert (made["title"], made["state"], made["model_calls"]) == ("Pond", "active", 0)
    model.script = lambda _: Fails(status=400)
    status, answer = await propose(yard, sentence)
    assert (status, answer["detail"]) == (503, "the model did not answer, so no watcher was made")


async def test_in_a_chat_without_a_model_a_person_confirms_the_sentence(yard: httpx.AsyncClient) -> None:
    body = {
        "device": "hub",
        "skill": "WatcherSkill",
        "method": "watch",
        "kwargs": {"sentence": SENTENCES[0][0]},
    }
    asked = (await yard.post("/api/skills/call", json=body)).json()
    assert asked["arguments"]["does"] == SENTENCES[0][1]
    answer = await yard.post("/api/skills/call", json={**body, "confirmation": asked["confirmation"]})
    assert answer.json()["result"]["title"] == SENTENCES[0][0]
    none = (await yard.get("/api/skills/sentence", params={"q": "tell me when the next train leaves"})).json()
    assert none["calls"] == []


ONCE: list[tuple[str, str, dict[str, Any]]] = [
    ("drain the tank at 10 pm", "call_at", {"time": "10 pm", "day": "", "text": "Drain the tank"}),
    ("Please, at 22:00 set the pump to 30", "call_at", {"time": "22:00", "arguments": {"speed": 30}}),
    ("set the pump tonight at 10 to 30", "call_at", {"time": "10 pm", "day": ""}),
    ("drain the tank on Monday at 7", "call_at", {"time": "7", "day": "monday"}),
    ("tell me at 10 pm to sleep", "remind_at", {"time": "10 pm", "text": "To sleep"}),
    ("schalte um 22 Uhr die Lampe aus", "call_at", {"time": "22", "text": "Schalte die Lampe aus"}),
    ("Schalte die Lampe morgen um 7 ein", "call_at", {"time": "7", "day": "morgen"}),
    ("leere heute Abend um zehn Uhr die Zisterne", "call_at", {"time": "10 pm", "day": "heute"}),
    ("leere die Zisterne am Morgen um 7", "call_at", {"time": "7", "day": ""}),
    ("drain the tank on Mondays at 7", "watch", {}),
    ("every day at 10 pm drain the tank", "watch", {}),
    ("drain the tank at 10 pm every night", "watch", {}),
    ("schalte jeden Abend um 22 Uhr die Lampe aus", "watch", {}),
    ("leere werktags um 7 die Zisterne", "watch", {}),
    ("at 22:00 drain the tank and turn off the lamp", "watch", {}),
]
"""With the method, and some of its arguments."""


async def test_what_is_done_at_a_time_is_done_once_unless_it_comes_again(yard: httpx.AsyncClient) -> None:
    wrong = []
    for sentence, method, some in ONCE:
        meant = (await yard.get("/api/skills/sentence", params={"q": sentence})).json()["calls"]
        call: dict[str, Any] = meant[0] if meant else {"path": "", "arguments": {}}
        if call["path"].rpartition(".")[2] != method or not some.items() <= call["arguments"].items():
            wrong.append((sentence, call))
    assert not wrong, "\n".join(map(str, wrong))
    answer = await yard.post("/api/chat", json={"message": ONCE[0][0]})
    assert "I will do that" in answer.text, answer.text
    [timer] = (await yard.get("/api/timers")).json()
    assert (timer["text"], timer["schedule"]) == ("Drain the tank", None)
    assert (timer["call"], (await yard.get("/api/watchers")).json()) == (DRAIN["call"], [])


async def test_a_step_that_nothing_understands_is_not_looked_for_again_and_again(
    yard: httpx.AsyncClient, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.script = lambda _: calls("plan", title="", then=[])
    asked: list[tuple[str, str]] = []
    meaning = Understanding.meaning

    async def counted(self: Understanding, said: Said, **more: Any) -> Any:
        asked.append((said.language, said.text))
        return await meaning(self, said, **more)

    monkeypatch.setattr(Understanding, "meaning", counted)
    assert (await propose(yard, f"when the lamp is on, {'drain the tank, and then ' * 6}blah"))[0] == 422
    # Those that the hint names are looked for once more.
    assert len(asked) < 60
    assert max(Counter(asked).values()) <= 2
