"""Logins of a Mosquitto of our own: `broker.logins.BrokerLogins` by dynamic security."""

import logging
import time
from collections.abc import Collection, Iterable
from typing import Final

from broker.logins import BusLogin
from broker.mosquitto.clients import BASE, OURS, WantedClient, ensure, role_changes, role_name
from broker.mosquitto.commands import ChangeClient, Client, Command, DeleteRole
from broker.mosquitto.dynsec import DynamicSecurity, DynsecState
from contracts.access import Principal
from contracts.devices.presence import Revocation
from contracts.errors import Conflict, LinkError

__all__ = ["MosquittoLogins"]

_log = logging.getLogger(__name__)

_MANAGED: Final = tuple(f"{OURS}{kind}-" for kind in ("device", "user", "client"))
"""Prefixes of the roles that the hub adds and removes; its own is not among them."""


class MosquittoLogins:
    """Adds and removes logins of devices and clients, and reads back every change.

    The plugin does not look into a token: when one expires, the hub has to call `revoke`.

    Args:
        security: By the hub's login.
    """

    answer_s: Final = 0.0

    def __init__(self, security: DynamicSecurity) -> None:
        self._security = security

    async def allow(self, login: BusLogin) -> None:
        """Allow a login with this token and no other; a client that used another is disconnected.

        Raises:
            Conflict: If another client of this broker has the user name.
            LinkError: If the broker does not do it.
            Disconnected: While the broker is away.
        """
        await ensure(self._security, _entry(login))

    async def revoke(self, principal: Principal, revocation: Revocation) -> None:
        """Remove a login, and disconnect its client at once.

        Args:
            revocation: Not needed here: what counts is the one password.

        Raises:
            LinkError: If the broker does not do it.
            Disconnected: While the broker is away.
        """
        if await self._lets_in(principal):
            await self._security.change([ChangeClient(command="disableClient", username=principal.id)])
            if await self._lets_in(principal):
                raise LinkError(f"Mosquitto did not keep the removal of the login {principal.id!r}")

    async def sync(self, logins: Collection[BusLogin], revocation: Revocation) -> None:
        """Make the broker agree as a whole: these may log in, and no others that a hub allowed before.

        Clients that no hub made are left alone. No client whose login is right is disconnected.

        Raises:
            Conflict: If others on this broker have user names that are wanted; all else has been done.
            LinkError: If the broker does not do it.
            Disconnected: While the broker is away.
        """
        now = time.time()
        entries = [_entry(each) for each in logins if each.expires_at > now]
        state = await self._security.read()
        changes, taken = _settlement(entries, state)
        if changes:
            await self._security.change(changes)
            state = await self._security.read()
            left, taken = _settlement(entries, state)
            if left:
                raise LinkError(f"Mosquitto did not keep {len(left)} of {len(changes)} changes")
            _log.info("Mosquitto agrees on who may log in, after %d changes", len(changes))
        if taken:
            raise Conflict("; ".join(error.message for error in taken), hint=taken[0].hint)

    async def _lets_in(self, principal: Principal) -> bool:
        state = await self._security.look_up([principal.id], [])
        client = state.clients.get(principal.id)
        return client is not None and client.has(role_name(principal)) and not client.disabled


def _entry(login: BusLogin) -> WantedClient:
    return WantedClient(
        principal=login.principal,
        username=login.principal.id,
        password=login.token,
        owner=f"Strawberry {login.principal.kind}",
    )


def _settlement(entries: Iterable[WantedClient], state: DynsecState) -> tuple[list[Command], list[Conflict]]:
    """List what has to be done, and what cannot be."""
    wanted = {each.role.rolename: each for each in entries}
    commands: list[Command] = []
    gone: set[str] = set()
    for client in state.clients.values():
        if not any(client.has(rolename) for rolename in wanted) and _is_managed(client):
            commands.append(ChangeClient(command="deleteClient", username=client.username))
            gone.add(client.username)
    # A role only after its client: the other order has crashed Mosquitto.
    commands += [
        DeleteRole(rolename=rolename)
        for rolename in state.roles
        if rolename.startswith(_MANAGED) and rolename not in wanted
    ]
    kept = DynsecState({name: each for name, each in state.clients.items() if name not in gone}, state.roles)
    commands += role_changes(BASE, kept)
    taken: list[Conflict] = []
    names: set[str] = set()
    for entry in wanted.values():
        if entry.username in names:
            taken.append(Conflict(f"two have the user name {entry.username!r}", hint="Rename one of them."))
            continue
        names.add(entry.username)
        try:
            commands += entry.changes(kept)
        except Conflict as error:
            taken.append(error)
    return commands, taken


def _is_managed(client: Client) -> bool:
    return any(each.rolename.startswith(_MANAGED) for each in client.roles)
