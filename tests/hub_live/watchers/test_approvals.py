"""What is approved for a watcher stays what a person has said, whatever a model reads."""

import asyncio
import os

import pytest

from hub_live.watchers.decisions.approved import ApprovedCall
from hub_registry.access.bearer import Bearer
from tests.forkserver import COMMAND
from tests.hub_agent.home import Home
from tests.hub_agent.skills import FeedSkill
from tests.hub_live.watchers.watching import STOP, Watching, decides, script, stops
from tests.model_server import Says, ScriptedModel, calls


async def test_text_of_strangers_neither_wakes_nor_silences_a_watcher(
    thinking: Home, model: ScriptedModel
) -> None:
    await thinking.device("Bedroom PC", FeedSkill())
    evil = (
        "WatcherSkill.resume('paused')",
        "WatcherSkill.pause('active')",
        "WatcherSkill.run('active')",
        "WatcherSkill.cancel_timer('tea')",
        "CaptureSkill.stop_capture('door')",
    )
    news = "print(devices.bedroom_pc.FeedSkill.news())"
    programs = [calls("python_exec", code=f"{news}\nprint(devices.hub.{call})") for call in evil]
    model.script = [*programs, Says(text="No.")]
    topic = "devices/bedroom_pc/state/FeedSkill/temperature"
    watcher = {"instruction": "tell me", "topics": {"pc": topic}, "predicate": "pc > 40"}
    async with thinking.client() as client:
        for name in ("active", "paused"):
            made = await client.post("/api/watchers", json={**watcher, "name": name})
            assert (made.status_code, made.json()["state"]) == (201, "active")
        await client.post("/api/watchers/paused/pause")
        await client.post("/api/chat", json={"message": "What is going on?"})
        for state in ("active", "paused"):
            shown = (await client.get(f"/api/watchers/{state}")).json()
            assert (shown["state"], shown["model_calls"]) == (state, 0)
    assert len(model.requests) == len(programs) + 1
    for call, told in zip(evil, model.requests[-1].results, strict=True):
        assert "confirmed in" in told, call


def test_a_call_has_the_approved_value_itself() -> None:
    call = ApprovedCall(path="devices.a.B.c", arguments={"levels": [1]}, device="a")
    assert type(call.fill({"levels": [True]})["levels"][0]) is int


async def test_it_is_paused_without_asking_a_model_once_nobody_with_the_right_answers_for_it(
    watching: Watching, model: ScriptedModel
) -> None:
    model.script = script(stops())
    home, client = watching.home, watching.client
    await client.patch("/api/devices/nas", json={"shared": True})
    accounts = home.hub.registry.accounts
    ben, eve = await accounts.add("Ben", role="member"), await accounts.add("Eve", role="admin")
    async with home.client(await home.token(ben)) as own, home.client(await home.token(eve)) as other:
        assert (await watching.add("own", client=own, predicate="disk > 95"))["state"] == "active"
        await watching.add("approved", client=own, predicate="disk > 96")
        assert (await watching.ask("POST", "/approved/approve", client=other))["state"] == "active"
        await client.patch("/api/users/eve", json={"role": "member"})
        await watching.disk(96)
        assert [each["decision"] for each in await watching.decided(1, "own")] == ["act"]
        await watching.disk(50)
        await watching.disk(97)
        await watching.decided(2, "own")
        [paused] = await watching.decided(1, "approved")
        assert paused["reason"] == "it was paused: Eve, who approved its calls, is no longer an admin"
        assert (await watching.show("approved"))["state"] == "paused"
        assert any("Approve it again on its page" in note for note in await watching.notes())
        await watching.disk(50)
        assert (await watching.ask("POST", "/approved/approve", client=own))["state"] == "active"
        await client.patch("/api/users/ben", json={"role": "guest"})
        before = len(model.requests)
        await watching.disk(99)
        await watching.decided(3, "own")
        await watching.decided(2, "approved")
        for name in ("own", "approved"):
            shown = await watching.show(name)
            assert (shown["state"], shown["note"]) == ("paused", "Ben has read-only access now")
    assert (len(model.requests), watching.camera.stopped) == (before, ["camera", "camera"])


