"""Staying let in: the token is renewed, a moved bus is followed, and a device that was locked out says so.

One task looks at all of it. The hub is asked where the bus is (`refreshing`) at the start until it has
answered once, when the broker refuses the login, and when no broker answers for long.
"""

import asyncio
import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from bus.link import Link, LinkSettings
from contracts.backoff import Backoff, jittered
from contracts.errors import LoginRefused, StrawberryError, Unauthorized
from contracts.joining import Bus
from spoke.membership.enrolment import FILE_NAME, Enrolment
from spoke.membership.refreshing import find_hub, refresh
from spoke.membership.renewal import due_at, renewed
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings

_LOG = logging.getLogger(__name__)

_USE_S: Final = 5.0
"""How long the first use of a new token may take: the spoke is off the bus meanwhile."""

_RENEW_MAX_S: Final = 3600.0
"""Longest wait between two tries to renew; the last third of a token's life has many of them."""

_MEND: Final = (
    "To let it back in, run 'strawberry devices invite {device}' where the hub is, stop this spoke, and do "
    "here what is printed there. A device that was removed joins anew with 'strawberry spoke join'"
)


class Membership:
    """A device's place in its home, for as long as its spoke runs.

    Args:
        enrolment: As it was stored.
        is_confirmed: Whether the hub has just said that it is as it should be.

    Attributes:
        enrolment: As it is stored now.
        problem: Why the device is not let in, with what to do about it; None where nothing is known.
    """

    def __init__(
        self, enrolment: Enrolment, *, settings: SpokeSettings, clock: HubClock, is_confirmed: bool
    ) -> None:
        self.enrolment = enrolment
        self.problem: str | None = None
        self._settings = settings
        self._clock = clock
        self._is_confirmed = is_confirmed
        self._is_rejected = False
        self._link: Link | None = None
        self._asking = asyncio.Lock()
        self._ask_from = 0.0
        self._ask_backoff = Backoff(settings.retry_s, settings.retry_max_s)
        self._refresh_from = time.monotonic() + jittered(settings.refresh_s)
        self._told = ""
        self._renew_at = self._due()
        self._renew_from = 0.0
        self._renew_backoff = Backoff(settings.retry_s, _RENEW_MAX_S)
        self._refusal: LoginRefused | None = None
        self._is_refused = False
        self._turn = 0
        self._away_from: float | None = None

    def link_settings(self) -> LinkSettings:
        """Give how this device reaches the bus and logs in there."""
        enrolment = self.enrolment
        device, login = enrolment.device, enrolment.login
        return LinkSettings(
            urls=enrolment.brokers,
            # Others may be called like a device of ours where a broker is shared with them.
            client_id=f"strawberry-{device}" if login else device,
            username=login.username if login else device,
            password=_secret(login.password) if login else self._bus_token,
            ca=enrolment.ca,
            topic_prefix=enrolment.prefix,
            refused_s=self._settings.refused_s,
        )

    async def run(self, link: Link) -> None:
        """Look after it until cancelled."""
        self._link = link
        while True:
            self._look(link)
            if self._must_renew():
                await self._renew()
            elif self._must_ask() and time.monotonic() >= self._ask_from:
                await self.ask()
            await asyncio.sleep(self._settings.look_s)

    async def is_wanted(self) -> bool:
        """Whether the hub still lets this device in, as far as can be known.

        On a broker of our own, to be on the bus says so. On a shared one the hub is asked.
        """
        if self.enrolment.login is not None:
            await self.ask()
        return not self._is_rejected

    async def ask(self) -> None:
        """Ask the hub where the bus is, with the newest token, and go by what it says."""
        async with self._asking:
            try:
                hub = await find_hub(self.enrolment)
                with self._off_the_bus():
                    found = await refresh(self.enrolment, hub, clock=self._clock, timeout_s=_USE_S)
            except Unauthorized as error:
                self._rejected(error)
            except StrawberryError as error:
                self._unanswered(error)
            else:
                self._accepted(found)

    # What is to be done

    def _look(self, link: Link) -> None:
        error = link.last_error
        if link.connected:
            self._is_refused, self._away_from = False, None
            if not self._is_rejected:
                self.problem = None
            return
        if self._away_from is None:
            self._away_from = time.monotonic()
        if isinstance(error, LoginRefused) and error is not self._refusal:
            # The first time with each of two tokens the other one is tried at once.
            if self.enrolment.renewed is not None:
                self._turn += 1
                if not self._is_refused:
                    link.reconnect()
            self._refusal, self._is_refused = error, True

    def _must_ask(self) -> bool:
        is_away = self._away_from is not None and time.monotonic() - self._away_from >= self._settings.away_s
        has_unused = self.enrolment.renewed is not None
        is_due = time.monotonic() >= self._refresh_from
        return (
            not self._is_confirmed or self._is_refused or self._is_rejected or is_away or has_unused or is_due
        )

    def _must_renew(self) -> bool:
        is_due = self._clock.now() >= self._renew_at and time.monotonic() >= self._renew_from
        return is_due and self.enrolment.renewed is None and not self._is_rejected

    def _due(self) -> float:
        try:
            claims = self.enrolment.claims(self.enrolment.token)
        except Unauthorized:
            return float("inf")
        return due_at(claims, chance=random.random())  # noqa: S311 - no secret

    # Renewal

    async def _renew(self) -> None:
        """Get the next token and store it; `ask` then uses it."""
        try:
            async with self._asking:
                hub = await find_hub(self.enrolment)
                self._keep(await renewed(self.enrolment, hub, clock=self._clock))
        except Unauthorized as error:
            self._rejected(error)
            return
        except StrawberryError as error:
            _LOG.warning("the device token is not renewed yet: %s", error)
            self._renew_from = time.monotonic() + self._renew_backoff.next()
            return
        self._renew_backoff.reset()
        # Whatever the clocks say: no token is renewed in less than a tenth of its life.
        claims = self.enrolment.claims(self.enrolment.bearers[0])
        self._renew_from = time.monotonic() + (claims.exp - claims.iat) / 10
        await self.ask()

    @contextmanager
    def _off_the_bus(self) -> Iterator[None]:
        """Leave the bus in good order while the hub changes the password on it.

        A connection that the broker cuts would publish the Last Will, and open calls would end by it.
        """
        link = self._link
        if link is None or self.enrolment.renewed is None or self.enrolment.login is not None:
            yield
            return
        link.pause()
        try:
            yield
        finally:
            if not self._is_rejected:
                link.resume()

    def _bus_token(self) -> SecretStr:
        """Give the token for the next login: the one that was good last, and in turn what may follow it."""
        candidates = self.enrolment.bearers[::-1]
        return candidates[self._turn % len(candidates)]

    # What the hub said

    def _accepted(self, found: Enrolment) -> None:
        if self._is_rejected:
            _LOG.info("the hub lets %s in again", self.enrolment.device)
        before, self.problem, self._told = self.enrolment, None, ""
        was_rejected, self._is_rejected, self._is_confirmed = self._is_rejected, False, True
        self._ask_backoff.reset()
        self._ask_from = time.monotonic() + jittered(self._settings.retry_max_s)
        self._refresh_from = time.monotonic() + jittered(self._settings.refresh_s)
        self._keep(found)
        link = self._link
        if link is None:
            return
        if _way(found) != _way(before):
            _LOG.info("the bus has moved: %s", ", ".join(found.brokers))
            link.use(self.link_settings())
        if was_rejected:
            link.resume()
        elif self._is_refused:
            # The hub has just seen the token in use, and the broker may know it only now.
            link.reconnect()

    def _rejected(self, error: Unauthorized) -> None:
        self._is_confirmed = True
        self._ask_from = time.monotonic() + jittered(self._settings.rejected_s)
        if self._is_rejected:
            return
        self._is_rejected = True
        device, url = self.enrolment.device, self.enrolment.hub_url
        mend = _MEND.format(device=device)
        self.problem = f"the hub {url} no longer lets {device} in: {error.message}. {mend}"
        _LOG.error("%s", self.problem)
        if self._link is not None:
            self._link.pause()

    def _unanswered(self, error: StrawberryError) -> None:
        self._ask_from = time.monotonic() + self._ask_backoff.next()
        if self._is_refused and self.problem is None:
            self.problem = (
                f"the broker does not let {self.enrolment.device} in, and the hub cannot be asked why: "
                f"{error.message}. Both are tried again."
            )
            _LOG.error("%s", self.problem)
        elif error.message != self._told:
            _LOG.info("the hub cannot be asked: %s", error)
        self._told = error.message

    def _keep(self, found: Enrolment) -> None:
        before = self.enrolment
        if found == before:
            return
        # Stored first: what is used is what the next start finds.
        found.save(self._path)
        self.enrolment = found
        if found.token != before.token:
            self._turn = 0
            self._renew_at = self._due()
            _LOG.info("the device token was renewed")

    @property
    def _path(self) -> Path:
        return self._settings.directory / FILE_NAME


def _way(enrolment: Enrolment) -> Bus:
    """Give what a link goes by."""
    return Bus(brokers=enrolment.brokers, prefix=enrolment.prefix, login=enrolment.login, ca=enrolment.ca)


def _secret(text: str | None) -> SecretStr | None:
    return SecretStr(text) if text is not None else None
