"""Renewing the device token, so that no failure at any moment locks the device out.

The new token is stored beside the old one before it is used. Its first use over HTTP makes the hub
change the password on the bus; until that is known to have happened, either may be the good one.
"""

from typing import Final

from contracts.claims import Claims
from contracts.errors import InvalidMessage
from spoke.membership.enrolment import Enrolment
from spoke.membership.refreshing import refusal_of, set_clock
from spoke.membership.trust import Hub
from spoke.presence.clock import HubClock

_RENEW: Final = "/api/tokens/renew"

_LEFT: Final = 1 / 3
"""Share of a token's life that is left when it is renewed: months for a token of a year, so that a spoke
that is switched off for a season still gets in."""

_SPREAD: Final = 1 / 10
"""Share over which chance spreads it: devices that joined together do not all renew together."""


def due_at(claims: Claims, *, chance: float) -> float:
    """Give when a token is to be renewed, in seconds since the epoch.

    Args:
        chance: Between 0 and 1; the greater, the earlier.
    """
    return claims.exp - (claims.exp - claims.iat) * (_LEFT + chance * _SPREAD)


async def renewed(enrolment: Enrolment, hub: Hub, *, clock: HubClock) -> Enrolment:
    """Have the hub make the token that follows; it is to be stored before it is used.

    Raises:
        Unauthorized: If the hub does not take the present one any more.
        HubUnreachable: If no answer came; the present one stays good.
        InvalidMessage: If the answer is not one of this hub for this device.
    """
    answer = await hub.http.post(_RENEW, {}, bearer=enrolment.token)
    set_clock(clock, answer)
    if answer.status != 200:
        raise refusal_of(hub, answer)
    token = answer.body.get("token") if isinstance(answer.body, dict) else None
    if not isinstance(token, str):
        raise InvalidMessage(f"{hub.http.url} does not answer as a hub does", hint="Check the address.")
    return enrolment.with_renewed(token, now=clock.now())
