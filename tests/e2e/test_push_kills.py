"""What was said at a spoke without its hub, and one of the two is killed while it is pushed.

A spoke has more to push than fits into one request, so that a push has a middle; a wire between the two holds
a request or an answer there, and the test sees in both databases that it is so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, Literal

import pytest

from tests.e2e.house import House, Spoke, rows, wait_for
from tests.e2e.talks import own_model
from tests.e2e.wire import PUSH, Wire
from tests.model_server import Says, ScriptedModel
from tests.spoke.talk import SPOKEN_JOURNAL

pytestmark = pytest.mark.slow

Side = Literal["hub", "spoke"]

LONG: Final = " ".join(["word"] * 6_000)
"""A push takes eight turns with such a message."""
TURNS: Final = 11


@dataclass
class Apart:
    """A hub and a spoke with a wire between them, and a conversation that goes on at the spoke.

    Attributes:
        said: The messages of the person at the spoke.
    """

    house: House
    spoke: Spoke
    wire: Wire
    conversation: str = ""
    said: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)

    def begin(self) -> None:
        """Hold a conversation at the spoke while it cannot reach the hub."""
        self.conversation, self.said = f"talk{next(self.numbers)}", []
        self.wire.is_cut = True
        for number in range(TURNS):
            self.say(f"message {number} {LONG}", mode="offline")

    def say_sentence(self) -> None:
        """Say something that the spoke answers by itself; it pushes after that."""
        self.say(f"write down {self.conversation} {len(self.said)}", mode="sentence")

    def say(self, message: str, *, mode: str) -> None:
        self.said.append(message)
        body = {"message": message, "conversation": self.conversation}
        assert self.spoke.ask("/api/chat", body)["mode"] == mode

    def at_hub(self) -> list[tuple[str, str]]:
        """Questions and answers in the hub's record, in order."""
        query = "SELECT question, answer FROM turn WHERE conversation = ? ORDER BY at"
        return [
            (question, answer) for question, answer in rows(self.house.database, query, self.conversation)
        ]

    def in_outbox(self) -> int:
        """How many turns the spoke has still to push."""
        query = "SELECT count(*) FROM turn WHERE conversation = ? AND in_outbox"
        return int(rows(self.spoke.conversations, query, self.conversation)[0][0])

    def kill(self, victim: Side) -> None:
        """Kill one of the two, and start it again."""
        self.house.kill("hub" if victim == "hub" else self.spoke.id)
        self.wire.let_go(lost=True)
        if victim == "hub":
            self.house.start_hub()
        else:
            self.house.start_spoke(self.spoke)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path) -> Iterator[Apart]:
    directory = tmp_path_factory.mktemp("push") / "house"
    with (
        ScriptedModel(lambda seen: Says(text="Heard by the hub.")) as model,
        ScriptedModel(lambda seen: Says(text="Heard by the spoke.")) as own,
        House(directory, sandbox=sandbox_files) as house,
    ):
        house.use_model(model.base_url)
        house.start_broker()
        house.start_hub()
        with Wire(house.url) as wire:
            skills = {"journal.py": SPOKEN_JOURNAL}
            spoke = house.add_spoke("Kitchen Pi", skills, settings=own_model(own), hub=wire.url)
            yield Apart(house, spoke, wire)
        assert model.refused == own.refused == []


@pytest.fixture
def apart(pair: Apart) -> Iterator[Apart]:
    """Hub and spoke, with turns to push that fill two requests."""
    pair.begin()
    yield pair
    pair.wire.let_go()


@pytest.mark.parametrize("victim", ["hub", "spoke"])
@pytest.mark.parametrize(
    ("side", "passed"),
    [("request", 0), ("answer", 0), ("request", 1), ("answer", 1)],
    ids=["before the first", "first not confirmed", "between two", "second not confirmed"],
)
def test_a_kill_in_the_middle_of_a_push_loses_nothing_and_doubles_nothing(
    apart: Apart, side: Literal["request", "answer"], passed: int, victim: Side
) -> None:
    hold = apart.wire.hold(PUSH, side, after=passed)
    apart.wire.is_cut = False
    apart.say_sentence()
    hold.wait()
    stored = len(apart.at_hub())
    assert (stored > 0) == (side == "answer" or passed > 0)
    # What the hub has and did not confirm is still to be pushed.
    assert apart.in_outbox() + stored > len(apart.said) - (side == "request")

    apart.kill(victim)
    if victim == "hub":
        # The spoke would find out by itself, but in its own time.
        apart.say_sentence()
    wait_for(lambda: not apart.in_outbox(), what="everything to be pushed")

    recorded = apart.at_hub()
    assert [question for question, _ in recorded] == apart.said
    assert [answer for _, answer in recorded[:TURNS]] == ["Heard by the spoke."] * TURNS
    done = [line for line in apart.spoke.journal() if line.startswith(f"{apart.conversation} ")]
    assert [f"write down {line}" for line in done] == apart.said[TURNS:], "each was done once"
