"""The spoke of the machine that the hub runs on: a child process, kept running.

Its parameters are where the hub is, and an invitation if it needs one; see `deploy.home.child`.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from contracts.addresses import host_of, is_loopback
from contracts.errors import StrawberryError
from deploy.cli.client import find_hub
from deploy.home.child import Child, keep_running, start_child
from deploy.home.directory import Home
from deploy.home.running import Reporter

if TYPE_CHECKING:
    from hub_agent.settings import BusSettings

_RESTART_S: Final = (1.0, 60.0)
"""First and longest wait before it is started again after it ended."""
_STOP_S: Final = 15.0
"""How long it may take to let its skills finish; its own grace is shorter."""
_LOOK_S: Final = 0.02
_FIRST_S: Final = 20.0
"""How long the start waits for the spoke; it may still come later."""
_COMPLETE_S: Final = 10.0
"""How long the start waits for all skills; one that the hub refuses never comes."""
_REVOKED_S: Final = 2.0
"""How often the hub is asked for a spoke that it refuses: once removed, it can join again."""


def start_process(home: Home) -> AbstractAsyncContextManager[Child]:
    """Start the process of a spoke, which loads its code; end it when the context is left."""
    return start_child(home, "spoke", "run", "--samples", what="the local spoke", stop_s=_STOP_S)


@asynccontextmanager
async def local_spoke(
    home: Home, first: Child, *, hub_url: str, hub_key: str, bus: "BusSettings", report: Reporter
) -> AsyncIterator["LocalSpoke"]:
    """Keep the local spoke running while the context is open; its skills may finish when it is left.

    Args:
        first: A process that `start_process` has started.
    """
    insecure = bus.kind == "mosquitto" and all(map(_must_be_accepted, bus.addresses or (bus.url,)))
    spoke = LocalSpoke(home, hub_url, {"hub": hub_url, "hub_key": hub_key, "insecure": insecure}, report)
    async with asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(spoke.keep(first), name="local spoke")
        try:
            yield spoke
        finally:
            keeper.cancel()


class LocalSpoke:
    """Starts the spoke's process, starts it again when it ends, and reports what becomes of it.

    Args:
        parameters: What the process needs to know: address and key of the hub, and whether the owner
            accepted that others can read what it sends to its broker.
    """

    def __init__(self, home: Home, hub_url: str, parameters: dict[str, Any], report: Reporter) -> None:
        self._home = home
        self._hub_url = hub_url
        self._parameters = parameters
        self._report = report
        self._shown = asyncio.Event()
        self._said = ""

    async def first_report(self) -> None:
        """Wait until the state of the spoke was reported for the first time."""
        try:
            await asyncio.wait_for(self._shown.wait(), _FIRST_S)
        except TimeoutError:
            self._show("starting", "not there yet; 'strawberry devices list' shows when it is")

    async def keep(self, first: Child) -> None:
        """Run the process, and run it again when it ends by itself."""
        await keep_running(first, self._run, partial(start_process, self._home), wait_s=_RESTART_S)

    async def _run(self, process: Child) -> str:
        """Run a process to its end; return why it ended, empty where it is to start again at once."""
        try:
            token = await asyncio.to_thread(self._invitation)
            await process.begin({**self._parameters, "token": token})
            if not await self._follow(process):
                return ""
            return f"code {await process.wait()}"
        except StrawberryError as error:
            self._show("failed", error.message, hint=error.hint, problem=error.message)
            return error.message
        except OSError as error:
            return str(error) or type(error).__name__
        finally:
            await asyncio.shield(process.end())

    async def _follow(self, process: Child) -> bool:
        """Report what a process says until it ends; return False if it must join again."""
        async for told in process.states():
            if told["state"] == "online":
                await self._show_online()
            elif told["state"] == "refused" and await self._was_removed():
                self._show("removed", "was removed; it joins again")
                return False
            else:
                self._show(told["state"], told["problem"], hint=told["hint"], problem=told["problem"])
        return True

    async def _show_online(self) -> None:
        """Report the spoke once the hub knows its skills."""
        complete_at = time.monotonic() + _COMPLETE_S
        while True:
            device = await asyncio.to_thread(self._own_device)
            if device is None or device["state"] != "online":
                complete = False
            else:
                complete = bool(device["skills"]) and not device["awaited"]
            if complete or time.monotonic() > complete_at:
                break
            await asyncio.sleep(_LOOK_S)
        if device is not None:
            name = f"{device['name']} ({device['id']})"
            self._show(
                "online",
                f"{name}: {', '.join(device['skills'])}",
                device=device["id"],
                name=device["name"],
                skills=device["skills"],
            )

    async def _was_removed(self) -> bool:
        """Return whether a device that the hub refuses was removed; while it is revoked, say so and wait."""
        while (device := await asyncio.to_thread(self._own_device)) is not None:
            if device["state"] != "revoked":
                return False
            name = f"{device['name']} ({device['id']})"
            self._show(
                "revoked",
                f"{name} is locked out; 'strawberry devices remove {device['id']}' lets it join again",
                device=device["id"],
                name=device["name"],
            )
            await asyncio.sleep(_REVOKED_S)
        return True

    def _show(self, presence: str, text: str, *, hint: str = "", **fields: Any) -> None:
        if text != self._said:
            hints = [f"           {hint}"] if hint else []
            fields |= {"hint": hint} if hint else {}
            self._report.state("spoke", f"  spoke    {text}", *hints, presence=presence, **fields)
        self._said = text
        self._shown.set()

    def _invitation(self) -> str | None:
        """Get an enrolment token, through the same API as any device, if the spoke needs one.

        A spoke that was removed does: the person who starts it together with the hub wants it there. One that
        was revoked stays locked out, and one that has joined another hub keeps to it.
        """
        # By now the hub has imported most of it; at the head it would delay the start of the process.
        from spoke.membership.enrolment import Enrolment

        stored = Enrolment.load(self._home.enrolment_file)
        if stored is not None and stored.hub_key.kid != self._parameters["hub_key"]:
            return None
        client = find_hub(self._home, url=self._hub_url)
        device = self._own_device()
        # The owner sits at this machine, and its skills are this installation's own.
        mine = {"confirm": True, "trusted": True}
        if device is None:
            # The machine that serves the home is shared; other devices are shared only on request.
            new = {"name": socket.gethostname(), "shared": True, **mine}
            added = client.request("POST", "/api/devices", new)
            return str(added["token"])
        if device["confirm"] is None:
            # It joined before devices were asked about it.
            client.request("PATCH", f"/api/devices/{device['id']}", mine)
        return None

    def _own_device(self) -> dict[str, Any] | None:
        """Return what the hub says of the local spoke; None where it does not know it.

        Raises:
            StrawberryError: If the hub cannot be asked.
        """
        from spoke.membership.enrolment import Enrolment

        stored = Enrolment.load(self._home.enrolment_file)
        if stored is None:
            return None
        client = find_hub(self._home, url=self._hub_url)
        rows: list[dict[str, Any]] = client.request("GET", "/api/devices")
        return next((row for row in rows if row["id"] == stored.device), None)


def _must_be_accepted(url: str) -> bool:
    """Return whether a spoke uses the address only with ``--insecure``."""
    return url.startswith("mqtt://") and not is_loopback(host_of(url))
