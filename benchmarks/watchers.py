"""Watchers: what false predicates cost a hub, and how soon one without a model acts."""

import asyncio
import statistics
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import crowd
from benchmarks.measure import Effort, sandbox_directory
from benchmarks.table import Reach, Row, not_measured
from bus.link import Link, LinkSettings, open_link
from contracts import topics
from contracts.devices.presence import State
from contracts.errors import SandboxError
from identity.keys import KeyPair
from sandbox_host import install
from tests.e2e.house import House, wait_for
from tests.model_server import Says, ScriptedModel
from tests.mosquitto import HINT, Mosquitto, find_mosquitto

_WATCHERS: Final = 200
_VALUES: Final = 500
"""Topics, each with one value a second."""
_SECONDS: Final = 20
_RULES: Final = 25
"""Fewer than a watcher may do at once."""
_BETWEEN_S: Final = 0.1
_LAMP: Final = '''
import time

from spoke import Skill, skill_method


class LampSkill(Skill):
    """A lamp, and the clock that all processes of one machine share."""

    def __init__(self) -> None:
        self.called = []

    @skill_method()
    async def sense(self, value: float) -> float:
        """Publish a value; return when."""
        at = time.perf_counter()
        self.state("motion", value)
        return at

    @skill_method()
    async def turn_on(self) -> None:
        """Note the time."""
        self.called.append(time.perf_counter())

    @skill_method(read_only=True)
    async def times(self) -> list[float]:
        """Return when it was called, once."""
        called, self.called = self.called, []
        return called
'''
_IDLE_S: Final = 5
_SETTLE_S: Final = 3

_WARM_UP_S: Final = 6
"""Longer than the short windows, out of which values then go as others come."""

