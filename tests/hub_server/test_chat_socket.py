"""Conversations over one WebSocket, by the official `websockets` client."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from chat.tasks import open_tasks
from contracts.chat.stream import Cancel
from hub_agent.settings import HttpSettings
from hub_server.http import chat_socket
from tests.hub_agent.home import Home, open_home, within_patience
from tests.hub_agent.skills import LampSkill, LockSkill
from tests.hub_registry.spokes import eventually
from tests.model_server import ScriptedModel
from tests.model_server.script import Hangs, Says, ScriptedCall, calls


@asynccontextmanager
async def socket(home: Home, token: str | None = None, **headers: str) -> AsyncIterator[ClientConnection]:
    given = {"Authorization": f"Bearer {token or home.admin_token}"} if token != "" else {}
    url = home.hub.url.replace("http", "ws", 1)
    async with connect(
        f"{url}/api/chat/stream", additional_headers={**given, **headers}, proxy=None
    ) as opened:
        yield opened


async def send(opened: ClientConnection, **message: Any) -> None:
    await opened.send(json.dumps(message))


async def receive(opened: ClientConnection, kind: str = "") -> dict[str, Any]:
    """The next message, or the next one of a kind; that of an event is its own."""
    while True:
        async with asyncio.timeout(60):
            message: dict[str, Any] = json.loads(await opened.recv())
        if not kind or kind in (message["kind"], message.get("event", {}).get("kind")):
            return message


async def test_several_conversations_are_held_over_one_socket(thinking: Home, model: ScriptedModel) -> None:
    await thinking.device("Bedroom PC", LampSkill())
    model.script = [Hangs(text="Well")]
    async with socket(thinking) as opened:
        await send(opened, kind="chat", message="think", conversation="c1", ref="first")
        begun = await receive(opened)
        assert (begun["kind"], begun["ref"], begun["conversation"]) == ("begun", "first", "c1")
        assert (await receive(opened, "text"))["event"]["text"]
        await send(opened, kind="chat", message="turn on the lamp", conversation="c2", turn="t2")
        final = await receive(opened, "final")
        assert (final["conversation"], final["turn"]) == ("c2", "t2")
        assert final["event"]["answer"] == "The lamp is at 100 percent."
        await send(opened, kind="cancel", turn=begun["turn"])
        ended = {(await receive(opened))["kind"]} | {(await receive(opened))["kind"]}
    assert ended == {"state", "event"}


async def test_no_half_of_a_character_reaches_a_client(thinking: Home, model: ScriptedModel) -> None:
    halved = "a" + "\ud83c\udf53" * 8 + "\ud83c."
    model.script = [Says(calls=(ScriptedCall(name="x\ud83c", arguments="{}"),)), Says(text=halved)]
    said = ""
    async with socket(thinking) as opened:
        await send(opened, kind="chat", message="draw")
        while (event := (await receive(opened, "event"))["event"])["kind"] != "final":
            said += event.get("text", "")
    assert said == event["answer"] == "a🍓🍓🍓🍓🍓🍓🍓🍓\ufffd."


async def test_a_client_that_comes_back_resumes_after_the_last_event_that_it_has(
    thinking: Home, model: ScriptedModel
) -> None:
    model.script = [Says(text="One, two, three, four, five, six, seven, eight.", gap_s=0.02)]
    seen: list[dict[str, Any]] = []
    async with socket(thinking) as opened:
        await send(opened, kind="chat", message="count", turn="t1")
        await receive(opened, "begun")
        seen += [await receive(opened), await receive(opened)]
    async with socket(thinking) as opened:
        await send(opened, kind="resume", turn="t1", after=seen[-1]["id"])
        assert (await receive(opened))["kind"] == "begun"
        while seen[-1]["event"]["kind"] != "final":
            seen.append(await receive(opened))
        assert [frame["id"] for frame in seen] == list(range(1, len(seen) + 1))
        text = "".join(frame["event"].get("text", "") for frame in seen)
        assert text == seen[-1]["event"]["answer"] == "One, two, three, four, five, six, seven, eight."
        await send(opened, kind="resume", turn="t1")
        assert [(await receive(opened, "event"))["id"] for _ in seen] == [frame["id"] for frame in seen]
        for known in (len(seen), len(seen) + 5):
            await send(opened, kind="resume", turn="t1", after=known)
            assert await receive(opened, "event") == seen[-1]
    stranger = await thinking.token(await thinking.hub.registry.accounts.add("Bob", role="member"))
    async with socket(thinking, stranger) as opened:
        await send(opened, kind="resume", turn="t1")
        refused = await receive(opened)
        assert (refused["kind"], refused["problem"]["code"]) == ("refused", "not_found")


async def test_a_turn_whose_client_stays_away_ends(
    thinking: Home, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub_server.limits.GRACE_S", 0.1)
    model.script = [Hangs(text="Well")]
    async with socket(thinking) as opened:
        await send(opened, kind="chat", message="think")
        await receive(opened, "text")
    await eventually(model.requests[0].abandoned.is_set)


async def test_events_that_are_no_longer_kept_are_counted(
    thinking: Home, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub_server.limits.MAX_KEPT_BYTES", 2_000)
    model.script = [Says(text="word " * 400)]
    async with socket(thinking) as opened:
        await send(opened, kind="chat", message="talk", turn="t1")
        last = await receive(opened, "begun")
        while last["kind"] == "begun" or last["event"]["kind"] != "final":
            # Who follows misses none.
            last = await receive(opened)
            assert last["kind"] == "event"
        await send(opened, kind="resume", turn="t1")
        missed, kept = await receive(opened, "missed"), await receive(opened, "event")
        assert kept["id"] == missed["events"] + 1
        while kept["event"]["kind"] != "final":
            kept = await receive(opened, "event")
    assert kept == last


async def test_a_person_confirms_over_the_socket(thinking: Home, model: ScriptedModel) -> None:
    lock = LockSkill()
    await thinking.device("Door", lock)
    code = "devices.door.LockSkill.unlock('front')"
    model.script = [calls("python_exec", code=code), Says(text="It is open.")]
    async with socket(thinking) as opened:
        await send(opened, kind="chat", message="unlock the front door", can_confirm=True)
        asked = await receive(opened, "confirmation")
        answer = {"kind": "confirm", "turn": asked["turn"], "question": asked["event"]["id"]}
        await send(opened, **answer, approve=True)
        assert (await receive(opened, "final"))["event"]["answer"] == "It is open."
        await send(opened, **answer, approve=True)
        assert (await receive(opened, "refused"))["problem"]["status"] in (404, 409)


async def test_asking_again_to_cancel_a_turn_begins_nothing_more() -> None:
    done = asyncio.Event()

    class Slow:
        async def cancel(self, *_: Any) -> str:
            await done.wait()
            return "cancelled"

    bearer, websocket = (cast("Any", SimpleNamespace()) for _ in range(2))
    sockets: Any = SimpleNamespace(chat=None, cancel=Slow().cancel)
    async with open_tasks() as tasks:
        client = chat_socket._Client(sockets, websocket, bearer, tasks)
        for _ in range(50):
            await client._obey(Cancel(kind="cancel", turn="t1"))
        await asyncio.sleep(0)
        assert sum(task.get_name() == "socket: cancel t1" for task in asyncio.all_tasks()) == 1


async def test_what_is_no_message_is_refused_and_the_socket_stays(home: Home) -> None:
    await home.device("Bedroom PC", LampSkill())
    async with socket(home) as opened:
        for wrong, detail in {
            "{": "is no valid JSON",
            "[]": "",
            "{}": "field 'kind' is missing",
            '{"kind": "dance"}': "kind must be one of 'chat', 'resume', 'cancel', 'confirm'",
            '{"kind": "chat"}': "message",
            '{"kind": "chat", "mesage": ""}': "mesage",
            json.dumps({"kind": "chat", "history": [[]] * 20_000}): "10,000 values",
            "\0": "is no valid JSON",
        }.items():
            await opened.send(wrong)
            problem = (await receive(opened))["problem"]
            assert (problem["status"], detail in problem["detail"]) == (422, True), problem
        await send(opened, kind="chat", message="write a poem", ref="r")
        refused = await receive(opened)
        assert (refused["ref"], refused["problem"]["code"]) == ("r", "no_model")
        await send(opened, kind="chat", message="turn on the lamp")
        assert await receive(opened, "final")


async def test_messages_count_like_requests_and_a_socket_with_too_many_refused_is_closed(
    tmp_path: Path,
) -> None:
    http = HttpSettings(port=0, requests_per_minute=60)
    codes = set()
    async with open_home(tmp_path / "home", http=http) as home, socket(home) as opened:
        for _ in range(500):
            await opened.send("{")
        with suppress(ConnectionClosed):
            while True:
                codes.add((await receive(opened))["problem"]["code"])
    assert codes == {"invalid", "rate_limited"}
    assert (opened.close_code, opened.close_reason) == (1008, "too many messages were refused")


async def test_only_a_good_token_or_a_session_of_the_hubs_own_page_opens_a_socket(home: Home) -> None:
    registry = home.hub.registry
    cookie = f"strawberry_session={await registry.people.open_session(registry.admin, name='browser')}"
    own = home.hub.url
    calls_only = await home.token(scopes=("call",))
    for status, token, headers in (
        (401, "", {}),
        (401, "nonsense", {}),
        (403, calls_only, {}),
        (403, "", {"cookie": cookie}),
        (403, "", {"cookie": cookie, "origin": "http://evil.example"}),
        (403, None, {"origin": "http://evil.example"}),
    ):
        with pytest.raises(InvalidStatus) as refused:
            async with socket(home, token, **headers):
                pass
        assert refused.value.response.status_code == status, (token, headers)
        assert json.loads(refused.value.response.body or b"{}")["status"] == status
    async with socket(home, "", cookie=cookie, origin=own) as opened:
        await send(opened, kind="cancel", turn="t1")
        assert (await receive(opened))["state"] == "not_started"


async def test_a_socket_ends_with_its_token_and_a_token_has_eight(
    thinking: Home, model: ScriptedModel
) -> None:
    model.script = [Hangs(text="Well")]
    token = await thinking.token(scopes=("chat",))
    async with socket(thinking, token) as opened:
        await send(opened, kind="chat", message="think")
        await receive(opened, "text")
        authority = thinking.hub.registry.authority
        await authority.revoke([authority.check(token).jti])
        await within_patience(opened.wait_closed())
        assert (opened.close_code, opened.close_reason) == (1008, "the token has been revoked")
    await eventually(model.requests[0].abandoned.is_set)
    held = [socket(thinking) for _ in range(8)]
    for each in held:
        await each.__aenter__()
    with pytest.raises(InvalidStatus, match="429"):
        async with socket(thinking):
            pass
    for each in held:
        await each.__aexit__(None, None, None)
