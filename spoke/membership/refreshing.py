"""Requests of an enrolled device to its hub: where the bus is, and the next device token.

A renewed token is stored beside the old one before it is used. Its first use over HTTP makes the hub change
the password on the broker; until the hub confirms that, either token may be the valid one.
"""

import logging
from typing import Final, TypeVar

from contracts.claims import Claims
from contracts.devices.joining import DeviceBus, DeviceTokens
from contracts.errors import InvalidMessage, Unauthorized
from contracts.wire import Part
from identity.keys import KeyPair
from spoke import limits
from spoke.membership.enrolment import Enrolment
from spoke.membership.hub_http import HubAnswer
from spoke.membership.trust import Hub, meet
from spoke.presence.clock import HubClock

_log = logging.getLogger(__name__)

_BUS: Final = "/api/bus"
_RENEW: Final = "/api/tokens/renew"


Answer = TypeVar("Answer", bound=Part)


async def find_hub(enrolment: Enrolment, *, key: KeyPair, timeout_s: float = 10.0) -> Hub:
    """Reach the hub that this device has joined, and verify its key.

    Args:
        key: This device's key.

    Raises:
        HubUnreachable: If it does not answer, or its certificate is not valid.
        ConfigError: If another hub answers, or the address is not safe to use.
        InvalidMessage: If the server is not a hub.
    """
    hub = await meet(
        enrolment.hub_url,
        hub_key=enrolment.hub_key.kid,
        key=key,
        insecure=enrolment.insecure,
        timeout_s=timeout_s,
    )
    if hub.card.hub_id != enrolment.hub_id:
        raise InvalidMessage(f"{hub.http.url} is now the hub {hub.card.hub_id}, not {enrolment.hub_id}")
    return hub


async def refresh(enrolment: Enrolment, hub: Hub, *, clock: HubClock, timeout_s: float = 10.0) -> Enrolment:
    """Return the enrolment with the hub's current bus and profile, and the token that the hub accepted.

    Args:
        clock: Set by the answer.

    Raises:
        Unauthorized: If the hub accepts none of the tokens.
        HubUnreachable: If no answer arrived; the hub may have seen the newest token in use all the same.
        InvalidMessage: If the server is not a hub.
    """
    refusal = Unauthorized("the hub accepts none of this device's tokens")
    for token in enrolment.bearers:
        answer = await hub.http.request("GET", _BUS, bearer=token, timeout_s=timeout_s)
        set_clock(clock, answer)
        try:
            bus = answer.read(DeviceBus)
        except Unauthorized as error:
            refusal = error
        else:
            return enrolment.settled_on(token).updated(bus, hub=hub)
    raise refusal


def due_at(claims: Claims, *, chance: float) -> float:
    """Return when to renew a token, in seconds since the epoch.

    Args:
        chance: Between 0 and 1; the greater, the earlier.
    """
    return claims.exp - (claims.exp - claims.iat) * (limits.RENEWAL_SHARE + chance * limits.RENEWAL_SPREAD)


async def renewed(enrolment: Enrolment, hub: Hub, *, clock: HubClock) -> Enrolment:
    """Return the enrolment with the tokens that follow; store it before using them.

    Raises:
        Unauthorized: If the hub no longer accepts the present token.
        HubUnreachable: If no answer arrived; the present token stays valid.
        InvalidMessage: If the answer is not one of this hub for this device.
    """
    answer = await hub.http.request("POST", _RENEW, {}, bearer=enrolment.token)
    set_clock(clock, answer)
    return enrolment.with_renewed(answer.read(DeviceTokens), now=clock.now())


def set_clock(clock: HubClock, answer: HubAnswer) -> None:
    """Set the clock by an answer of the hub, and warn if it was wrong."""
    moved = clock.set_ahead(answer.clock_ahead_s)
    if moved:
        _log.warning("the time here was %.0f s off the hub's; using the hub's time", -moved)
