"""A spoke that is talked to, and its hub behind a line that can be disturbed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from agent_core.models.entries import Model, ModelEntry, Models
from contracts.wire import Json
from spoke.app import Spoke, open_spoke
from spoke.settings import ChatSettings
from tests.hub_agent.home import Home, chunks, events_of, says, text_of
from tests.hub_registry.spokes import eventually
from tests.model_server import Says, SeenRequest, calls
from tests.proxied import read_request
from tests.spoke.door import Door
from tests.spoke.home import JOURNAL, Place

CHAT = "/v1/chat/completions"
CANCEL = "/cancel"

SPOKEN_JOURNAL = JOURNAL.replace(
    "    @skill_method()\n    def write(",
    '    @skill_method(sentences={"en": ["write down {text}"]})\n    def write(',
).replace("destructive=True)", 'destructive=True, sentences={"en": ["burn the journal"]})')

Fault = Literal["none", "hold request", "hold answer", "lose answer"]


class Line:
    """A line to a hub, which serves each connection until it is left.

    Attributes:
        faults: What becomes of requests whose path ends so, or of one after the other; all others pass.
        silent: Whether nothing that comes is passed on.
        seen: Paths of the requests that came.
        held: Those that wait, or whose answers do, for ``go``.
    """

    def __init__(self, hub_url: str) -> None:
        self._hub = urlsplit(hub_url)
        self._door = Door(self._pass)
        self.faults: dict[str, Fault | list[Fault]] = {}
        self.silent = False
        self.seen: list[str] = []
        self.held: list[str] = []
        self.go = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._door.port}"

    async def __aenter__(self) -> Self:
        await self._door.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.go.set()
        self.cut()
        await self._door.__aexit__()

    def let_go(self) -> None:
        """Let all that is held go on; what comes after it may be held again."""
        self.go.set()
        self.go = asyncio.Event()

    def restore(self) -> None:
        """Take connections, on the same port as before."""
        self._door.open()

    def drop(self) -> None:
        """Refuse connections; those that are open go on."""
        self._door.close()

    def holds(self, end: str, *, since: int = 0) -> bool:
        """Whether a request whose path ends so is held that was not among so many before it."""
        return any(path.endswith(end) for path in self.held[since:])

    async def settled(self) -> None:
        """Wait until every request that came has ended."""
        await self._door.emptied()

    def cut(self) -> None:
        """Cut what is open, as when the hub is killed."""
        self._door.cut()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            begun, to_hub = await read_request(reader, writer, self._hub)
        except asyncio.IncompleteReadError:
            return
        path = begun.split(b" ", 2)[1].decode()
        self.seen.append(path)
        faults = next((fault for end, fault in self.faults.items() if path.endswith(end)), "none")
        fault = faults if isinstance(faults, str) else faults.pop(0) if faults else "none"
        if self.silent or fault == "hold request":
            self.held.append(path)
            await self.go.wait()
        hub_reader, hub_writer = to_hub or await asyncio.open_connection(self._hub.hostname, self._hub.port)
        try:
            # One request a connection, so that the path of each is seen.
            hub_writer.write(begun.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            async with asyncio.TaskGroup() as tasks:
                there = tasks.create_task(_pump(reader, hub_writer))
                if fault == "lose answer":
                    await hub_reader.read()
                else:
                    await self._answer(hub_reader, writer, held=path if fault == "hold answer" else "")
                there.cancel()
        finally:
            hub_writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, held: str) -> None:
        with suppress(OSError):
            while piece := await reader.read(65_536):
                if held or self.silent:
                    self.held.append(held)
                    await self.go.wait()
                writer.write(piece)
                await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
    # However the other side went: the hub would keep the connection for a while.
    writer.transport.abort()


@dataclass
class Told:
    """What came of one message."""

    status: int
    text: str
    events: list[dict[str, Any]]

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def mode(self) -> str:
        return str(self.last.get("mode", self.last.get("code")))

    @property
    def notices(self) -> list[str]:
        return [event["text"] for event in self.events if event["kind"] == "notice"]


@dataclass
class Talker:
    """Somebody who talks to a spoke."""

    spoke: Spoke
    place: Place
    line: Line
    conversation: str = "c1" * 16

    def client(self, *, token: str | None = None) -> httpx.AsyncClient:
        """A client of the spoke's own address."""
        given = token or (self.place.home / "spoke" / "http.token").read_text()
        assert self.spoke.url is not None
        headers = {"authorization": f"Bearer {given}"}
        # No TLS: a client would spend more time on loading authorities than on its requests.
        return httpx.AsyncClient(base_url=self.spoke.url, headers=headers, timeout=120, verify=False)

    async def say(
        self,
        message: str,
        *,
        turn: str = "",
        confirm: bool = False,
        agent: str = "assistant",
        during: Callable[[str], None] = lambda _: None,
    ) -> Told:
        """Say something and hear the answer to its end.

        Args:
            during: Called with the text so far, after whatever comes.
        """
        headers = {"x-strawberry-conversation": self.conversation}
        headers |= {"x-strawberry-turn": turn} if turn else {}
        headers |= {"x-strawberry-confirm": "true"} if confirm else {}
        async with (
            self.client() as client,
            client.stream(
                "POST", CHAT, json=says(message, stream=True, model=agent), headers=headers
            ) as response,
        ):
            if response.status_code != 200:
                await response.aread()
                return Told(response.status_code, "", [])
            seen: list[dict[str, Any]] = []
            async for chunk in chunks(response):
                seen.append(chunk)
                during(text_of(seen))
            return Told(200, text_of(seen), events_of(seen))


