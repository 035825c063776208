"""A spoke's own agent, and a hub that dies, hangs and comes back in real processes: nothing is done twice.

One house serves all of it; each test begins with everything running and nothing done. When something
happens is not left to time: a model or a skill stands still until the moment has been seen.
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import JOURNAL_SKILL
from tests.e2e.house import PATIENCE_S, House, Spoke, wait_for
from tests.e2e.talks import WAITING_SKILL, Talk, acts, notices, own_model
from tests.model_server import Hangs, Says, ScriptedModel, SeenRequest, calls

pytestmark = pytest.mark.slow

BEGUN = "A long answer begins, "
BLOWS = (signal.SIGKILL, signal.SIGSTOP)


@dataclass
class Stage:
    """A house with one spoke.

    Attributes:
        hub_model: What answers on the hub.
        own_model: What answers on the spoke.
    """

    house: House
    hub_model: ScriptedModel
    own_model: ScriptedModel
    pc: Spoke

    def settle(self) -> None:
        """Have everything run, with nothing said or done yet."""
        self.hub_model.script = lambda seen: Says(text="Here.")
        self.own_model.script = lambda seen: Says(text="Not yet.")
        self.bring_back()
        self.house.wait_until_online(self.pc)
        self.say_until_online(self.pc, "Are you there?")
        for file in self.pc.skills.iterdir():
            if file.is_file() and file.suffix != ".py":
                file.unlink()
        for model in (self.hub_model, self.own_model):
            model.requests.clear()

    def strike(self, blow: signal.Signals) -> None:
        """Kill the hub, or let it hang."""
        if blow is signal.SIGKILL:
            self.house.kill("hub")
        else:
            self.house.send("hub", blow)

    def bring_back(self) -> None:
        """Start the hub that was killed; let the one that hangs go on."""
        if "hub" in self.house.processes:
            self.house.send("hub", signal.SIGCONT)
        else:
            self.house.start_hub()

    def say_until_online(self, spoke: Spoke, message: str) -> None:
        """Say something to a spoke until it is the hub that answers."""
        body = {"message": message}
        wait_for(lambda: spoke.ask("/api/chat", body)["mode"] == "online", what="the hub to answer")

    def journal_at_last(self, spoke: Spoke) -> list[str]:
        """Have the hub that is back write a line, and give what else was written: all that will ever be."""
        self.hub_model.script = programs({"write": "device.JournalSkill.write('at last')"})
        self.own_model.script = lambda seen: Says(text="Not yet.")
        self.house.wait_until_online(spoke)
        self.say_until_online(spoke, "write")
        assert "at last" in spoke.journal()
        return [line for line in spoke.journal() if line != "at last"]


def programs(codes: Mapping[str, str]) -> Callable[[SeenRequest], Says]:
    """A model that answers each of these messages by a program, and then says that it is done."""

    def script(seen: SeenRequest) -> Says:
        return Says(text="Done.") if seen.results else calls("python_exec", code=codes[asked(seen)])

    return script


def asked(seen: SeenRequest) -> str:
    """Give the message of the person; what the model is told besides stands before it."""
    return seen.said("user")[-1].rpartition("\n")[2]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("offline") / "house"
    with (
        ScriptedModel() as hub_model,
        ScriptedModel() as own,
        House(directory, sandbox=sandbox_files) as house,
    ):
        house.use_model(hub_model.base_url)
        house.start_broker()
        house.start_hub()
        skills = {"journal.py": JOURNAL_SKILL, "waiting.py": WAITING_SKILL}
        pc = house.add_spoke("Bedroom PC", skills, settings=own_model(own))
        yield Stage(house, hub_model, own, pc)
        assert hub_model.refused == own.refused == []


@pytest.fixture
def settled(stage: Stage) -> Stage:
    """The house with everything running, and nothing said or done yet."""
    stage.settle()
    return stage


@pytest.fixture
def talk(settled: Stage) -> Iterator[Talk]:
    """Somebody at the spoke."""
    talk = Talk(settled.house, settled.pc)
    yield talk
    talk.end()


def test_a_person_talks_to_the_spoke_and_the_hub_answers_as_long_as_it_lives(
    settled: Stage, talk: Talk
) -> None:
    settled.own_model.script = acts("by the spoke")
    settled.hub_model.script = programs({"write something": "device.JournalSkill.write('by the hub')"})
    answer = talk.say("write something")
    assert (answer["mode"], answer["answer"]) == ("online", "Done.")
    assert answer["device"] == settled.pc.id
    assert settled.pc.journal() == ["by the hub"]
    assert settled.own_model.requests == []

    settled.strike(signal.SIGKILL)
    answer = talk.say("write into the journal again")
    assert (answer["mode"], answer["answer"]) == ("offline", "It is done.")
    assert settled.pc.journal() == ["by the hub", "by the spoke"]

    settled.bring_back()
    assert settled.journal_at_last(settled.pc) == ["by the hub", "by the spoke"]


def test_a_hub_that_hangs_is_passed_by_and_does_nothing_late_when_it_goes_on(
    settled: Stage, talk: Talk
) -> None:
    settled.own_model.script = acts("by the spoke")
    settled.strike(signal.SIGSTOP)
    for message in ("one", "two"):
        assert talk.say(f"write {message} into the journal")["mode"] == "offline"
    settled.bring_back()
    assert settled.journal_at_last(settled.pc) == ["by the spoke", "by the spoke"]
    assert {asked(seen) for seen in settled.hub_model.requests} == {"write"}


@pytest.mark.parametrize("blow", BLOWS)
def test_a_hub_that_ends_in_tool_calls_and_in_the_middle_of_an_answer_runs_nothing_late_or_again(
    settled: Stage, talk: Talk, blow: signal.Signals
) -> None:
    pc, one, two = settled.pc, f"one {blow.name}", f"two {blow.name}"
    program = programs(
        {
            "the first job": f"device.WaitingSkill.wait({one!r})",
            "the second job": f"device.WaitingSkill.wait({two!r})\ndevice.JournalSkill.write('late')",
        }
    )
    settled.own_model.script = acts("by the spoke")
    settled.hub_model.script = lambda seen: (
        Hangs(text=BEGUN) if asked(seen) == "a long answer" else program(seen)
    )
    first = talk.begin("the first job")
    wait_for(lambda: pc.journal() == [f"{one} begun"], what="the first job to begin")
    second = talk.begin("the second job")
    wait_for(lambda: pc.journal() == [f"{one} begun", f"{two} begun"], what="the second job to begin")
    telling = talk.begin("a long answer")
    assert telling.stdout is not None
    came = telling.stdout.read(len(BEGUN))

    settled.strike(blow)
    (pc.skills / one).touch()
    for process in (first, second, telling):
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
        assert "lost during its answer" in err
        assert "Check before you ask again" in err
        came += out
    assert came.strip() == BEGUN.strip(), "what came of the answer stays, and nothing else was said"
    assert talk.say("and now?")["mode"] == "offline", "the next message passes it by"
    wait_for(lambda: pc.journal()[2:] == [f"{one} done"], what="the first job to end")

    settled.bring_back()
    for message in ("the first job", "the second job", "a long answer"):
        wait_for(lambda: settled.house.turn_state(message) != "running", what=message)  # noqa: B023
    (pc.skills / two).touch()
    wait_for(lambda: pc.journal()[3:] == [f"{two} done"], what="the second job to end")
    assert settled.journal_at_last(pc) == [f"{one} begun", f"{two} begun", f"{one} done", f"{two} done"]


@pytest.mark.parametrize("blow", BLOWS)
def test_one_conversation_goes_on_at_the_spoke_and_at_the_hub_again_and_both_know_all_of_it(
    settled: Stage, talk: Talk, blow: signal.Signals
) -> None:
    settled.hub_model.script = lambda seen: Says(text=f"The hub heard {asked(seen)}.")
    settled.own_model.script = lambda seen: Says(text=f"The spoke heard {asked(seen)}.")
    conversation = talk.converse()
    told: list[dict[str, Any]] = []

    def say() -> bool:
        told.append(conversation.say(f"word {len(told)}"))
        return bool(told[-1]["mode"] == "online")

    assert say()
    settled.strike(blow)
    assert not say()
    assert not say()
    settled.bring_back()
    wait_for(say, what="the hub to be found again")
    back = len(told) - 1
    assert say()

    said = [(number, notice) for number, answer in enumerate(told) for notice in notices(answer)]
    assert [number for number, _ in said] == [1, back]
    assert said[0][1].startswith("Working offline: ")
    assert said[1][1] == "The hub is back."
    seen = {"online": iter(settled.hub_model.requests), "offline": iter(settled.own_model.requests)}
    for number, answer in enumerate(told):
        request = next(seen[answer["mode"]])
        asked_before, answered = request.said("user"), request.said("assistant")
        assert len(asked_before) == len(answered) + 1 == number + 1
        assert asked_before[-1].endswith(f"\nword {number}")
        for earlier, question, reply in zip(told, asked_before, answered, strict=False):
            # What the other side answered alone is data for this one.
            assert f"word {told.index(earlier)}" in question
            assert earlier["answer"] in (reply if answer["mode"] == "offline" else f"{question}\n{reply}")


def test_what_came_of_an_answer_that_broke_off_is_known_on_both_sides_afterwards(settled: Stage) -> None:
    pc = settled.pc
    settled.hub_model.script = lambda seen: Hangs(text=BEGUN)
    settled.own_model.script = lambda seen: Says(text="It broke off there.")
    events = pc.stream("a long answer", conversation="broken")
    came = ""
    for event in events:
        if event.get("choices") and (text := event["choices"][0]["delta"].get("content")):
            came += text
        if came == BEGUN:
            settled.strike(signal.SIGKILL)
            break
    told = [event["x_strawberry"] for event in events if "x_strawberry" in event]
    assert [event["code"] for event in told] == ["broken"]
    assert came == BEGUN

    def say(message: str) -> str:
        return str(pc.ask("/api/chat", {"message": message, "conversation": "broken"})["mode"])

    assert say("go on") == "offline"
    settled.hub_model.script = lambda seen: Says(text="So it did.")
    settled.bring_back()
    wait_for(lambda: say("is it so?") == "online", what="the hub to be found again")
    assert settled.own_model.requests[0].said("assistant") == [came]
    known = settled.hub_model.requests[-1].said("user")
    assert came in known[0]
    assert "It broke off there." in known[1]
