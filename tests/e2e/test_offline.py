"""A spoke's own agent, and a hub that dies, hangs and comes back in real processes: nothing is done twice."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_core.testing import Says, ScriptedModel, SeenRequest, calls
from tests.e2e.house import CALLABLE, PATIENCE_S, House, Spoke, wait_for
from tests.spoke.talk import CHAT, Line

LONG = "A long answer that goes on and on, so that there is time enough to disturb it."


@dataclass
class Talk:
    """A person at a spoke, whose commands go to it.

    Attributes:
        own: The model on the spoke's machine.
    """

    house: House
    pc: Spoke
    own: ScriptedModel
    begun: list["subprocess.Popen[str]"] = field(default_factory=list)

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start ``strawberry chat`` on the spoke's machine."""
        process = subprocess.Popen(
            [*CALLABLE, "chat", *arguments],
            env=self.house.environment(self.pc.home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.begun.append(process)
        return process

    def say(self, message: str) -> dict[str, Any]:
        """Say something that must be answered."""
        out, err = self.begin(message, "--json").communicate(timeout=PATIENCE_S)
        answer: dict[str, Any] = json.loads(out or "{}")
        assert answer, err
        return answer


def acts(text: str) -> Callable[[SeenRequest], Says]:
    """A small model that writes a line into the journal."""

    def script(seen: SeenRequest) -> Says:
        if seen.results:
            return Says(text=f"Done: {seen.results[-1]}")
        tools = [tool for tool in seen.tools if tool.endswith("JournalSkill_write") or tool == "write"]
        return calls(tools[0], text=text) if tools else Says(text="I can do nothing here.")

    return script


def settings_for(model: ScriptedModel) -> str:
    return (
        '[[models]]\nname = "own"\nprovider = "openai"\nmodel = "scripted"\ntools = "native"\n'
        f'base_url = "{model.base_url}"\n'
    )


@pytest.fixture
def own() -> Iterator[ScriptedModel]:
    with ScriptedModel(acts("by the spoke")) as server:
        yield server
        assert server.refused == []


@pytest.fixture
def talk(house: House, journal: dict[str, str], own: ScriptedModel) -> Iterator[Talk]:
    pc = house.add_spoke("Bedroom PC", journal, settings=settings_for(own))
    talk = Talk(house, pc, own)
    yield talk
    for process in talk.begun:
        process.kill()
        process.communicate()


def test_a_person_talks_to_the_spoke_and_the_hub_answers_as_long_as_it_lives(
    talk: Talk, model: ScriptedModel
) -> None:
    model.script = [
        calls("python_exec", code="device.JournalSkill.write('by the hub')"),
        Says(text="It is written."),
    ]
    answer = talk.say("write something into the journal")
    assert (answer["mode"], answer["answer"]) == ("online", "It is written.")
    assert answer["device"] == talk.pc.id
    assert talk.pc.journal() == ["by the hub"]
    assert talk.own.requests == []

    talk.house.kill("hub")
    answer = talk.say("write into the journal again")
    assert answer["mode"] == "offline"
    assert "wrote by the spoke" in answer["answer"]
    assert talk.pc.journal() == ["by the hub", "by the spoke"]

    talk.house.start_hub()
    model.script = lambda seen: Says(text="The hub again.")
    assert talk.say("hello again")["mode"] == "online"


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_hub_that_ends_in_the_middle_of_an_answer_leaves_what_came_and_nothing_runs_again(
    talk: Talk, model: ScriptedModel, blow: signal.Signals
) -> None:
    model.script = lambda seen: Says(text=LONG, gap_s=0.2)
    process = talk.begin("tell me something long")
    assert process.stdout is not None
    came = process.stdout.read(6)
    talk.house.send("hub", blow)
    rest, err = process.communicate(timeout=2 * PATIENCE_S)
    assert process.returncode == 1
    assert LONG.startswith(came)
    assert LONG not in came + rest
    assert "in the middle of its answer" in err
    assert talk.own.requests == []
    # The next one knows at once.
    assert talk.say("and now?")["mode"] == "offline"


def test_a_hub_that_is_killed_in_a_tool_call_runs_it_once_and_the_spoke_does_not_repeat_it(
    talk: Talk, model: ScriptedModel
) -> None:
    model.script = [calls("python_exec", code="device.JournalSkill.slowly('job', 2)"), Says(text="Done.")]
    process = talk.begin("do the job")
    wait_for(lambda: talk.pc.journal() == ["job begun"], what="the job to begin")
    talk.house.kill("hub")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "Look before you ask again" in err
    wait_for(lambda: talk.pc.journal() == ["job begun", "job done"], what="the job to end")
    assert talk.own.requests == []
    talk.house.start_hub()
    talk.house.wait_until_online(talk.pc)
    assert talk.pc.journal() == ["job begun", "job done"]


def test_a_hub_that_hangs_is_passed_by_and_does_nothing_when_it_goes_on(
    talk: Talk, model: ScriptedModel
) -> None:
    model.script = lambda seen: Says(text="The hub again.")
    talk.house.send("hub", signal.SIGSTOP)
    assert talk.say("write into the journal")["mode"] == "offline"
    assert talk.say("write into the journal")["mode"] == "offline"
    talk.house.send("hub", signal.SIGCONT)
    wait_for(lambda: talk.say("write into the journal")["mode"] == "online", what="the hub to be found again")
    assert set(talk.pc.journal()) == {"by the spoke"}
    assert len(talk.pc.journal()) == len([seen for seen in talk.own.requests if seen.results])
    assert len(model.requests) == 1


async def test_a_hub_that_is_killed_between_taking_a_message_and_its_first_word_is_not_replaced(
    house: House, journal: dict[str, str], own: ScriptedModel, model: ScriptedModel
) -> None:
    model.script = [calls("python_exec", code="device.JournalSkill.write('by the hub')"), Says(text="Done.")]
    async with Line(house.url) as line:
        pc = await asyncio.to_thread(
            house.add_spoke, "Bedroom PC", journal, settings=settings_for(own), hub=line.url
        )
        line.faults[CHAT] = "hold answer"
        talk = Talk(house, pc, own)
        async with asyncio.TaskGroup() as tasks:
            saying = tasks.create_task(asyncio.to_thread(talk.say, "write into the journal"))
            await line.held.wait()
            await line.drop()
            await asyncio.to_thread(house.kill, "hub")
            line.cut()
        answer = saying.result()
    assert answer["mode"] == "offline"
    assert "the hub may be doing it" in answer["events"][0]["text"]
    assert all(request.tools == [] for request in own.requests)
    assert "by the spoke" not in pc.journal()
    assert pc.journal().count("by the hub") <= 1
