"""Joining by code: a person types what this device shows where the hub is trusted."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import ValidationError

from contracts.backoff import Backoff
from contracts.errors import ConfigError, InvalidMessage, StrawberryError, Unauthorized
from contracts.joining import JoinAsked, JoinPoll, JoinRequest, JoinState, join_fingerprint
from contracts.wire import Part
from identity.files import make_private_directory, only_one
from identity.keys import KeyPair
from spoke.membership.enrolling import refusal
from spoke.membership.enrolment import FILE_NAME, KEY_FILE, Enrolment
from spoke.membership.hub_http import HubAnswer, HubUnreachable, HubUntrusted
from spoke.membership.refreshing import refresh, set_clock
from spoke.membership.trust import TRY_LATER, Hub, meet
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings

_LOG = logging.getLogger(__name__)

_JOIN: Final = "/api/devices/join"
_POLL: Final = "/api/devices/join/poll"

_SHORTEST_S: Final = 0.05
_LONGEST_S: Final = 30.0
"""Between two questions, whatever the hub says."""

_CODES: Final = 5
"""A hub that forgets more codes than this in one go has something else wrong with it."""

_AGAIN: Final = "Run 'strawberry spoke join' again for a new code."

Answer = TypeVar("Answer", bound=Part)


@dataclass(frozen=True)
class JoinCode:
    """What this device shows.

    Attributes:
        code: To be typed where the hub is trusted.
        fingerprint: Must be the same there.
        hub_url: The hub that was asked.
        expires_in_s: How long the code is good.
    """

    code: str
    fingerprint: str
    hub_url: str
    expires_in_s: int


async def join_by_code(settings: SpokeSettings, *, name: str, show: Callable[[JoinCode], None]) -> Enrolment:
    """Ask to be let in, show the code, and wait until somebody decided; nothing is stored before.

    A device that was locked out is let in anew with its old key. A hub that forgets the code, because it
    was started anew, is asked again.

    Args:
        settings: ``hub_url`` may be left out by a device that has joined before.
        name: What people call this device.
        show: Called with each code, once if all goes well.

    Returns:
        What was stored.

    Raises:
        ConfigError: If there is no address, the device has joined already, a spoke runs with this home,
            or the hub's key is not the expected one.
        HubUnreachable: If no hub answers there. `HubUntrusted` if its certificate does not hold.
        Unauthorized: If the code was refused or expired.
        InvalidMessage: If what answers is no hub, or another than the fingerprint is of.
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
            raise ConfigError("no hub is named", hint="Give its address, for example https://hub.local:8443.")
        key = KeyPair.load_or_create(path.with_name(KEY_FILE))
        if stored is not None:
            await _check_outside(stored, url, key=key, settings=settings, clock=clock)
        joining = _Joining(url, request=_request(name, key), key=key, settings=settings, clock=clock)
        enrolment, hub = await joining.run(show)
        enrolment.save(path)
        _LOG.info("joined %s as %s; the hub's key is %s", url, enrolment.device, enrolment.hub_key.kid)
        try:
            # The hub hands the token out again until it sees it in use; the spoke's start does that too.
            enrolment = await refresh(enrolment, hub, clock=clock)
            enrolment.save(path)
        except StrawberryError as error:
            _LOG.info("the hub has not seen the token in use yet: %s", error)
        return enrolment


async def _check_outside(
    stored: Enrolment, url: str, *, key: KeyPair, settings: SpokeSettings, clock: HubClock
) -> None:
    """Find that what is stored is of this hub, and of no use any more."""
    hub = await _meet(url, settings)
    path = settings.directory / FILE_NAME
    if (hub.card.hub_id, hub.card.key) != (stored.hub_id, stored.hub_key.kid):
        raise ConfigError(
            f"this device belongs to the hub {stored.hub_url}, not to {url}",
            hint=f"Remove {path} to leave it, or set another STRAWBERRY_HOME.",
        )
    if key.kid != stored.key_id:
        _LOG.info("joining anew: the key that joined as %s is lost", stored.device)
        return
    try:
        await refresh(stored, hub, clock=clock)
    except Unauthorized as error:
        _LOG.info("joining anew: %s", error)
        return
    raise ConfigError(
        f"this device has joined {url} as {stored.device} already",
        hint="'strawberry spoke run' offers its skills.",
    )


async def _meet(url: str, settings: SpokeSettings) -> Hub:
    return await meet(url, hub_key=settings.hub_key, insecure=settings.insecure, compared=True)


def _request(name: str, key: KeyPair) -> JoinRequest:
    try:
        return JoinRequest(name=name.strip(), public_key=key.public.jwk())
    except ValidationError:
        raise ConfigError("a device's name has 1 to 64 characters", hint="Give one with --name.") from None


