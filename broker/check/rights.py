"""Trying a broker of our own: who gets in, and what each may do."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from pydantic import SecretStr

from broker.check.finding import Finding
from broker.check.guests import Guests, OurBroker, open_guests
from broker.check.transport import heard_before, try_transport
from broker.trials import Received, Trial, TrialLogin, open_trial
from contracts import topics
from contracts.access import Principal
from identity import ids
from identity.keys import KeyPair

__all__ = ["try_ours"]

_OPEN: Final = (
    "Whoever reaches the broker takes part in the bus. Provision it again: strawberry broker provision."
)
_REDO: Final = "Provision the broker again: strawberry broker provision."


@dataclass(frozen=True)
class _Cast:
    """Who appears: two devices and a reader that exist for a moment."""

    device: Principal
    other: Principal
    reader: Principal
    logins: dict[Principal, TrialLogin]

    @classmethod
    async def of(cls, guests: Guests) -> "_Cast":
        """Let them in."""
        tag = secrets.token_hex(4)
        device, other = Principal("device", f"check_{tag}_a"), Principal("device", f"check_{tag}_b")
        reader = Principal("client", f"check_{tag}_reader")
        everybody = (device, other, reader)
        return cls(device, other, reader, {each: await guests.admit(each) for each in everybody})


async def try_ours(broker: OurBroker) -> AsyncGenerator[Finding, None]:
    """Try a broker of our own.

    Raises:
        LinkError: If the broker cannot be used.
        TimeoutError: If it does not answer.
    """
    async with open_guests(broker) as guests:
        yield Finding("login of the hub", ok=True, detail=f"logged in at {broker.url}")
        cast = await _Cast.of(guests)
        async with aclosing(_try_logins(broker, guests, cast)) as findings:
            async for finding in findings:
                yield finding
        async with open_trial(guests.hub()) as hub:
            scenes = _Scenes(cast, hub)
            yield await scenes.own_topics()
            yield await scenes.others_topics()
            yield await scenes.reader()
        topic = topics.STATE.build(device=cast.device.id, skill="Check", property="value")
        async with aclosing(try_transport(guests.hub(), topic)) as findings:
            async for finding in findings:
                yield finding
        yield await _try_shutting_out(guests, cast, broker.patience_s)


async def _try_logins(broker: OurBroker, guests: Guests, cast: _Cast) -> AsyncGenerator[Finding, None]:
    good, hub = cast.logins[cast.device], guests.hub()
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
    yield await _try_login("token that has expired", guests.expired(cast.device), wanted=False)
    stolen = replace(cast.logins[cast.other], password=good.password)
    yield await _try_login("token of another device", stolen, wanted=False)
    taken = replace(cast.logins[cast.reader], client_id=good.client_id)
    yield await _try_login("reader in the place of a device", taken, wanted=False)


async def _try_login(name: str, login: TrialLogin, *, wanted: bool) -> Finding:
    async with open_trial(login) as trial:
        detail = "gets in" if trial.accepted else f"refused: {trial.refusal}"
        return Finding(name, trial.accepted == wanted, detail, "" if trial.accepted == wanted else _OPEN)


class _Scenes:
    """What one may do and hear, with the hub as witness."""

    def __init__(self, cast: _Cast, hub: Trial) -> None:
        self._cast = cast
        self._hub = hub

    async def own_topics(self) -> Finding:
        """A device publishes its own, and hears what is for it."""
        device = self._cast.device
        sent = await self._reaches_hub(device, device)
        heard = await self._hears_call(device, device)
        return _judged(
            "a device's own topics",
            [(sent, "it can publish"), (heard, "it hears its calls")],
            [(not sent, "it cannot publish"), (not heard, "it does not hear its calls")],
        )

    async def others_topics(self) -> Finding:
        """A device neither speaks for another nor listens to it."""
        device, other = self._cast.device, self._cast.other
        sent = await self._reaches_hub(device, other)
        heard = await self._hears_call(device, other)
        return _judged(
            "another device's topics",
            [(not sent, "it cannot publish"), (not heard, "it does not hear the calls")],
            [(sent, "it can publish for another"), (heard, "it hears another's calls")],
        )

    async def reader(self) -> Finding:
        """A reader asks for everything, and is given events but no calls."""
        device, reader = self._cast.device, self._cast.reader
        event, call = _event(device), _call(device)
        async with open_trial(self._cast.logins[reader]) as trial:
            asked = await trial.subscribe(topics.EVERYTHING)
            await self._hub.publish(call, b"check")
            await self._hub.publish(event, b"check")
            messages = await self._before_mark(trial, event) if asked else []
        told = any(each.topic == event for each in messages)
        spied = any(each.topic == call for each in messages)
        return _judged(
            "what a reader sees",
            [(told, "events"), (not spied, "no calls")],
            [(not told, "no events"), (spied, "the arguments of calls")],
        )

    async def _reaches_hub(self, who: Principal, whose: Principal) -> bool:
        await self._hub.subscribe(_event(whose))
        payload = secrets.token_hex(8).encode()
        # A broker may hang up on who publishes what is forbidden.
        async with open_trial(self._cast.logins[who]) as trial:
            await trial.publish(_event(whose), payload)
        messages = await self._before_mark(self._hub, _event(whose))
        return any(each.payload == payload for each in messages)

    async def _hears_call(self, who: Principal, whose: Principal) -> bool:
        async with open_trial(self._cast.logins[who]) as trial:
            await trial.subscribe(_control(who))
            await trial.subscribe(_call(whose))
            await self._hub.publish(_call(whose), b"check")
            messages = await self._before_mark(trial, _control(who))
        return any(each.topic == _call(whose) for each in messages)

    async def _before_mark(self, trial: Trial, topic: str) -> list[Received]:
        mark = secrets.token_hex(8).encode()
        await self._hub.publish(topic, mark)
        return await heard_before(trial, topic, mark)


async def _try_shutting_out(guests: Guests, cast: _Cast, patience_s: float) -> Finding:
    name, login = "shutting out", cast.logins[cast.device]
    async with open_trial(login) as trial:
        await guests.shut_out(cast.device)
        try:
            async with asyncio.timeout(patience_s):
                await trial.gone.wait()
        except TimeoutError:
            return Finding(name, ok=False, detail="a device that is shut out stays connected", hint=_REDO)
    async with open_trial(login) as again:
        if again.accepted:
            return Finding(name, ok=False, detail="a device that is shut out comes back", hint=_REDO)
    return Finding(name, ok=True, detail="a device is disconnected at once and cannot come back")


def _judged(name: str, good: list[tuple[bool, str]], bad: list[tuple[bool, str]]) -> Finding:
    wrong = [text for holds, text in bad if holds]
    if wrong:
        return Finding(name, ok=False, detail=", ".join(wrong), hint=_REDO)
    return Finding(name, ok=True, detail=", ".join(text for _, text in good))


def _event(device: Principal) -> str:
    return topics.EVENT.build(device=device.id, name="check")


def _call(device: Principal) -> str:
    return topics.CALL.build(device=device.id, skill="Check", method="check")


def _control(device: Principal) -> str:
    return topics.CONTROL.build(device=device.id, call=_CALL_ID)


_CALL_ID: Final = ids.uuid7()
