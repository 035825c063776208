"""Joining by code: this device shows a code, and a person types it on the hub."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

from pydantic import ValidationError

from contracts.devices.joining import JoinAsked, JoinPoll, JoinRequest, JoinState, join_fingerprint
from contracts.errors import (
    ConfigError,
    HubUnreachable,
    HubUntrusted,
    InvalidMessage,
    StrawberryError,
    Unauthorized,
)
from contracts.rates import Backoff
from identity.files import make_private_directory, only_one
from identity.keys import KeyPair
from spoke import limits
from spoke.membership.enrolment import FILE_NAME, KEY_FILE, Enrolment
from spoke.membership.joining import refusal
from spoke.membership.refreshing import refresh, set_clock
from spoke.membership.trust import Hub, meet
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings

_log = logging.getLogger(__name__)

_JOIN: Final = "/api/devices/join"
_POLL: Final = "/api/devices/join/poll"


_AGAIN: Final = "Run 'strawberry spoke join' again for a new code."


@dataclass(frozen=True)
class JoinCode:
    """The code and fingerprint that this device shows.

    Attributes:
        code: To be typed on the hub.
        fingerprint: Must match the one that the hub shows.
        hub_url: Address of the hub.
        expires_in_s: Seconds until the code expires.
    """

    code: str
    fingerprint: str
    hub_url: str
    expires_in_s: int


async def join_by_code(settings: SpokeSettings, *, name: str, show: Callable[[JoinCode], None]) -> Enrolment:
    """Request a code, show it, and wait for the decision; nothing is stored before.

    A device that has joined this hub already is left as it is; a revoked one joins again with its old key.

    Args:
        settings: ``hub_url`` may be left out if the device has joined before.
        name: Display name of this device.
        show: Called with the code.

    Returns:
        The stored enrolment.

    Raises:
        ConfigError: If there is no address, the device has joined another hub, a spoke runs with this home,
            or the hub has another key than expected.
        HubUnreachable: If no hub answers there. `HubUntrusted` if its certificate is not valid.
        Unauthorized: If the code was refused or expired, or the hub was restarted and has forgotten it.
        InvalidMessage: If the server is not a hub, or not the one with this fingerprint.
    """
    with only_one(
        settings.directory,
        what="a spoke",
        hint="Stop it, or set another STRAWBERRY_HOME for a second device.",
    ):
        path = make_private_directory(settings.directory) / FILE_NAME
        stored, clock = Enrolment.load(path), HubClock()
        url = settings.hub_url or (stored.hub_url if stored else None)
        if url is None:
            raise ConfigError(
                "no hub address", hint="Add the hub's address, for example https://hub.local:8443."
            )
        key = KeyPair.load_or_create(path.with_name(KEY_FILE))
        if stored is not None and await _has_joined(stored, url, key=key, settings=settings, clock=clock):
            return stored
        joining = _Joining(url, request=_request(name, key), key=key, settings=settings, clock=clock)
        enrolment, hub = await joining.run(show)
        enrolment.save(path)
        _log.info("joined %s as %s; the hub's key is %s", url, enrolment.device, enrolment.hub_key.kid)
        try:
            # The hub hands the token out until it has been used once.
            enrolment = await refresh(enrolment, hub, clock=clock)
            enrolment.save(path)
        except StrawberryError as error:
            _log.info("the new token has not been used yet: %s", error)
        return enrolment


async def _has_joined(
    stored: Enrolment, url: str, *, key: KeyPair, settings: SpokeSettings, clock: HubClock
) -> bool:
    """Return whether the stored enrolment, which has to be for this hub, is still valid."""
    hub = await _meet(url, key, settings)
    path = settings.directory / FILE_NAME
    if (hub.card.hub_id, hub.card.key) != (stored.hub_id, stored.hub_key.kid):
        raise ConfigError(
            f"this device belongs to the hub {stored.hub_url}, not to {url}",
            hint=f"Remove {path} to leave it, or set another STRAWBERRY_HOME.",
        )
    if key.kid != stored.key_id:
        _log.info("joining again: the key of %s is lost", stored.device)
        return False
    try:
        await refresh(stored, hub, clock=clock)
    except Unauthorized as error:
        _log.info("joining again: %s", error)
        return False
    return True


async def _meet(url: str, key: KeyPair, settings: SpokeSettings) -> Hub:
    return await meet(url, hub_key=settings.hub_key, key=key, insecure=settings.insecure, compared=True)


def _request(name: str, key: KeyPair) -> JoinRequest:
    try:
        return JoinRequest(name=name.strip(), public_key=key.public.jwk())
    except ValidationError:
        raise ConfigError("a device name has 1 to 64 characters", hint="Set one with --name.") from None


@dataclass(eq=False)
class _Joining:
    """One attempt to join."""

    url: str
    _: KW_ONLY
    request: JoinRequest
    key: KeyPair
    settings: SpokeSettings
    clock: HubClock

    async def run(self, show: Callable[[JoinCode], None]) -> tuple[Enrolment, Hub]:
        """Wait for the decision; return the enrolment and the hub whose fingerprint was shown."""
        hub = await _meet(self.url, self.key, self.settings)
        asked = await self._ask(hub)
        ends_at = time.monotonic() + asked.expires_in_s
        fingerprint = join_fingerprint(hub_key=hub.card.key, device_key=self.key.kid, ca=hub.ca)
        show(JoinCode(asked.code, fingerprint, hub.http.url, asked.expires_in_s))
        return await self._decision(hub, asked, ends_at), hub

    async def _ask(self, hub: Hub) -> JoinAsked:
        backoff = Backoff(self.settings.retry_s, self.settings.retry_max_s)
        while True:
            answer = await hub.http.request("POST", _JOIN, self.request.model_dump(mode="json"))
            if not answer.is_temporary:
                break
            delay = answer.retry_after_s or backoff.next()
            _log.warning("the hub issues no code yet: %s; retrying in %.0f s", answer.problem.message, delay)
            await asyncio.sleep(delay)
        set_clock(self.clock, answer)
        if answer.status != 200:
            raise refusal(answer, hint=_AGAIN)
        return answer.read(JoinAsked)

    async def _decision(self, hub: Hub, asked: JoinAsked, ends_at: float) -> Enrolment:
        interval = delay = min(max(asked.interval_s, limits.LEAST_POLL_S), limits.LONGEST_POLL_S)
        backoff = Backoff(2 * interval, limits.LONGEST_POLL_S, jitter=0)
        poll = JoinPoll(secret=asked.secret).model_dump(mode="json")
        while time.monotonic() < ends_at:
            await asyncio.sleep(min(delay, limits.LONGEST_POLL_S))
            try:
                answer = await hub.http.request("POST", _POLL, poll)
            except HubUntrusted:
                raise
            except HubUnreachable as error:
                _log.info("waiting for the hub: %s", error)
                delay = backoff.next()
                continue
            if answer.is_temporary:
                delay = answer.retry_after_s or backoff.next()
                continue
            delay = interval
            backoff.reset()
            if answer.status in (401, 403, 404, 410):
                if time.monotonic() >= ends_at:
                    break
                raise Unauthorized(f"the hub no longer knows the code {asked.code}", hint=_AGAIN)
            if answer.status != 200:
                raise refusal(answer, hint=_AGAIN)
            if (enrolment := self._enrolled(hub, answer.read(JoinState))) is not None:
                return enrolment
        raise Unauthorized(
            f"the code {asked.code} was not approved in time",
            hint=f"{_AGAIN} Approve it on the hub with 'strawberry devices approve CODE'.",
        )

    def _enrolled(self, hub: Hub, state: JoinState) -> Enrolment | None:
        """Return the enrolment once approved; None while undecided."""
        if state.state == "refused":
            raise Unauthorized("the hub's owner refused this device", hint=_AGAIN)
        if state.state == "waiting":
            return None
        if state.enrolment is None:
            raise InvalidMessage(f"{hub.http.url} approved this device without an enrolment")
        return Enrolment.of(
            state.enrolment,
            hub=hub,
            key=self.key.public,
            invitation=None,
            insecure=self.settings.insecure,
            now=self.clock.now(),
        )
