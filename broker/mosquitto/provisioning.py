"""Setting up dynamic security on a Mosquitto of our own, also one that others use already."""

import json
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from broker.limits import MOSQUITTO_ANSWER_S
from broker.mosquitto.clients import OURS, WantedClient, ensure
from broker.mosquitto.commands import Acl
from broker.mosquitto.dynsec import DynamicSecurity, DynsecState
from broker.mosquitto.own_logins import ADMIN, HUB, hub_login
from broker.probe import ProbeLogin, open_probe
from bus.link import LinkSettings, open_link
from contracts import topics
from contracts.access import Principal
from contracts.devices.joining import Login
from contracts.errors import Conflict, LinkError, LoginRefused
from identity.keys import KeyPair

__all__ = ["OtherClient", "Provisioned", "open_security", "provision"]

_DENIED: Final = {"publishClientSend": "publish", "subscribe": "subscribe"}
"""Must be denied by default, or other clients of the broker could publish as our devices and hear them."""

_FORBID: Final = json.dumps(
    {
        "commands": [
            {
                "command": "setDefaultACLAccess",
                "acls": [{"acltype": acltype, "allow": False} for acltype in _DENIED],
            }
        ]
    }
)
"""Not ``mosquitto_ctrl dynsec setDefaultACLAccess``: that of version 2.0.11 ends well and changes nothing."""

_NAMELESS: Final = "clients without a user name"

_BRANCHES: Final = frozenset(each.partition("/")[0] for each in topics.BRANCHES) | {"#", "+"}


@dataclass(frozen=True)
class OtherClient:
    """A client of the broker that is not ours.

    Attributes:
        username: Empty for those who log in without one.
        reaches_us: Whether a role of it lets it publish or subscribe on our topics.
    """

    username: str
    name: str
    reaches_us: bool


@dataclass(frozen=True)
class Provisioned:
    """What was found and done.

    Attributes:
        others: All clients that are not ours; their rights are what they were.
        changed: Whether anything had to be changed.
    """

    username: str
    others: tuple[OtherClient, ...]
    changed: bool


@asynccontextmanager
async def open_security(url: str, login: Login, *, ca: str | None = None) -> AsyncIterator[DynamicSecurity]:
    """Speak to the dynamic security of a broker, by a connection of its own.

    Raises:
        LoginRefused: If the broker refuses the login.
        LinkError: If the login may not use it.
        Disconnected: If it cannot be reached.
    """
    client_id, password = f"strawberry-{secrets.token_hex(8)}", SecretStr(login.password or "")
    probe = ProbeLogin(url, client_id, login.username, password, ca=ca)
    # A link would go on trying; here the first answer counts.
    async with open_probe(probe) as tried:
        if tried.refusal is not None:
            raise LoginRefused(
                f"{url} refuses the login of {login.username}: {tried.refusal}", hint="Check the password."
            )
    settings = LinkSettings(
        urls=(url,), client_id=client_id, username=login.username, password=password, ca=ca
    )
    async with open_link(settings) as link, DynamicSecurity(link, timeout_s=MOSQUITTO_ANSWER_S) as security:
        yield security


async def provision(
    url: str, admin: Login, *, hub_id: str, key: KeyPair, instance: str = "main", ca: str | None = None
) -> Provisioned:
    """Add the hub's login, which may add those of devices; harmless if that was done already.

    Everything is read back, and at last the hub's login is tried.

    Args:
        url: ``mqtt://…`` or ``mqtts://…``.
        admin: A login that may use dynamic security. It is not stored and not changed.
        key: The hub's key: the password of its login follows from it.
        instance: Name of the hub process.
        ca: PEM that vouches for the broker; None for the system's authorities.

    Raises:
        Conflict: If another hub uses the broker, or everybody may publish or subscribe there by default.
        LoginRefused: If the broker refuses the administrator.
        LinkError: If the broker has no dynamic security, or does not execute or keep the changes.
        Disconnected: If it cannot be reached.
    """
    entry = _hub_entry(hub_id, key, instance)
    async with open_security(url, admin, ca=ca) as security:
        default, state = await security.default_access(), await security.read()
        _refuse_other_hub(state, entry)
        others = tuple(await _others(security, state, {ADMIN, admin.username or ""}))
        lenient = [words for acltype, words in _DENIED.items() if default[acltype]]
        if lenient:
            raise _everybody_may(lenient, others)
        changed = await ensure(security, entry)
    await _try_hub(url, hub_login(key, instance), ca)
    return Provisioned(entry.username, others, changed)


def _hub_entry(hub_id: str, key: KeyPair, instance: str) -> WantedClient:
    login = hub_login(key, instance)
    return WantedClient(
        principal=Principal(kind="hub", id=instance),
        username=f"{HUB}{instance}",
        password=SecretStr(login.password or ""),
        owner=f"Strawberry hub {hub_id}",
        any_client_id=True,
    )


def _refuse_other_hub(state: DynsecState, entry: WantedClient) -> None:
    for client in state.clients.values():
        if client.username.startswith(HUB) and client.textname != entry.owner:
            whose = client.textname or "someone else"
            raise Conflict(
                f"the broker is used by another hub already: {client.username} of {whose}",
                hint=f"Use another broker, or delete that client and its role if that hub is gone: "
                f"mosquitto_ctrl dynsec deleteClient {client.username}",
            )


def _everybody_may(lenient: list[str], others: Iterable[OtherClient]) -> Conflict:
    # Not changed here: logins of a password file may depend on it too, and they cannot be listed.
    names = ", ".join(each.username or _NAMELESS for each in others)
    return Conflict(
        f"on this broker anyone may {' and '.join(lenient)} by default"
        + (f", and some may live from it: {names}" if names else ""),
        hint="Give each client a role with what it needs (mosquitto_ctrl dynsec createRole, addRoleACL and "
        "addClientRole), forbid the rest (as the administrator: mosquitto_pub "
        f"-t '{topics.DYNAMIC_SECURITY}' -m '{_FORBID}'), see that all still work, and try again.",
    )


async def _try_hub(url: str, login: Login, ca: str | None) -> None:
    try:
        async with open_security(url, login, ca=ca) as security:
            await security.default_access()
    except LoginRefused as error:
        raise LinkError(f"the hub's new login does not work: {error.message}") from None


async def _others(security: DynamicSecurity, state: DynsecState, admins: set[str]) -> list[OtherClient]:
    roles_of = {each.groupname: {use.rolename for use in each.roles} for each in await security.groups()}

    def reaches(rolenames: set[str]) -> bool:
        acls = (acl for name in rolenames if name in state.roles for acl in state.roles[name].acls)
        return any(_reaches(acl) for acl in acls)

    others: list[OtherClient] = []
    for client in state.clients.values():
        if client.username in admins or any(use.rolename.startswith(OURS) for use in client.roles):
            continue
        rolenames = {use.rolename for use in client.roles}
        rolenames = rolenames.union(*(roles_of.get(each.groupname, set()) for each in client.groups))
        name = client.textname or client.textdescription
        others.append(OtherClient(client.username, name, reaches(rolenames)))
    nameless = await security.anonymous_group()
    if nameless:
        others.append(OtherClient("", _NAMELESS, reaches(roles_of.get(nameless, set()))))
    return others


def _reaches(acl: Acl) -> bool:
    sends_or_hears = acl.acltype == "publishClientSend" or acl.acltype.startswith("subscribe")
    return acl.allow and sends_or_hears and acl.topic.partition("/")[0] in _BRANCHES
