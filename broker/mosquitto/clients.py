"""Clients and roles of Mosquitto's dynamic security, rendered from `contracts.access`.

The broker's own default decides where no role does, and on a broker with other clients it may be lenient.
So every client of ours also has the base role, which is asked last and forbids the rest.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from pydantic import SecretStr

from broker.mosquitto.commands import (
    Acl,
    ChangeClient,
    Client,
    Command,
    CreateClient,
    Role,
    RoleUse,
    SetRole,
)
from broker.mosquitto.dynsec import DynamicSecurity, DynsecState
from contracts import topics
from contracts.access import Principal, Right, rights
from contracts.errors import Conflict, LinkError

__all__ = ["BASE", "OURS", "WantedClient", "ensure", "role_changes", "role_name"]

OURS: Final = "strawberry-"
"""Every role of ours begins with it, and no other should."""

_FIRST: Final = 1
_LAST: Final = 0


def role_name(principal: Principal) -> str:
    return f"{OURS}{principal.kind}-{principal.id}"


def _acls(principal: Principal) -> Iterator[Acl]:
    for right in rights(principal):
        yield _acl(right)
        if right.action == "subscribe" and right.filter == topics.EVERYTHING:
            # To the plugin "#" also covers what begins with "$"; to MQTT it does not.
            for hidden in (*topics.BROKER_OWN, topics.SHARED):
                yield Acl(acltype="subscribePattern", topic=hidden, allow=False, priority=1)
    if principal.kind == "hub":
        # The hub adds and removes the logins of devices.
        for acltype in ("publishClientSend", "subscribePattern", "publishClientReceive"):
            yield Acl(acltype=acltype, topic=topics.ALL_DYNAMIC_SECURITY)


def _acl(right: Right) -> Acl:
    match right.action:
        case "publish":
            return Acl(acltype="publishClientSend", topic=right.filter)
        case "receive":
            return Acl(acltype="publishClientReceive", topic=right.filter)
        case "subscribe":
            return Acl(acltype="subscribePattern", topic=right.filter)


def _base() -> Iterator[Acl]:
    for each in (topics.EVERYTHING, *topics.BROKER_OWN):
        yield Acl(acltype="publishClientSend", topic=each, allow=False)
        yield Acl(acltype="publishClientReceive", topic=each, allow=False)
        yield Acl(acltype="subscribePattern", topic=each, allow=False)
    yield Acl(acltype="unsubscribePattern", topic=topics.EVERYTHING)
    yield Acl(acltype="unsubscribePattern", topic=topics.ALL_DYNAMIC_SECURITY)


BASE: Final = Role(rolename=f"{OURS}base", acls=frozenset(_base()))
"""Forbids what no other role of ours allows."""


_ANOTHER_NAME: Final = "Give one of the two another name: on this broker they share the user names."


@dataclass(frozen=True)
class WantedClient:
    """A client and its role.

    Attributes:
        username: On the broker.
        owner: Kept with the client for people, and for those who must tell whose it is.
        any_client_id: Whether several programs may use the login at the same time. Otherwise the client id
            is the user name: a client that may choose it can take over another's connection.
    """

    principal: Principal
    username: str
    password: SecretStr
    owner: str
    any_client_id: bool = False

    @cached_property
    def role(self) -> Role:
        return Role(rolename=role_name(self.principal), acls=frozenset(_acls(self.principal)))

    @cached_property
    def creation(self) -> CreateClient:
        """The command that makes the client."""
        own = RoleUse(rolename=self.role.rolename, priority=_FIRST)
        return CreateClient(
            username=self.username,
            password=self.password,
            clientid=None if self.any_client_id else self.username,
            textname=self.owner,
            textdescription=f"password {_fingerprint(self.password)}",
            roles=frozenset((own, RoleUse(rolename=BASE.rolename, priority=_LAST))),
        )

    def changes(self, state: DynsecState) -> list[Command]:
        """List the commands that make the broker agree; none if it does, so that no client is disconnected.

        Raises:
            Conflict: If another client has the user name.
        """
        client = state.clients.get(self.username)
        if client is not None and not client.has(self.role.rolename):
            raise Conflict(
                f"{_described(client)} has the user name {self.username!r} on the broker already",
                hint=_ANOTHER_NAME,
            )
        commands: list[Command] = role_changes(self.role, state)
        if client is None:
            commands.append(self.creation)
        elif client.model_copy(update={"disabled": False}) != self.creation.client:
            # Replaced in one message: a client whose password is changed is disconnected all the same.
            commands += (ChangeClient(command="deleteClient", username=self.username), self.creation)
        elif client.disabled:
            commands.append(ChangeClient(command="enableClient", username=self.username))
        return commands


async def ensure(security: DynamicSecurity, entry: WantedClient) -> bool:
    """Make the broker agree to one entry, and read it back; say whether anything had to be done.

    Raises:
        Conflict: If another client has the user name.
        LinkError: If the broker does not do it, or does not keep it.
    """
    names = (entry.role.rolename, BASE.rolename)
    state = await security.look_up([entry.username], names)
    commands = [*role_changes(BASE, state), *entry.changes(state)]
    if not commands:
        return False
    await security.change(commands)
    state = await security.look_up([entry.username], names)
    if [*role_changes(BASE, state), *entry.changes(state)]:
        raise LinkError(f"Mosquitto did not keep the login {entry.username!r} as it was set")
    return True


def role_changes(role: Role, state: DynsecState) -> list[Command]:
    """List what makes the broker hold this role with exactly these permissions."""
    held = state.roles.get(role.rolename)
    if held is not None and held.acls == role.acls:
        return []
    command: Literal["createRole", "modifyRole"] = "createRole" if held is None else "modifyRole"
    return [SetRole(command=command, rolename=role.rolename, acls=role.acls)]


def _fingerprint(password: SecretStr) -> str:
    # Tells whether it is the same one, which the broker does not. Ours hold 256 bits: none can be guessed.
    return hashlib.sha256(password.get_secret_value().encode()).hexdigest()[:32]


def _described(client: Client) -> str:
    ours = [each.rolename.removeprefix(OURS) for each in client.roles if each.rolename.startswith(OURS)]
    kinds = [each.partition("-")[0] for each in ours if each != BASE.rolename.removeprefix(OURS)]
    return f"a {kinds[0]}" if kinds else "a client that is not Strawberry's"
