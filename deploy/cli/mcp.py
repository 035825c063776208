"""``strawberry mcp``: the hub's MCP server over standard input and output."""

import argparse
import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from contracts.answers.system import McpServers
from contracts.errors import ConfigError, StrawberryError
from deploy import limits
from deploy.cli.client import hub_of
from deploy.cli.client.http import HubClient
from deploy.cli.terminal.output import Output, columns, note
from deploy.cli.terminal.parser import Parser
from deploy.logs.logs import set_up_logging

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

_MISSING: Final = ConfigError(
    "'strawberry mcp' needs a package that is not installed",
    hint="Install it: pip install 'strawberry-home[mcp]'.",
)


def run(options: argparse.Namespace) -> int:
    """Serve the home to an MCP client, or list the MCP servers of mcp.json.

    Serves the skills of the home over standard input and output, for MCP clients that start servers
    themselves. 'list' shows the servers of mcp.json, whose tools are skills of the hub.
    """
    return (list_servers if options.action == "list" else serve)(options)


def serve(options: argparse.Namespace) -> int:
    """Pass messages between standard input and output, and the hub's ``/mcp``, until the input ends.

    Raises:
        StrawberryError: If the hub does not answer a message, or another program has its address.
    """
    if find_spec("mcp") is None:
        raise _MISSING
    import anyio
    import httpx2

    # Standard output belongs to the protocol.
    set_up_logging(debug=options.debug, quiet=True)
    if not options.debug:
        # What it logs with a traceback ends this with one line, or is in the answer.
        logging.getLogger("mcp.client.streamable_http").setLevel(logging.CRITICAL)
    client = hub_of(options)
    client.request("GET", "/api/health", timeout=limits.PROOF_TIMEOUT_S)
    lost = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError)
    try:
        asyncio.run(_pipe(client))
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if isinstance(first, (httpx2.HTTPError, *lost)):
            client.prove(limits.PROOF_TIMEOUT_S)  # which raises why
            first = StrawberryError(f"the hub at {client.url} broke off its answer", hint="Try again.")
        raise first from None
    return 0


def list_servers(options: argparse.Namespace) -> int:
    """Print the servers of ``mcp.json`` and their state; the exit code is 1 where the file is broken."""
    found = hub_of(options).get("/api/mcp/servers", McpServers)
    none = "No MCP servers. Add them to mcp.json in the data directory, under mcpServers."
    empty = "No MCP server runs." if found.problem else none
    cells = columns("name", "skill", "state", "methods", "detail")
    Output(options.json).rows(found.servers, cells, empty=empty)
    if found.problem:
        note(found.problem)
    return 1 if found.problem else 0


async def _pipe(hub: HubClient) -> None:
    import anyio
    import httpx2
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.stdio import stdio_server

    class ProvedHub(httpx2.Auth):
        """Sends the token after the hub's proof: another program may have the port of a hub that stopped."""

        async def async_auth_flow(
            self, request: httpx2.Request
        ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            await asyncio.to_thread(hub.prove, limits.PROOF_TIMEOUT_S)
            request.headers["Authorization"] = f"Bearer {hub.token}"
            yield request

    timeout = httpx2.Timeout(30.0, read=limits.ANSWER_TIMEOUT_S)
    client_input: Any = _input()
    async with (
        httpx2.AsyncClient(auth=ProvedHub(), timeout=timeout, verify=hub.trust()) as http,
        streamable_http_client(f"{hub.url}/mcp", http_client=http) as (from_hub, to_hub),
        stdio_server(client_input) as (from_client, to_client),
        to_client,  # whose end is the end of standard output
        asyncio.TaskGroup() as tasks,
    ):

        async def answer() -> None:
            async for message in from_hub:
                if isinstance(message, Exception):
                    raise StrawberryError(f"the hub's answer cannot be read: {message}")
                await to_client.send(message)
            raise anyio.EndOfStream

        answering = tasks.create_task(answer(), name="answers")
        async for message in from_client:
            if not isinstance(message, Exception):
                await to_hub.send(_stamped(message))
        answering.cancel()


async def _input() -> AsyncIterator[str]:
    """Yield the lines of standard input.

    A daemon thread reads them: any other would hold up the end of the process until the input ends.
    """
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str]()

    def read() -> None:
        # Not `sys.stdin`, whose lock the end of the interpreter waits for.
        with suppress(RuntimeError), open(0, encoding="utf-8", errors="replace", closefd=False) as file:
            for line in file:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, name="standard input", daemon=True).start()
    while line := await lines.get():
        yield line


def _stamped(message: "SessionMessage") -> "SessionMessage":
    """Add the headers that a request has over HTTP since 2026-07-28; an older one has none of its own."""
    from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value
    from mcp.shared.message import ClientMessageMetadata
    from mcp_types import PROTOCOL_VERSION_META_KEY

    content: Any = message.message
    params = getattr(content, "params", None) or {}
    version = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
    if version is None:
        return message
    headers = {"mcp-protocol-version": str(version), "mcp-method": content.method}
    name = params.get(NAME_BEARING_METHODS.get(content.method, ""))
    if name is not None:
        headers["mcp-name"] = encode_header_value(str(name))
    message.metadata = ClientMessageMetadata(headers=headers)
    return message


def register_mcp(parser: Parser) -> None:
    """Declare 'strawberry mcp'."""
    parser.runs(run, hub=True)
    parser.takes(
        "action",
        "serve the home, or list servers; default %(default)s",
        choices=("serve", "list"),
        nargs="?",
        default="serve",
    )
