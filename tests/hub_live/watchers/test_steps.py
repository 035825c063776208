"""Watchers that ask no model: texts and calls in their order, with delays, at most once."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select, update

from contracts.errors import StorageError
from contracts.rates import TokenBuckets
from hub_live.watchers.decisions.evaluation import Evaluations
from hub_live.watchers.decisions.store import WatcherStore
from hub_live.watchers.tables import WatcherRow
from hub_registry.storage.store import open_store
from hub_registry.storage.tables import now
from tests.hub_agent.home import Home, open_home
from tests.hub_live.watchers.watching import STOP, CameraSkill, Watching, decides, script
from tests.hub_registry.spokes import eventually
from tests.hub_server.test_http_direct_calls import call, post
from tests.model_server import ScriptedModel

LIGHT = "devices.nas.CameraSkill.light"
FULL = {"notify": "Disk at {disk} %"}


async def _add(watching: Watching, *then: Any, **more: Any) -> Any:
    return await watching.add(
        **{
            "instruction": None,
            "on_change": None,
            "allow": None,
            "predicate": "disk > 95",
            "then": then,
            **more,
        }
    )


async def test_texts_and_calls_are_done_in_their_order_without_a_model(watching: Watching) -> None:
    made = await _add(watching, FULL, {"call": STOP, "arguments": {"node": "camera"}}, {"notify": "Stopped."})
    assert (made["state"], made["model_calls"], made["allow"][0]["path"]) == ("active", 0, STOP)
    await watching.disk(99.5)
    [entry] = await watching.decided(1)
    assert (entry["decision"], entry["seen"], entry["tokens"]) == ("act", {"disk": 99.5}, 0)
    assert [each["outcome"] for each in entry["actions"]] == ["result"]
    assert await watching.notes() == ["Disk at 99.5 %", "Stopped."]
    await watching.disk(99)
    await watching.disk(10)
    await watching.disk(96)
    await watching.decided(2)
    assert watching.camera.stopped == ["camera", "camera"]
    assert (await watching.show())["fired"] == 2
    report = await watching.ask("POST", "/full/test", {"since": "1h", "model": True})
    assert report["fired"] == 2
    assert report["would_have_fired"][0]["decision"]["actions"][0]["path"] == STOP


async def test_a_step_waits_begins_again_with_the_condition_and_ends_with_it_if_wished(
    watching: Watching,
) -> None:
    off = {"call": LIGHT, "arguments": {"level": 0}, "after": "1s"}
    still = {"notify": "Still {disk}", "after": "1s", "if_still": True}
    await _add(watching, {"call": LIGHT, "arguments": {"level": 100}}, off, predicate="changed(disk)")
    await _add(watching, {"notify": "Full"}, still, name="alarm")
    for value in (1, 96, 97):
        await watching.disk(value)
    assert (await watching.show())["next_step_at"] is not None
    await watching.decided(2, "alarm")
    await eventually(lambda: watching.camera.levels == [100, 100, 0])
    assert await watching.notes() == ["Full", "Still 97"]
    # It is over before its second step is due.
    await watching.disk(1)
    await watching.disk(99)
    await watching.decided(3, "alarm")
    await watching.disk(2)
    assert (await watching.show("alarm"))["next_step_at"] is None


async def test_a_step_that_came_while_the_hub_was_stopped_is_done_once_its_device_is_back(
    tmp_path: Path,
) -> None:
    camera = CameraSkill()
    off = {"call": LIGHT, "arguments": {"level": 0}}
    steps = [{"notify": "On"}, {"notify": "Off", "after": "1h"}, off]
    body = {"name": "lamp", "predicate": 'time >= "00:00"', "then": steps}

    async def notes(home: Home) -> list[str]:
        events = await home.hub.live.events.after(0, user=None, kinds=["notification"])
        return [str(event.data["text"]) for event in events]

    async with open_home(tmp_path / "home") as home, home.client() as client:
        nas = await home.device("nas", camera)
        assert (await client.post("/api/watchers", json=body)).json()["state"] == "active"

        async def is_on() -> bool:
            return await notes(home) == ["On"]

        await eventually(is_on)
    async with open_store(tmp_path / "home" / "hub" / "hub.db") as store:
        [row] = await store.read(lambda session: list(session.exec(select(WatcherRow))))
        assert row.step == 1
        assert timedelta(minutes=59) < row.step_at - now() < timedelta(hours=1)
        past = update(WatcherRow).values(step_at=now() - timedelta(hours=1))
        await store.write(lambda session: session.exec(past))
    async with open_home(tmp_path / "home") as home:

        async def is_off() -> bool:
            return await notes(home) == ["On", "Off"]

        await eventually(is_off)
        assert camera.levels == []
        await home.again(nas, camera)
        await eventually(lambda: camera.levels == [0])


async def test_what_cannot_be_done_is_refused_when_it_is_made(watching: Watching) -> None:
    call = {"call": STOP}
    wrongs: list[tuple[str, dict[str, Any]]] = [
        ("a step has either notify or call", {"then": [{}]}),
        ("a step has either notify or call", {"then": [{**call, **FULL}]}),
        ("'soon' is not a duration", {"then": [{**FULL, "after": "soon"}]}),
        ("is not between 1s and 31d", {"then": [{**FULL, "after": "99w"}]}),
        ("if_still needs after", {"then": [{**FULL, "if_still": True}]}),
        ("{dsk} in a text is none of the topics; did you mean 'disk'?", {"then": [{"notify": "{dsk} %"}]}),
        ("steps in then need a predicate or a schedule", {"predicate": None, "then": [FULL]}),
        ("allow is for a model", {"then": [FULL], "allow": [{"path": STOP}]}),
        (
            "a step has one value for each argument",
            {"then": [{**call, "arguments": {"node": {"enum": ["a"]}}}]},
        ),
        ("has no parameter 'nod'", {"then": [{**call, "arguments": {"nod": "a"}}]}),
        ("sun depends on where the household is", {"then": [FULL], "predicate": 'sun == "up"'}),
        ("a watcher needs an instruction for a model, or steps in then", {}),
    ]
    for message, wrong in wrongs:
        body = {"name": "x", "topics": {"disk": watching.topic()}, "predicate": "disk > 95", **wrong}
        response = await watching.client.post("/api/watchers", json=body)
        assert message in response.json().get("detail", ""), response.json()
    assert await watching.ask("GET") == []


async def test_its_calls_need_approval_as_those_of_a_model(watching: Watching) -> None:
    program = await watching.home.token(scopes=("chat", "call"))
    unlock = {"call": "devices.nas.CameraSkill.unlock"}
    async with watching.home.client(program) as other:
        assert (await _add(watching, unlock, client=other))["state"] == "draft"
        assert await watching.ask("POST", "/full/approve", client=other) == "forbidden"
        [held] = await watching.ask("GET", "/full/trace", client=other)
        assert held["outcome"] == "it is a draft: it waits for an approval"
    assert (await watching.ask("POST", "/full/approve"))["state"] == "active"
    await watching.disk(96)
    await watching.decided(1)
    assert watching.camera.unlocked == 1
    changed = await watching.ask("PATCH", "/full", {"then": [unlock, {**unlock, "after": "1s"}]})
    assert (changed["state"], len(changed["allow"])) == ("draft", 2)


async def test_a_call_that_fails_or_is_beyond_the_limit_is_told_and_the_rest_is_done(
    watching: Watching,
) -> None:
    light = {"call": LIGHT, "arguments": {"level": 1}}
    await _add(watching, light, light, FULL, actions_per_hour=1)
    await watching.disk(96)
    await watching.decided(1)
    assert watching.camera.levels == [1]
    text, failed = await watching.notes()
    assert (text, "limit of actions per hour is used up" in failed) == ("Disk at 96 %", True)
    await _add(watching, light, FULL, name="dry", dry_run=True)
    [entry] = await watching.decided(1, "dry")
    assert (entry["actions"][0]["outcome"], watching.camera.levels) == ("dry_run", [1])
    assert "Told: Disk at 96 %" in (await watching.notes())[-1]


async def test_nothing_is_done_that_cannot_be_recorded_and_the_alarm_is_told_all_the_same(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _add(watching, {"call": LIGHT, "arguments": {"level": 1}})

    async def full(*_: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(WatcherStore, "record", full)
        await watching.disk(96)
        await eventually(watching.notes)
    assert watching.camera.levels == []
    assert (await watching.notes())[0].startswith("Because System disk (nas, 96) is above 95, since ")


async def test_a_schedule_does_its_steps(watching: Watching) -> None:
    await _add(
        watching, {"notify": "Wake up"}, topics={}, predicate='time >= "00:00"', schedule="every minute"
    )
    row = watching.home.hub.live.watchers.rows["full"]
    row.next_at = now() - timedelta(seconds=1)
    await watching.decided(1)
    assert (await watching.notes(), (await watching.show())["fired"]) == (["Wake up"], 1)
    never = {"topics": {}, "predicate": 'time < "00:00"', "schedule": "every minute"}
    await _add(watching, {"notify": "Never"}, name="never", **never)
    watching.home.hub.live.watchers.rows["never"].next_at = now() - timedelta(seconds=1)

    async def is_held() -> bool:
        trace = await watching.ask("GET", "/never/trace")
        return any(each["outcome"] == "its time came, and the condition was false" for each in trace)

    await eventually(is_held)


async def test_a_name_is_any_text_and_a_state_is_named_as_the_world_prints_it(watching: Watching) -> None:
    await watching.disk(50)
    world = {"topics": ["devices.nas.SystemSkill.disk"]}
    made = await _add(watching, FULL, name="Kühlschrank: zu warm!", **world)
    assert (made["name"], made["state"]) == ("kuhlschrank_zu_warm", "active")
    assert made["title"] == "Kühlschrank: zu warm!"
    renamed = await watching.ask("PATCH", "/Kühlschrank: zu warm!", {"title": "Fridge  is warm"})
    assert (renamed["name"], renamed["title"]) == (made["name"], "Fridge is warm")
    paused = await watching.ask("POST", "/fridge is warm/pause")
    assert (paused["title"], paused["state"]) == ("Fridge is warm", "paused")
    event = (await watching.home.hub.live.events.after(0, user=None, kinds=["watcher"]))[-1]
    assert (event.subject, event.data["title"]) == (made["name"], "Fridge is warm")
    assert made["topics"]["disk"]["topic"] == watching.topic()
    shown = await watching.client.get("/api/watchers/Kühlschrank: zu warm!")
    assert shown.json()["name"] == made["name"]
    nobody = {
        "name": "c",
        "topics": ["devices.nsa.SystemSkill.disk"],
        "predicate": "disk > 1",
        "then": [FULL],
    }
    response = await watching.client.post("/api/watchers", json=nobody)
    assert "nas" in response.json()["hint"]


async def test_the_assistant_makes_one_that_the_person_confirms(watching: Watching) -> None:
    await watching.disk(50)
    made = call(
        "hub",
        "WatcherSkill.create_watcher",
        name="Platte voll",
        topics=["devices.nas.SystemSkill.disk"],
        predicate="disk > 95",
        then=[FULL, {"call": STOP}],
    )
    status, error = await post(watching.client, made)
    assert (status, error["arguments"]["actions"]) == (409, [FULL, {"call": STOP}])
    status, watcher = await post(watching.client, {**made, "confirmation": error["confirmation"]})
    assert (status, watcher["state"]) == (200, "active")
    await watching.disk(96)
    await watching.decided(1, "platte_voll")
    assert watching.camera.stopped == ["camera"]


@pytest.mark.parametrize(("during", "by_model"), [("objection", False), ("make", False), ("make", True)])
async def test_a_watcher_that_was_changed_meanwhile_does_nothing_more(
    watching: Watching, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, during: str, by_model: bool
) -> None:
    light: dict[str, Any] = {"arguments": {"level": 1}}
    if by_model:
        calls = [{"call": LIGHT, **light}, {"call": STOP}]
        model.script = script(decides("act", calls=calls))
        await watching.add(predicate="disk > 95", allow=[{"path": LIGHT, **light}, {"path": STOP}])
    else:
        await _add(watching, {"call": LIGHT, **light}, {"call": STOP})
    real, reached, go_on = getattr(Evaluations, during), asyncio.Event(), asyncio.Event()

    async def held(*arguments: Any) -> Any:
        found = await real(*arguments)
        reached.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(Evaluations, during, held)
    await watching.disk(99)
    await asyncio.wait_for(reached.wait(), 10)
    unlock = {"call": "devices.nas.CameraSkill.unlock"}
    assert (await watching.ask("PATCH", "/full", {"then": [unlock]}))["state"] == "draft"
    go_on.set()
    [entry] = await watching.decided(1)
    assert (watching.camera.unlocked, watching.camera.stopped) == (0, [])
    left = entry["actions"][-1]
    assert (left["outcome"], left["error"]) == ("skipped", "the watcher was changed meanwhile")


async def test_a_person_who_runs_it_in_a_loop_is_stopped_by_the_limit_of_its_runs(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    buckets = TokenBuckets(burst=2, per_second=0.001)
    monkeypatch.setattr(watching.home.hub.live.watchers.evaluations.limits, "_runs", buckets)
    await _add(watching, {"call": LIGHT, "arguments": {"level": 1}})
    answers = [await watching.ask("POST", "/full/run") for _ in range(3)]
    assert [answers[0]["decision"], answers[1]["decision"], answers[2]] == ["act", "act", "rate_limited"]
    assert watching.camera.levels == [1, 1]
