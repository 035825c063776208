"""Trying a broker of our own: who can log in, and what each may do."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from pydantic import SecretStr

from broker.check.accounts import Accounts, OurBroker, open_accounts
from broker.check.expected import Row, Way, rows
from broker.check.transport import Finding, heard_before, try_transport
from broker.probe import Probe, ProbeLogin, Received, open_probe
from contracts import topics
from contracts.access import Principal
from identity.keys import KeyPair

__all__ = ["try_ours", "try_rights"]

_OPEN: Final = (
    "Anyone who reaches the broker can take part in the bus. Provision it again: strawberry broker provision."
)
_REDO: Final = "Provision the broker again: strawberry broker provision."
_SHOWN: Final = 5
"""Deviations from the table that are listed; the others are counted."""


@dataclass(frozen=True)
class _Cast:
    """The principals that exist for the time of the check."""

    device: Principal
    other: Principal
    reader: Principal
    chatter: Principal
    logins: dict[Principal, ProbeLogin]

    @classmethod
    async def of(cls, accounts: Accounts) -> "_Cast":
        """Allow them to log in."""
        tag = secrets.token_hex(4)
        device, other = Principal("device", f"check_{tag}_a"), Principal("device", f"check_{tag}_b")
        owner = f"check_{tag}_user"
        reader = Principal("client", f"check_{tag}_reader", owner)
        chatter = Principal("client", f"check_{tag}_chat", owner, chat=True)
        everybody = (device, other, reader, chatter)
        return cls(*everybody, {each: await accounts.allow(each) for each in everybody})


async def try_ours(broker: OurBroker) -> AsyncGenerator[Finding, None]:
    """Try a broker of our own.

    Raises:
        LinkError: If the broker cannot be used.
        TimeoutError: If it does not answer.
    """
    async with open_accounts(broker) as accounts:
        yield Finding("login of the hub", ok=True, detail=f"logged in at {broker.url}")
        cast = await _Cast.of(accounts)
        async with aclosing(_try_logins(broker, accounts, cast)) as findings:
            async for finding in findings:
                yield finding
        async with open_probe(accounts.hub()) as hub:
            for name, who in (
                ("a device", cast.device),
                ("a reader", cast.reader),
                ("a chat client", cast.chatter),
            ):
                names = {"device": cast.device.id, "other": cast.other.id}
                wrong = await try_rights(who, cast.logins[who], hub, **names)
                yield _judged(f"rights of {name}", wrong)
        topic = topics.STATE.build(device=cast.device.id, skill="Check", property="value")
        async with aclosing(try_transport(accounts.hub(), topic)) as findings:
            async for finding in findings:
                yield finding
        yield await _try_shutting_out(accounts, cast, broker.patience_s)


async def _try_logins(broker: OurBroker, accounts: Accounts, cast: _Cast) -> AsyncGenerator[Finding, None]:
    good, hub = cast.logins[cast.device], accounts.hub()
    yield await _try_login("login of a device", good, wanted=True)
    yield await _try_login("login of a reader", cast.logins[cast.reader], wanted=True)
    yield await _try_login("without a name", replace(good, username=None, password=None), wanted=False)
    yield await _try_login("without a password", replace(good, password=None), wanted=False)
    guessed = SecretStr(secrets.token_urlsafe())
    yield await _try_login("wrong password of the hub", replace(hub, password=guessed), wanted=False)
    forged = replace(broker, key=KeyPair.generate()).token(cast.device)
    yield await _try_login("token by another key", replace(good, password=forged), wanted=False)
    cut = SecretStr((good.password or guessed).get_secret_value()[:-4])
    yield await _try_login("token that was cut", replace(good, password=cut), wanted=False)
    yield await _try_login("token that has expired", accounts.expired(cast.device), wanted=False)
    stolen = replace(cast.logins[cast.other], password=good.password)
    yield await _try_login("token of another device", stolen, wanted=False)
    taken = replace(cast.logins[cast.reader], client_id=good.client_id)
    yield await _try_login("reader in the place of a device", taken, wanted=False)


async def _try_login(name: str, login: ProbeLogin, *, wanted: bool) -> Finding:
    async with open_probe(login) as probe:
        detail = "can log in" if probe.accepted else f"refused: {probe.refusal}"
        return Finding(name, probe.accepted == wanted, detail, "" if probe.accepted == wanted else _OPEN)


async def try_rights(who: Principal, login: ProbeLogin, hub: Probe, *, device: str, other: str) -> list[str]:
    """Try every line of the table for a principal, and return what is not as it says.

    Args:
        hub: Logged in as the hub, which may do all of it; it is subscribed to all our topics.
        device: Name of a device that is not the other one.
        other: Name of the other device, principal and user.
    """
    table = list(rows(who, device=device, other=other))
    for branch in topics.BRANCHES:
        await hub.subscribe(branch)
    wrong = await _try_publishing([row for row in table if row.way == "publish"], login, hub)
    ways: tuple[Way, ...] = ("by name", "by wildcard", "everything")
    for way in ways:
        wrong += await _try_hearing([row for row in table if row.way == way], login, hub)
    return wrong


async def _try_publishing(table: list[Row], login: ProbeLogin, hub: Probe) -> list[str]:
    payload = secrets.token_hex(8).encode()
    # Mosquitto may disconnect a client that publishes what it may not: each such try has a login of its own.
    groups = [[row for row in table if row.allowed], *([row] for row in table if not row.allowed)]
    for group in groups:
        async with open_probe(login) as probe:
            for row in group:
                await probe.publish(row.topic, payload)
    return _deviations(table, await _until_now(hub, hub), payload)


async def _try_hearing(table: list[Row], login: ProbeLogin, hub: Probe) -> list[str]:
    payload = secrets.token_hex(8).encode()
    async with open_probe(login) as probe:
        for filter_ in {row.filter for row in table}:
            await probe.subscribe(filter_)
        for row in table:
            await hub.publish(row.topic, payload)
        return _deviations(table, await _until_now(probe, hub), payload)


def _deviations(table: list[Row], messages: list[Received], payload: bytes) -> list[str]:
    heard = {message.topic for message in messages if message.payload == payload}
    return [_said(row) for row in table if (row.topic in heard) != row.allowed]


async def _until_now(witness: Probe, hub: Probe) -> list[Received]:
    """Return all that was delivered to one of the two so far."""
    # A device hears the hub's status, and so does everybody else.
    topic, mark = topics.HUB_STATUS.build(instance="check-mark"), secrets.token_hex(8).encode()
    if witness is not hub:
        await witness.subscribe(topic)
    await hub.publish(topic, mark)
    return await heard_before(witness, topic, mark)


def _said(row: Row) -> str:
    can = "cannot" if row.allowed else "can"
    verb = "publish" if row.way == "publish" else "hear"
    how = {"by wildcard": f" by subscribing to {row.filter}", "everything": " by subscribing to #"}.get(
        row.way, ""
    )
    return f"it {can} {verb} {row.named}{how}"


async def _try_shutting_out(accounts: Accounts, cast: _Cast, patience_s: float) -> Finding:
    name, login = "shutting out", cast.logins[cast.device]
    async with open_probe(login) as probe:
        await accounts.revoke(cast.device)
        try:
            async with asyncio.timeout(patience_s):
                await probe.gone.wait()
        except TimeoutError:
            return Finding(name, ok=False, detail="a device that is shut out stays connected", hint=_REDO)
    async with open_probe(login) as again:
        if again.accepted:
            return Finding(name, ok=False, detail="a device that is shut out comes back", hint=_REDO)
    return Finding(name, ok=True, detail="a device is disconnected at once and cannot come back")


def _judged(name: str, wrong: list[str]) -> Finding:
    if not wrong:
        return Finding(name, ok=True, detail="may do what it needs, and nothing else")
    more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return Finding(name, ok=False, detail=", ".join(wrong[:_SHOWN]) + more, hint=_REDO)
