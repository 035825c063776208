"""Asking the hub where the bus is now, and so using the newest token over HTTP."""

import logging
from typing import Final

from pydantic import ValidationError

from contracts.errors import InvalidMessage, Unauthorized
from contracts.joining import DeviceBus
from spoke.membership.enrolment import Enrolment
from spoke.membership.hub_http import HubAnswer
from spoke.membership.trust import Hub, meet, no_hub
from spoke.presence.clock import HubClock

_LOG = logging.getLogger(__name__)

_BUS: Final = "/api/bus"


async def find_hub(enrolment: Enrolment, *, timeout_s: float = 10.0) -> Hub:
    """Reach the hub that this device has joined; nothing secret is sent before it is known to be it.

    Raises:
        HubUnreachable: If it does not answer now, or its certificate does not hold.
        ConfigError: If another hub answers, or the address cannot be used safely.
        InvalidMessage: If what answers is no hub.
    """
    hub = await meet(
        enrolment.hub_url, hub_key=enrolment.hub_key.kid, insecure=enrolment.insecure, timeout_s=timeout_s
    )
    if hub.card.hub_id != enrolment.hub_id:
        raise InvalidMessage(f"{hub.http.url} is now the hub {hub.card.hub_id}, not {enrolment.hub_id}")
    return hub


async def refresh(enrolment: Enrolment, hub: Hub, *, clock: HubClock, timeout_s: float = 10.0) -> Enrolment:
    """Take over what the hub says of the bus, and settle on the token that it takes.

    Args:
        clock: Set by the answer.

    Raises:
        Unauthorized: If the hub takes none of the tokens.
        HubUnreachable: If no answer came; the hub may have seen the newest token in use all the same.
        InvalidMessage: If the answer is not one of a hub.
    """
    refusal = Unauthorized("the hub takes none of this device's tokens")
    for token in enrolment.bearers:
        answer = await hub.http.get(_BUS, bearer=token, timeout_s=timeout_s)
        set_clock(clock, answer)
        if answer.status == 200:
            return enrolment.settled_on(token).updated(_bus(hub, answer), hub=hub)
        refusal = refusal_of(hub, answer)
    raise refusal


def refusal_of(hub: Hub, answer: HubAnswer) -> Unauthorized:
    """Give the hub's reason for refusing a token.

    Raises:
        HubUnreachable: If it is none: the hub cannot answer now.
        InvalidMessage: If it is none: what answers is no hub.
    """
    message, hint = answer.error
    if answer.status not in (401, 403) or not message:
        raise no_hub(hub.http.url, answer)
    return Unauthorized(message, hint=hint)


def set_clock(clock: HubClock, answer: HubAnswer) -> None:
    """Set the clock by an answer of the hub, and say so where this machine's is wrong."""
    moved = clock.set_ahead(answer.clock_ahead_s)
    if moved:
        _LOG.warning("this machine's clock is %.0f s off the hub's; the hub's is used", -moved)


def _bus(hub: Hub, answer: HubAnswer) -> DeviceBus:
    try:
        return DeviceBus.model_validate(answer.body)
    except ValidationError:
        raise InvalidMessage(
            f"{hub.http.url} does not answer as a hub does", hint="Check the address."
        ) from None
