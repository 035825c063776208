"""Joining a hub: by an enrolment token at the first start, from the stored enrolment afterwards."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from contracts.devices.joining import EnrolAnswer
from contracts.errors import (
    ConfigError,
    HubUnreachable,
    HubUntrusted,
    InvalidMessage,
    StrawberryError,
    Unauthorized,
)
from contracts.rates import Backoff
from identity.files import make_private_directory
from identity.keys import KeyPair
from spoke import limits
from spoke.membership.enrolment import FILE_NAME, KEY_FILE, Enrolment
from spoke.membership.hub_http import HubAnswer
from spoke.membership.refreshing import find_hub, refresh, set_clock
from spoke.membership.trust import check_address, check_fingerprint, meet
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings

_log = logging.getLogger(__name__)

_ENROL: Final = "/api/devices/enrol"
_NEW_TOKEN: Final = "Create a new one on the hub with 'strawberry devices add NAME'."  # noqa: S105 - a hint


@dataclass(frozen=True)
class Identity:
    """This device's key and enrolment.

    Attributes:
        is_confirmed: Whether the hub has just confirmed the enrolment.
    """

    key: KeyPair
    enrolment: Enrolment
    is_confirmed: bool


async def join(settings: SpokeSettings, *, token: SecretStr | None, clock: HubClock) -> Identity:
    """Return this device's identity; enrol first if there is none, or if a new token is given.

    While the hub cannot be reached, enrolling is retried for as long as that takes.

    Args:
        token: An enrolment token; needed for the first start only, ignored if it was used already.
        clock: Set by the hub's answer.

    Raises:
        ConfigError: If a token is needed and none is given, the stored enrolment is for another hub,
            or the hub has another key than expected.
        HubUntrusted: If the hub's certificate is not valid.
        Unauthorized: If the hub refuses the token.
        InvalidMessage: If the server is not a hub.
    """
    directory = make_private_directory(settings.directory)
    path, is_confirmed = directory / FILE_NAME, False
    stored = Enrolment.load(path)
    if stored is None and (token is None or settings.hub_url is None):
        raise ConfigError(
            f"this device has not joined {settings.hub_url or 'a hub'} yet and has no enrolment token",
            hint="Run 'strawberry spoke join' here; or run 'strawberry devices add NAME' on the hub, then "
            "the printed command here.",
        )
    key = KeyPair.load_or_create(directory / KEY_FILE)
    if stored is not None:
        wanted = _checked(stored, settings)
        found = await _asked(wanted, key, clock)
        is_confirmed = found is not None
        if found is not None and found != stored:
            _log.info("the hub is at %s, the bus at %s", found.hub_url, ", ".join(found.brokers))
            found.save(path)
        stored = found or wanted
    if token is None or (stored is not None and stored.was_invited_by(token)):
        assert stored is not None
        return _identity(key, stored, settings, is_confirmed=is_confirmed)
    url = settings.hub_url or (stored.hub_url if stored else "")
    if stored is not None:
        # The hub is known: what answers at the new address must have the same key.
        settings = settings.model_copy(update={"hub_key": stored.hub_key.kid, "insecure": stored.insecure})
    try:
        enrolment = await _enrol(url, token=token, key=key, settings=settings, clock=clock)
    except Unauthorized as error:
        if stored is None:
            raise
        # An old command with its used token was run again: the stored enrolment is still valid.
        _log.warning("ignoring the enrolment token: %s. Continuing as %s", error, stored.device)
        return _identity(key, stored, settings, is_confirmed=is_confirmed)
    enrolment.save(path)
    _log.info("joined %s as %s; the hub's key is %s", url, enrolment.device, enrolment.hub_key.kid)
    return Identity(key, enrolment, is_confirmed=True)


def _identity(key: KeyPair, stored: Enrolment, settings: SpokeSettings, *, is_confirmed: bool) -> Identity:
    if key.kid != stored.key_id:
        raise ConfigError(
            f"{settings.directory / KEY_FILE} is not the key that joined {stored.hub_url} as {stored.device}",
            hint="Restore it from a backup, or join again with a new token: run "
            "'strawberry devices add NAME' on the hub.",
        )
    return Identity(key, stored, is_confirmed)


def _checked(stored: Enrolment, settings: SpokeSettings) -> Enrolment:
    """Check the stored enrolment against the settings; return it with the address to use now."""
    path, url = settings.directory / FILE_NAME, (settings.hub_url or stored.hub_url).rstrip("/")
    if settings.hub_key is not None:
        check_fingerprint(
            settings.hub_key,
            stored.hub_key.kid,
            url=stored.hub_url,
            hint=f"To join another hub, remove {path} and join again.",
        )
    stored = stored.model_copy(update={"insecure": stored.insecure or settings.insecure})
    check_address(url, insecure=stored.insecure)
    if stored.hub_url != url and settings.hub_key is None:
        raise ConfigError(
            f"this device belongs to the hub {stored.hub_url}, not to {url}",
            hint=f"Same hub, new address: add '--hub-key {stored.hub_key.kid}'. Another hub: remove {path} "
            "and join with a new token, or set another STRAWBERRY_HOME.",
        )
    return stored.model_copy(update={"hub_url": url})


async def _asked(stored: Enrolment, key: KeyPair, clock: HubClock) -> Enrolment | None:
    """Ask the hub for the bus; return None if it does not answer."""
    try:
        hub = await find_hub(stored, key=key, timeout_s=limits.JOINED_ANSWER_S)
        return await refresh(stored, hub, clock=clock, timeout_s=limits.JOINED_ANSWER_S)
    except StrawberryError as error:
        _log.info("using the stored enrolment: %s", error)
        return None


async def _enrol(
    url: str, *, token: SecretStr, key: KeyPair, settings: SpokeSettings, clock: HubClock
) -> Enrolment:
    """Enrol with a hub; retry until it answers. The token is sent only to the verified hub."""
    backoff = Backoff(settings.retry_s, settings.retry_max_s)
    while True:
        try:
            hub = await meet(url, hub_key=settings.hub_key, key=key, insecure=settings.insecure)
            body = {"token": token.get_secret_value(), "public_key": key.public.jwk()}
            answer = await hub.http.request("POST", _ENROL, body)
            if not answer.is_temporary:
                break
            reason = answer.no_hub().message
        except HubUntrusted:
            raise
        except HubUnreachable as error:
            reason = error.message
        delay = backoff.next()
        _log.warning("cannot join yet: %s; retrying in %.0f s", reason, delay)
        await asyncio.sleep(delay)
    if answer.status != 200:
        raise refusal(answer, hint=_NEW_TOKEN)
    set_clock(clock, answer)
    return Enrolment.of(
        answer.read(EnrolAnswer),
        hub=hub,
        key=key.public,
        invitation=token,
        insecure=settings.insecure,
        now=clock.now(),
    )


def refusal(answer: HubAnswer, *, hint: str) -> StrawberryError:
    """Make the error for an answer that refuses this device.

    Args:
        hint: What to do if the hub does not say it.
    """
    problem = answer.problem
    if not problem.message:
        return answer.no_hub()
    message = f"the hub refused this device: {problem.message}"
    if answer.status in (401, 403, 409):
        return Unauthorized(message, hint=problem.hint or hint)
    return InvalidMessage(message, hint=problem.hint)
