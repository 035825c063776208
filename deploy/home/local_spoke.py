"""The spoke of the machine that the hub runs on: a child process, kept running.

Its parameters are where the hub is, and an invitation if it needs one; see `deploy.home.child`.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from chat.tasks import happens, open_tasks
from contracts.addresses import host_of, is_loopback
from contracts.errors import ConfigError, Conflict, NotFound, StrawberryError, Unauthorized
from deploy import limits
from deploy.directory import Home
from deploy.home.child import Child, keep_child, start_child
from deploy.home.running import Reporter

if TYPE_CHECKING:
    from hub_agent.settings import BusSettings
    from hub_registry.devices.devices import Device
    from hub_registry.devices.directory import Entry
    from hub_registry.registry import Registry


def start_process(home: Home, samples: str | None = None) -> AbstractAsyncContextManager[Child]:
    """Start the process of a spoke, which loads its code; end it when the context is left.

    Args:
        samples: As in `UpOptions`.
    """
    option = "--samples" if samples is None else f"--samples={samples}"
    return start_child(home, "spoke", "run", option, what="the local spoke", stop_s=limits.SPOKE_STOP_S)


@asynccontextmanager
async def local_spoke(
    home: Home,
    first: Child,
    *,
    samples: str | None,
    hub_url: str,
    registry: "Registry",
    bus: "BusSettings",
    report: Reporter,
) -> AsyncIterator["LocalSpoke"]:
    """Keep the local spoke running while the context is open; its skills may finish when it is left.

    Args:
        first: A process that `start_process` has started.
    """
    # A spoke uses such an address only with ``--insecure``.
    readable = (
        each.startswith("mqtt://") and not is_loopback(host_of(each)) for each in bus.addresses or (bus.url,)
    )
    insecure = bus.kind == "mosquitto" and all(readable)
    parameters = {"hub_url": hub_url, "hub_key": registry.key.kid, "insecure": insecure}
    spoke = LocalSpoke(home, registry, parameters, report, samples=samples)
    async with open_tasks() as tasks:
        tasks.create_task(spoke.keep(first), name="local spoke")
        yield spoke


@dataclass(eq=False)
class LocalSpoke:
    """Starts the spoke's process, starts it again when it ends, and reports what becomes of it.

    Attributes:
        parameters: What the process needs to know: address and key of the hub, and whether the owner
            accepted that others can read what it sends to its broker.
    """

    home: Home
    registry: "Registry"
    parameters: dict[str, Any]
    report: Reporter
    _: KW_ONLY
    samples: str | None
    _shown: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _said: str = field(default="", init=False)

    async def first_report(self) -> None:
        if not await happens(self._shown, within_s=limits.SPOKE_FIRST_S):
            self._show("starting", "not there yet; 'strawberry devices list' shows when it is")

    async def keep(self, first: Child) -> None:
        """Run the process, and run it again when it ends by itself."""
        start = partial(start_process, self.home, self.samples)
        await keep_child(first, self._run, start, wait_s=limits.SPOKE_RESTART_S)

    async def _run(self, process: Child) -> str:
        """Run a process to its end; return why it ended, empty where it is to start again at once."""
        try:
            token = await self._invitation()
            await process.begin({**self.parameters, "token": token})
            if not await self._follow(process):
                return ""
            return f"code {await process.wait()}"
        except StrawberryError as error:
            self._show("failed", error.message, hint=error.hint, problem=error.message)
            return error.message
        except OSError as error:
            return str(error) or type(error).__name__

    async def _follow(self, process: Child) -> bool:
        """Report what a process says until it ends; return False if it must join again."""
        async for told in process.states():
            if told["state"] == "online":
                await self._show_online()
            elif told["state"] == "refused" and await self._must_join():
                return False
            else:
                self._show(told["state"], told["problem"], hint=told["hint"], problem=told["problem"])
        return True

    async def _show_online(self) -> None:
        """Report the spoke once the hub knows its skills."""
        complete_at = time.monotonic() + limits.SKILLS_COMPLETE_S
        while True:
            entry = self._entry()
            is_complete = (
                entry is not None
                and entry.connected
                and bool(entry.skills)
                and set(entry.skills) >= set(entry.listed or ())
            )
            if is_complete or time.monotonic() > complete_at:
                break
            await asyncio.sleep(limits.SPOKE_LOOK_S)
        if entry is not None:
            failed = sorted(name for name, skill in entry.skills.items() if skill.unavailable)
            skills = sorted(entry.skills.keys() - set(failed))
            text = f"{_named(entry)}: {', '.join(skills)}"
            if failed:
                text += f"; unavailable: {', '.join(failed)}"
            self._show("online", text, device=entry.id, name=entry.display_name, skills=skills)

    async def _must_join(self) -> bool:
        """Return whether a refused device is to join again; while it is revoked, say so and wait."""
        while (entry := self._entry()) is not None and entry.revoked:
            self._show(
                "revoked",
                f"{_named(entry)} is locked out; 'strawberry devices remove {entry.id}' lets it join again",
                device=entry.id,
                name=entry.display_name,
            )
            await asyncio.sleep(limits.SPOKE_REVOKED_LOOK_S)
        if entry is None:
            self._show("removed", "was removed; it joins again")
        elif not await self._has_good_token(entry):
            self._show("refused", f"the hub does not know the token of {_named(entry)}; it joins again")
        else:
            return False
        return True

    def _show(self, presence: str, text: str, *, hint: str = "", **fields: Any) -> None:
        if text != self._said:
            hints = [f"           {hint}"] if hint else []
            fields |= {"hint": hint} if hint else {}
            self.report.state("spoke", f"  spoke    {text}", *hints, presence=presence, **fields)
        self._said = text
        self._shown.set()

    async def _invitation(self) -> str | None:
        """Return an enrolment token if the spoke needs one.

        One that was removed does, and one whose token is none of this hub's, such as after an older database
        was put back: the person who starts it together with the hub wants it there. One that was revoked
        stays locked out, and one that has joined another hub keeps to it.

        Raises:
            ConfigError: If it has joined another hub.
            Conflict: If another device has the name of this machine.
        """
        # By now the hub has imported most of it; at the head it would delay the start of the process.
        from spoke.membership.enrolment import Enrolment

        file, registry = self.home.enrolment_file, self.registry
        stored = Enrolment.load(file)
        if stored is not None and stored.hub_key.kid != registry.key.kid:
            if stored.hub_url != self.parameters["hub_url"]:
                raise ConfigError(
                    f"the spoke of this machine has joined another hub, {stored.hub_url}",
                    hint=f"Remove {file} to let it join this one.",
                )
            # That hub was here, and its key is gone.
            file.unlink()
        entry = self._entry()
        if entry is None:
            device = await self._added(socket.gethostname())
        elif entry.revoked or await self._has_good_token(entry):
            return None
        else:
            device = entry.device
        return (await registry.invite(device.id)).token

    async def _added(self, name: str) -> "Device":
        """Return the device to join as: the one that an earlier start added, or a new one.

        Raises:
            Conflict: If another device has the name.
        """
        registry = self.registry
        for entry in registry.directory.entries():
            device = entry.device
            # One without these rights was added for another machine.
            is_own = device.may_confirm and device.trusted and device.shared and not device.revoked
            if is_own and device.display_name == name and device.public_key is None:
                return device
        try:
            return await registry.devices.add(
                name,
                owner=registry.admin.id,
                # The owner sits at this machine, and its skills are this installation's own.
                may_confirm=True,
                trusted=True,
                # The machine that serves the home is shared; other devices are shared only on request.
                shared=True,
            )
        except Conflict as error:
            hint = f"If that was this machine, 'strawberry devices remove {name}' lets it join again."
            raise Conflict(error.message, hint=hint) from None

    async def _has_good_token(self, entry: "Entry") -> bool:
        """Return whether one of the spoke's tokens is one that the hub has issued to it, and takes."""
        from spoke.membership.enrolment import Enrolment

        stored = Enrolment.load(self.home.enrolment_file)
        authority = self.registry.authority
        for token in () if stored is None else stored.bearers:
            try:
                claims = authority.check(token.get_secret_value())
                await authority.get(claims.jti)
            except (NotFound, Unauthorized):
                continue
            return claims.sub == entry.id
        return False

    def _entry(self) -> "Entry | None":
        """Return what the hub knows of the local spoke, by its key; None where it does not know it."""
        from identity.keys import KeyPair
        from spoke.membership.enrolment import KEY_FILE

        file = self.home.spoke / KEY_FILE
        if not file.exists():
            return None
        key = KeyPair.load(file).public
        return next(
            (each for each in self.registry.directory.entries() if each.device.public_key == key), None
        )


def _named(entry: "Entry") -> str:
    return f"{entry.display_name} ({entry.id})"
