"""The rights of `contracts.access` as roles of Mosquitto's dynamic security.

The broker's own default decides where no role does, and on a broker with other clients it may be lenient.
So everyone of ours also has the base role, which is asked last and forbids the rest.
"""

from collections.abc import Iterator
from typing import Final

from broker.mosquitto.commands import Acl, Role, RoleUse
from contracts import topics
from contracts.access import Principal, Right, rights

__all__ = ["BASE", "OURS", "role_name", "role_of", "roles_used"]

OURS: Final = "strawberry-"
"""Every role of ours begins with it, and no other should."""

_FIRST: Final = 1
_LAST: Final = 0


def role_name(principal: Principal) -> str:
    """Name the role of one principal, which nobody else has."""
    return f"{OURS}{principal.kind}-{principal.id}"


def role_of(principal: Principal) -> Role:
    """Render what a principal may do."""
    return Role(rolename=role_name(principal), acls=frozenset(_acls(principal)))


def roles_used(principal: Principal) -> frozenset[RoleUse]:
    """List the roles that a principal's client has."""
    own = RoleUse(rolename=role_name(principal), priority=_FIRST)
    return frozenset((own, RoleUse(rolename=BASE.rolename, priority=_LAST)))


def _acls(principal: Principal) -> Iterator[Acl]:
    for right in rights(principal):
        yield _acl(right)
        if right.action == "subscribe" and right.filter == topics.EVERYTHING:
            # To the plugin "#" also covers what begins with "$"; to MQTT it does not.
            for hidden in (*topics.BROKER_OWN, topics.SHARED):
                yield Acl(acltype="subscribePattern", topic=hidden, allow=False, priority=1)
    if principal.kind == "hub":
        # It lets devices in and out.
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
