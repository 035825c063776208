"""Broker, hub and spokes killed and frozen at random under load: every answer is true, and all is back."""

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.directory import Home
from tests.chaos.household import (
    BACK_S,
    Command,
    Foreign,
    Household,
    Victim,
    add_spokes,
    eventually,
    tell,
    write_skills,
)
from tests.chaos.load import KINDS, LOOK, PAUSE_S, Kind, Load, judge, read_journals
from tests.chaos.schedule import draw
from tests.e2e.house import House
from tests.e2e.secured import ADMIN_PASSWORD, Secured
from tests.forkserver import OBSERVED
from tests.mosquitto import HINT, find_mosquitto
from tests.requirements import require

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot freeze a process"),
]

SECONDS = float(os.environ.get("STRAWBERRY_CHAOS_SECONDS", "10"))
SEED = int(os.environ.get("STRAWBERRY_CHAOS_SEED", random.SystemRandom().randrange(2**32)))
SPOKES = 20 if SECONDS > 60 else 8
IN_FLIGHT = 32


@pytest.fixture(params=["embedded", "mosquitto"])
def household(request: pytest.FixtureRequest, tmp_path: Path, sandbox_files: Path) -> Iterator[Household]:
    """A hub with many spokes on a broker of each kind."""
    with ExitStack() as stack:
        house = stack.enter_context(House(tmp_path / "house", sandbox=sandbox_files))
        house.program = OBSERVED
        broker: Victim
        if request.param == "embedded":
            house.start_broker()
            broker = Command(house, "broker", house.home)
        else:
            require(find_mosquitto() is not None, HINT)
            secured = stack.enter_context(Secured(tmp_path / "mosquitto"))
            done = house.cli("broker", "provision", secured.url, STRAWBERRY_BROKER_PASSWORD=ADMIN_PASSWORD)
            assert done.returncode == 0, done.stderr
            house.broker_url = secured.url
            broker = Foreign(secured)
        house.start_hub()
        spokes = add_spokes(house, SPOKES, skills=write_skills(tmp_path / "skills"))
        victims = {name: Command(house, name, home) for name, home in spokes.items()}
        hub = Command(house, "hub", house.home)
        yield Household(house, {"broker": broker, "hub": hub, **victims}, spokes)


async def test_every_call_under_random_kills_is_answered_honestly_and_none_runs_twice(
    household: Household,
) -> None:
    blows = draw(SEED, seconds=SECONDS, spokes=list(household.spokes))
    again = f"STRAWBERRY_CHAOS_SEED={SEED} STRAWBERRY_CHAOS_SECONDS={SECONDS:g} strikes again:"
    tell(again, *blows)
    load = Load(
        ports=[household.house.http_port],
        token=Home(household.house.home).token_file.read_text().strip(),
        devices=list(household.spokes),
        seed=SEED,
    )
    await household.all_online()
    await all_answer(load)
    await call_each(load)
    before = household.look()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.run(IN_FLIGHT), name="load")
        await household.suffer(blows)
        load.stop()

    tell(Counter(f"{call.kind.skill}.{call.kind.method} {call.code}" for call in load.answered))
    await household.all_online()
    await all_answer(load)
    await call_each(load)
    journal = read_journals(household.spokes.values())
    assert judge(load.answered, journal) == []
    assert household.unexplained(load.answered) == []
    assert household.tracebacks() == []
    tell(*(f"{name} before and after: {before[name]}, {now}" for name, now in household.look().items()))
    await eventually(lambda: household.growth(before), what="every process to be as small as it was")


async def all_answer(load: Load) -> None:
    """Ask every device until it answers: the hub may have taken one for there that is on its way back."""
    for device in load.devices:
        await until_answered(load, device, LOOK)


async def call_each(load: Load) -> None:
    """Call every method on every device; all must answer."""
    for device in load.devices:
        for kind in KINDS:
            await until_answered(load, device, kind)


async def until_answered(load: Load, device: str, kind: Kind) -> None:
    """Call a method until there is a result; each answer before that must be as true as any other."""
    deadline = time.monotonic() + BACK_S
    while (answered := await load.call(device, kind, 0.0)).code != "result":
        load.answered.append(answered)
        assert time.monotonic() < deadline, str(answered)
        await asyncio.sleep(PAUSE_S)
    load.answered.append(answered)
