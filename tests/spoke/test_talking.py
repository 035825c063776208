"""Talking to a spoke: online and offline in one conversation, and nothing is ever done twice."""

import asyncio
import json
from pathlib import Path

import pytest

from agent_core import limits
from agent_core.skills.skill import Skill, skill_method
from hub_agent.chat.record import ConversationRecord
from identity.keys import KeyPair
from spoke.app import open_spoke
from spoke.membership.enrolment import Enrolment
from tests.hub_agent.home import Home, open_home, says
from tests.hub_agent.skills import SlowSkill
from tests.hub_server.test_http_lan import open_lan_home
from tests.model_server import Says, ScriptedModel, calls
from tests.spoke.home import Place, wait_for
from tests.spoke.talk import (
    CHAT,
    Talker,
    acts,
    open_talker,
    programming_model,
    small_model,
)


async def test_one_conversation_goes_on_without_the_hub_and_with_it_again(
    talker: Talker, hub_model: ScriptedModel, own_model: ScriptedModel
) -> None:
    await talker.say("one")
    talker.line.drop()
    second, third = await talker.say("two"), await talker.say("three")
    assert [second.mode, third.mode] == ["offline", "offline"]
    assert [notice[:15] for notice in second.notices] == ["Working offline"]
    assert third.notices == []
    said = own_model.requests[-1].said("user")
    assert [text for text in ("one", "two", "three") if any(text in one for one in said)] == [
        "one",
        "two",
        "three",
    ]
    talker.line.restore()
    fourth, fifth = await talker.say("four"), await talker.say("five")
    assert (fourth.mode, fourth.notices) == ("online", ["The hub is back."])
    assert fifth.notices == []
    known = " ".join(hub_model.requests[-1].said("user"))
    assert [known.find(word) >= 0 for word in ("one", "two", "three", "four", "five")] == [True] * 5


async def test_what_a_model_of_the_spoke_does_not_see_of_a_conversation_is_said(
    home: Home, place: Place, own_model: ScriptedModel
) -> None:
    models = small_model(own_model.base_url)
    async with open_talker(home, place, models=models, chat={"exchanges": 2}) as talker:
        talker.line.drop()
        told = [await talker.say(word) for word in ("one", "two", "three")]
    assert [len(each.notices) for each in told] == [1, 0, 1]
    assert told[2].notices == ["The model does not see the beginning of this long conversation."]
    said = own_model.requests[-1].said("user")
    assert said[0] == "[Earlier exchanges are not shown here.]"
    assert (said[1], said[2], len(said)) == ("one", "two", 4)


async def test_another_agent_answers_at_the_hub_or_not_at_all(
    talker: Talker, home: Home, hub_model: ScriptedModel, own_model: ScriptedModel
) -> None:
    (home.directory / "agents").mkdir()
    (home.directory / "agents" / "poet.yml").write_text("prompt: You answer in verse.\n")
    async with talker.client() as client:
        listed = (await client.get("/v1/models")).json()["data"]
    assert [each["id"] for each in listed] == ["assistant", "strawberry", "poet"]
    assert (await talker.say("good morning", agent="poet")).text == "The hub answers."
    assert "You answer in verse." in hub_model.requests[-1].said("system")[0]
    unknown = await talker.say("good morning", agent="cook")
    assert unknown.last["message"] == "there is no agent 'cook'"
    assert unknown.last["hint"] == "The agents are: assistant, strawberry, poet."
    talker.line.drop()
    alone = await talker.say("write down milk", agent="poet")
    assert (alone.last["kind"], alone.mode, alone.notices) == ("error", "refused", [])
    assert own_model.requests == []


async def test_a_local_sentence_needs_neither_hub_nor_model(
    talker: Talker, hub_model: ScriptedModel, own_model: ScriptedModel
) -> None:
    for state in ("online", "offline"):
        told = await talker.say(f"write down {state}")
        assert (told.text, told.mode) == (f"wrote {state}", "sentence")
        talker.line.drop()
    assert talker.place.journal == ["online", "offline"]
    assert hub_model.requests == own_model.requests == []