async def test_values_of_a_device_are_seen_only_while_its_owner_has_it(
    watching: Watching, model: ScriptedModel
) -> None:
    model.script = script(stops())
    home, client = watching.home, watching.client
    ben = await home.hub.registry.accounts.add("Ben", role="member")
    async with home.client(await home.token(ben)) as own:
        assert await watching.add(client=own, predicate="disk > 95") == "unknown_skill"
        await client.patch("/api/devices/nas", json={"shared": True})
        await watching.add(client=own, predicate="disk > 95")
        await client.patch("/api/devices/nas", json={"shared": False})
        await watching.disk(99)
        tested = await watching.ask("POST", "/full/test", {"since": "1h"}, client=own)
        assert (tested["fired"], tested["evaluated"]) == (0, 0)
        await client.patch("/api/devices/nas", json={"shared": True})
        await watching.disk(97)
        assert [each["seen"] for each in await watching.decided(1)] == [{"disk": 97}]


async def test_only_who_may_use_tokens_asks_the_model_in_a_back_test(
    watching: Watching, model: ScriptedModel
) -> None:
    model.script = script(decides("nothing"))
    ben = await watching.home.hub.registry.accounts.add("Ben", role="member")
    async with watching.home.client(await watching.home.token(ben)) as own:
        await watching.add(client=own, predicate="disk > 95", allow=[])
    await watching.client.patch("/api/users/ben", json={"role": "guest"})
    async with watching.home.client(await watching.home.token(ben)) as own:
        asked = {"since": "1h", "model": True}
        assert await watching.ask("POST", "/full/test", asked, client=own) == "forbidden"
        assert (await watching.ask("POST", "/full/test", {"since": "1h"}, client=own))["fired"] == 0
        named = {"device": "hub", "skill": "WatcherSkill", "method": "test"}
        body = {**named, "kwargs": {"name": "full", "model": True}}
        answer = (await own.post("/api/skills/call", json=body)).json()
        assert answer["code"] == "refused"
    assert model.requests == []


