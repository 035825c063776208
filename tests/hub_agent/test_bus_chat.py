"""Chat over the bus, as a device and as a client of the broker see it."""

import asyncio
import json
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bus.link import Link, Message
from chat.tasks import open_tasks
from chat.turns import Turn
from contracts import topics
from contracts.chat.messages import MAX_MESSAGE, ChatRequest
from contracts.errors import BadSignature, NoModel
from hub_agent.bus.bus_chat import BusChat
from hub_agent.calls.audit import AuditTrail
from hub_agent.settings import BusKind, QuotaSettings
from hub_registry.access.bearer import Bearer
from hub_registry.access.token_rows import TokenRequest
from identity.envelope import Seal, unseal
from identity.ids import uuid7
from tests.hub_agent.home import Device, Home, linked, open_home, wait_for
from tests.hub_agent.skills import LampSkill, LockSkill, SlowSkill
from tests.hub_registry.retained import retained
from tests.hub_registry.spokes import eventually
from tests.model_server import Says, ScriptedModel
from tests.requirements import require

OWN: tuple[BusKind, ...] = ("embedded", "mosquitto")
KINDS: tuple[BusKind, ...] = (*OWN, "shared")


_CLIENTS_HINT = "the Mosquitto clients are not installed: apt-get install mosquitto-clients"


class Talk:
    """The conversation of one principal with the hub."""

    def __init__(self, link: Link, principal: str) -> None:
        self.link = link
        self.principal = principal
        self.messages: list[Message] = []

    def request_topic(self, id_: str) -> str:
        return topics.CHAT_REQUEST.build(principal=self.principal, request=id_)

    async def ask(self, id_: str, payload: bytes | str, *, retain: bool = False) -> None:
        given = payload.encode() if isinstance(payload, str) else payload
        await self.link.publish(self.request_topic(id_), given, retain=retain)

    def replies(self, id_: str) -> list[dict[str, Any]]:
        topic = topics.CHAT_REPLY.build(principal=self.principal, request=id_)
        return [json.loads(message.payload) for message in self.messages if message.topic == topic]

    async def answer(self, id_: str) -> dict[str, Any]:
        """The last event of the turn."""
        await eventually(lambda: any(_is_last(reply) for reply in self.replies(id_)))
        return next(reply["event"] for reply in self.replies(id_) if _is_last(reply))


def _is_last(reply: dict[str, Any]) -> bool:
    return reply["event"]["kind"] in ("final", "error")


@asynccontextmanager
async def talking(link: Link, principal: str) -> AsyncIterator[Talk]:
    talk = Talk(link, principal)
    await link.subscribe(topics.CHAT_REPLY.filter(principal=principal), talk.messages.append)
    yield talk


@asynccontextmanager
async def client_of(home: Home, name: str = "node-red", *, chat: bool = True) -> AsyncIterator[Talk]:
    """A program that was given a login on the bus."""
    async with home.client() as client:
        made = (await client.post("/api/clients", json={"name": name, "chat": chat})).json()
    async with linked(home.login(name, made["password"])) as link, talking(link, name) as talk:
        yield talk


@asynccontextmanager
async def device_of(home: Home, device: Device) -> AsyncIterator[Talk]:
    async with talking(device.spoke.link, device.id) as talk:
        yield talk


def signed(home: Home, device: Device, id_: str, message: str, **more: Any) -> bytes:
    topic = topics.CHAT_REQUEST.build(principal=device.id, request=id_)
    return Seal(home.hub.registry.hub_id, device.key).seal(topic, ChatRequest(message=message, **more))


