"""Looks at a spoke that has joined a hub on another machine: can it take part?"""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Final

from bus.link.tls_failure import connect_failure
from bus.ports import try_port
from contracts.addresses import broker_endpoint, host_of
from contracts.errors import ConfigError, HubUnreachable, InvalidMessage, Unauthorized
from deploy import limits
from deploy.directory import Home
from deploy.doctor.checks import Check, failed, passed
from identity.certificates import client_context
from identity.keys import KeyPair
from spoke.membership.enrolment import FILE_NAME, KEY_FILE, Enrolment
from spoke.membership.hub_http import HubAnswer
from spoke.membership.refreshing import find_hub
from spoke.membership.trust import Hub

_DAY_S: Final = 86_400
_INVITE: Final = "Where the hub is: 'strawberry devices invite {device}'; then do here what is printed there."


def read_enrolment(home: Home) -> Enrolment | None:
    """Return what this machine's spoke knows of its hub; None where it has joined none.

    Raises:
        ConfigError: If the file is damaged.
    """
    return Enrolment.load(home.spoke / FILE_NAME)


def check_spoke(home: Home, enrolment: Enrolment) -> Iterator[Check]:
    """Look at hub, clock, token and broker; sends nothing to anybody who is not the hub that was joined."""
    hub, met = asyncio.run(_meet(home, enrolment))
    yield met
    answer = asyncio.run(_ask(enrolment, hub)) if hub is not None else None
    if answer is not None and answer.clock_ahead_s is not None:
        yield _clock(answer.clock_ahead_s)
    yield _token(enrolment, hub, answer)
    yield asyncio.run(_broker(enrolment))


async def _meet(home: Home, enrolment: Enrolment) -> tuple[Hub | None, Check]:
    url = enrolment.hub_url
    try:
        key = KeyPair.load(home.spoke / KEY_FILE)
        hub = await find_hub(enrolment, key=key, timeout_s=limits.SPOKE_CHECK_S)
    except HubUnreachable as error:
        hint = error.hint or "Is it switched on, and in the same network?"
        return None, failed("hub", error.message, hint)
    except (ConfigError, InvalidMessage) as error:
        hint = error.hint or "'strawberry spoke join' joins the hub that is there now."
        return None, failed("hub", error.message, hint)
    return hub, passed("hub", f"{url}, as {enrolment.device}")


async def _ask(enrolment: Enrolment, hub: Hub) -> HubAnswer | None:
    """Show the hub this device's token, the one in use first: a newer one may not be in use yet."""
    answer = None
    for token in reversed(enrolment.bearers):
        with contextlib.suppress(HubUnreachable):
            answer = await hub.http.request("GET", "/api/bus", bearer=token, timeout_s=limits.SPOKE_CHECK_S)
            if answer.status == 200:
                break
    return answer


def _clock(ahead_s: float) -> Check:
    detail = f"{abs(ahead_s):.0f} s {'behind' if ahead_s > 0 else 'ahead of'} the hub's"
    if abs(ahead_s) <= limits.CALL_SKEW_S:
        return passed("clock", "as the hub's, to a few seconds")
    return failed("clock", detail, "sudo timedatectl set-ntp true (on both machines)")


def _token(enrolment: Enrolment, hub: Hub | None, answer: HubAnswer | None) -> Check:
    invite = _INVITE.format(device=enrolment.device)
    try:
        days = (enrolment.claims(enrolment.bearers[0]).exp - time.time()) / _DAY_S
    except Unauthorized as error:
        return failed("token", error.message, invite)
    if days <= 0:
        return failed("token", f"expired {-days:.0f} days ago", invite)
    lasts = f"good for {days:.0f} days, and renewed before"
    if hub is None or answer is None:
        return passed("token", f"{lasts}; the hub cannot be asked whether it takes it")
    if answer.status == 200:
        return passed("token", f"{lasts}; the hub takes it")
    refusal = answer.refusal()
    hint = invite if isinstance(refusal, Unauthorized) else refusal.hint or "Look at the hub's logs."
    return failed("token", refusal.message, hint)


async def _broker(enrolment: Enrolment) -> Check:
    """Look whether a broker can be reached; without a login, which would end the running spoke's."""
    problems = []
    for url in enrolment.brokers:
        try:
            scheme, host, port = broker_endpoint(url)
            tls = client_context(enrolment.ca) if scheme == "mqtts" else None
            async with asyncio.timeout(limits.SPOKE_CHECK_S):
                await try_port(host, port, tls)
        except OSError as error:
            problems.append(f"{url}: {connect_failure(error, host_of(url), tls=url.startswith('mqtts'))[0]}")
        else:
            return passed("broker", f"{url} can be reached")
    return failed(
        "broker",
        "; ".join(problems),
        "Is it running, and does no firewall stand in between? "
        "'strawberry doctor' on the hub tells where it is.",
    )