async def test_offline_the_own_model_uses_the_skills_of_this_device_as_tools(
    talker: Talker, own_model: ScriptedModel
) -> None:
    own_model.script = acts("write", text="from the model")
    talker.line.drop()
    told = await talker.say("please write from the model into the journal")
    assert told.mode == "offline"
    assert "wrote from the model" in told.text
    assert talker.place.journal == ["from the model"]
    (done,) = [event for event in told.events if event["kind"] == "skill" and event["state"] == "done"]
    assert done["device"] == talker.spoke.device


async def test_a_running_spoke_learns_its_new_name_and_keeps_it(home: Home, place: Place) -> None:
    file = place.home / "spoke" / "enrolment.json"

    def has_name(key: str) -> bool:
        stored = Enrolment.load(file)
        return stored is not None and stored.profile is not None and stored.profile.key == key

    async with open_talker(home, place) as talker:
        assert has_name("garage_pc")
        async with home.client() as client:
            named = {"name": "Entrance hall"}
            assert (await client.patch(f"/api/devices/{talker.spoke.device}", json=named)).status_code == 200
        await wait_for(lambda: has_name("entrance_hall"), "the new name")


async def test_without_hub_and_model_the_answer_says_what_works(home: Home, place: Place) -> None:
    async with open_talker(home, place) as talker:
        talker.line.drop()
        told = await talker.say("what is the meaning of life?")
        assert told.mode == "no_model"
        assert "write down <text>" in told.last["hint"]
        async with talker.client() as client:
            answer = await client.post("/api/chat", json={"message": "and of the rest?"})
        assert answer.status_code == 503
        assert answer.json()["code"] == "no_model"


async def test_a_hub_without_a_model_leaves_the_message_to_the_spoke(
    tmp_path: Path, place: Place, own_model: ScriptedModel
) -> None:
    models = small_model(own_model.base_url)
    async with open_home(tmp_path / "home") as home, open_talker(home, place, models=models) as talker:
        told = await talker.say("good morning")
        assert (told.mode, told.text) == ("offline", "The spoke answers.")
        assert "no model is configured" in told.notices[0]


async def test_only_the_owner_is_served(talker: Talker) -> None:
    async with talker.client(token="guessed") as stranger:
        for method, path in (
            ("GET", "/v1/models"),
            ("POST", CHAT),
            ("POST", "/api/chat"),
            ("POST", "/api/turns/t1/cancel"),
            ("POST", "/api/turns/t1/confirmations/q"),
            ("GET", "/api/conversations"),
            ("GET", "/api/conversations/c1"),
        ):
            assert (await stranger.request(method, path, json={})).status_code == 401, path
        assert (await stranger.get("/api/health")).json()["device"] == talker.spoke.device
        # A page that had its name pointed here is not this machine.
        assert (await stranger.get("/api/health", headers={"host": "evil.example"})).status_code == 421
    for name in ("http.token", "run.json"):
        assert (talker.place.home / "spoke" / name).stat().st_mode & 0o077 == 0


async def test_the_same_turn_runs_once_and_a_turn_that_was_cancelled_before_never(talker: Talker) -> None:
    assert (await talker.say("write down one", turn="t1")).status == 200
    assert (await talker.say("write down one", turn="t1")).status == 409
    async with talker.client() as client:
        assert (await client.post("/api/turns/t2/cancel")).json() == {"state": "not_started"}
        assert (await client.post("/api/turns/t1/cancel")).json() == {"state": "finished"}
    assert (await talker.say("write down two", turn="t2")).status == 409
    assert talker.place.journal == ["one"]