@pytest.mark.parametrize("kind", OWN)
async def test_a_client_that_was_granted_chat_just_says_what_it_wants(tmp_path: Path, kind: BusKind) -> None:
    async with open_home(tmp_path / "home", kind=kind) as home:
        lamp = LampSkill()
        await home.device("Bedroom PC", lamp)
        async with client_of(home) as talk:
            await talk.ask("1", "turn on the lamp")
            final = await talk.answer("1")
            assert (final["kind"], final["answer"]) == ("final", "The lamp is at 100 percent.")
            assert lamp.level == 100
            assert len(talk.replies("1")) == 1
            await talk.ask("2", json.dumps({"message": "turn on the lamp"}))
            assert (await talk.answer("2"))["kind"] == "final"
            replies = talk.replies("2")
            assert [reply["event"]["kind"] for reply in replies] == ["skill", "skill", "text", "final"]
            assert [reply["seq"] for reply in replies] == [0, 1, 2, 3]
            assert all("sig" not in reply for reply in replies)
            assert not any(message.retain for message in talk.messages)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_device_chats_signed_and_is_the_current_device(tmp_path: Path, kind: BusKind) -> None:
    async with open_home(tmp_path / "home", kind=kind) as home:
        lamp = LampSkill()
        device = await home.device("Bedroom PC", lamp)
        await home.device("Kitchen PC", LampSkill())
        id_ = uuid7()
        async with device_of(home, device) as talk:
            await talk.ask(id_, signed(home, device, id_, "turn on the lamp"))
            final = await talk.answer(id_)
            assert (final["answer"], final["device"]) == ("The lamp is at 100 percent.", device.id)
            assert lamp.level == 100
            hub = home.hub.registry
            for message in talk.messages:
                unseal(hub.hub_id, message.topic, message.payload, hub.key.public)
                with pytest.raises(BadSignature):
                    unseal(hub.hub_id, message.topic, message.payload, device.key.public)


async def test_the_model_answers_a_client_and_remembers_the_conversation(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.script = [Says(text="Three."), Says(text="I said three.")]
    async with open_home(tmp_path / "home", model_url=model.base_url) as home, client_of(home) as talk:
        await talk.ask("1", json.dumps({"message": "how many lamps?", "conversation": "c1"}))
        assert (await talk.answer("1"))["answer"] == "Three."
        assert any(reply["event"]["kind"] == "text" for reply in talk.replies("1"))
        await talk.ask("2", json.dumps({"message": "what did you say?", "conversation": "c1"}))
        assert (await talk.answer("2"))["answer"] == "I said three."
    assert "how many lamps?" in json.dumps(model.requests[-1].body)


async def test_a_client_does_not_join_a_conversation_of_its_owner(
    tmp_path: Path, model: ScriptedModel
) -> None:
    model.script = [Says(text="In the drawer."), Says(text="I do not know.")]
    async with (
        open_home(tmp_path / "home", model_url=model.base_url) as home,
        home.client() as owner,
        client_of(home) as talk,
    ):
        said = {"message": "where is the key?", "conversation": "kitchen"}
        assert (await owner.post("/api/chat", json=said)).status_code == 200
        await talk.ask("1", json.dumps({"message": "what was asked?", "conversation": "kitchen"}))
        assert (await talk.answer("1"))["answer"] == "I do not know."
    assert "where is the key?" not in json.dumps(model.requests[-1].body)


async def test_what_a_device_did_not_sign_is_refused(home: Home) -> None:
    lamp = LampSkill()
    device = await home.device("Bedroom PC", lamp)
    other = await home.device("Kitchen PC", LampSkill())
    async with device_of(home, device) as talk:
        await talk.ask("plain", json.dumps({"message": "turn on the lamp"}))
        assert (await talk.answer("plain"))["message"] == "the message is not signed"
        # By another key, and for another request id.
        forged = Seal(home.hub.registry.hub_id, other.key).seal(
            talk.request_topic("forged"), ChatRequest(message="turn on the lamp")
        )
        await talk.ask("forged", forged)
        assert (await talk.answer("forged"))["code"] == "invalid"
        await talk.ask("moved", signed(home, device, "first", "turn on the lamp"))
        assert (await talk.answer("moved"))["code"] == "invalid"
    assert lamp.level == 0


async def test_on_a_shared_broker_a_client_is_told_why_it_is_not_served(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home", kind="shared") as home:
        lamp = LampSkill()
        await home.device("Bedroom PC", lamp)
        async with linked(home.login("ann", "")) as link, talking(link, "ann") as talk:
            await talk.ask("1", "turn on the lamp")
            error = await talk.answer("1")
            assert (error["kind"], error["code"]) == ("error", "refused")
            assert "on a shared broker" in error["message"]
            assert "HTTP" in error["hint"]
        assert lamp.level == 0


@pytest.mark.parametrize("plain", [True, False])
async def test_a_request_id_is_answered_once_whatever_is_said_and_after_a_restart(
    tmp_path: Path, plain: bool
) -> None:
    def request(text: str) -> str:
        return text if plain else json.dumps({"message": text})

    async with open_home(tmp_path / "home") as home:
        lamp = LampSkill()
        await home.device("Bedroom PC", lamp)
        async with client_of(home) as talk:
            await talk.ask("1", request("turn on the lamp"))
            assert (await talk.answer("1"))["kind"] == "final"
            lamp.level = 0
            for again in ("turn on the lamp", "Turn on the lamp!"):
                before = len(talk.replies("1"))
                await talk.ask("1", request(again))
                await eventually(lambda: len(talk.replies("1")) > before)  # noqa: B023
                assert "answered before" in talk.replies("1")[-1]["event"]["message"]
    async with open_home(tmp_path / "home") as home:
        await home.device("Study PC", lamp)
        async with client_of(home, "other") as talk:
            await talk.ask("1", request("turn on the lamp"))
            assert (await talk.answer("1"))["kind"] == "final"
            lamp.level = 0
        await home.hub.registry.clients.remove("node-red")
        async with client_of(home) as talk:
            await talk.ask("1", request("turn on the lamp"))
            assert "answered before" in (await talk.answer("1"))["message"]
    assert lamp.level == 0


async def test_what_a_device_asked_once_cannot_be_replayed_after_a_restart(tmp_path: Path) -> None:
    id_ = uuid7()
    directory = tmp_path / "home"
    async with open_home(directory) as home:
        device = await home.device("Bedroom PC", LampSkill())
        payload = signed(home, device, id_, "turn on the lamp")
        async with device_of(home, device) as talk:
            await talk.ask(id_, payload)
            assert (await talk.answer(id_))["kind"] == "final"
    async with (
        open_home(directory) as home,
        linked(home.device_login(device.id, device.key, device.bus_token)) as link,
        talking(link, device.id) as talk,
    ):
        await talk.ask(id_, payload)
        assert "was answered before" in (await talk.answer(id_))["message"]


async def test_while_a_request_is_answered_its_repetition_changes_nothing(home: Home) -> None:
    slow = SlowSkill()
    await home.device("Bedroom PC", slow)
    async with client_of(home) as talk:
        await talk.ask("1", "take your time")
        await wait_for(slow.begun)
        await talk.ask("1", "take your time")
        await talk.ask("2", "")
        await talk.ask("3", b"\xff\xfe")
        assert (await talk.answer("3"))["code"] == "invalid"
        slow.go.set()
        assert (await talk.answer("1"))["answer"] == "waited"
        assert sum(_is_last(reply) for reply in talk.replies("1")) == 1
        assert talk.replies("2") == []


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ('{"message": "turn on the lamp"', "it is no valid JSON (line 1, column 30)"),
        ('{"message": ""}', "message"),
        ('{"message": "hi", "conversation": "a b"}', "conversation"),
        ('{"message": "hi", "agent": "cook"}', "there is no agent"),
        ("x" * (MAX_MESSAGE + 1), "characters"),
        (b'{"message": "' + b"x" * 200_000 + b'"}', "bytes"),
    ],
)
async def test_a_request_that_is_none_gets_an_error(home: Home, payload: bytes | str, said: str) -> None:
    async with client_of(home) as talk:
        await talk.ask("1", payload)
        error = await talk.answer("1")
        assert (error["kind"], error["code"]) == ("error", "invalid")
        assert said in error["message"]


