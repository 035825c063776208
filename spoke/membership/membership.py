"""Keeps the device enrolled: renews its token, follows a moved broker, reports revocation.

One task does all of it. It asks the hub for the bus (`refreshing`) at the start until the hub has answered
once, then every few minutes, and when the broker refuses the login or no broker answers for long.
"""

import asyncio
import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from bus.link import Link, LinkSettings, spread
from contracts.devices.joining import BusAccess
from contracts.errors import LoginRefused, StrawberryError, Unauthorized
from contracts.rates import Backoff, jittered
from identity.keys import KeyPair
from identity.logins.proofs import login_password
from spoke import limits
from spoke.membership.enrolment import FILE_NAME, Enrolment
from spoke.membership.refreshing import due_at, find_hub, refresh, renewed
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings

_log = logging.getLogger(__name__)


_REJOIN: Final = (
    "To restore access, run 'strawberry devices invite {device}' on the hub, stop this spoke, and run the "
    "printed command here. A removed device joins again with 'strawberry spoke join'"
)


@dataclass(eq=False)
class Membership:
    """The device's enrolment, kept up to date while its spoke runs.

    Attributes:
        enrolment: The stored enrolment.
        key: This device's key.
        is_confirmed: Whether the hub has just confirmed it.

    Attributes:
        enrolment: The enrolment as stored now.
        problem: Why the device has no access, with what to do about it; None if no problem is known.
    """

    enrolment: Enrolment
    _: KW_ONLY
    key: KeyPair
    settings: SpokeSettings
    clock: HubClock
    is_confirmed: bool

    def __post_init__(self) -> None:
        self.problem: str | None = None
        self._is_rejected = False
        self._link: Link | None = None
        self._asking = asyncio.Lock()
        self._is_renamed = False
        self._ask_from = 0.0
        self._ask_backoff = Backoff(self.settings.retry_s, self.settings.retry_max_s)
        self._refresh_from = time.monotonic() + jittered(self.settings.refresh_s)
        self._told = ""
        self._renew_at = self._due()
        self._renew_from = 0.0
        self._renew_backoff = Backoff(self.settings.retry_s, limits.LONGEST_RENEWAL_WAIT_S)
        self._refusal: LoginRefused | None = None
        self._is_refused = False
        self._turn = 0
        self._away_from: float | None = None

    def link_settings(self) -> LinkSettings:
        """Return addresses and login of the bus."""
        enrolment = self.enrolment
        device, login = enrolment.device, enrolment.login
        return LinkSettings(
            # With QoS 0 it is a cluster, of which any node will do.
            urls=enrolment.brokers if enrolment.qos else spread(enrolment.brokers, device),
            # On a shared broker, foreign clients may use the same name as one of our devices.
            client_id=f"strawberry-{device}" if login else device,
            username=login.username if login else device,
            password=_secret(login.password) if login else self._bus_password,
            ca=enrolment.ca,
            topic_prefix=enrolment.prefix,
            refused_s=self.settings.refused_s,
            qos=enrolment.qos,
        )

    async def run(self, link: Link) -> None:
        """Keep the enrolment up to date until cancelled."""
        self._link = link
        while True:
            self._observe(link)
            if self._must_renew():
                await self._renew()
            elif self._must_ask() and self._may_ask():
                await self.ask()
            await asyncio.sleep(self.settings.check_s)

    def renamed(self) -> None:
        # The hub announced another name of this device; the next check asks for it.
        self._is_renamed = True

    def untimely(self) -> None:
        # A call was late or from the future: an early check asks for the hub's time.
        self._refresh_from = 0.0

    async def is_enrolled(self) -> bool:
        """Ask whether the hub still accepts this device.

        On our own broker, being connected is the proof. On a shared broker the hub is asked.
        """
        if self.enrolment.login is not None:
            await self.ask()
        return not self._is_rejected

    async def ask(self) -> None:
        """Ask the hub for the bus, with the newest token, and apply its answer."""
        async with self._asking:
            # The answer may not know a name that is announced meanwhile.
            was_renamed, self._is_renamed = self._is_renamed, False
            try:
                hub = await find_hub(self.enrolment, key=self.key)
                with self._off_the_bus():
                    found = await refresh(self.enrolment, hub, clock=self.clock, timeout_s=limits.FIRST_USE_S)
                self._accepted(found)
            except Unauthorized as error:
                self._rejected(error)
            except StrawberryError as error:
                self._is_renamed |= was_renamed
                self._unanswered(error)

    def _observe(self, link: Link) -> None:
        error = link.last_error
        if link.connected:
            self._is_refused, self._away_from = False, None
            if not self._is_rejected:
                self.problem = None
            return
        if self._away_from is None:
            self._away_from = time.monotonic()
        if isinstance(error, LoginRefused) and error is not self._refusal:
            # Of two tokens, the other is tried at once the first time.
            if self.enrolment.renewed is not None:
                self._turn += 1
                if not self._is_refused:
                    link.reconnect()
            self._refusal, self._is_refused = error, True

    def _must_ask(self) -> bool:
        is_away = self._away_from is not None and time.monotonic() - self._away_from >= self.settings.away_s
        has_unused = self.enrolment.renewed is not None
        is_due = self._is_renamed or time.monotonic() >= self._refresh_from
        return (
            not self.is_confirmed or self._is_refused or self._is_rejected or is_away or has_unused or is_due
        )

    def _may_ask(self) -> bool:
        # A new name is asked for at once, but not of a hub that did not answer, or refused.
        at_once = self._is_renamed and not self._told and not self._is_rejected
        return at_once or time.monotonic() >= self._ask_from

    def _must_renew(self) -> bool:
        is_due = self.clock.now() >= self._renew_at and time.monotonic() >= self._renew_from
        return is_due and self.enrolment.renewed is None and not self._is_rejected

    def _due(self) -> float:
        try:
            claims = self.enrolment.claims(self.enrolment.token)
        except Unauthorized:
            return float("inf")
        return due_at(claims, chance=random.random())  # noqa: S311 - no secret

    async def _renew(self) -> None:
        """Fetch the next token and store it; `ask` then uses it."""
        try:
            async with self._asking:
                hub = await find_hub(self.enrolment, key=self.key)
                self._keep(await renewed(self.enrolment, hub, clock=self.clock))
        except Unauthorized as error:
            self._rejected(error)
            return
        except StrawberryError as error:
            _log.warning("the device token is not renewed yet: %s", error)
            self._renew_from = time.monotonic() + self._renew_backoff.next()
            return
        self._renew_backoff.reset()
        # Even with a wrong clock, no token is renewed within a tenth of its life.
        claims = self.enrolment.claims(self.enrolment.bearers[0])
        self._renew_from = time.monotonic() + (claims.exp - claims.iat) / 10
        await self.ask()

    @contextmanager
    def _off_the_bus(self) -> Iterator[None]:
        """Disconnect cleanly while the hub changes this device's password on the broker.

        If the broker cut the connection, it would publish the Last Will and end open calls.
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

    def _bus_password(self) -> SecretStr:
        """Return the password for the next login, by the token that was last accepted or its successor."""
        enrolment = self.enrolment
        candidates = enrolment.bus_tokens[::-1]
        token = candidates[self._turn % len(candidates)]
        if enrolment.authentication == "token":
            return token
        return SecretStr(
            login_password(
                self.key,
                token=token.get_secret_value(),
                hub_id=enrolment.hub_id,
                client_id=enrolment.device,
                now=self.clock.present(),
            )
        )

    def _accepted(self, found: Enrolment) -> None:
        before = self.enrolment
        self._keep(found)
        if self._is_rejected:
            _log.info("the hub accepts %s again", found.device)
        self.problem, self._told = None, ""
        was_rejected, self._is_rejected, self.is_confirmed = self._is_rejected, False, True
        self._ask_backoff.reset()
        self._ask_from = time.monotonic() + jittered(self.settings.retry_max_s)
        self._refresh_from = time.monotonic() + jittered(self.settings.refresh_s)
        link = self._link
        if link is None:
            return
        if _bus_of(found) != _bus_of(before):
            _log.info("the bus has moved: %s", ", ".join(found.brokers))
            link.use(self.link_settings())
        if was_rejected:
            link.resume()
        elif self._is_refused:
            # The hub has just accepted the token; the broker may know it only now.
            link.reconnect()

    def _rejected(self, error: Unauthorized) -> None:
        self.is_confirmed = True
        self._ask_from = time.monotonic() + jittered(self.settings.rejected_s)
        if self._is_rejected:
            return
        self._is_rejected = True
        device, url = self.enrolment.device, self.enrolment.hub_url
        rejoin = _REJOIN.format(device=device)
        self.problem = f"the hub {url} refuses {device}: {error.message}. {rejoin}"
        _log.info("%s", self.problem)
        if self._link is not None:
            self._link.pause()

    def _unanswered(self, error: StrawberryError) -> None:
        self._ask_from = time.monotonic() + self._ask_backoff.next()
        if self._is_refused and self.problem is None:
            self.problem = (
                f"the broker refuses {self.enrolment.device}, and the hub cannot be asked why: "
                f"{error.message}. Both are retried."
            )
            _log.info("%s", self.problem)
        elif error.message != self._told:
            _log.info("the hub cannot be asked: %s", error)
        self._told = error.message

    def _keep(self, found: Enrolment) -> None:
        before = self.enrolment
        if found == before:
            return
        # Stored before it is used, so that the next start finds the token in use.
        found.save(self._path)
        self.enrolment = found
        if found.token != before.token:
            self._turn = 0
            self._renew_at = self._due()
            _log.info("the device token was renewed")

    @property
    def _path(self) -> Path:
        return self.settings.directory / FILE_NAME


def _bus_of(enrolment: Enrolment) -> BusAccess:
    return BusAccess.model_validate(enrolment.model_dump(include=set(BusAccess.model_fields)))


def _secret(text: str | None) -> SecretStr | None:
    return SecretStr(text) if text is not None else None
