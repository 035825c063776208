"""The hub as an MCP server, asked by the official client."""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from agent_core.tools.toolset import ToolOutcome
from chat.questions import Questions
from chat.tasks import open_tasks
from contracts.claims import Scope
from hub_server.mcp.runs import ToolRuns
from tests.hub_agent.home import Home, open_home, wait_for, within_patience
from tests.hub_agent.skills import FeedSkill, LampSkill, LockSkill, SlowSkill
from tests.hub_registry.spokes import eventually
from tests.proxied import forward

ALL: tuple[Scope, ...] = ("chat", "call", "confirm")


@pytest.fixture
async def home(tmp_path: Path, sandbox_files: Path) -> AsyncIterator[Home]:
    async with open_home(tmp_path / "home", sandbox=sandbox_files) as opened:
        yield opened


@asynccontextmanager
async def client(
    home: Home, *scopes: Scope, mode: str = "auto", token: str = "", asked: Any = None
) -> AsyncIterator[Client]:
    token = token or await home.token(home.hub.registry.admin, scopes=scopes or ALL)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(
            streamable_http_client(f"{home.hub.url}/mcp", http_client=http),
            mode=mode,
            elicitation_callback=asked,
        ) as opened,
    ):
        yield opened


async def run(client: Client, code: str, **more: Any) -> tuple[bool, str]:
    result = await client.call_tool("python_exec", {"code": code}, **more)
    return not result.is_error, said(result)


def said(result: Any) -> str:
    """The text of a result, a resource or a message."""
    (content,) = getattr(result, "content", None) or result.contents
    return str(content.text)


both = pytest.mark.parametrize("mode", ["legacy", "auto"])


@both
async def test_a_client_finds_describes_and_calls_a_skill(home: Home, mode: str) -> None:
    await home.device("Bedroom PC", lamp := LampSkill())
    async with client(home, mode=mode) as mcp:
        tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        assert set(tools) == {"search_skills", "describe_function", "python_exec"}
        assert tools["search_skills"].annotations.read_only_hint
        found = await mcp.call_tool("search_skills", {"query": "lamp"})
        assert "devices.bedroom_pc.LampSkill.turn_on" in said(found)
        text = said(await mcp.call_tool("describe_function", {"path": "LampSkill.turn_on"}))
        assert "Turn the lamp on." in text
        seen: list[str] = []

        async def progress(number: float, total: float | None, message: str | None) -> None:
            seen.append(str(message))

        call = "devices.bedroom_pc.LampSkill.turn_on(30)"
        assert "The lamp is at 30 percent." in (await run(mcp, call, progress_callback=progress))[1]
        assert lamp.level == 30
        await eventually(lambda: "devices.bedroom_pc.LampSkill.turn_on: done" in seen)
        await run(mcp, "x = 42")
        assert "42" in (await run(mcp, "x"))[1]


async def test_bad_input_comes_back_as_an_error_with_a_hint(home: Home) -> None:
    await home.device("Bedroom PC", LampSkill())
    async with client(home) as mcp:
        for name, arguments, words in (
            ("python_exec", {"code": "devices.bedroom_pc.LampSkill.turn_onn()"}, "turn_on"),
            ("python_exec", {"kode": "1"}, "kode"),
            ("describe_function", {}, "path"),
            ("search_skills", {"query": 3}, "must be a string"),
            ("nothing", {}, "python_exec"),
        ):
            result = await mcp.call_tool(name, arguments)
            assert result.is_error
            assert words in said(result)


async def test_annotations_are_the_worst_of_the_skills_that_may_be_called(home: Home) -> None:
    async def annotations(token: str) -> Any:
        async with client(home, token=token) as mcp:
            return {tool.name: tool for tool in (await mcp.list_tools()).tools}["python_exec"].annotations

    registry = home.hub.registry
    await home.device("Bedroom PC", FeedSkill(), shared=True)
    of_admin = await annotations(await home.token(registry.admin, scopes=ALL))
    assert (of_admin.read_only_hint, of_admin.destructive_hint) == (False, True)
    guest = await registry.accounts.add("Guest", role="guest")
    of_guest = await annotations(await home.token(guest, scopes=ALL))
    assert (of_guest.read_only_hint, of_guest.destructive_hint) == (True, False)


@both
async def test_a_confirmation_is_an_elicitation(home: Home, mode: str) -> None:
    await home.device("Front Door", lock := LockSkill())
    questions: list[str] = []
    answer: Any = None

    async def asked(_: Any, form: Any) -> Any:
        questions.append(form.message)
        return ElicitResult(action=answer, content={} if answer == "accept" else None)

    async with client(home, mode=mode, asked=asked) as mcp:
        for answer, opened in (("decline", []), ("cancel", []), ("accept", ["back"])):
            questions.clear()
            _, text = await run(mcp, "devices.front_door.LockSkill.unlock('back')")
            assert questions == ["LockSkill.unlock(door='back')\nConfirm LockSkill.unlock on Front Door."]
            assert lock.opened == opened
            assert ("back is open" in text) is (answer == "accept")
            assert ("did not confirm" in text) is (answer != "accept")