async def test_a_retained_request_is_not_run_when_the_hub_comes_back(tmp_path: Path) -> None:
    directory = tmp_path / "home"
    async with open_home(directory, kind="shared") as home:
        device = await home.device("Bedroom PC", LampSkill())
        topic = topics.CHAT_REQUEST.build(principal=device.id, request="r1")
        payload = signed(home, device, "r1", "turn on the lamp")
        done = asyncio.Event()

        async def note() -> None:
            done.set()

        async with device_of(home, device) as talk:
            home.hub.link.pause()
            await eventually(lambda: not home.hub.link.connected)
            await talk.link.publish(topic, payload, retain=True, confirmed=True)
            home.hub.link.on_connected(note)
            home.hub.link.resume()
            await wait_for(done)
            # Whatever came with the subscription came before this.
            id_ = uuid7()
            await talk.ask(id_, signed(home, device, id_, "turn on the lamp"))
            assert (await talk.answer(id_))["kind"] == "final"
            assert talk.replies("r1") == []

            async def emptied() -> bool:
                return topic not in await retained(talk.link)

            await eventually(emptied)


async def test_a_client_without_the_grant_reaches_nobody(home: Home) -> None:
    lamp = LampSkill()
    await home.device("Bedroom PC", lamp)
    async with client_of(home, "watcher", chat=False) as talk, client_of(home) as other:
        await talk.ask("1", "turn on the lamp")
        await talk.link.publish(other.request_topic("1"), b"turn on the lamp")
        await other.ask("2", "status of nothing")
        assert (await other.answer("2"))["code"] == "no_model"
        assert talk.messages == []
        assert other.replies("1") == []
    assert lamp.level == 0


