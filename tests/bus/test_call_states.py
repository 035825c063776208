"""The states of a call, one side at a time over a link that only remembers what was published."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from bus.link import Link, Message
from bus.rpc import Caller, CallRequest, EpochClock, ProgressSink, Responder, ResponderSettings
from bus.rpc.incoming import DedupCache, IncomingCall, Stage
from bus.rpc.responder import Admission
from contracts import topics
from contracts.devices.rpc import Accepted, Actor, Call, Control, Failure, Reply, Result
from contracts.errors import CallError, Disconnected, ErrorCode
from contracts.wire import Json, Wire
from identity.envelope import Seal, unseal
from identity.ids import uuid7
from identity.keys import KeyPair
from tests.bus.rpc_world import HUB, INSTANCE, PATIENT, call_topic, request

DEVICE = "lamp_pi"
HUB_KEY = KeyPair.generate()
LAMP_KEY = KeyPair.generate()

Handler = Callable[[Message], None]


class RecordingLink:
    """A connected link that keeps what is published; the test delivers what comes back.

    Attributes:
        choked: While set, `send` waits for room until the connection is lost.
    """

    connected = True

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.published = asyncio.Event()
        self.control = asyncio.Event()
        self.choked = False
        self.waiting = asyncio.Event()
        self.lost = asyncio.Event()
        self._handlers: list[tuple[str, Handler]] = []
        self.reconnected: Callable[[], Awaitable[None]]

    async def subscribe(self, filter_: str, handler: Handler) -> Callable[[], Awaitable[None]]:
        self._handlers.append((filter_.split("/")[2], handler))

        async def unsubscribe() -> None:
            """Nothing to undo."""

        return unsubscribe

    def on_connected(self, callback: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        self.reconnected = callback
        return lambda: None

    async def send(self, message: Message) -> None:
        if self.choked:
            self.waiting.set()
            await self.lost.wait()
            raise Disconnected("the broker closed the connection")
        self.publish_nowait(message)

    def publish_nowait(self, message: Message) -> None:
        self.sent.append(message)
        self.published.set()
        if "/control/" in message.topic:
            self.control.set()

    def deliver(self, topic: str, payload: bytes) -> None:
        for branch, handler in self._handlers:
            if branch == topic.split("/")[2]:
                handler(Message(topic, payload))

    @property
    def calls(self) -> list[Call]:
        """The calls that were published."""
        return [topics.CALL.parse(each.payload) for each in self.sent if "/calls/" in each.topic]

    @property
    def replies(self) -> list[Reply]:
        """The replies that were published."""
        return [topics.RESULT.parse(each.payload) for each in self.sent]


# The hub's side


class Hub:
    """A caller, whose device is online in epoch 1."""

    def __init__(self, link: RecordingLink, caller: Caller, tasks: asyncio.TaskGroup) -> None:
        self.link = link
        self.caller = caller
        self._tasks = tasks

    async def call(self, method: str = "echo", **flags: Any) -> "asyncio.Task[Json]":
        """Make a call, and return once it is published."""
        task = self._tasks.create_task(outcome(self.caller, request(method, **flags)))
        # Its first step goes as far as the publication.
        await asyncio.sleep(0)
        return task

    def reply(self, make: Callable[..., Wire], **fields: Json) -> None:
        """Let the device reply to the last call."""
        call = self.link.calls[-1]
        topic = topics.RESULT.build(device=DEVICE, instance=INSTANCE, call=call.id)
        self.link.deliver(
            topic, Seal(HUB, LAMP_KEY).seal(topic, make(id=call.id, epoch=call.epoch, **fields))
        )


async def outcome(caller: Caller, request: CallRequest) -> Json:
    """Return the result, or the code of the error."""
    try:
        return await caller.call(request)
    except CallError as error:
        return error.code


@asynccontextmanager
async def open_hub(*, max_open: int = 10) -> AsyncIterator[Hub]:
    link = RecordingLink()
    settings = replace(PATIENT, max_open=max_open)
    async with (
        Caller(
            cast(Link, link),
            Seal(HUB, HUB_KEY),
            instance=INSTANCE,
            keys={DEVICE: LAMP_KEY.public}.get,
            settings=settings,
        ) as caller,
        asyncio.TaskGroup() as tasks,
    ):
        caller.device_online(DEVICE, 1, 1)
        yield Hub(link, caller, tasks)


async def test_a_call_that_was_published_again_while_it_waited_for_room_is_not_called_unsent() -> None:
    async with open_hub() as hub:
        hub.link.choked = True
        waiting = await hub.call()
        await hub.link.waiting.wait()
        hub.caller.device_online(DEVICE, 1, 2)
        hub.link.lost.set()
        hub.reply(Result, value="ran")
        assert await waiting == "ran"


@pytest.mark.parametrize("again", [True, False])
async def test_a_call_that_is_cancelled_while_it_waits_for_room_is_cancelled_on_a_device_that_has_it(
    again: bool,
) -> None:
    async with open_hub() as hub:
        hub.link.choked = True
        waiting = await hub.call()
        await hub.link.waiting.wait()
        if again:
            hub.caller.device_online(DEVICE, 1, 2)
        waiting.cancel()
        if again:
            await hub.link.control.wait()
            hub.reply(Failure, code=ErrorCode.CANCELLED, message="cancelled")
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert len(hub.link.sent) == (2 if again else 0)


async def test_of_a_cancelled_call_only_the_cancel_is_published_again() -> None:
    async with open_hub() as hub:
        waiting = await hub.call(idempotent=True)
        waiting.cancel()
        await hub.link.control.wait()
        await hub.link.reconnected()
        hub.caller.device_online(DEVICE, 1, 2)
        assert [message.topic.split("/")[2] for message in hub.link.sent] == ["calls", *["control"] * 3]
        hub.caller.device_online(DEVICE, 2, 1)
        await asyncio.wait([waiting])
        assert len(hub.link.sent) == 4


async def test_a_call_whose_start_was_never_sent_is_not_said_to_have_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_hub() as hub, asyncio.TaskGroup() as tasks:
        reserving = tasks.create_task(hub.caller.reserve(request("echo")))
        await hub.link.published.wait()
        hub.reply(Accepted)
        reserved = await reserving
        hub.link.choked = True
        waiting = tasks.create_task(hub.caller.start(reserved))
        await hub.link.waiting.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert [message.topic.split("/")[2] for message in hub.link.sent] == ["calls", "control"]
        assert "unknown" not in caplog.text


@pytest.mark.parametrize("code", [ErrorCode.EXPIRED, ErrorCode.STALE_EPOCH])
async def test_an_answer_to_a_repetition_that_says_nothing_of_the_first_leaves_the_outcome_unknown(
    code: ErrorCode,
) -> None:
    async with open_hub() as hub:
        once = await hub.call()
        hub.reply(Failure, code=code, message="no")
        assert await once is code
        twice = await hub.call()
        hub.caller.device_online(DEVICE, 1, 2)
        hub.reply(Failure, code=code, message="no")
        assert await twice is ErrorCode.OUTCOME_UNKNOWN


async def test_a_call_that_may_run_again_is_made_again_for_one_restart_and_no_more() -> None:
    async with open_hub() as hub:
        waiting = await hub.call(idempotent=True)
        hub.caller.device_online(DEVICE, 2, 1)
        assert [call.epoch for call in hub.link.calls] == [1, 2]
        hub.caller.device_online(DEVICE, 3, 1)
        assert await waiting is ErrorCode.OUTCOME_UNKNOWN
        assert [call.epoch for call in hub.link.calls] == [1, 2]


async def test_as_many_calls_as_are_allowed_are_open_and_the_next_is_refused() -> None:
    async with open_hub(max_open=2) as hub:
        first = await hub.call()
        second = await hub.call()
        third = await hub.call()
        assert await third is ErrorCode.BUSY
        hub.reply(Result, value="second")
        assert await second == "second"
        fourth = await hub.call()
        hub.reply(Result, value="fourth")
        assert await fourth == "fourth"
        assert not first.done()
        hub.caller.device_online(DEVICE, 2, 1)


# The spoke's side


@pytest.mark.skipif(sys.platform == "win32", reason="its monotonic clock goes on")
def test_the_time_in_which_a_machine_is_suspended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, still = EpochClock(), time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: still)
    before = clock.now()
    # Two readings in a row may be the same.
    assert any(clock.now() > before for _ in range(1_000_000))


class Device:
    """A responder of epoch 2, whose methods wait until they are let go."""

    def __init__(self, link: RecordingLink) -> None:
        self.link = link
        self.runs = 0
        self.let_go = asyncio.Event()

    async def execute(self, _call: Call, _skill: str, _method: str, _progress: ProgressSink) -> Json:
        self.runs += 1
        await self.let_go.wait()
        return "done"

    def call(self, call_id: str, *, age_s: float = 0) -> None:
        """Deliver a call."""
        call = Call(
            id=call_id,
            instance=INSTANCE,
            epoch=2,
            issued_at=datetime.now(UTC) - timedelta(seconds=age_s),
            ttl_ms=900_000,
            actor=Actor(user="anna"),
        )
        topic = call_topic("echo")
        self.link.deliver(topic, Seal(HUB, HUB_KEY).seal(topic, call))

    def cancel(self, call_id: str, *, epoch: int) -> None:
        """Deliver a cancel."""
        topic = topics.CONTROL.build(device=DEVICE, call=call_id)
        cancel = Control(kind="cancel", id=call_id, instance=INSTANCE, epoch=epoch)
        self.link.deliver(topic, Seal(HUB, HUB_KEY).seal(topic, cancel))

    async def answered(self, count: int) -> list[ErrorCode | None]:
        """Wait for so many replies, and return their codes; None stands for a result."""
        while len(self.link.sent) < count:
            self.link.published.clear()
            await self.link.published.wait()
        for each in self.link.sent:
            unseal(HUB, each.topic, each.payload, LAMP_KEY.public)
        return [reply.code if isinstance(reply, Failure) else None for reply in self.link.replies]


@asynccontextmanager
async def open_device(
    *, admission: Admission | None = None, settings: ResponderSettings | None = None
) -> AsyncIterator[Device]:
    device = Device(RecordingLink())
    async with Responder(
        cast(Link, device.link),
        Seal(HUB, LAMP_KEY),
        device=DEVICE,
        epoch=2,
        hub_key=HUB_KEY.public,
        executor=device.execute,
        admission=admission,
        settings=settings,
    ):
        yield device


async def test_a_refusal_is_the_answer_to_each_repetition() -> None:
    refused: list[str] = []

    def refuse_once(call: Call, _skill: str, _method: str) -> None:
        if not refused:
            refused.append(call.id)
            raise CallError(ErrorCode.REFUSED, "not now")

    async with open_device(admission=refuse_once) as device:
        call = uuid7()
        device.call(call)
        device.call(call)
        assert await device.answered(2) == [ErrorCode.REFUSED, ErrorCode.REFUSED]
        assert device.runs == 0


def test_bytes_of_forgotten_replies_do_not_count() -> None:
    cache = DedupCache(most=100, size=300)
    for number in range(10):
        cache.finish(IncomingCall(str(number), number, "topic", Stage.DONE), b"x" * 100)
    assert [number for number in range(10) if cache.find(str(number))] == [7, 8, 9]


async def test_a_cancel_of_another_epoch_cancels_nothing() -> None:
    async with open_device() as device:
        early, running = uuid7(), uuid7()
        device.cancel(early, epoch=1)
        device.call(early)
        device.call(running)
        device.cancel(running, epoch=1)
        assert await device.answered(2) == [ErrorCode.STALE_EPOCH, ErrorCode.STALE_EPOCH]
        device.let_go.set()
        assert (await device.answered(4))[2:] == [None, None]
        assert device.runs == 2


async def test_a_call_that_comes_late_has_only_the_rest_of_its_time() -> None:
    async with open_device(settings=ResponderSettings(skew_s=5)) as device:
        device.call(uuid7(), age_s=903)
        # Until then it may say that it runs.
        while (said := await device.answered(1 + len(device.link.sent)))[-1] is None:
            pass
        assert said[-1] is ErrorCode.TIMEOUT


async def test_as_many_calls_as_are_allowed_run_and_the_next_is_refused() -> None:
    async with open_device(settings=ResponderSettings(max_active=2)) as device:
        for _ in range(3):
            device.call(uuid7())
        assert await device.answered(1) == [ErrorCode.BUSY]
        device.let_go.set()
        assert await device.answered(3) == [ErrorCode.BUSY, None, None]
        assert device.runs == 2
