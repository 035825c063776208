"""Joining by hand: a token that is good once, and this device's key, become its place in a home."""

import asyncio
import logging
from typing import Final

from pydantic import SecretStr, ValidationError

from contracts.backoff import Backoff
from contracts.errors import InvalidMessage, StrawberryError, Unauthorized
from contracts.joining import EnrolAnswer
from identity.keys import PublicKey
from spoke.membership.enrolment import Enrolment
from spoke.membership.hub_http import HubAnswer, HubUnreachable, HubUntrusted
from spoke.membership.refreshing import set_clock
from spoke.membership.trust import TRY_LATER, Hub, meet
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings

_LOG = logging.getLogger(__name__)

_ENROL: Final = "/api/devices/enrol"
_NEW_TOKEN: Final = "Make a new one on the hub with 'strawberry devices add NAME'."  # noqa: S105 - a hint


async def enrol(
    url: str, *, token: SecretStr, key: PublicKey, settings: SpokeSettings, clock: HubClock
) -> Enrolment:
    """Enrol with a hub; while it cannot be reached it is tried again, for as long as that takes.

    Args:
        url: Address of the hub.
        token: An enrolment token. It is sent only once the hub is known to be the expected one.
        key: This device's key.
        clock: Set by the hub's answer.

    Raises:
        ConfigError: If the hub's key is not the expected one, or the address cannot be used safely.
        HubUntrusted: If the hub's certificate does not hold.
        Unauthorized: If the hub refuses the token.
        InvalidMessage: If the answer is not one of a hub.
    """
    backoff = Backoff(settings.retry_s, settings.retry_max_s)
    while True:
        try:
            hub = await meet(url, hub_key=settings.hub_key, insecure=settings.insecure)
            answer = await hub.http.post(_ENROL, {"token": token.get_secret_value(), "public_key": key.jwk()})
            if answer.status not in TRY_LATER:
                break
            reason = answer.error[0] or f"the hub at {hub.http.url} answered {answer.status}"
        except HubUntrusted:
            raise
        except HubUnreachable as error:
            reason = error.message
        delay = backoff.next()
        _LOG.warning("cannot join yet: %s; trying again in %.0f s", reason, delay)
        await asyncio.sleep(delay)
    if answer.status != 200:
        raise refusal(hub.http.url, answer, hint=_NEW_TOKEN)
    set_clock(clock, answer)
    return Enrolment.of(
        enrol_answer(hub, answer.body),
        hub=hub,
        key=key,
        invitation=token,
        insecure=settings.insecure,
        now=clock.now(),
    )


def enrol_answer(hub: Hub, body: object) -> EnrolAnswer:
    """Read what a device gets when it is let in.

    Raises:
        InvalidMessage: If it is not that.
    """
    try:
        return EnrolAnswer.model_validate(body)
    except ValidationError:
        raise InvalidMessage(
            f"{hub.http.url} does not answer as a hub does", hint="Check the address."
        ) from None


def refusal(url: str, answer: HubAnswer, *, hint: str) -> StrawberryError:
    """Make the error for an answer that lets this device not in.

    Args:
        hint: What to do where the hub does not say it.
    """
    message, told = answer.error
    if not message:
        return InvalidMessage(f"{url} answered {answer.status} and is no hub", hint="Check the address.")
    if answer.status in (401, 403, 409):
        return Unauthorized(f"the hub refuses to let this device in: {message}", hint=told or hint)
    return InvalidMessage(f"the hub refuses to let this device in: {message}", hint=told)