@pytest.mark.parametrize("place_of_the_turn", ["hub", "spoke"])
async def test_a_person_is_asked_wherever_the_turn_runs(
    talker: Talker, hub_model: ScriptedModel, own_model: ScriptedModel, place_of_the_turn: str
) -> None:
    message = "burn the journal" if place_of_the_turn == "spoke" else "please burn the journal for me"
    hub_model.script = acts("burn")
    async with talker.client() as client:
        headers = {"x-strawberry-confirm": "true", "x-strawberry-turn": "t1"}
        async with client.stream("POST", CHAT, json=says(message, stream=True), headers=headers) as answer:
            async for line in answer.aiter_lines():
                if '"kind":"confirmation"' in line:
                    asked = json.loads(line.removeprefix("data: "))["x_strawberry"]
                    path = f"/api/turns/t1/confirmations/{asked['id']}"
                    said = await client.post(path, json={"approve": True})
                    assert said.json() == {"approve": True}
    assert talker.place.journal == ["burnt"]


async def test_another_device_than_this_one_is_not_taken_for_it(talker: Talker) -> None:
    async with talker.client() as client:
        for device, status in ((talker.spoke.device, 200), ("kitchen_pi", 422)):
            answer = await client.post("/api/chat", json={"message": "write down x", "device": device})
            assert answer.status_code == status
            headers = {"x-strawberry-device": device}
            answer = await client.post(CHAT, json=says("write down x"), headers=headers)
            assert answer.status_code == status
    assert talker.place.journal == ["x", "x"]


async def test_a_spoke_that_stops_lets_the_skill_of_its_own_turn_end(
    home: Home, place: Place, own_model: ScriptedModel
) -> None:
    own_model.script = acts("slowly", text="job", seconds=0.5)
    async with asyncio.TaskGroup() as tasks:
        async with open_talker(home, place, models=small_model(own_model.base_url)) as talker:
            talker.line.drop()
            telling = tasks.create_task(talker.say("write slowly into the journal"))
            await wait_for(lambda: place.journal, "the job to begin")
        assert place.journal == ["job begun", "job done"]
    assert telling.result().mode in ("cancelled", "offline")


class JournalSkill(Skill):
    """The same skill on another device."""

    def __init__(self) -> None:
        self.written: list[str] = []

    @skill_method(sentences={"en": ["write down {text}"]})
    def write(self, text: str) -> str:
        """Write a line."""
        self.written.append(text)
        return f"wrote {text} in the hall"


async def test_where_no_device_is_named_the_one_that_is_spoken_to_is_meant(
    talker: Talker, home: Home, hub_model: ScriptedModel
) -> None:
    hall = JournalSkill()
    other = await home.device("Hall PC", hall)
    assert (await talker.say("write down one")).text == "wrote one"
    # The model leaves the device out, and the hub knows whose message it is.
    hub_model.script = acts("write", text="two")
    assert "wrote two" in (await talker.say("please write two into the journal")).text
    # So it is for a device that talks to the hub itself.
    own = talker.place.home / "spoke"
    token = json.loads((own / "enrolment.json").read_text())["token"]
    key = KeyPair.load(own / "key.pem")
    home.keys[key.kid] = key
    async with home.client(token) as device:
        said = (await device.post("/api/chat", json={"message": "write down three"})).json()
        assert (said["answer"], said["device"]) == ("wrote three", talker.spoke.device)
    async with home.client() as person:
        said = (await person.post("/api/chat", json={"message": "write down four"})).json()
        assert said["answer"].startswith("On which device:")
        body = {"message": "write down five", "device": other.id}
        assert (await person.post("/api/chat", json=body)).json()["answer"] == "wrote five in the hall"
    assert (talker.place.journal, hall.written) == (["one", "two", "three"], ["five"])


async def test_a_hub_on_another_machine_is_asked_over_tls_that_its_key_vouches_for(
    tmp_path: Path, place: Place, hub_model: ScriptedModel
) -> None:
    models = small_model(hub_model.base_url)
    async with open_lan_home(tmp_path, models=models) as (home, _):
        url, key = f"https://127.0.0.1:{home.hub.lan_port}", home.hub.registry.key.kid
        async with open_talker(home, place, hub_url=url, hub_key=key) as talker:
            told = await talker.say("good morning")
            assert (told.text, told.mode) == ("The hub answers.", "online")


