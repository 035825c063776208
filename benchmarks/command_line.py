"""``strawberry chat``: from the start of its process until its request is on the wire."""

import asyncio
import json
import os
import statistics
import sys
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Final

from benchmarks.measure import Effort, milliseconds, run_nothing
from benchmarks.table import Reach, Row
from contracts.claims import SCOPES
from identity.files import only_one
from identity.keys import KeyPair
from identity.logins.challenges import hub_document
from identity.tokens import issue, make_claims

_HUB: Final = "hub-1"
_STARTS: Final = 20
_PATIENCE_S: Final = 30
_REFUSAL: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; a home with the address of a listener that only looks at the clock lies in the directory."""
    arrivals: asyncio.Queue[float] = asyncio.Queue()
    key = KeyPair.generate()

    async def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_proof(key, (await reader.readuntil(b"\r\n\r\n")).decode()))
        await reader.readuntil(b"\r\n\r\n")
        arrivals.put_nowait(time.perf_counter())
        writer.write(_REFUSAL)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(arrived, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await asyncio.to_thread(_make_home, directory, f"http://127.0.0.1:{port}", key)
        started, nothing = [], []
        # Only of a hub that holds its home is the address believed.
        with only_one(directory / "hub", what="a hub", hint=""):
            await _chat(directory)
            async with asyncio.timeout(_PATIENCE_S):
                await arrivals.get()
            for _ in range(effort.repeats(_STARTS)):
                begun = time.perf_counter()
                await _chat(directory)
                started.append((await arrivals.get() - begun) * 1000)
                nothing.append(await milliseconds(run_nothing))
    name = "strawberry chat: process start to request sent, beside python -c pass"
    reference = statistics.median(nothing)
    return [Row(name, statistics.median(started), "ms", Reach(most=120), reference=reference)]


def _proof(key: KeyPair, request: str) -> bytes:
    """Answer the challenge that comes before the token."""
    challenge = request.partition("challenge=")[2].partition(" ")[0]
    host = request.partition("Host: ")[2].partition("\r\n")[0]
    signature = key.sign(hub_document(hub_id=_HUB, challenge=challenge, host=host))
    proof = urlsafe_b64encode(signature).rstrip(b"=").decode()
    card = json.dumps({"hub_id": _HUB, "hub_key": key.public.jwk(), "proof": proof}).encode()
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(card)}\r\n\r\n".encode() + card


def _make_home(directory: Path, url: str, key: KeyPair) -> None:
    hub = directory / "hub"
    hub.mkdir()
    (hub / "run.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
    claims = make_claims(
        hub_id=_HUB, subject="admin", kind="user", owner="admin", scopes=SCOPES, lifetime_s=3600
    )
    (hub / "cli.token").write_text(issue(key, claims))


async def _chat(home: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "deploy.cli.main",
        "chat",
        "turn on the lamp",
        env={"STRAWBERRY_HOME": str(home)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.wait()
