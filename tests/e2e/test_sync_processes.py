"""What was said at a spoke and at its hub while they were apart, and one of them is killed while they sync.

The same conversation goes on at both. Each has more to tell than fits into one message, so that a sync has
a middle; a wire between the two stands still there, and the test sees in both databases that it is so.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, Literal, NamedTuple

import pytest

from tests.e2e.house import House, Spoke, rows, wait_for
from tests.e2e.talks import own_model
from tests.e2e.wire import SYNC, Wire
from tests.model_server import Says, ScriptedModel
from tests.spoke.talk import SPOKEN_JOURNAL

pytestmark = pytest.mark.slow

Side = Literal["hub", "spoke"]

LONG: Final = " ".join(["word"] * 5_900)
"""With the answer to it three entries of a history; a message of a sync holds some twelve such."""
TOLD: Final[dict[Side, int]] = {"hub": 6, "spoke": 9}
"""Long messages; with their answers they fill two messages of a sync, and three."""


class Said(NamedTuple):
    """One entry of a history, as both databases have it."""

    at: str
    origin: str
    seq: int
    turn: str
    kind: str
    text: str
    mode: str | None


@dataclass
class Apart:
    """A hub and a spoke with a wire between them, and a conversation that goes on at both.

    Attributes:
        said: The messages of the person at each of the two.
    """

    house: House
    spoke: Spoke
    wire: Wire
    conversation: str = ""
    said: dict[Side, list[str]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    def begin(self) -> None:
        """Let another conversation go on at both sides while they cannot reach each other."""
        self.conversation, self.said = f"talk{next(self.numbers)}", {"hub": [], "spoke": []}
        self.wire.is_cut = True
        for number in range(max(TOLD.values())):
            if number < TOLD["hub"]:
                self.say("hub", f"hub {number} {LONG}", mode="online")
            self.say("spoke", f"spoke {number} {LONG}", mode="offline")

    def set_off(self) -> None:
        """Say something to the spoke that it needs no hub to answer; after that, it syncs."""
        self.say("spoke", f"write down {self.conversation} {len(self.said['spoke'])}", mode="sentence")

    def say(self, side: Side, message: str, *, mode: str) -> None:
        """Say something, and wait until all of it is kept."""
        self.said[side].append(message)
        body = {"message": message, "conversation": self.conversation}
        answer = self.spoke.ask("/api/chat", body) if side == "spoke" else self.house.ask("/api/chat", body)
        assert answer["mode"] == mode
        # A person has the answer before it is written down.
        wait_for(lambda: len(texts(self.has(side), "answer")) >= len(self.said[side]), what="all to be kept")

    def has(self, side: Side) -> list[Said]:
        """What the two have of the conversation, in order."""
        if side == "hub":
            query = "SELECT at, origin, seq, turn, kind, text, mode FROM history_entry WHERE conversation = ?"
            return sorted(Said(*row) for row in rows(self.house.database, query, self.conversation))
        query = "SELECT body FROM entry WHERE conversation = ?"
        found = [json.loads(body) for (body,) in rows(self.spoke.history, query, self.conversation)]
        return sorted(Said(*(entry[name] for name in Said._fields)) for entry in found)

    def kill(self, victim: Side) -> None:
        """Kill one of the two, and start it again."""
        self.house.kill("hub" if victim == "hub" else self.spoke.id)
        self.wire.let_go(lost=True)
        if victim == "hub":
            self.house.start_hub()
        else:
            self.house.start_spoke(self.spoke)


def texts(entries: list[Said], kind: str) -> list[str]:
    """Give the questions or the answers in these entries, each put together, in the order of their turns."""
    found: dict[tuple[str, str], str] = {}
    for entry in entries:
        if entry.kind == kind:
            key = (entry.turn, entry.origin)
            found[key] = found.get(key, "") + entry.text
    return list(found.values())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path) -> Iterator[Apart]:
    directory = tmp_path_factory.mktemp("sync") / "house"
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
    """Hub and spoke, each with news for the other that fills several messages."""
    pair.begin()
    yield pair
    pair.wire.let_go()


@pytest.mark.parametrize("victim", ["hub", "spoke"])
@pytest.mark.parametrize(
    ("side", "passed"),
    [("request", 0), ("answer", 0), ("request", 1), ("answer", 1)],
    ids=["before the first", "first not confirmed", "between two", "second not confirmed"],
)
def test_who_is_killed_in_the_middle_of_a_sync_loses_nothing_and_doubles_nothing(
    apart: Apart, side: Literal["request", "answer"], passed: int, victim: Side
) -> None:
    hold = apart.wire.hold(SYNC, side, after=passed)
    apart.wire.is_cut = False
    apart.set_off()
    hold.wait()
    at_hub, at_spoke = set(apart.has("hub")), set(apart.has("spoke"))
    shared = at_hub & at_spoke
    assert bool(shared) == (side == "answer" or passed > 0)
    assert at_hub - shared, "the hub has something that the spoke lacks"
    assert at_spoke - shared, "the spoke has something that the hub lacks"

    apart.kill(victim)
    if victim == "hub":
        # The spoke would find out by itself, but in its own time.
        apart.set_off()
    wait_for(lambda: apart.has("hub") == apart.has("spoke"), what="both to have the same")

    everything = apart.has("hub")
    assert len(set(everything)) == len(everything)
    assert set(everything) >= at_hub | at_spoke
    asked, answered = texts(everything, "question"), texts(everything, "answer")
    for said in apart.said.values():
        assert [text for text in asked if text in said] == said
    assert len(asked) == len(answered) == sum(map(len, apart.said.values()))
    for place, number in TOLD.items():
        assert answered.count(f"Heard by the {place}.") == number
    done = [line for line in apart.spoke.journal() if line.startswith(f"{apart.conversation} ")]
    assert [f"write down {line}" for line in done] == apart.said["spoke"][TOLD["spoke"] :], (
        "each was done once"
    )