@pytest.mark.parametrize("how", ["hang up", "cancel"])
async def test_who_gives_up_at_the_spoke_stops_the_skill_that_the_hub_has_called(
    talker: Talker, home: Home, how: str
) -> None:
    slow = SlowSkill()
    await home.device("Hall PC", slow)
    async with talker.client() as client:
        headers = {"x-strawberry-turn": "t1"}
        body = says("take your time", stream=True)
        async with client.stream("POST", CHAT, json=body, headers=headers) as response:
            await slow.begun.wait()
            if how == "cancel":
                assert (await client.post("/api/turns/t1/cancel")).json() == {"state": "cancelled"}
                assert '"code":"cancelled"' in (await response.aread()).decode()
    await wait_for(slow.stopped.is_set, "the skill to be stopped")


async def test_offline_programs_run_where_a_sandbox_is_installed(
    home: Home, place: Place, own_model: ScriptedModel, sandbox_files: Path
) -> None:
    own_model.script = [
        calls("python_exec", code="device.JournalSkill.write(f'{6 * 7}')"),
        Says(text="Computed and written."),
    ]
    place.home.mkdir(parents=True)
    (place.home / "sandbox").symlink_to(sandbox_files, target_is_directory=True)
    async with open_talker(home, place, models=programming_model(own_model.base_url)) as talker:
        talker.line.drop()
        told = await talker.say("compute and write")
    assert (told.mode, told.text, place.journal) == ("offline", "Computed and written.", ["42"])
    assert own_model.requests[0].tools == ["search_skills", "describe_function", "python_exec"]


async def test_where_no_sandbox_is_installed_nobody_is_asked_for_programs(
    home: Home, place: Place, own_model: ScriptedModel
) -> None:
    own_model.script = acts("write", text="as a tool")
    async with open_talker(home, place, models=programming_model(own_model.base_url)) as talker:
        talker.line.drop()
        assert (await talker.say("write it as a tool")).mode == "offline"
    assert "python_exec" not in own_model.requests[0].tools
    assert place.journal == ["as a tool"]


async def test_what_was_said_offline_reaches_the_hub_after_an_abrupt_end_without_another_word(
    home: Home, place: Place, own_model: ScriptedModel
) -> None:
    models = small_model(own_model.base_url)
    async with open_talker(home, place, models=models) as talker:
        talker.line.drop()
        await talker.say("remember the milk")
    assert not await questions_at(home, talker.conversation)
    settings = place.settings_at(home.hub.url, hub_key=home.hub.registry.key.kid, models=models)
    async with open_spoke(settings), asyncio.timeout(60):
        while True:
            if await questions_at(home, talker.conversation) == ["remember the milk"]:
                break
            await asyncio.sleep(0.05)


async def questions_at(home: Home, conversation: str) -> list[str]:
    """What the hub has recorded to have been asked in a conversation."""
    registry = home.hub.registry
    record = ConversationRecord(registry.store, instance="reader")
    return [turn.question for turn in await record.turns(registry.admin.id, conversation, limit=10)]


PUMP = '''
from spoke import Skill, skill_method


class PumpSkill(Skill):
    """A pump."""

    @skill_method(destructive=True)
    def turn_on(self) -> None:
        """Empty the pool."""

    @skill_method()
    def turn_off(self) -> None:
        """Stop."""
'''


async def test_a_yes_and_a_no_are_for_the_sentence_that_the_device_itself_has_offered(
    home: Home, place: Place, hub_model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INTENT_WAIT_S", 60.0)  # a busy machine is no reason to fail
    place.add_skill("pump.py", PUMP)
    async with open_talker(home, place) as talker:
        texts = ("turn on the pmup", "Ja!", "yes", "turn on the pmup", "nein")
        said = [(await talker.say(text)).text for text in texts]
    asked = "Did you mean: turn on the pump?"
    assert said == [asked, "Turned on the switch.", "The hub answers.", asked, "All right."]
