"""Joining a hub: at the first start with an enrolment token, afterwards with what was stored."""

import asyncio
import logging
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr, ValidationError

from broker.files import make_private_directory
from broker.keys import KeyPair
from contracts.errors import ConfigError, InvalidMessage, StrawberryError, Unauthorized
from spoke.clock import HubClock
from spoke.enrolment import FILE_NAME, Enrolment, EnrolmentAnswer
from spoke.hub_http import HubAnswer, HubHttp, HubUnreachable
from spoke.settings import SpokeSettings

_LOG = logging.getLogger(__name__)

KEY_FILE: Final = "key.pem"
_ENROL: Final = "/api/devices/enrol"
WELL_KNOWN: Final = "/.well-known/strawberry"
_ASK_S: Final = 3.0
"""A spoke that has joined works without an answer; it waits for one only this long."""

_NEW_TOKEN: Final = "Make a new one on the hub with 'strawberry devices add NAME'."  # noqa: S105 - a hint
_WHICH_KEY: Final = "Somebody may be in between, or it is another hub: see what 'devices add' prints there."
_TRY_LATER: Final = (429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Identity:
    """Who this device is: its key, and its place in a home."""

    key: KeyPair
    enrolment: Enrolment


async def join(settings: SpokeSettings, *, token: SecretStr | None, clock: HubClock) -> Identity:
    """Give this device's identity; enrol first where there is none, or where a new token is given.

    While the hub cannot be reached it is tried again, for as long as that takes.

    Args:
        token: An enrolment token; only needed for the first start, ignored when it was used already.
        clock: Set by the hub's answer.

    Raises:
        ConfigError: If a token is needed and none is given, the stored enrolment is for another hub,
            or the hub's key is not the expected one.
        Unauthorized: If the hub refuses the token.
        InvalidMessage: If the hub's answer is not one of a hub.
    """
    directory = make_private_directory(settings.directory)
    path = directory / FILE_NAME
    hub = HubHttp(settings.hub_url)
    stored = Enrolment.load(path)
    if stored is not None:
        stored = await _still_valid(stored, settings, hub, clock)
    elif token is None:
        raise ConfigError(
            f"this device has not joined {hub.url} yet and has no enrolment token",
            hint="Run 'strawberry devices add NAME' on the hub and the command that it prints here.",
        )
    key = KeyPair.load_or_create(directory / KEY_FILE)
    if stored is not None and (token is None or stored.was_invited_by(token)):
        return _identity(key, stored, path)
    assert token is not None
    joining = _Joining(hub, settings=settings, key=key, clock=clock)
    try:
        enrolment = await joining.enrol(token)
    except Unauthorized as error:
        if stored is None:
            raise
        # An old command with its old token, run again: what is stored is as good as before.
        _LOG.warning("the new enrolment token was not used: %s. Going on as %s", error, stored.device)
        return _identity(key, stored, path)
    enrolment.save(path)
    _LOG.info("joined %s as %s; the hub's key is %s", hub.url, enrolment.device, enrolment.hub_key.kid)
    return Identity(key, enrolment)


def _identity(key: KeyPair, stored: Enrolment, path: Path) -> Identity:
    if key.kid != stored.key_id:
        raise ConfigError(
            f"{path.with_name(KEY_FILE)} is not the key that joined {stored.hub_url} as {stored.device}",
            hint=f"Restore it from a backup, or join again with a new token. {_NEW_TOKEN}",
        )
    return Identity(key, stored)


async def _still_valid(
    stored: Enrolment, settings: SpokeSettings, hub: HubHttp, clock: HubClock
) -> Enrolment:
    """Check what is stored against what is asked for; take over new addresses of the same hub."""
    path = settings.directory / FILE_NAME
    _check_fingerprint(
        settings.hub_key,
        stored.hub_key.kid,
        url=stored.hub_url,
        hint=f"For another hub, remove {path} and join anew.",
    )
    if stored.hub_url != hub.url and settings.hub_key is None:
        raise ConfigError(
            f"this device belongs to the hub {stored.hub_url}, not to {hub.url}",
            hint=f"Same hub, new address: add '--hub-key {stored.hub_key.kid}'. Another hub: remove {path} "
            "and join with a new token, or set another STRAWBERRY_HOME.",
        )
    try:
        answer = await hub.get(WELL_KNOWN, timeout_s=_ASK_S)
    except HubUnreachable as error:
        _LOG.info("going on with the hub's addresses as they were: %s", error)
        return stored
    set_clock(clock, answer)
    found = stored.at(hub_url=hub.url, told=answer.body)
    if found != stored:
        _LOG.info("the hub has moved: %s, broker %s", found.hub_url, ", ".join(found.brokers))
        found.save(path)
    return found


def _check_fingerprint(expected: str | None, found: str, *, url: str, hint: str) -> None:
    if expected is not None and expected.strip() != found:
        raise ConfigError(f"the key of the hub {url} is {found}, not {expected.strip()}", hint=hint)


class _Joining:
    """One enrolment, tried until the hub says yes or no."""

    def __init__(self, hub: HubHttp, *, settings: SpokeSettings, key: KeyPair, clock: HubClock) -> None:
        self._hub = hub
        self._settings = settings
        self._key = key
        self._clock = clock

    async def enrol(self, token: SecretStr) -> Enrolment:
        delay = self._settings.retry_s
        while True:
            try:
                await self._check_hub()
                answer = await self._hub.post(
                    _ENROL, {"token": token.get_secret_value(), "public_key": self._key.public.jwk()}
                )
                if answer.status not in _TRY_LATER:
                    return self._enrolled(answer, token)
                reason = answer.error[0] or f"the hub at {self._hub.url} answered {answer.status}"
            except HubUnreachable as error:
                reason = error.message
            _LOG.warning("cannot join yet: %s; trying again in %.0f s", reason, delay)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            delay = min(delay * 2, self._settings.retry_max_s)

    async def _check_hub(self) -> None:
        """Tell a wrong hub from the right one before it is given the token, which is good only once."""
        if self._settings.hub_key is not None:
            told = (await self._hub.get(WELL_KNOWN)).body
            if isinstance(told, dict) and isinstance(told.get("key"), str):
                _check_fingerprint(self._settings.hub_key, told["key"], url=self._hub.url, hint=_WHICH_KEY)

    def _enrolled(self, answer: HubAnswer, token: SecretStr) -> Enrolment:
        if answer.status != 200:
            raise _refusal(self._hub.url, answer)
        set_clock(self._clock, answer)
        try:
            enrolment = Enrolment.of(
                EnrolmentAnswer.model_validate(answer.body),
                hub_url=self._hub.url,
                key=self._key.public,
                invitation=token,
                now=self._clock.now(),
            )
        except ValidationError:
            raise InvalidMessage(
                f"{self._hub.url} does not answer as a hub does", hint="Check the address."
            ) from None
        _check_fingerprint(
            self._settings.hub_key, enrolment.hub_key.kid, url=enrolment.hub_url, hint=_WHICH_KEY
        )
        return enrolment


def _refusal(url: str, answer: HubAnswer) -> StrawberryError:
    message, hint = answer.error
    if not message:
        return InvalidMessage(f"{url} answered {answer.status} and is no hub", hint="Check the address.")
    if answer.status in (401, 403, 409):
        return Unauthorized(f"the hub refuses to let this device in: {message}", hint=hint or _NEW_TOKEN)
    return InvalidMessage(f"the hub refuses to let this device in: {message}", hint=hint)


def set_clock(clock: HubClock, answer: HubAnswer) -> None:
    """Set the clock by an answer of the hub, and say so where this machine's is wrong."""
    moved = clock.set_ahead(answer.clock_ahead_s)
    if moved:
        _LOG.warning("this machine's clock is %.0f s off the hub's; the hub's is used", -moved)
