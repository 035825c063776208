"""Checks of what the bus needs of any broker: QoS 1, retained messages, message size."""

import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Final, Literal

from broker.probe import Probe, ProbeLogin, Received, open_probe
from contracts.errors import Disconnected

__all__ = ["Finding", "heard_before", "try_transport"]

_SIZE: Final = 256 * 1024
"""The registration of a skill with a hundred methods."""

_VERSIONS: Final[dict[Literal[4, 5], str]] = {4: "3.1.1", 5: "5"}


@dataclass(frozen=True)
class Finding:
    """One thing that was tried on a broker.

    Attributes:
        name: What, for example ``wrong password``.
        ok: Whether it is as it should be.
        detail: What happened.
        hint: What to do about it; may be empty.
    """

    name: str
    ok: bool
    detail: str
    hint: str = ""


async def try_transport(login: ProbeLogin, topic: str) -> AsyncGenerator[Finding, None]:
    """Try what a login can count on.

    Args:
        topic: One that it may publish and subscribe to, and that has no other use. It is empty afterwards.

    Raises:
        Disconnected: If the broker cannot be reached.
        TimeoutError: If it does not answer.
    """
    versions = [protocol for protocol in _VERSIONS if await _speaks(replace(login, protocol=protocol))]
    spoken = " and ".join(_VERSIONS[each] for each in versions) or "no version"
    yield Finding("MQTT versions", ok=bool(versions), detail=spoken)
    if not versions:
        return
    best = replace(login, protocol=versions[-1])
    async with open_probe(best) as one:
        yield await _qos(one, topic)
        yield await _retained(best, topic)
        # Last, because a broker hangs up on what it finds too large.
        yield await _size(one, topic)


async def heard_before(probe: Probe, topic: str, mark: bytes) -> list[Received]:
    """Return all that is delivered until the mark comes on the topic.

    Raises:
        TimeoutError: If it does not come.
    """
    messages: list[Received] = []
    while not messages or (messages[-1].topic, messages[-1].payload) != (topic, mark):
        messages.append(await probe.next())
    return messages[:-1]


async def _speaks(login: ProbeLogin) -> bool:
    try:
        async with open_probe(login) as probe:
            return probe.accepted
    except Disconnected:
        return False


async def _qos(one: Probe, topic: str) -> Finding:
    payload = secrets.token_bytes(8)
    granted = await one.subscribe(topic)
    taken = await one.publish(topic, payload)
    if not granted or not taken:
        return Finding("QoS 1", ok=False, detail=f"the broker refuses {topic}", hint=_RIGHTS)
    message = await one.next()
    ok = message.payload == payload and message.qos == 1
    return Finding("QoS 1", ok=ok, detail=f"a message came back with QoS {message.qos}")


async def _size(one: Probe, topic: str) -> Finding:
    payload = secrets.token_bytes(_SIZE)
    ok = await one.publish(topic, payload)
    try:
        while ok and (await one.next()).payload != payload:
            pass  # what came of trying other things
    except TimeoutError:
        ok = False
    name, size = "message size", f"{_SIZE // 1024} KiB"
    if ok:
        return Finding(name, ok=True, detail=f"{size} came back")
    return Finding(name, ok=False, detail=f"{size} did not come back", hint=_LARGER)


async def _retained(login: ProbeLogin, topic: str) -> Finding:
    payload, name = secrets.token_bytes(8), "retained messages"
    async with open_probe(replace(login, client_id=f"{login.client_id}-1")) as one:
        if not await one.publish(topic, payload, retain=True):
            return Finding(name, ok=False, detail="the broker does not take them", hint=_KEEP)
        try:
            kept = await _first(login, topic)
        finally:
            emptied = await one.publish(topic, b"", retain=True)
    if kept is None or (kept.payload, kept.retained) != (payload, True):
        return Finding(name, ok=False, detail="a late subscriber did not get it", hint=_KEEP)
    left = await _first(login, topic)
    if not emptied or left is not None:
        return Finding(name, ok=False, detail="one could not be removed again", hint=_KEEP)
    return Finding(name, ok=True, detail="a late subscriber got it, and it could be removed")


async def _first(login: ProbeLogin, topic: str) -> Received | None:
    """Return the message that is retained on a topic, seen by one who comes now."""
    async with open_probe(replace(login, client_id=f"{login.client_id}-2")) as later:
        await later.subscribe(topic)
        mark = secrets.token_bytes(8)
        await later.publish(topic, mark)
        before = await heard_before(later, topic, mark)
        return before[0] if before else None


_RIGHTS: Final = "Give this login the right to publish and to subscribe there."
_LARGER: Final = "Set max_packet_size of the broker to 1048576 or more."
_KEEP: Final = "Allow retained messages on the broker (Mosquitto: retain_available true)."