@both
async def test_who_cannot_be_asked_is_told_how_to_allow_it(home: Home, mode: str) -> None:
    await home.device("Front Door", lock := LockSkill(), FeedSkill())

    async def asked(_: Any, form: Any) -> Any:
        raise AssertionError("nobody may be asked")

    calls = ("devices.front_door.LockSkill.unlock()", "devices.front_door.FeedSkill.wipe()")
    async with (
        client(home, mode=mode) as without,
        client(home, "chat", "call", mode=mode, asked=asked) as scope,
    ):
        for mcp in (without, scope):
            for call in calls:
                text = (await run(mcp, call))[1]
                assert "scope 'confirm'" in text
                assert "elicitation" in text
    assert lock.opened == []


async def test_a_call_that_fails_for_an_unknown_reason_ends_neither_its_client_nor_the_hub() -> None:
    async def fail(_: Any) -> Any:
        raise RuntimeError("a bug")

    async with open_tasks() as tasks:
        run = ToolRuns(Questions(), tasks).start("anna", "token", fail)
        outcome = await run.events.get()
        assert isinstance(outcome, ToolOutcome)
        assert not outcome.ok
        await asyncio.sleep(0)  # a task that failed would cancel this one


async def test_a_token_without_the_right_gets_neither_the_tool_nor_the_call(home: Home) -> None:
    await home.device("Bedroom PC", lamp := LampSkill())
    async with client(home, "chat") as mcp:
        assert {tool.name for tool in (await mcp.list_tools()).tools} == {
            "search_skills",
            "describe_function",
        }
        is_done, text = await run(mcp, "devices.bedroom_pc.LampSkill.turn_on()")
    assert not is_done
    assert "scope 'call'" in text
    assert lamp.level == 0


@both
async def test_a_call_ends_with_its_client_and_with_its_token(home: Home, mode: str) -> None:
    await home.device("Bedroom PC", slow := SlowSkill())
    authority = home.hub.registry.authority
    token = await home.token(home.hub.registry.admin, scopes=ALL)
    async with client(home, token=token, mode=mode) as mcp:
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(run(mcp, "devices.bedroom_pc.SlowSkill.wait()"))
            await wait_for(slow.begun)
            call.cancel()
        await wait_for(slow.stopped)
        slow.begun.clear()
        slow.stopped.clear()
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(_failed(run(mcp, "devices.bedroom_pc.SlowSkill.wait()")))
            await wait_for(slow.begun)
            await authority.revoke([authority.check(token).jti])
            await wait_for(slow.stopped)
            await call
        with pytest.raises(MCPError):
            await mcp.list_tools()


async def _failed(work: Awaitable[Any]) -> None:
    with pytest.raises(MCPError):
        await work


async def test_a_session_is_its_tokens_and_a_token_has_few(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [await home.token(home.hub.registry.admin, scopes=ALL) for _ in range(2)]
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    async with httpx.AsyncClient(timeout=60, base_url=home.hub.url) as http:
        accept = {"accept": "application/json, text/event-stream"}

        async def post(token: str, body: Any, **headers: str) -> tuple[int, str]:
            answer = await http.post(
                "/mcp", json=body, headers={"authorization": f"Bearer {token}", **accept, **headers}
            )
            return answer.status_code, answer.headers.get("mcp-session-id", "")

        sessions = [(await post(first, hello))[1] for _ in range(9)]
        listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        of_each = [(await post(first, listed, **{"mcp-session-id": each}))[0] for each in sessions]
        assert of_each == [404, *[200] * 8]
        assert (await post(second, listed, **{"mcp-session-id": sessions[-1]}))[0] == 404
        for _ in sessions:
            ended = {"authorization": f"Bearer {first}", "mcp-session-id": (await post(first, hello))[1]}
            assert (await http.delete("/mcp", headers={**accept, **ended})).status_code == 200
        assert (await post(first, listed, **{"mcp-session-id": sessions[-1]}))[0] == 200

        monkeypatch.setattr("hub_server.limits.MOST_SESSIONS", 9)
        other = await home.token(await home.hub.registry.accounts.add("Anna", role="member"), scopes=ALL)
        annas = (await post(other, hello))[1]
        for _ in range(8):
            await post(second, hello)
        assert (await post(other, listed, **{"mcp-session-id": annas}))[0] == 200
        assert (await post(first, listed, **{"mcp-session-id": sessions[-1]}))[0] == 404


async def test_what_there_is_in_the_home_is_read_as_resources(home: Home) -> None:
    await home.device("Bedroom PC", LampSkill())
    async with home.client() as owner:
        wanted = {"topics": ["devices/+/status"], "path": "seen.jsonl"}
        capture = (await owner.post("/api/captures", json=wanted)).json()["id"]
    async with client(home) as mcp:
        uris = [each.uri for each in (await mcp.list_resources()).resources]
        assert uris == [f"strawberry://{kind}" for kind in ("devices", "skills", "states", "captures")]
        texts = {uri: said(await mcp.read_resource(uri)) for uri in uris}
        assert json.loads(texts["strawberry://devices"])[0]["key"] == "bedroom_pc"
        assert "LampSkill.turn_on" in texts["strawberry://skills"]
        skill = await mcp.read_resource("strawberry://skills/LampSkill.turn_on")
        assert "Turn the lamp on." in said(skill)
        recording = f"strawberry://captures/{capture}"
        assert [each["name"] for each in json.loads(said(await mcp.read_resource(recording)))] == [
            "seen.jsonl"
        ]

        async def is_written() -> bool:
            return said(await mcp.read_resource(f"{recording}/seen.jsonl")).startswith('{"at"')

        await eventually(is_written)
        for uri in ("strawberry://nothing", "strawberry://devices/attic", "strawberry://devices/..%2Ftokens"):
            with pytest.raises(MCPError):
                await mcp.read_resource(uri)


async def test_agents_are_prompts(home: Home) -> None:
    agents = home.directory / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "lights.yml").write_text("description: Looks after the lamps\nprompt: Look after the lamps.\n")
    async with client(home) as mcp:
        prompts = {prompt.name: prompt for prompt in (await mcp.list_prompts()).prompts}
        assert prompts["lights"].description == "Looks after the lamps"
        messages: Any = (await mcp.get_prompt("lights", {"message": "All off"})).messages
        assert "Look after the lamps." in messages[0].content.text
        assert messages[1].content.text == "All off"
        with pytest.raises(MCPError, match="lights"):
            await mcp.get_prompt("lihgts")


