"""Joining a hub: at the first start by a token or a code, afterwards with what was stored."""

import logging
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from contracts.errors import ConfigError, StrawberryError, Unauthorized
from identity.files import make_private_directory
from identity.keys import KeyPair
from spoke.membership.enrolling import enrol
from spoke.membership.enrolment import FILE_NAME, KEY_FILE, Enrolment
from spoke.membership.join_code import JoinCode, join_by_code
from spoke.membership.refreshing import find_hub, refresh
from spoke.membership.trust import check_address, check_fingerprint
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings

__all__ = ["Identity", "JoinCode", "join", "join_by_code"]

_LOG = logging.getLogger(__name__)

_ASK_S: Final = 3.0
"""A spoke that has joined works without an answer; it waits for one only this long."""


@dataclass(frozen=True)
class Identity:
    """Who this device is: its key, and its place in a home.

    Attributes:
        is_confirmed: Whether the hub has just said that all of it is as it should be.
    """

    key: KeyPair
    enrolment: Enrolment
    is_confirmed: bool


async def join(settings: SpokeSettings, *, token: SecretStr | None, clock: HubClock) -> Identity:
    """Give this device's identity; enrol first where there is none, or where a new token is given.

    Args:
        token: An enrolment token; only needed for the first start, ignored when it was used already.
        clock: Set by the hub's answer.

    Raises:
        ConfigError: If a token is needed and none is given, the stored enrolment is for another hub,
            or the hub's key is not the expected one.
        HubUntrusted: If the hub's certificate does not hold.
        Unauthorized: If the hub refuses the token.
        InvalidMessage: If the hub's answer is not one of a hub.
    """
    directory = make_private_directory(settings.directory)
    path, is_confirmed = directory / FILE_NAME, False
    stored = Enrolment.load(path)
    if stored is not None:
        wanted = _checked(stored, settings)
        found = await _asked(wanted, clock)
        is_confirmed = found is not None
        if found is not None and found != stored:
            _LOG.info("the hub is at %s, the bus at %s", found.hub_url, ", ".join(found.brokers))
            found.save(path)
        stored = found or wanted
    elif token is None or settings.hub_url is None:
        raise ConfigError(
            f"this device has not joined {settings.hub_url or 'a hub'} yet and has no enrolment token",
            hint="Run 'strawberry spoke join' here, or 'strawberry devices add NAME' on the hub and the "
            "command that it prints here.",
        )
    key = KeyPair.load_or_create(directory / KEY_FILE)
    if token is None or (stored is not None and stored.was_invited_by(token)):
        assert stored is not None
        return _identity(key, stored, settings, is_confirmed=is_confirmed)
    url = settings.hub_url or (stored.hub_url if stored else "")
    if stored is not None:
        # The hub is known from before: whoever answers there must have that key.
        settings = settings.model_copy(update={"hub_key": stored.hub_key.kid, "insecure": stored.insecure})
    try:
        enrolment = await enrol(url, token=token, key=key.public, settings=settings, clock=clock)
    except Unauthorized as error:
        if stored is None:
            raise
        # An old command with its old token, run again: what is stored is as good as before.
        _LOG.warning("the new enrolment token was not used: %s. Going on as %s", error, stored.device)
        return _identity(key, stored, settings, is_confirmed=is_confirmed)
    enrolment.save(path)
    _LOG.info("joined %s as %s; the hub's key is %s", url, enrolment.device, enrolment.hub_key.kid)
    return Identity(key, enrolment, is_confirmed=True)


def _identity(key: KeyPair, stored: Enrolment, settings: SpokeSettings, *, is_confirmed: bool) -> Identity:
    if key.kid != stored.key_id:
        raise ConfigError(
            f"{settings.directory / KEY_FILE} is not the key that joined {stored.hub_url} as {stored.device}",
            hint="Restore it from a backup, or join again with a new token. Make one on the hub with "
            "'strawberry devices add NAME'.",
        )
    return Identity(key, stored, is_confirmed)


def _checked(stored: Enrolment, settings: SpokeSettings) -> Enrolment:
    """Check what is stored against what is asked for; give it as it is to be used now."""
    path, url = settings.directory / FILE_NAME, (settings.hub_url or stored.hub_url).rstrip("/")
    if settings.hub_key is not None:
        check_fingerprint(
            settings.hub_key,
            stored.hub_key.kid,
            url=stored.hub_url,
            hint=f"For another hub, remove {path} and join anew.",
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


async def _asked(stored: Enrolment, clock: HubClock) -> Enrolment | None:
    """Take over what the hub says of the bus now; None where it does not say anything."""
    try:
        hub = await find_hub(stored, timeout_s=_ASK_S)
        return await refresh(stored, hub, clock=clock, timeout_s=_ASK_S)
    except StrawberryError as error:
        _LOG.info("going on with what is known of the hub: %s", error)
        return None
