"""A hub that falls silent or breaks off while somebody talks to a spoke: who answers and what is told."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest

from tests.hub_agent.home import Home
from tests.hub_agent.skills import FeedSkill, LampSkill
from tests.hub_registry.spokes import eventually
from tests.model_server import Fails, Hangs, Reply, Says, ScriptedModel, SeenRequest, calls
from tests.spoke.home import JOURNAL, Place, wait_for
from tests.spoke.talk import (
    CHAT,
    Fault,
    Talker,
    Told,
    acts,
    open_talker,
    small_model,
)

BEGUN = "A long answer begins"


async def test_a_hub_that_was_silent_is_found_again_in_the_background(
    home: Home, place: Place, own_model: ScriptedModel
) -> None:
    models = small_model(own_model.base_url)
    async with open_talker(home, place, models=models, chat={"hub_s": 2}) as talker:
        talker.line.silent = True
        assert (await talker.say("one")).mode == "offline"
        talker.line.silent = False
        talker.line.go.set()
        said = []

        async def is_back() -> bool:
            said.append(await talker.say("two"))
            return said[-1].mode == "online"

        await eventually(is_back)
        assert said[-1].notices == ["The hub is back."]


async def test_a_silent_hub_delays_reading_what_was_said_once(
    home: Home, place: Place, own_model: ScriptedModel
) -> None:
    models = small_model(own_model.base_url)
    async with open_talker(home, place, models=models, chat={"hub_s": 4, "retry_s": 3600}) as talker:
        await talker.say("one")
        talker.line.silent = True
        async with talker.client() as client:
            for _ in range(2):
                (known,) = (await client.get("/api/conversations")).json()
                assert known["asked"] == "one"
                asked = len(talker.line.held)
        assert len(talker.line.held) == asked == 1
        assert (await talker.say("two")).mode == "offline"
        assert len(talker.line.held) == asked


async def test_a_message_that_the_hub_never_got_is_taken_back_and_done_here(
    talker: Talker, own_model: ScriptedModel, hub_model: ScriptedModel
) -> None:
    own_model.script = acts("write", text="here")
    told = await interrupted(talker, "write here into the journal", {CHAT: "hold request"})
    assert (told.mode, talker.place.journal) == ("offline", ["here"])
    # It arrives late, and finds itself cancelled.
    talker.line.go.set()
    await talker.line.settled()
    assert hub_model.requests == []
    assert talker.place.journal == ["here"]


async def test_a_message_that_the_hub_took_in_silence_is_answered_without_doing_anything(
    talker: Talker, own_model: ScriptedModel
) -> None:
    # It calls tools that it was not given.
    own_model.script = [
        calls("JournalSkill_write", text="here"),
        calls("write", text="here"),
        calls("python_exec", code="device.JournalSkill.write('here')"),
        Says(text="I can do nothing."),
    ]
    told = await interrupted(talker, "write here into the journal", {CHAT: "hold answer"})
    assert (told.mode, told.text) == ("offline", "I can do nothing.")
    assert "Nothing was done here" in told.notices[0]
    assert all(request.tools == [] for request in own_model.requests)
    assert not [event for event in told.events if event["kind"] == "skill"]
    assert talker.place.journal == []


OFFLINE, BACK, DOUBT = "Working offline", "The hub is back.", "Nothing was done here"


@pytest.mark.parametrize(
    "course",
    [
        (("online", ""), ("unsure", DOUBT), ("offline", OFFLINE), ("offline", ""), ("online", BACK)),
        (("offline", OFFLINE), ("unsure", DOUBT), ("online", BACK), ("online", "")),
        (("offline", OFFLINE), ("broken", BACK), ("online", ""), ("offline", OFFLINE)),
        (("offline", OFFLINE), ("failed", ""), ("offline", ""), ("sentence", BACK), ("online", "")),
        (("offline", OFFLINE), ("another conversation", OFFLINE), ("offline", "")),
    ],
    ids=lambda course: " ".join(step for step, _ in course),
)
async def test_working_offline_and_the_hub_is_back_are_said_once_each(
    home: Home,
    place: Place,
    hub_model: ScriptedModel,
    own_model: ScriptedModel,
    course: tuple[tuple[str, str], ...],
) -> None:
    models = small_model(own_model.base_url)
    lamp = LampSkill()
    await home.device("Hall PC", lamp)
    heard: list[str] = []
    async with open_talker(home, place, models=models) as talker:
        for step, _ in course:
            if step in ("offline", "failed", "another conversation"):
                talker.line.drop()
            else:
                talker.line.restore()
            answer = Fails(status=400) if step == "failed" else Says(text="The spoke answers.")
            own_model.script = partial(_always, answer)
            match step:
                case "unsure":
                    told = await interrupted(talker, "hello", {CHAT: "hold answer"})
                case "broken":
                    hub_model.script = partial(_always, Hangs(text=BEGUN))
                    told = await talker.say("hello", during=at_the_beginning(talker.line.cut))
                    hub_model.script = partial(_always, Says(text="The hub answers."))
                case "sentence":
                    told = await talker.say("turn on the lamp")
                case "another conversation":
                    told = await replace(talker, conversation="c2").say("hello")
                case _:
                    told = await talker.say("hello")
            mode = {"unsure": "offline", "failed": "model_failed", "another conversation": "offline"}
            assert told.mode == mode.get(step, step)
            heard.append("".join(told.notices))
    assert [re.split("[:,]", said)[0] for said in heard] == [said for _, said in course]


async def interrupted(talker: Talker, message: str, faults: Mapping[str, Fault]) -> Told:
    """Say something, and have each request with a fault cut off once the line holds it."""
    line = talker.line
    line.faults |= faults
    before = len(line.held)
    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(talker.say(message))
        for end in faults:
            await wait_for(partial(line.holds, end, since=before), f"a request to {end} to be held")
            line.cut()
    line.faults.clear()
    return telling.result()


def at_the_beginning(act: Callable[[], None]) -> Callable[[str], None]:
    """Do something once the beginning of an answer has come."""
    return lambda heard: act() if heard == BEGUN else None


def _always(reply: Reply, _: SeenRequest) -> Reply:
    return reply


async def test_an_answer_that_breaks_off_keeps_what_came_and_is_not_begun_again(
    talker: Talker, hub_model: ScriptedModel, own_model: ScriptedModel
) -> None:
    hub_model.script = lambda seen: Hangs(text=BEGUN)
    told = await talker.say("tell me", during=at_the_beginning(talker.line.cut))
    assert (told.mode, told.text) == ("broken", BEGUN)
    assert "nothing was done again" in told.last["hint"]
    assert own_model.requests == []


@pytest.mark.parametrize("how", ["a sentence", "a broken answer"])
async def test_what_the_hub_read_from_outside_counts_in_the_next_answer_without_it(
    home: Home, place: Place, hub_model: ScriptedModel, own_model: ScriptedModel, how: str
) -> None:
    await home.device("Bedroom PC", FeedSkill())
    hub_model.script = lambda seen: Hangs(text=BEGUN) if seen.results else calls("FeedSkill_news")
    own_model.script = acts("write", text="Now it is out.")
    writes = JOURNAL.replace(
        "    @skill_method()\n    def write(", "    @skill_method(open_world=True)\n    def write("
    )
    async with open_talker(home, place, models=small_model(own_model.base_url), skill=writes) as talker:
        message = "read the news" if how == "a sentence" else "please read the news to me"
        told = await talker.say(message, during=at_the_beginning(talker.line.cut))
        assert told.mode == ("sentence" if how == "a sentence" else "broken")
        talker.line.drop()
        told = await talker.say("write it into the journal")
        assert (told.mode, "needs a person's confirmation" in told.text) == ("offline", True)
        assert talker.place.journal == []


@pytest.mark.slow
async def test_an_answer_that_dries_up_is_given_up_once_the_hub_is_silent(
    home: Home, place: Place, hub_model: ScriptedModel, own_model: ScriptedModel
) -> None:
    hub_model.script = lambda seen: Hangs(text=BEGUN)
    models = small_model(own_model.base_url)
    async with open_talker(home, place, models=models, chat={"silent_s": 1, "check_s": 1}) as talker:

        def fall_silent() -> None:
            talker.line.silent = True

        told = await talker.say("tell me", during=at_the_beginning(fall_silent))
    assert (told.mode, told.text) == ("broken", BEGUN)
    assert own_model.requests == []