class _Forgotten(Exception):
    """The hub does not know the code any more."""


class _Joining:
    """One wish to be let in, by as many codes as it takes."""

    def __init__(
        self, url: str, *, request: JoinRequest, key: KeyPair, settings: SpokeSettings, clock: HubClock
    ) -> None:
        self._url = url
        self._request = request
        self._key = key
        self._settings = settings
        self._clock = clock

    async def run(self, show: Callable[[JoinCode], None]) -> tuple[Enrolment, Hub]:
        """Wait until the hub's people decided; give the answer, and the hub whose fingerprint was shown."""
        hub = await _meet(self._url, self._settings)
        asked = await self._ask(hub)
        for _ in range(_CODES):
            ends_at = time.monotonic() + asked.expires_in_s
            fingerprint = join_fingerprint(hub_key=hub.card.key, device_key=self._key.kid, ca=hub.ca)
            show(JoinCode(asked.code, fingerprint, hub.http.url, asked.expires_in_s))
            try:
                return await self._decision(hub, asked, ends_at), hub
            except _Forgotten:
                _LOG.info("the hub does not know the code %s any more; asking for another", asked.code)
            hub, asked = await self._ask_anew()
        raise HubUnreachable(f"the hub {self._url} forgets every code", hint="See what its log says.")

    async def _ask_anew(self) -> tuple[Hub, JoinAsked]:
        """Ask a hub that was there before, for as long as it takes to start."""
        while True:
            try:
                # Met anew: what is compared must be what is trusted afterwards.
                hub = await _meet(self._url, self._settings)
                return hub, await self._ask(hub)
            except HubUntrusted:
                raise
            except HubUnreachable as error:
                _LOG.info("waiting for the hub: %s", error)
                await asyncio.sleep(self._settings.retry_max_s)

    async def _ask(self, hub: Hub) -> JoinAsked:
        backoff = Backoff(self._settings.retry_s, self._settings.retry_max_s)
        while True:
            answer = await hub.http.post(_JOIN, self._request.model_dump(mode="json"))
            if answer.status not in TRY_LATER:
                break
            delay = answer.retry_after_s or backoff.next()
            _LOG.warning("the hub gives no code yet: %s; trying again in %.0f s", answer.error[0], delay)
            await asyncio.sleep(delay)
        set_clock(self._clock, answer)
        if answer.status != 200:
            raise refusal(hub.http.url, answer, hint=_AGAIN)
        return _parsed(JoinAsked, hub, answer)

    async def _decision(self, hub: Hub, asked: JoinAsked, ends_at: float) -> Enrolment:
        interval = delay = min(max(asked.interval_s, _SHORTEST_S), _LONGEST_S)
        backoff = Backoff(2 * interval, _LONGEST_S, jitter=0)
        poll = JoinPoll(secret=asked.secret).model_dump(mode="json")
        while time.monotonic() < ends_at:
            await asyncio.sleep(min(delay, _LONGEST_S))
            try:
                answer = await hub.http.post(_POLL, poll)
            except HubUntrusted:
                raise
            except HubUnreachable as error:
                _LOG.info("waiting for the hub: %s", error)
                delay = backoff.next()
                continue
            if answer.status in TRY_LATER:
                delay = answer.retry_after_s or backoff.next()
                continue
            delay = interval
            backoff.reset()
            if answer.status in (401, 403, 404, 410):
                if time.monotonic() >= ends_at:
                    break
                raise _Forgotten
            if answer.status != 200:
                raise refusal(hub.http.url, answer, hint=_AGAIN)
            if (enrolment := self._enrolled(hub, _parsed(JoinState, hub, answer))) is not None:
                return enrolment
        raise Unauthorized(
            f"nobody approved the code {asked.code} in time",
            hint=f"{_AGAIN} 'strawberry devices approve CODE' on the hub lets this device in.",
        )

    def _enrolled(self, hub: Hub, state: JoinState) -> Enrolment | None:
        """Give the enrolment once there is one; None while nobody decided."""
        if state.state == "refused":
            raise Unauthorized(
                "the hub's owner refused to let this device in", hint=f"Ask why there. {_AGAIN}"
            )
        if state.state == "waiting":
            return None
        if state.enrolment is None:
            raise InvalidMessage(f"{hub.http.url} lets this device in and does not say as what")
        return Enrolment.of(
            state.enrolment,
            hub=hub,
            key=self._key.public,
            invitation=None,
            insecure=self._settings.insecure,
            now=self._clock.now(),
        )


def _parsed(model: type[Answer], hub: Hub, answer: HubAnswer) -> Answer:
    try:
        return model.model_validate(answer.body)
    except ValidationError:
        raise InvalidMessage(
            f"{hub.http.url} does not answer as a hub does", hint="Check the address."
        ) from None
