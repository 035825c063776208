"""Every program in docs/api.md does what the page says, beside a running hub."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.test_documents import ROOT, blocks_of
from tests.hub_agent.home import Home, open_home
from tests.hub_agent.skills import LampSkill
from tests.proxied import forward

PAGE = ROOT / "docs" / "api.md"
DONE = "The lamp is at 100 percent."
PROGRAMS = [
    *(["bash", "-euc", block] for block in blocks_of(PAGE, "sh")),
    *([sys.executable, "-c", block] for block in blocks_of(PAGE, "python")),
]


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with open_home(tmp_path / "home") as opened:
        await opened.device("Bedroom PC", LampSkill())
        yield opened


async def run(command: list[str], *, url: str, token: str) -> str:
    environment = {**os.environ, "STRAWBERRY_URL": url, "STRAWBERRY_TOKEN": token, "NO_PROXY": "*"}
    program = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await asyncio.wait_for(program.communicate(), 60)
    assert program.returncode == 0, errors.decode()
    return output.decode()


@pytest.mark.slow
async def test_each_program_of_the_page_does_what_it_says(home: Home) -> None:
    token = await home.token(scopes=("chat", "call"))
    others = {"mesage": "422 invalid unknown field", "search_skills": "devices.bedroom_pc.LampSkill.turn_on"}
    for command in PROGRAMS:
        says = next((text for word, text in others.items() if word in command[-1]), DONE)
        assert says in await run(command, url=home.hub.url, token=token), command[-1]


async def test_the_client_of_the_page_goes_on_after_a_lost_connection(home: Home) -> None:
    parts = urlsplit(home.hub.url)
    connections = 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        is_cut = connections == 1
        hub_reader, hub_writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            async with asyncio.TaskGroup() as tasks:
                back = tasks.create_task(forward(hub_reader, writer, most=1 if is_cut else None))
                there = tasks.create_task(forward(reader, hub_writer))
                await asyncio.wait([back, there], return_when=asyncio.FIRST_COMPLETED)
                back.cancel()
                there.cancel()
        finally:
            writer.transport.abort()
            hub_writer.transport.abort()

    async with await asyncio.start_server(relay, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        output = await run(PROGRAMS[-1], url=url, token=await home.token(scopes=("chat",)))
    assert (output, connections) == (DONE, 2)
