"""What the hub concludes of a call when its own link fails under it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from bus.link import Link, Message
from bus.rpc import Caller
from contracts import topics
from contracts.errors import Disconnected
from contracts.rpc import Call, Result
from identity.envelope import Seal
from identity.keys import KeyPair
from tests.bus.rpc_world import HUB, INSTANCE, request

Handler = Callable[[Message], None]


class ChokedLink:
    """A link on which a call waits for room until the connection ends; other messages still go out."""

    connected = True

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.waiting = asyncio.Event()
        self.lost = asyncio.Event()
        self.deliver: Handler

    async def subscribe(self, _filter: str, handler: Handler) -> Callable[[], Awaitable[None]]:
        self.deliver = handler

        async def unsubscribe() -> None:
            """Nobody listens any more."""

        return unsubscribe

    def on_connected(self, _callback: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        return lambda: None

    async def publish(self, *_: object, **__: object) -> None:
        self.waiting.set()
        await self.lost.wait()
        raise Disconnected("the broker closed the connection")

    def publish_nowait(self, message: Message) -> None:
        self.sent.append(message)


async def test_a_call_that_was_published_again_while_it_waited_for_room_is_not_called_unsent() -> None:
    hub, lamp = KeyPair.generate(), KeyPair.generate()
    link = ChokedLink()
    keys = {"lamp_pi": lamp.public}
    async with (
        Caller(cast(Link, link), Seal(HUB, hub), instance=INSTANCE, keys=keys.get) as caller,
        asyncio.TaskGroup() as tasks,
    ):
        caller.device_online("lamp_pi", 1, 1)
        waiting = tasks.create_task(caller.call(request("echo")))
        await link.waiting.wait()
        caller.device_online("lamp_pi", 1, 2)
        link.lost.set()
        (message,) = link.sent
        call = topics.CALL.parse(message.payload)
        assert isinstance(call, Call)
        topic = topics.RESULT.build(device="lamp_pi", instance=INSTANCE, call=call.id)
        reply = Seal(HUB, lamp).seal(topic, Result(id=call.id, epoch=1, value="ran"))
        await asyncio.sleep(0)
        link.deliver(Message(topic, reply))
        assert await waiting == "ran"