async def test_a_device_whose_token_lacks_the_scope_is_refused(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home", kind="shared") as home:
        lamp, registry = LampSkill(), home.hub.registry
        device = await home.device("Bedroom PC", lamp)
        await registry.authority.issue(
            TokenRequest(
                kind="device",
                subject=device.id,
                owner=registry.admin.id,
                scopes=("register",),
                lifetime_s=600,
                key=device.key.public,
            )
        )
        async with device_of(home, device) as talk:
            id_ = uuid7()
            await talk.ask(id_, signed(home, device, id_, "turn on the lamp"))
            assert (await talk.answer(id_))["code"] == "refused"
    assert lamp.level == 0


async def test_nobody_can_be_asked_so_what_needs_a_confirmation_is_refused(home: Home) -> None:
    lock = LockSkill()
    await home.device("Door", lock)
    async with client_of(home) as talk:
        await talk.ask("1", "unlock the door")
        last = await talk.answer("1")
        assert "I cannot ask here" in json.dumps(last)
    assert lock.opened == []


async def test_the_quota_of_open_turns_holds_here_too(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home", quotas=QuotaSettings(open_turns=1)) as home:
        slow = SlowSkill()
        await home.device("Bedroom PC", slow)
        async with client_of(home) as talk:
            await talk.ask("1", "take your time")
            await wait_for(slow.begun)
            await talk.ask("2", "take your time")
            error = await talk.answer("2")
            assert (error["code"], error["message"]) == ("limit", "too many turns are open")
            slow.go.set()
            assert (await talk.answer("1"))["kind"] == "final"


@pytest.mark.parametrize("kind", OWN)
async def test_revoking_a_login_ends_its_turn_at_once(tmp_path: Path, kind: BusKind) -> None:
    async with open_home(tmp_path / "home", kind=kind) as home:
        slow = SlowSkill()
        await home.device("Bedroom PC", slow)
        async with client_of(home) as talk, home.client() as admin:
            gone = asyncio.Event()
            talk.link.on_disconnected(gone.set)
            await talk.ask("1", "take your time")
            await wait_for(slow.begun)
            assert (await admin.delete("/api/clients/node-red")).status_code == 204
            await wait_for(slow.stopped)
            await wait_for(gone)


@pytest.mark.parametrize("kind", KINDS)
async def test_revoking_a_device_ends_its_turn_at_once(tmp_path: Path, kind: BusKind) -> None:
    async with open_home(tmp_path / "home", kind=kind) as home:
        slow = SlowSkill()
        await home.device("Bedroom PC", slow)
        asker = await home.device("Kitchen PC", LampSkill())
        async with device_of(home, asker) as talk, home.client() as admin:
            await talk.ask("r1", signed(home, asker, "r1", "take your time"))
            await wait_for(slow.begun)
            assert (await admin.post(f"/api/devices/{asker.id}/revoke")).status_code == 200
            await wait_for(slow.stopped)
            # Where it is still connected, what it signs counts no longer.
            if kind == "shared":
                await talk.ask("r2", signed(home, asker, "r2", "turn on the lamp"))
                assert (await talk.answer("r2"))["code"] == "refused"


async def test_refusals_have_an_end(home: Home) -> None:
    """Whoever may publish can be refused: that must not become a flood of the hub's."""
    async with client_of(home) as talk:
        for number in range(60):
            await talk.ask(str(number), '{"message": ""}')
        await talk.ask("last", "hello?")
        assert (await talk.answer("last"))["code"] == "no_model"
        refused = [reply for message in talk.messages if (reply := json.loads(message.payload))["seq"] == 0]
        assert 20 <= len(refused) < 60


async def test_the_last_reply_waits_for_a_broker_that_is_away(home: Home) -> None:
    slow = SlowSkill()
    device = await home.device("Bedroom PC", slow)
    id_ = uuid7()
    async with device_of(home, device) as talk, home.client() as client:
        await talk.ask(id_, signed(home, device, id_, "take your time"))
        await wait_for(slow.begun)
        home.hub.link.pause()
        await eventually(lambda: not home.hub.link.connected)
        assert (await client.post(f"/api/turns/{id_}/cancel")).json() == {"state": "cancelled"}
        assert not any(_is_last(reply) for reply in talk.replies(id_))
        home.hub.link.resume()
        assert (await talk.answer(id_))["code"] == "cancelled"


async def test_one_command_asks_and_shows_the_answer(tmp_path: Path) -> None:
    # It speaks MQTT 5 only, which the embedded broker does not.
    require(shutil.which("mosquitto_rr") is not None, _CLIENTS_HINT)
    async with open_home(tmp_path / "home", kind="mosquitto") as home:
        await home.device("Bedroom PC", LampSkill())
        login = await _command_line_login(home, "ann")
        asking = await asyncio.create_subprocess_exec(
            "mosquitto_rr", *login, "-i", "ann", "-t", "hub/chat/ann/request/1",
            "-e", "hub/chat/ann/reply/1", "-m", "turn on the lamp",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            said, _ = await asking.communicate()
        assert json.loads(said)["event"]["answer"] == "The lamp is at 100 percent."


async def test_mosquitto_sub_follows_what_mosquitto_pub_asks(home: Home) -> None:
    require(shutil.which("mosquitto_pub") is not None, _CLIENTS_HINT)
    await home.device("Bedroom PC", LampSkill())
    login = await _command_line_login(home, "ann")
    listening = await asyncio.create_subprocess_exec(
        "mosquitto_sub", *login, "-i", "ann", "-t", "hub/chat/ann/reply/+", "-t", "hub/main/status",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert listening.stdout is not None
        async with asyncio.timeout(60):
            # The retained status shows that it listens.
            assert json.loads(await listening.stdout.readline())["state"] == "online"
            saying = await asyncio.create_subprocess_exec(
                "mosquitto_pub", *login, "-i", "ann-says", "-t", "hub/chat/ann/request/1",
                "-m", "turn on the lamp",
            )  # fmt: skip
            assert await saying.wait() == 0
            # On a busy machine the hub says meanwhile again that it is online.
            while "event" not in (heard := json.loads(await listening.stdout.readline())):
                assert heard["state"] == "online"
        assert heard["event"]["answer"] == "The lamp is at 100 percent."
    finally:
        listening.terminate()
        await listening.wait()


async def _command_line_login(home: Home, name: str) -> tuple[str, ...]:
    async with home.client() as client:
        made = (await client.post("/api/clients", json={"name": name, "chat": True})).json()
    port = home.broker_url.rpartition(":")[2]
    return ("-h", "127.0.0.1", "-p", port, "-u", name, "-P", made["password"])


@dataclass
class Waiting:
    """An agent whose turns begin when a test says so.

    Attributes:
        asked: The messages that it was given.
    """

    go: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)

    async def ask(self, request: ChatRequest, caller: Bearer) -> Turn:
        self.asked.append(request.message)
        await self.go.wait()
        raise NoModel("there is no model")


@asynccontextmanager
async def listening(home: Home, agent: Waiting) -> AsyncIterator[BusChat]:
    """The hub's side of chat over the bus, given its messages past the broker's rights."""
    hub = home.hub
    seal = Seal(hub.registry.hub_id, hub.registry.key)
    async with open_tasks() as tasks:
        trail = AuditTrail(hub.registry.store)
        bus: Any = SimpleNamespace(link=hub.link, seal=seal, settings=SimpleNamespace(kind="embedded"))
        yield BusChat(hub.registry, agent.ask, bus, trail, tasks)


def request_of(principal: str, id_: str, text: str) -> Message:
    topic = topics.CHAT_REQUEST.build(principal=principal, request=id_)
    return Message(topic=topic, payload=text.encode())


async def test_a_login_without_the_chat_scope_is_refused_even_where_the_broker_lets_it_publish(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    agent = Waiting()
    async with home.client() as client, listening(home, agent) as chat:
        for name, may_chat in (("watcher", False), ("talker", True)):
            await client.post("/api/clients", json={"name": name, "chat": may_chat})
            chat.arrived(request_of(name, "1", f"hello from {name}"))
        await eventually(lambda: agent.asked)
        agent.go.set()
    assert agent.asked == ["hello from talker"]
    assert "watcher may not chat" in caplog.text
