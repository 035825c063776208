"""A hub that falls silent wherever a test wants it to, and a clock by which nobody really waits for it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import SecretStr

from contracts.devices.joining import DeviceProfile
from identity.keys import KeyPair
from spoke.membership.enrolment import Enrolment
from tests.spoke.door import Door
from tests.spoke.hub import CARD, DEVICE, HUB, StandInHub

PUSH = "/api/turns"
CHAT = "/v1/chat/completions"
CANCEL = "/cancel"


@dataclass
class FalteringHub:
    """A hub that answers at once, but where it hangs.

    Attributes:
        hangs: How the paths end whose requests stay without an answer until `go` is set.
        breaks: Those whose connection is cut instead.
        seen: The requests that came, by how their paths end.
        state: Of every turn that is taken back.
        status: Of the answer to a message.
    """

    hangs: set[str] = field(default_factory=set)
    breaks: set[str] = field(default_factory=set)
    seen: list[str] = field(default_factory=list)
    state: str = "not_started"
    status: int = 200
    key: KeyPair = field(default_factory=KeyPair.generate)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._door = Door(self._answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._door.port}"

    @property
    def enrolment(self) -> Enrolment:
        """What a device knows that has joined it."""
        return Enrolment(
            hub_url=self.url,
            hub_id=HUB,
            device=DEVICE,
            profile=DeviceProfile(name=DEVICE, key=DEVICE),
            key_id="",
            token=SecretStr("token"),
            bus_token=SecretStr("token"),
            hub_key=self.key.public,
            brokers=(),
            authentication="proof",
            prefix="",
            invitation="",
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Take connections."""
        async with self._door:
            yield self
            self.go.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, _, query = head.split(" ", 2)[1].partition("?")
        if query:
            host = head.partition("Host: ")[2].partition("\r\n")[0]
            card = json.dumps(StandInHub(brokers=[], key=self.key).challenged(query, host)).encode()
            writer.write(f"HTTP/1.1 200 X\r\nContent-Length: {len(card)}\r\n\r\n".encode() + card)
            await self._answer(reader, writer)
            return
        head = head.lower()
        if "content-length: " in head:
            await reader.readexactly(int(head.partition("content-length: ")[2].split("\r\n")[0]))
        end = next(each for each in (PUSH, CARD, CHAT, CANCEL) if first.endswith(each))
        self.seen.append(end)
        if end in self.hangs:
            await self.go.wait()
        if end in self.breaks:
            return
        status, kind, content = 200, "application/json", self._json(end)
        if end == CHAT and self.status == 200:
            kind, content = "text/event-stream", _ANSWER
        elif end == CHAT:
            status = self.status
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        writer.write(content)
        await writer.drain()

    def _json(self, end: str) -> bytes:
        made: dict[str, Any] = {CANCEL: {"state": self.state}}.get(end, {})
        if end == CARD:
            card = StandInHub(brokers=[], key=self.key).answer(CARD, {})
            made = dict(card[1])
        return json.dumps(made).encode()


def _chunk(**more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [], **more}).encode() + b"\n\n"


_ANSWER = b"".join(
    (
        _chunk(choices=[{"delta": {"role": "assistant", "content": ""}}]),
        _chunk(x_strawberry={"kind": "final", "answer": "From the hub.", "mode": "online"}),
        b"data: [DONE]\n\n",
    )
)


class SetClock:
    """The running loop's clock, which can be set ahead: whatever waits for a later time has waited then."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._really = self._loop.time
        self._ahead_s = 0.0
        setattr(self._loop, "time", self)  # noqa: B010 - a method of it

    def __call__(self) -> float:
        return self._really() + self._ahead_s

    def set(self, to: float) -> None:
        """Set it ahead."""
        self._ahead_s += max(0.0, to - self())