_PREDICATES: Final = (
    'a > 95 and mean(a, "10m") > 90',
    'mean(a, "5s") > 90',
    'changed(b) and age(a) > "5m"',
    'count(a, "5s") >= 100 for "2m"',
    'max(a, "5s") - min(b, "5s") > 500',
)


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; takes half a minute."""
    if find_mosquitto() is None:
        return [not_measured("watchers over Mosquitto", HINT)]
    try:
        await install(sandbox_directory())
    except SandboxError as error:
        return [not_measured("watchers over Mosquitto", f"{error.message} {error.hint}")]
    (directory / "mosquitto").mkdir()
    with (
        Mosquitto(directory / "mosquitto") as mosquitto,
        ScriptedModel(lambda _: Says(text="It is done.")) as model,
        House(directory / "house", sandbox=sandbox_directory(), debug=False) as house,
    ):
        house.use_model(model.base_url)
        house.broker_url, house.hub_flags = mosquitto.url, ("--trust-broker",)
        (house.home / "hub").mkdir(mode=0o700)
        # What a device that has not joined publishes is shown to no person.
        meters = [crowd.Spoke(_meter(number), KeyPair.generate()) for number in range(effort.size(_VALUES))]
        await crowd.enrol(house.home / "hub" / "hub.db", meters)
        await asyncio.to_thread(house.start_hub)
        settings = LinkSettings(urls=(mosquitto.url,), client_id="values", topic_prefix=house.topic_prefix)
        async with open_link(settings) as link:
            rows = await _measured(house, link, model, effort)
            hops = await _two_hops(link, effort)
        return [*rows, *await asyncio.to_thread(_rule, house, effort, hops)]


async def _two_hops(link: Link, effort: Effort) -> float:
    """Return the seconds of two messages on the bare bus: a value, and then what it causes."""
    heard = asyncio.Event()
    stop = await link.subscribe(_topic(0), lambda _: heard.set())
    took = list[float]()
    for _ in range(effort.repeats(_RULES)):
        begun = time.perf_counter()
        for _ in range(2):
            heard.clear()
            await link.publish(_topic(0), b"0", qos=0)
            await heard.wait()
        took.append(time.perf_counter() - begun)
        await asyncio.sleep(_BETWEEN_S)
    await stop()
    return statistics.median(took)


def _rule(house: House, effort: Effort, hops: float) -> list[Row]:
    """Measure from a value to the call of a watcher without a model, and of direct calls of the method."""
    lamp = house.add_spoke("lamp", {"lamp.py": _LAMP})
    then = [{"call": f"devices.{lamp.id}.LampSkill.turn_on"}]
    topic = topics.STATE.build(device=lamp.id, skill="LampSkill", property="motion")
    rule = {"name": "rule", "topics": {"motion": topic}, "predicate": "motion == 1", "then": then}
    house.ask("/api/watchers", {**rule, "actions_per_hour": 1_000})

    def call(method: str, **given: float) -> Any:
        body = {"device": lamp.id, "skill": "LampSkill", "method": method, "kwargs": given}
        return house.ask("/api/skills/call", body)["result"]

    def called() -> float:
        return float(wait_for(lambda: call("times"), what="the call")[0])

    by_rule, direct = list[float](), list[float]()
    for _ in range(effort.repeats(_RULES)):
        call("sense", value=0)
        time.sleep(_BETWEEN_S)
        begun = call("sense", value=1)
        by_rule.append(called() - begun)
        time.sleep(_BETWEEN_S)
        begun = time.perf_counter()
        call("turn_on")
        direct.append(called() - begun)
    acts = 1_000 * statistics.median(by_rule)
    return [
        Row(
            "a value → the call of a watcher without a model, p50 (beside a direct call over HTTP)",
            acts,
            "ms",
            Reach(ratio_most=3),
            reference=1_000 * statistics.median(direct),
        ),
        Row("  the same, beside two messages on the bare bus", acts, "ms", reference=1_000 * hops),
    ]


async def _measured(house: House, link: Link, model: ScriptedModel, effort: Effort) -> list[Row]:
    hub = psutil.Process(house.processes["hub"].pid)
    watchers, values = effort.size(_WATCHERS), effort.size(_VALUES)
    seconds = effort.repeats(_SECONDS)
    await asyncio.sleep(_SETTLE_S)
    idle = await _share(hub, asyncio.sleep(effort.repeats(_IDLE_S)))
    for number in range(watchers):
        body = _watcher(number, values)
        await asyncio.to_thread(house.ask, "/api/watchers", body)
    await _publish(link, values, _WARM_UP_S)
    asked, before = len(model.requests), await _evaluations(house)
    begun = time.perf_counter()
    busy = await _share(hub, _publish(link, values, seconds))
    rate = values * seconds / (time.perf_counter() - begun)
    evaluated = await _evaluations(house) - before
    assert evaluated >= 0.9 * values * seconds, f"{evaluated} evaluations of {values * seconds} values"
    silent = await _share(hub, asyncio.sleep(effort.repeats(_IDLE_S)))
    name = f"{watchers} watchers on {rate:.0f} values a second, predicates false: hub CPU"
    return [
        Row(name, busy, "% of a core", Reach(most=25), reference=idle),
        Row("  the same watchers while no value comes", silent, "% of a core", Reach(most=3), reference=idle),
        Row("  questions to a model meanwhile", len(model.requests) - asked, "questions", Reach(most=0)),
    ]


def _watcher(number: int, values: int) -> dict[str, Any]:
    """Make a watcher of three values; all together see all of them."""
    seen = {name: {"topic": _topic((3 * number + place) % values)} for place, name in enumerate("abc")}
    return {
        "name": f"watcher{number}",
        "topics": seen,
        "instruction": "Tell me when something is wrong here.",
        "on_change": True,
        "predicate": _PREDICATES[number % len(_PREDICATES)],
    }


def _meter(number: int) -> str:
    return f"meter{number}"


def _topic(number: int) -> str:
    return topics.STATE.build(device=_meter(number), skill="MeterSkill", property="level")


async def _publish(link: Link, values: int, seconds: float) -> None:
    """Publish one value a second on each topic, spread over the second."""
    begun = time.perf_counter()
    for number in range(int(values * seconds)):
        state = State(value=40 + (7 * number) % 23 / 2, at=datetime.now(UTC))
        await link.publish(_topic(number % values), state.model_dump_json().encode(), qos=0)
        await asyncio.sleep(max(0.0, begun + number / values - time.perf_counter()))


async def _share(process: psutil.Process, work: Awaitable[None]) -> float:
    """Return the share of a core that a process takes while something is done, in percent."""

    def used() -> float:
        times = process.cpu_times()
        return times.user + times.system

    begun, before = time.perf_counter(), used()
    await work
    return 100 * (used() - before) / (time.perf_counter() - begun)


async def _evaluations(house: House) -> int:
    shown = await asyncio.to_thread(house.ask, "/api/watchers")
    return sum(each["evaluations"] for each in shown)