@pytest.mark.slow
async def test_standard_input_and_output_carry_the_same(home: Home) -> None:
    await home.device("Front Door", lock := LockSkill())
    token = await home.token(home.hub.registry.admin, scopes=ALL)

    async def asked(_: Any, form: Any) -> Any:
        return ElicitResult(action="accept", content={})

    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "deploy.cli.main", "mcp", "--hub", home.hub.url],
        env={"STRAWBERRY_TOKEN": token, "STRAWBERRY_HOME": str(home.directory)},
    )
    for mode in ("legacy", "auto"):
        callback: Any = asked
        async with Client(command, mode=mode, elicitation_callback=callback) as mcp:
            assert "is open" in (await run(mcp, "devices.front_door.LockSkill.unlock()"))[1]
    assert lock.opened == ["front", "front"]


async def bridge(home: Home, url: str, *, stdin: int) -> asyncio.subprocess.Process:
    token = await home.token(home.hub.registry.admin, scopes=ALL)
    command = (sys.executable, "-m", "deploy.cli.main", "mcp", "--hub", url)
    environment = {"STRAWBERRY_TOKEN": token, "STRAWBERRY_HOME": str(home.directory)}
    return await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=stdin, stdout=PIPE, stderr=PIPE
    )


@pytest.mark.slow
async def test_the_end_of_standard_input_is_its_end(home: Home) -> None:
    mcp = await bridge(home, home.hub.url, stdin=DEVNULL)
    await within_patience(mcp.wait())
    assert mcp.returncode == 0


@pytest.mark.slow
async def test_a_program_that_has_the_port_of_a_hub_that_stopped_gets_no_token(home: Home) -> None:
    hub, is_stopped = urlsplit(home.hub.url), False
    connections: list[asyncio.StreamWriter] = []
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_stopped:
            heard.append(await reader.read(65_536))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            writer.close()
            return
        from_hub, to_hub = await asyncio.open_connection(hub.hostname, hub.port)
        connections.extend((writer, to_hub))
        with suppress(OSError):
            await asyncio.gather(forward(reader, to_hub), forward(from_hub, writer))

    async with await asyncio.start_server(listen, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        mcp = await bridge(home, url, stdin=PIPE)
        assert mcp.stdin is not None
        assert mcp.stdout is not None
        assert mcp.stderr is not None
        about = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        hello = {"method": "initialize", "params": {"protocolVersion": "2025-06-18", **about}}
        mcp.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, **hello}).encode() + b"\n")
        assert "result" in json.loads(await mcp.stdout.readline())
        is_stopped = True
        for writer in connections:
            writer.transport.abort()
        mcp.stdin.write(b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n')
        await within_patience(mcp.wait())
        error = (await mcp.stderr.read()).decode()
    assert mcp.returncode == 1
    assert "the token was not sent" in error.splitlines()[0]
    assert len(error.splitlines()) == 2
    assert all(b"?challenge=" in request for request in heard)


@both
async def test_the_hub_ends_while_clients_are_connected(tmp_path: Path, mode: str) -> None:
    async with AsyncExitStack() as clients:
        async with asyncio.timeout(60):
            async with open_home(tmp_path / "home") as home:
                mcp = await clients.enter_async_context(client(home, mode=mode))
                await mcp.list_tools()
                server = home.hub.url
    async with httpx.AsyncClient(timeout=60) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(server)


async def test_without_the_package_the_answer_says_how_to_install_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub_server.mcp.http.find_spec", lambda _: None)
    async with home.client() as http:
        problem = (await http.post("/mcp", json={})).json()
    assert "strawberry-home[mcp]" in problem["hint"]