def small_model(url: str) -> Models:
    """A model that calls skills as tools of their own."""
    entry = ModelEntry(name="small", provider="openai", model="scripted", base_url=url, tools="native")
    return Models(usable=(Model(entry),))


def programming_model(url: str) -> Models:
    """A model that writes programs."""
    return Models(
        usable=(Model(ModelEntry(name="large", provider="openai", model="scripted", base_url=url)),)
    )


def acts(method: str, **arguments: Json) -> Callable[[SeenRequest], Says]:
    """A model that calls a method of the journal, and says what came of it."""

    def script(seen: SeenRequest) -> Says:
        if seen.results:
            return Says(text=f"Done: {seen.results[-1]}")
        tools = [name for name in seen.tools if name.endswith(method)]
        return calls(tools[0], **arguments) if tools else Says(text="I can do nothing.")

    return script


@asynccontextmanager
async def open_talker(
    home: Home,
    place: Place,
    *,
    chat: Mapping[str, Any] | None = None,
    models: Models | None = None,
    hub_url: str = "",
    hub_key: str | None = None,
    skill: str = SPOKEN_JOURNAL,
    **more: Any,
) -> AsyncIterator[Talker]:
    """Run a spoke of this home.

    Args:
        hub_url: Where it reaches the hub; through the line if empty.
        more: Further settings of the spoke.
    """
    place.add_skill("journal.py", skill)
    async with AsyncExitStack() as stack:
        line = await stack.enter_async_context(Line(home.hub.url))
        async with home.client() as client:
            added = (
                await client.post(
                    "/api/devices", json={"name": "Garage PC", "confirm": True, "trusted": True}
                )
            ).json()
        # The hub is waited for as long as a busy machine may take, but where a test has it be silent.
        quick = {"hub_s": 60, "check_s": 60, "retry_s": 0.05}
        settings = place.settings_at(
            hub_url or line.url,
            hub_key=hub_key,
            chat=ChatSettings.model_validate({**quick, **(chat or {})}),
            models=models or Models(),
            **more,
        )
        spoke = await stack.enter_async_context(open_spoke(settings, token=SecretStr(added["token"])))
        entry = home.hub.registry.directory.get(spoke.device)
        assert entry is not None
        await eventually(lambda: entry.connected and "JournalSkill" in entry.skills)
        yield Talker(spoke, place, line)
