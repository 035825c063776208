"""One enrolled device does its worst while a person chats, calls and confirms: the person notices nothing."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adversary.device import Credentials
from tests.adversary.person import attacked, home_of_a_person, live, percentile, person_of
from tests.adversary.watched import MOST_S, longest, rounds
from tests.e2e.house import House, Spoke
from tests.forkserver import WATCHED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="the house is of processes that are forked"),
]

SECONDS = float(os.environ.get("STRAWBERRY_ADVERSARY_SECONDS", "8"))


@pytest.fixture
def home(tmp_path: Path, sandbox_files: Path) -> Iterator[tuple[House, Spoke]]:
    """A home with a bell and a lock, whose servers are watched."""
    with home_of_a_person(tmp_path / "house", sandbox_files, servers=WATCHED) as made:
        yield made


async def test_a_device_that_does_its_worst_reads_answers_and_confirms_nothing_of_a_person(
    home: tuple[House, Spoke],
) -> None:
    house, spoke = home
    credentials = Credentials.enrol(house, "Mad Pi")
    async with person_of(house, spoke) as person:
        # Who begins a conversation has it; a device that begins one under this name would have it.
        await person.act(0)
        begun = person.acts
        with attacked(house, credentials, SECONDS + 5) as adversary:
            acts = [*begun, *await live(person, SECONDS)]
            spoils = adversary.end()
        said = (await person.http.get("/api/conversations/kitchen?limit=1000")).json()
    failed = [act for act in acts if act.problem]
    long = {name: longest(rounds(house.home, house.processes[name].pid)) for name in ("hub", "broker")}
    sys.stdout.write(
        f"p50 {percentile(acts, 0.5):.3f} s, p99 {percentile(acts, 0.99):.3f} s of {len(acts)} acts\n"
    )
    sys.stdout.write(f"longest rounds: {long['hub']}{long['broker']}{spoils.tried}\n")

    for name in house.processes:
        house.ended(name)
    assert failed == [], "all that the person does works"
    for name, found in long.items():
        assert found.blocked_s <= MOST_S, f"the loop of the {name} was blocked: {found}"
    assert spoils.read == []
    assert spoils.called == []
    assert spoils.confirmed == []
    unlocked = spoke.journal().count("unlocked")
    assert unlocked == sum(act.kind == "confirm" for act in acts), "only the person unlocked the door"
    questions = [each["question"] for each in said["exchanges"]]
    assert len(questions) == sum(act.kind == "ask" for act in acts), "the conversation is the person's own"
    assert "Traceback" not in house.log("hub")
