"""The MCP servers of ``mcp.json``: started, watched, and offered as skills of the hub."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Never, TextIO

from agent_core.files.edited_file import EditedFile
from agent_core.models.entries import filled
from agent_core.search.directory import RegisteredSkill
from bus.processes import keep_running, lines_of, output_of, tied
from chat.operations import ADMIN, Resource
from chat.tasks import happens, open_tasks
from contracts.answers.system import McpServers, McpServerState
from contracts.errors import CallError, ConfigError, ErrorCode, StrawberryError
from contracts.names import HUB_SKILLS
from contracts.wire import Json
from hub_agent.calls.own_skills import OwnSkills
from hub_registry.access.bearer import Bearer
from hub_server import limits
from hub_server.mcp.http import load

if TYPE_CHECKING:
    from hub_server.mcp.file import ServerEntry
    from hub_server.mcp.foreign import ForeignMethod

_log = logging.getLogger(__name__)

FILE: Final = "mcp.json"


def open_file(home: Path) -> EditedFile[dict[str, "ServerEntry"]]:
    return EditedFile(home / FILE, _parse, absent={})


def _parse(text: str) -> dict[str, "ServerEntry"]:
    from hub_server.mcp.file import parse_servers  # with its models; most homes have no such file

    return parse_servers(text)


@dataclass
class _Server:
    """One server, as it is now."""

    name: str
    entry: "ServerEntry"
    skill: str
    state: str = "starting"
    detail: str = ""
    methods: dict[str, "ForeignMethod"] = field(default_factory=dict)
    client: Any = None
    doc: str = ""
    said: str = ""
    ended: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None

    async def call(
        self, method: str, arguments: Mapping[str, Json], progress: Callable[[Json], None] | None
    ) -> Json:
        """Call one of its tools.

        Raises:
            CallError: If there is no result.
        """
        tool, client = self.methods.get(method), self.client
        if tool is None or client is None:
            # The reason is for admins: its own words may hold what only they may read.
            raise CallError(
                ErrorCode.OFFLINE,
                f"the MCP server {self.name} is not there",
                hint="'strawberry mcp list' says why.",
            )

        async def report(number: float, total: float | None, message: str | None) -> None:
            if progress is not None:
                progress({"progress": number, "total": total, "message": message and message[:200]})

        from hub_server.mcp.foreign import value_of

        try:
            async with asyncio.timeout(limits.MCP_CALL_S):
                given = tool.arguments(arguments)
                return value_of(await client.call_tool(tool.tool, given, progress_callback=report))
        except TimeoutError:
            raise CallError(
                ErrorCode.TIMEOUT, f"{self.name} did not answer in {limits.MCP_CALL_S:g} s"
            ) from None
        except CallError:
            raise
        except Exception as error:  # noqa: BLE001  what the library fails with is not known
            what = " ".join(str(error).split())[:500]
            raise CallError(ErrorCode.SKILL_ERROR, f"{self.name}: {what or type(error).__name__}") from None


class McpClients:
    """The servers of a home.

    Args:
        own: Offers their tools among the hub's own skills.
    """

    def __init__(self, home: Path, own: OwnSkills, tasks: asyncio.TaskGroup) -> None:
        self._home = home
        self._own = own
        self._tasks = tasks
        self._file = open_file(home)
        self._servers: dict[str, _Server] = {}

    def state(self) -> McpServers:
        """Return what ``strawberry mcp list`` shows."""
        problem = self._file.problem
        return McpServers(
            servers=[
                McpServerState(
                    name=each.name,
                    skill=each.skill,
                    state=each.state,
                    methods=len(each.methods) if each.client is not None else 0,
                    detail=each.detail,
                )
                for each in self._servers.values()
            ],
            problem=problem.message if problem is not None else "",
        )

    async def run(self) -> None:
        """Follow the file until cancelled."""
        while True:
            wanted = {name: entry for name, entry in self._file.value.items() if not entry.disabled}
            for name, server in tuple(self._servers.items()):
                if wanted.get(name) != server.entry:
                    await self._stop(server)
            for name, entry in wanted.items():
                if name not in self._servers:
                    self._start(name, entry)
            await asyncio.sleep(limits.MCP_LOOK_S)

    def _start(self, name: str, entry: "ServerEntry") -> None:
        from hub_server.mcp.foreign import skill_name

        server = self._servers[name] = _Server(name, entry, skill_name(name))
        taken = next((each.name for each in self._servers.values() if each.skill == server.skill), name)
        if server.skill in HUB_SKILLS or taken != name:
            other = "the hub's own skill" if server.skill in HUB_SKILLS else f"the server {taken}"
            server.state, server.detail = (
                "failed",
                f"{server.skill} is {other}; give it another name in {FILE}",
            )
            _log.warning("MCP server %s: %s", name, server.detail)
            return
        server.task = self._tasks.create_task(self._keep(server), name=f"MCP server {name}")

    async def _stop(self, server: _Server) -> None:
        del self._servers[server.name]
        if server.task is not None:
            server.task.cancel()
            await asyncio.wait([server.task])

    async def _keep(self, server: _Server) -> None:
        """Run a server, and start it again whenever it ends."""

        async def run() -> str:
            server.said = ""
            try:
                await self._serve(server)
            except StrawberryError as error:
                return ". ".join(filter(None, (error.message, error.hint)))
            except Exception as error:  # noqa: BLE001  what the library and the server fail with is not known
                return _reason(error) + (f"; it said: {server.said}" if server.said else "")
            finally:
                self._offer(server, None)

        def warn(reason: str, wait_s: float, early: int) -> None:
            server.state, server.detail = "failed", reason
            _log.warning("MCP server %s: %s", server.name, reason)

        await keep_running(run, warn, wait_s=limits.MCP_RESTART_S, steady_s=limits.MCP_CHECK_S)

    async def _serve(self, server: _Server) -> Never:
        library = await load("mcp")
        server.ended = False
        server.news.clear()

        async def note(message: Any) -> None:
            if getattr(message, "method", "") == "notifications/tools/list_changed":
                server.news.set()

        async with asyncio.timeout(limits.MCP_START_S) as waiting:
            async with library.Client(
                _transport(self._home, server), message_handler=note, cache=None
            ) as client:
                while not server.ended:
                    await self._list(server, client)
                    waiting.reschedule(None)
                    if await happens(server.news, within_s=limits.MCP_CHECK_S) and not server.ended:
                        # One that says it all the time is asked now and then.
                        await asyncio.sleep(limits.MCP_LOOK_S)
                    server.news.clear()
                    waiting.reschedule(asyncio.get_running_loop().time() + limits.MCP_START_S)
        raise ConfigError("it ended", hint=f"It said: {server.said}" if server.said else "")

    async def _list(self, server: _Server, client: Any) -> None:
        from hub_server.mcp.foreign import foreign_methods

        tools, cursor = [], None
        for _ in range(10):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            if (cursor := page.next_cursor) is None:
                break
        # 128 tools take 40 ms.
        methods, problems = await asyncio.to_thread(foreign_methods, tools, server.entry.annotations)
        if not server.client or methods != server.methods:
            server.methods, server.doc = (
                methods,
                client.instructions or f"Tools of the MCP server {server.name}.",
            )
            self._offer(server, client)
        server.state, server.detail = "ready", "; ".join(problems)[:500]

    def _offer(self, server: _Server, client: Any) -> None:
        server.client = client
        skill: RegisteredSkill | None = None
        if client is not None:
            from hub_server.mcp.foreign import registered

            skill = registered(server.skill, server.doc, server.methods.values())
        self._own.put_foreign(server.skill, skill, server.call)


mcp_servers: Resource[McpClients, Bearer] = Resource("mcp-servers", "/api/mcp/servers")


@mcp_servers.get(ADMIN)
async def list_servers(servers: McpClients, asking: Bearer) -> McpServers:
    """List the servers of [`mcp.json`](mcp.md#servers-of-others-as-skills).

    `state` is `starting`, `ready` or `failed`, `problem` what is wrong with the file.
    """
    return servers.state()


@asynccontextmanager
async def _transport(home: Path, server: _Server) -> AsyncIterator[tuple[Any, Any]]:
    """Connect to a server; it is noted when it ends."""
    import anyio
    import httpx2
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    fill = partial(filled, home)
    entry = server.entry
    async with AsyncExitStack() as stack:
        if entry.command is None:
            given = {name: fill(value) for name, value in entry.headers.items()}
            timeout = httpx2.Timeout(30.0, read=limits.MCP_CALL_S)
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=given, timeout=timeout))
            opened = streamable_http_client(fill(entry.url or ""), http_client=http)
        else:
            program, folder = fill(entry.command), home / entry.cwd if entry.cwd else home
            try:
                command, *args = tied([program, *(fill(each) for each in entry.args)], folder=folder)
            except FileNotFoundError:
                hint = "Write its full path, or add it to PATH."
                raise ConfigError(f"there is no program {program!r}", hint=hint) from None
            parameters = StdioServerParameters(
                command=command,
                args=args,
                # Beside these a server has what the library passes on: PATH, HOME and the name of the user.
                env={name: fill(value) for name, value in entry.env.items()},
                cwd=folder,
            )
            opened = stdio_client(parameters, await stack.enter_async_context(_noted(server)))
        read, write = await stack.enter_async_context(opened)
        passed, received = anyio.create_memory_object_stream[Any](0)

        async def pump() -> None:
            with suppress(anyio.BrokenResourceError):
                async with passed:
                    async for message in read:
                        await passed.send(message)
            server.ended = True
            server.news.set()

        tasks = await stack.enter_async_context(open_tasks())
        tasks.create_task(pump(), name="messages")
        yield received, write


@asynccontextmanager
async def _noted(server: _Server) -> AsyncIterator[TextIO]:
    """Log what a server writes to its standard error."""
    out, into = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(out))

    async def log() -> None:
        async for line in lines_of(output_of(reader)):
            if text := line.strip()[:500]:
                server.said = text
                _log.info("MCP server %s says: %s", server.name, text)

    try:
        async with open_tasks() as tasks:
            tasks.create_task(log(), name="standard error")
            with os.fdopen(into, "w") as stream:
                yield stream
    finally:
        transport.close()


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    kind, library = type(error), type(error).__module__.partition(".")[0]
    if isinstance(error, TimeoutError) or kind.__name__.endswith("Timeout"):
        return "it did not answer in time"
    # The words of the library for HTTP are for programmers.
    if library == "httpx2" or isinstance(error, OSError):
        return f"it cannot be reached; see url in {FILE}, and whether it runs"
    if kind.__name__ == "MCPError":
        return f"it answered with an error: {str(error)[:400]}; see url and headers in {FILE}"
    return (str(error) or kind.__name__)[:500]
