"""Probe of ``strawberry broker check``: what the bus needs of a broker, and what a broker must deny."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

from pydantic import SecretStr

from broker.limits import CHECK_BYTES, CHECK_LIFETIME_S, CHECK_SHOWN
from broker.logins import BusLogin
from broker.mosquitto.clients import role_name
from broker.mosquitto.commands import ChangeClient, DeleteRole
from broker.mosquitto.logins import MosquittoLogins
from broker.mosquitto.own_logins import hub_login
from broker.mosquitto.provisioning import open_security
from broker.probe import Probe, ProbeLogin, Received, open_probe
from contracts import topics
from contracts.access import Principal, allowed, rights
from contracts.devices.joining import Login
from contracts.errors import StrawberryError
from identity import tokens
from identity.keys import KeyPair

__all__ = ["Finding", "OurBroker", "SharedBroker", "check"]

_LEVELS: Final = {
    **dict.fromkeys((name for row in topics.TOPICS for name in row.names), "check"),
    "skill": "Check",
    "call": "0190a6c8-4d3a-7b6e-8f00-000000000000",
}
"""The levels of the topics that are tried."""


@dataclass(frozen=True)
class Finding:
    """Result of one try.

    Attributes:
        name: What was tried, for example ``without a password``.
        ok: Whether the broker did what it should.
        detail: What happened.
        hint: What to do about it; may be empty.
    """

    name: str
    ok: bool
    detail: str
    hint: str = ""


@dataclass(frozen=True)
class OurBroker:
    """A broker of our own.

    Attributes:
        key: The hub's.
        instance: Name of the hub process as which the check logs in.
        ca: PEM that vouches for the broker of an ``mqtts`` URL; None for the system's authorities.
        timeout_s: How long the broker may take for each answer.
    """

    kind: Literal["embedded", "mosquitto", "nats"]
    url: str
    hub_id: str
    key: KeyPair
    instance: str = "main"
    ca: str | None = None
    timeout_s: float = 5.0

    def hub(self) -> ProbeLogin:
        """Return a login of the hub, which does not disturb a hub that runs."""
        if self.kind != "mosquitto":
            client = self.client(Principal("hub", self.instance))
        else:
            login = hub_login(self.key, self.instance)
            client = self._login(login.username or "", SecretStr(login.password or ""))
        return replace(client, client_id=f"{client.client_id}-check-{secrets.token_hex(4)}")

    def client(self, principal: Principal, key: KeyPair | None = None) -> ProbeLogin:
        """Return a login with a token that expires soon, signed by the hub if no other key is given."""
        claims = tokens.make_claims(
            hub_id=self.hub_id,
            subject=principal.id,
            kind=principal.kind,
            owner=principal.owner,
            scopes=principal.scopes,
            lifetime_s=CHECK_LIFETIME_S,
        )
        return self._login(principal.id, SecretStr(tokens.issue(key or self.key, claims)))

    def _login(self, name: str, password: SecretStr) -> ProbeLogin:
        protocol: Literal[4] | None = 4 if self.kind != "mosquitto" else None
        return ProbeLogin(
            self.url, name, name, password, ca=self.ca, protocol=protocol, timeout_s=self.timeout_s
        )


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


async def check(broker: OurBroker | SharedBroker) -> list[Finding]:
    """Try a running broker. Nothing stays on it, also when this is interrupted.

    Returns:
        What was tried, in that order; a broker that cannot be reached is a finding, too.
    """
    findings: list[Finding] = []
    try:
        if isinstance(broker, SharedBroker):
            await _check_shared(broker, findings)
        else:
            await _check_ours(broker, findings)
    except StrawberryError as error:
        findings.append(Finding("connection", ok=False, detail=error.message, hint=error.hint))
    except TimeoutError:
        findings.append(
            Finding("connection", ok=False, detail="the broker does not answer", hint="Look into its log.")
        )
    return findings


async def _check_ours(broker: OurBroker, findings: list[Finding]) -> None:
    tag, hub_account = secrets.token_hex(4), broker.hub()
    device, owner = Principal("device", f"check_{tag}"), f"check_{tag}_user"
    reader = Principal("client", f"check_{tag}_reader", owner)
    chatter = Principal("client", f"check_{tag}_chat", owner, chat=True)
    async with open_probe(hub_account) as hub:
        findings.append(_login_finding("login of the hub", hub, wanted=True, hint=_NOT_OURS, url=broker.url))
        if not hub.accepted:
            return
        async with _accounts(broker, (device, reader, chatter)) as logins:
            good = logins[device]
            forged = broker.client(device, KeyPair.generate()).password
            for name, login, wanted in (
                ("login of a device", good, True),
                ("without a name", replace(good, username=None, password=None), False),
                ("without a password", replace(good, password=None), False),
                ("token by another key", replace(good, password=forged), False),
                ("token of another", replace(logins[reader], password=good.password), False),
                ("reader in the place of a device", replace(logins[reader], client_id=device.id), False),
            ):
                async with open_probe(login) as probe:
                    findings.append(_login_finding(name, probe, wanted=wanted, hint=_OPEN))
            for name, who in (("a device", device), ("a reader", reader), ("a chat client", chatter)):
                wrong = await _wrong_rights(who, logins[who], hub, f"check_{tag}_other")
                findings.append(_rights_finding(f"rights of {name}", wrong))
        topic = topics.STATE.build(device=device.id, skill="Check", property="value")
        findings += await _try_messages(hub_account, topic)


async def _check_shared(broker: SharedBroker, findings: list[Finding]) -> None:
    device = f"check_{secrets.token_hex(4)}"
    password = SecretStr(broker.login.password) if broker.login.password is not None else None
    login = ProbeLogin(broker.url, f"strawberry-{device}", broker.login.username, password, ca=broker.ca)
    topic = broker.prefix + topics.STATE.build(device=device, skill="Check", property="value")
    async with open_probe(login) as probe:
        findings.append(_login_finding("login", probe, wanted=True, hint=_LOGIN, url=broker.url))
        if not probe.accepted:
            return
        findings += await _try_messages(replace(login, client_id=f"{login.client_id}-messages"), topic)
        await probe.subscribe(topic)
        stranger = replace(login, client_id=f"{login.client_id}-stranger", username=None, password=None)
        async with open_probe(stranger) as other:
            forged = other.accepted and await other.publish(topic, b"forged")
            detail = "anyone can log in" if other.accepted else f"refused: {other.refusal}"
        heard = bool(forged) and bool(await _heard(probe, probe, topic, payload=b"forged"))
        detail += ", and can publish on Strawberry's topics" if heard else ""
        findings.append(Finding("without a name", not heard, detail, _ANONYMOUS if heard else ""))
    findings.append(Finding("what signatures protect", ok=True, detail=_PROTECTED))
    findings.append(Finding("what is not protected here", ok=True, detail=_UNPROTECTED, hint=_OWN))


@asynccontextmanager
async def _accounts(
    broker: OurBroker, principals: Iterable[Principal]
) -> AsyncIterator[dict[Principal, ProbeLogin]]:
    """Allow principals to log in, and delete their logins at the end."""
    logins = {each: broker.client(each) for each in principals}
    if broker.kind != "mosquitto":
        # They know logins by their tokens alone, which expire.
        yield logins
        return
    login = hub_login(broker.key, broker.instance)
    async with open_security(broker.url, login, ca=broker.ca) as security:
        try:
            for principal, each in logins.items():
                token, expires_at = each.password or SecretStr(""), int(time.time()) + CHECK_LIFETIME_S
                await MosquittoLogins(security).allow(BusLogin(principal, token, expires_at))
            yield logins
        finally:
            async with asyncio.timeout(broker.timeout_s):
                await security.ask(
                    [
                        *(ChangeClient(command="deleteClient", username=each.id) for each in logins),
                        # A role only after its client: the other order has crashed Mosquitto.
                        *(DeleteRole(rolename=role_name(each)) for each in logins),
                    ]
                )


async def _wrong_rights(who: Principal, login: ProbeLogin, hub: Probe, other: str) -> list[str]:
    """Publish and subscribe as a principal, on topics of its own and of another; return what is wrong."""
    given = rights(who)
    own = _LEVELS | {"device": who.id, "principal": who.id, "user": who.owner or other}
    others = _LEVELS | dict.fromkeys(("device", "principal", "user"), other)
    table = {row.build(**names) for row in topics.TOPICS for names in (own, others)}
    payload = secrets.token_hex(8).encode()
    # With QoS 1, NATS delivers to several subscriptions in any order, also the mark at the end.
    for branch in topics.BRANCHES:
        await hub.subscribe(branch, qos=0)
    may_publish = {topic for topic in table if allowed(given, "publish", topic)}
    # A client that publishes what it may not may be disconnected: each such try logs in again.
    for group in (may_publish, *({topic} for topic in table - may_publish)):
        async with open_probe(login) as probe:
            for topic in group:
                await probe.publish(topic, payload)
    mark = topics.HUB_STATUS.build(instance="check-mark")
    published = {each.topic for each in await _heard(hub, hub, mark, payload=payload)}
    async with open_probe(login) as probe:
        for filter_ in (*table, topics.EVERYTHING, mark):
            await probe.subscribe(filter_, qos=0)
        for topic in table:
            await hub.publish(topic, payload)
        delivered = {each.topic for each in await _heard(probe, hub, mark, payload=payload)}
    may_hear = {
        topic
        for topic in table
        if allowed(given, "receive", topic)
        and any(allowed(given, "subscribe", filter_) for filter_ in (topic, topics.EVERYTHING))
    }
    return [
        *(f"can publish {topic}" for topic in sorted(published - may_publish)),
        *(f"cannot publish {topic}" for topic in sorted(may_publish - published)),
        *(f"can hear {topic}" for topic in sorted(delivered - may_hear)),
        *(f"cannot hear {topic}" for topic in sorted(may_hear - delivered)),
    ]


async def _heard(witness: Probe, sender: Probe, topic: str, *, payload: bytes) -> list[Received]:
    """Return the messages with a payload that were delivered so far; the witness can hear the topic."""
    mark, messages = secrets.token_hex(8).encode(), list[Received]()
    await sender.publish(topic, mark)
    while (message := await witness.next()).payload != mark:
        messages.append(message)
    return [each for each in messages if each.payload == payload]


async def _try_messages(login: ProbeLogin, topic: str) -> list[Finding]:
    """Try what the bus needs of any broker: QoS 1, retained messages, large messages."""
    return [
        await _try_message(login, topic, "retained messages", size=8, retain=True, hint=_KEEP),
        await _try_message(login, topic, "large messages", size=CHECK_BYTES, retain=False, hint=_LARGER),
    ]


async def _come_back(probe: Probe, topic: str) -> Received:
    """Return what is delivered of a topic.

    Raises:
        TimeoutError: If nothing is.
    """
    await probe.subscribe(topic)
    try:
        return await probe.next()
    except TimeoutError:
        # The nodes of a cluster learn a moment after its answer what is retained.
        await probe.subscribe(topic)
        return await probe.next()


async def _try_message(
    login: ProbeLogin, topic: str, name: str, *, size: int, retain: bool, hint: str
) -> Finding:
    payload, message = secrets.token_bytes(size), None
    async with open_probe(login) as probe:
        try:
            if not retain:
                await probe.subscribe(topic)
            if await probe.publish(topic, payload, retain=retain):
                message = await _come_back(probe, topic)
        except TimeoutError:
            pass
        finally:
            if retain:
                await probe.publish(topic, b"", retain=True)
    expected = Received(topic, payload, retained=retain, qos=1)
    detail = f"{size} bytes with QoS 1 {'came back' if message == expected else 'did not come back'}"
    return Finding(name, message == expected, detail, "" if message == expected else hint)


def _login_finding(name: str, probe: Probe, *, wanted: bool, hint: str, url: str = "") -> Finding:
    detail = " at ".join(filter(None, ("can log in", url)))
    if not probe.accepted:
        detail = f"refused: {probe.refusal}"
    is_ok = probe.accepted == wanted
    return Finding(name, is_ok, detail, "" if is_ok else hint)


def _rights_finding(name: str, wrong: list[str]) -> Finding:
    if not wrong:
        return Finding(name, ok=True, detail="may do what it needs, and nothing else")
    more = f", and {len(wrong) - CHECK_SHOWN} more" if len(wrong) > CHECK_SHOWN else ""
    return Finding(name, ok=False, detail="it " + ", ".join(wrong[:CHECK_SHOWN]) + more, hint=_REDO)


_NOT_OURS: Final = "Is it the broker of another home? Give its address, or provision it for this one."
_REDO: Final = "Provision the broker again: strawberry broker provision."
_OPEN: Final = f"Anyone who reaches the broker can take part in the bus. {_REDO}"
_LOGIN: Final = "Check the username and the password in strawberry.toml and .env."
_ANONYMOUS: Final = (
    "Forbid it on the broker (Mosquitto: allow_anonymous false), and give each client a login."
)
_LARGER: Final = "Set max_packet_size of the broker to 1048576 or more, and let this login publish there."
_KEEP: Final = "Allow retained messages on the broker (Mosquitto: retain_available true)."
_PROTECTED: Final = (
    "calls, results, registrations and presence are signed: they cannot be forged, changed or repeated"
)
_UNPROTECTED: Final = (
    "every login of this broker may be able to read calls with their arguments, to invent heartbeats, "
    "values and events of any device, and to delay or drop what passes"
)
_OWN: Final = "Where that matters, use a broker of our own: strawberry up --broker mosquitto."