async def test_calls_that_were_not_approved_are_not_made_while_their_approval_is_checked(
    watching: Watching, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.script = script(stops())
    await watching.add(predicate="disk > 95", allow=[])
    asks, is_refused = asyncio.Event(), asyncio.Event()

    async def fetch(*_: object) -> None:
        asks.set()
        await is_refused.wait()

    monkeypatch.setattr(watching.home.hub.live.feed, "fetch", fetch)
    edit = {"allow": [{"path": STOP}], "topics": {"disk": watching.topic("unheard")}}
    program = await watching.home.token(scopes=("chat", "call"))
    async with watching.home.client(program) as other, asyncio.TaskGroup() as tasks:
        approval = tasks.create_task(watching.ask("POST", "/full/approve", edit, client=other))
        await asks.wait()
        ran = await watching.ask("POST", "/full/run", client=other)
        is_refused.set()
    assert (ran["decision"], approval.result(), watching.camera.stopped) == ("failed", "forbidden", [])
    shown = await watching.show()
    assert (shown["state"], shown["allow"], shown["model_calls"]) == ("active", [], 1)


async def test_what_is_approved_is_what_was_shown(watching: Watching, model: ScriptedModel) -> None:
    program = await watching.home.token(scopes=("chat", "call"))
    url, unlock = watching.home.hub.url, {"allow": [{"path": "devices.nas.CameraSkill.unlock"}]}
    async with watching.home.client(program) as other:
        shown = await watching.add(client=other, predicate="disk > 95")
        # The command shows it and asks; before the answer, the program has it do something else.
        command = await asyncio.create_subprocess_exec(
            *(*COMMAND, "watchers", "approve", "full", "--hub", url),
            env={**os.environ, "STRAWBERRY_TOKEN": watching.home.admin_token},
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        asked = await command.stderr.readuntil(b"[y/N]")
        await watching.ask("PATCH", "/full", unlock, client=other)
        _, refused = await command.communicate(b"y\n")
    assert (b"CameraSkill.stop" in asked, command.returncode) == (True, 1)
    assert b"full was changed meanwhile" in refused
    old = {"digest": shown["digest"]}
    assert await watching.ask("POST", "/full/approve", old) == "conflict"
    assert (await watching.client.post("/api/watchers/full/approve", json={})).status_code == 422
    assert (await watching.show())["state"] == "draft"


async def test_what_was_approved_through_a_device_ends_with_the_device(
    watching: Watching, model: ScriptedModel
) -> None:
    model.script = script(stops())
    home, registry = watching.home, watching.home.hub.registry
    phone = await home.device("Phone", FeedSkill())
    await watching.add(predicate="disk > 95")
    through = Bearer(registry.authority.check(phone.token), registry.admin, may_confirm=True)
    digest = (await watching.show())["digest"]
    await home.hub.live.watchers.approve("full", through, digest)
    await watching.disk(96)
    assert [each["decision"] for each in await watching.decided(1)] == ["act"]
    await watching.disk(50)
    await watching.client.post(f"/api/devices/{phone.id}/revoke")
    await watching.disk(97)
    assert "device phone, which is revoked" in (await watching.decided(2))[-1]["reason"]
    assert ((await watching.show())["state"], watching.camera.stopped) == ("paused", ["camera"])


async def test_what_is_changed_of_a_watcher_with_calls_waits_for_approval(
    watching: Watching, model: ScriptedModel
) -> None:
    model.script = script(stops())
    await watching.add(predicate="disk > 95")
    for wrong, code in (
        ({"allow": [{"path": "devices.nas.CameraSkill.stopp"}]}, "unknown_skill"),
        ({"allow": [{"path": STOP, "arguments": {"knob": 1}}]}, "invalid"),
        ({"topics": {"usage": watching.topic()}}, "invalid"),
        ({"topics": {}}, "invalid"),
        ({"topics": {"disk": "devices/#"}}, "invalid"),
        ({"state": "active"}, "invalid"),
        ({"schedule": "every blue moon"}, "invalid"),
        ({"every_s": 5, "on_change": True}, "invalid"),
        ({"every_s": 0}, "invalid"),
    ):
        assert await watching.ask("PATCH", "/full", wrong) == code, wrong
    for same in ({}, {"predicate": "disk > 95", "missed": "tell"}):
        assert (await watching.ask("PATCH", "/full", same))["state"] == "active"
    assert await watching.home.hub.live.events.after(0, user="admin", kinds=["watcher"]) == []

    light = {"path": "devices.nas.CameraSkill.light", "arguments": {"level": {"minimum": 0, "maximum": 9}}}
    topics = {"usage": {"topic": watching.topic("usage")}}
    changed = await watching.ask(
        "PATCH",
        "/full",
        {"allow": [light], "topics": topics, "predicate": "usage > 90", "instruction": "Dim."},
    )
    assert (changed["state"], changed["allow"], changed["instruction"]) == ("draft", [light], "Dim.")
    model.script = script(decides("act", call=light["path"], arguments={"level": 3}))
    await watching.disk(99, "usage")
    assert (await watching.show())["history"] == []
    assert (await watching.ask("POST", "/full/approve"))["state"] == "active"
    await watching.disk(10, "usage")
    await watching.disk(98, "usage")
    assert [each["decision"] for each in await watching.decided(1)][-1:] == ["act"]
    assert (watching.camera.levels[-1:], watching.camera.stopped) == ([3], [])

    # Without calls there is nothing to approve: it goes on as it is now.
    silent = await watching.ask("PATCH", "/full", {"allow": []})
    assert (silent["state"], silent["allow"]) == ("active", [])
    await watching.disk(10)
    going = await watching.ask("PATCH", "/full", {"topics": {"usage": watching.topic()}})
    assert going["state"] == "active"

    # One trigger takes the place of another; a time of a schedule that is replaced is never missed.
    for trigger, shown in (
        ({"every_s": 60}, (60, False, None)),
        ({"schedule": "every day at 7", "missed": "run"}, (None, False, "every day at 7")),
        ({"instruction": "Look."}, (None, False, "every day at 7")),
        ({"on_change": True}, (None, True, None)),
    ):
        made = await watching.ask("PATCH", "/full", trigger)
        assert (made["every_s"], made["on_change"], made["schedule"]) == shown
        assert bool(made["next_at"]) == bool(made["schedule"])
    await watching.ask("PATCH", "/full", {"schedule": "every day at 7"})
    draft = await watching.ask("PATCH", "/full", {"allow": [light]})
    assert (draft["state"], draft["schedule"], draft["next_at"]) == ("draft", "every day at 7", None)
