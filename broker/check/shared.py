"""Checks of a foreign broker that carries our bus, too: what works there, and what is not protected."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from pydantic import SecretStr

from broker.check.transport import Finding, heard_before, try_transport
from broker.probe import ProbeLogin, open_probe
from contracts import topics
from contracts.devices.joining import Login
from identity.certificates import client_context

__all__ = ["SharedBroker", "try_shared"]


@dataclass(frozen=True)
class SharedBroker:
    """A broker of others that carries our bus, too.

    Attributes:
        login: The ordinary one.
        prefix: In front of every topic.
        ca: PEM that vouches for the broker of an ``mqtts`` URL; None for the system's authorities.
    """

    url: str
    login: Login
    prefix: str = "strawberry/"
    ca: str | None = None


async def try_shared(broker: SharedBroker) -> AsyncGenerator[Finding, None]:
    """Try a broker of others.

    Raises:
        Disconnected: If it cannot be reached.
        TimeoutError: If it does not answer.
    """
    tag = secrets.token_hex(4)
    password = SecretStr(broker.login.password) if broker.login.password is not None else None
    login = ProbeLogin(
        broker.url, f"strawberry-check-{tag}", broker.login.username, password, tls=client_context(broker.ca)
    )
    async with open_probe(login) as probe:
        if probe.refusal is not None:
            yield Finding("login", ok=False, detail=f"refused: {probe.refusal}", hint=_LOGIN)
            return
        yield Finding("login", ok=True, detail=f"logged in at {broker.url}")
    device = f"check_{tag}"
    topic = broker.prefix + topics.STATE.build(device=device, skill="Check", property="value")
    async with aclosing(try_transport(login, topic)) as findings:
        async for finding in findings:
            yield finding
    yield await _try_strangers(login, broker.prefix + topics.EVENT.build(device=device, name="check"))
    yield Finding("what signatures protect", ok=True, detail=_PROTECTED)
    yield Finding("what is not protected here", ok=True, detail=_UNPROTECTED, hint=_OWN)


async def _try_strangers(login: ProbeLogin, topic: str) -> Finding:
    name = "without a name"
    stranger = replace(login, client_id=f"{login.client_id}-stranger", username=None, password=None)
    async with open_probe(login) as ours, open_probe(stranger) as probe:
        if not probe.accepted:
            return Finding(name, ok=True, detail=f"refused: {probe.refusal}")
        await ours.subscribe(topic)
        forged, mark = secrets.token_bytes(8), secrets.token_bytes(8)
        await probe.publish(topic, forged)
        await ours.publish(topic, mark)
        through = any(each.payload == forged for each in await heard_before(ours, topic, mark))
    can = "and can publish on Strawberry's topics" if through else "but cannot publish on Strawberry's topics"
    return Finding(
        name, ok=not through, detail=f"anyone can log in, {can}", hint=_ANONYMOUS if through else ""
    )


_LOGIN = "Check the username and the password in strawberry.toml and .env."
_ANONYMOUS = "Forbid it on the broker (Mosquitto: allow_anonymous false), and give each client a login."
_PROTECTED = (
    "calls, results, registrations and presence are signed: they cannot be forged, changed or repeated"
)
_UNPROTECTED = (
    "every login of this broker may be able to read calls with their arguments, to invent heartbeats, "
    "values and events of any device, and to delay or drop what passes"
)
_OWN = "Where that matters, use a broker of our own: strawberry up --broker mosquitto."
