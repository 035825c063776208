"""The trace of a watcher: why it did something or nothing, with the parts of its condition."""

from typing import Any

import pytest

from hub_live.watchers.predicates import parse
from tests.hub_live.watchers.watching import STOP, Watching
from tests.hub_registry.spokes import eventually


async def _trace(watching: Watching) -> list[Any]:
    return list(reversed(await watching.ask("GET", "/full/trace")))


async def test_the_trace_says_what_held_a_watcher_up(watching: Watching) -> None:
    rule: dict[str, Any] = {
        "topics": {"disk": watching.topic(), "door": watching.topic("door")},
        "predicate": 'disk > 95 and door == "open"',
        "then": [{"call": STOP}, {"notify": "Late", "after": "1h", "if_still": True}],
    }
    await watching.add(**rule, instruction=None, on_change=None, allow=None, actions_per_hour=1)
    for value in (96, 97):
        await watching.disk(value)
    [_, unknown] = await _trace(watching)
    assert unknown["outcome"].endswith("there is no value of door yet")
    assert (unknown["count"], unknown["values"]) == (2, {"disk": 97})
    assert [(each["text"], each["truth"]) for each in unknown["parts"]] == [
        ("**System disk** (nas) is above **95**", True),
        ("**System door** (nas) is **open**", None),
    ]
    for count, door in enumerate(("closed", "open", "closed", "open"), 1):
        await watching.disk(door, "door")
        await watching.decided(count // 2)
    await watching.disk(98)
    # A call needs no new approval where only the name is another.
    assert (await watching.ask("PATCH", "/full", {"title": "Tank"}))["state"] == "active"
    await watching.ask("POST", "/full/pause")
    looks = (await _trace(watching))[2:]
    outcomes = [each["outcome"] for each in looks]
    fired = "the condition became true"
    assert [outcomes[0], outcomes[1], outcomes[3], outcomes[4]] == [
        "the condition is false",
        fired,
        "the condition is false; the step that waited is dropped",
        fired,
    ]
    assert (outcomes[2], outcomes[5]) == ("acted", "acted")
    made = [looks[2]["actions"][0], looks[5]["actions"][0]]
    assert {(each["path"], each["said"]) for each in made} == {(STOP, "**Camera: Stop** (nas)")}
    assert (made[0]["outcome"], made[1]["error"]) == ("result", "the limit of actions per hour is used up")
    assert outcomes[6:] == [
        "the condition is still true: it was not false since it became true",
        "it is paused",
    ]


async def test_a_condition_that_must_hold_and_one_that_ran_too_often_say_so(watching: Watching) -> None:
    told: dict[str, Any] = {
        "instruction": None,
        "on_change": None,
        "allow": None,
        "then": [{"notify": "Full"}],
    }
    await watching.add(**told, predicate='disk > 95 for "1h"')
    await watching.disk(96)
    assert (await _trace(watching))[-1]["outcome"] == "the condition is not true for 3600 s yet"
    await watching.add(**told, name="often", predicate="changed(disk)")
    limits = watching.home.hub.live.watchers.evaluations.limits
    often = watching.home.hub.live.watchers.rows["often"]
    while limits.take_evaluation(often):
        pass
    await watching.disk(97)

    async def waits() -> bool:
        trace = await watching.ask("GET", "/often/trace")
        return any("it ran too often in a short time" in each["outcome"] for each in trace)

    await eventually(waits)


@pytest.mark.parametrize(
    "text",
    [
        'not (a == "on" or b) and (a + b) * 2 > 5',
        'time >= "22:00" and age(a) > "5m" and mean(b, "10m") < 4.5',
        "a and not changed(b)",
    ],
)
def test_a_condition_is_shown_as_it_is_written(text: str) -> None:
    assert parse(text, ["a", "b"]).root.source == text
