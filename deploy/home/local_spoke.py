"""The spoke of the machine that the hub runs on: a child process, kept running."""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from contracts.backoff import Backoff
from contracts.errors import StrawberryError
from deploy.cli.client import find_hub
from deploy.home.directory import Home
from identity.keys import KeyPair
from spoke.membership.enrolment import FILE_NAME, Enrolment

_log = logging.getLogger(__name__)

_RESTART_S: Final = (1.0, 60.0)
"""First and longest wait before it is started again after it ended."""
_STOP_S: Final = 15.0
"""How long it may take to let its skills finish; its own grace is shorter."""
_LOOK_S: Final = 0.1
_COMPLETE_S: Final = 10.0
"""How long all skills are waited for; one that the hub refuses never comes."""


@asynccontextmanager
async def local_spoke(home: Home, hub_url: str, *, insecure: bool = False) -> AsyncIterator[None]:
    """Keep the local spoke running while the context is open; its skills may finish when it is left.

    Args:
        insecure: Whether the owner accepted that others can read what it sends to its broker.
    """
    async with asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(_keep(home, hub_url, insecure=insecure), name="local spoke")
        try:
            yield
        finally:
            keeper.cancel()


async def first_sight(home: Home, hub_url: str) -> str:
    """Wait until the hub sees the local spoke with its skills, and say what it offers, or that it may not."""
    patience = time.monotonic() + _COMPLETE_S
    while True:
        device = await asyncio.to_thread(_own_device, home, hub_url)
        if device is not None:
            name = f"{device['name']} ({device['id']})"
            if device["state"] == "revoked":
                remove = f"strawberry devices remove {device['id']}"
                return f"{name} is locked out: after '{remove}' it joins anew at the next start"
            complete = not device["awaited"] or time.monotonic() > patience
            if device["state"] == "online" and device["skills"] and complete:
                return f"{name}: {', '.join(device['skills'])}"
        await asyncio.sleep(_LOOK_S)


async def _keep(home: Home, hub_url: str, *, insecure: bool) -> None:
    """Run it, and run it again when it ends by itself."""
    shortest, longest = _RESTART_S
    backoff = Backoff(shortest, longest, jitter=0)
    while True:
        started = time.monotonic()
        try:
            ended = f"code {await _run(home, hub_url, insecure=insecure)}"
        except (StrawberryError, OSError) as error:
            ended = str(error)
        if time.monotonic() - started > longest:
            backoff.reset()
        wait = backoff.next()
        _log.warning("the local spoke ended (%s); starting it again in %.0f s", ended, wait)
        await asyncio.sleep(wait)


async def _run(home: Home, hub_url: str, *, insecure: bool) -> int:
    environment = {**os.environ, "STRAWBERRY_HOME": str(home.directory)}
    # With the key the spoke knows its hub again when that listens on another port.
    hub_key = (await asyncio.to_thread(KeyPair.load, home.hub / "key.pem")).kid
    if not await asyncio.to_thread(_is_known, home, hub_url, hub_key):
        environment["HUB_DEVICE_TOKEN"] = await asyncio.to_thread(_invite, home, hub_url)
    debug = ["--debug"] if logging.getLogger().isEnabledFor(logging.DEBUG) else []
    spelled_out = ["--insecure"] if insecure else []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy.cli.main", "spoke", "run", "--hub", hub_url, "--hub-key", hub_key),
        *("--samples", "--with-parent", *spelled_out, *debug),
        env=environment,
        # Its end tells the child that this process is gone, however it went.
        stdin=asyncio.subprocess.PIPE,
        # What it says to a person, this process says better; its logs go to standard error.
        stdout=asyncio.subprocess.DEVNULL,
        # Ctrl-C goes to this process only, which stops the child in its own order.
        start_new_session=True,
    )
    try:
        return await process.wait()
    finally:
        await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the child: first by asking, then the hard way."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_S)
    except TimeoutError:
        _log.warning("the local spoke did not stop in %.0f s and is killed", _STOP_S)
        process.kill()
        await process.wait()


def _is_known(home: Home, hub_url: str, hub_key: str) -> bool:
    """Whether the spoke needs no invitation.

    One that was removed does: who starts it together with the hub wants it to be there. One that was revoked
    stays locked out, and one that has joined another hub is not taken from it.
    """
    stored = Enrolment.load(home.spoke / FILE_NAME)
    if stored is None or stored.hub_key.kid != hub_key:
        return stored is not None
    rows = find_hub(home, url=hub_url).request("GET", "/api/devices")
    return any(row["id"] == stored.device for row in rows)


def _invite(home: Home, hub_url: str) -> str:
    """Get an enrolment token through the same door as any device."""
    answer = find_hub(home, url=hub_url).request("POST", "/api/devices", {"name": socket.gethostname()})
    return str(answer["token"])


def _own_device(home: Home, hub_url: str) -> dict[str, Any] | None:
    """Give what the hub says of the local spoke; None before it has joined."""
    try:
        stored = Enrolment.load(home.spoke / FILE_NAME)
        if stored is None:
            return None
        rows: list[dict[str, Any]] = find_hub(home, url=hub_url).request("GET", "/api/devices")
    except StrawberryError as error:
        _log.debug("asking for the devices: %s", error)
        return None
    return next((row for row in rows if row["id"] == stored.device), None)
