"""Whether the hub can be asked: known without waiting for a hub that is known to be silent."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

from pydantic import SecretStr, ValidationError

from contracts.devices.joining import HubCard
from contracts.errors import (
    ConfigError,
    HubBroken,
    HubRefused,
    HubUnreachable,
    HubUntrusted,
    InvalidMessage,
    StrawberryError,
)
from contracts.rates import Backoff
from identity.keys import KeyPair
from identity.logins.challenges import PATH as WELL_KNOWN
from spoke import limits
from spoke.membership.enrolment import Enrolment
from spoke.membership.refreshing import find_hub
from spoke.membership.trust import Hub
from spoke.settings import ChatSettings

_log = logging.getLogger(__name__)

_ANSWERED_AT_ONCE: Final = (HubRefused, HubUntrusted, ConfigError, InvalidMessage)
"""Failures that cost no time, so that each message can find them out for itself."""


@dataclass(eq=False)
class HubHealth:
    """The way to the hub, over one connection that is kept open.

    A hub that refuses connections costs no time, so each message tries it. One that is silent costs its
    time-out once: from then on it is tried in the background, with growing waits, and messages do not wait
    for it until it answers or refuses.

    Attributes:
        enrolment: Returns what is known of the hub now.
        key: This device's key.
        tasks: Owns the background task.
    """

    enrolment: Callable[[], Enrolment]
    _: KW_ONLY
    key: KeyPair
    settings: ChatSettings
    tasks: asyncio.TaskGroup

    def __post_init__(self) -> None:
        self._silence = ""
        self._met: Hub | None = None
        self._was_alive, self._asked_at = False, -math.inf

    @property
    def is_silent(self) -> bool:
        return bool(self._silence)

    @property
    def bearer(self) -> SecretStr:
        # Not a renewed one that was not used yet: its first use is for `membership` to time.
        return self.enrolment().token

    async def hub(self) -> Hub:
        """Return the hub as it was last met; meet it if it was not.

        Raises:
            StrawberryError: If it is silent, cannot be reached, or another server answers.
        """
        if self._silence:
            raise HubUnreachable(self._silence)
        met = self._met
        if met is None or met.http.url != self.enrolment().hub_url:
            return await self._meet()
        return met

    async def check(self, *, until: float) -> Hub:
        """Return the hub, which has just answered.

        Args:
            until: How long it may take, as a time of the loop's clock.

        Raises:
            HubUnreachable: If it does not answer, or what answers is not this device's hub.
        """
        if self._silence:
            raise HubUnreachable(self._silence)
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            return await self._check(until - asked)
        except TimeoutError:
            self.set_silent()
            raise HubUnreachable(self._silence) from None
        except StrawberryError as error:
            if not isinstance(error, _ANSWERED_AT_ONCE) and loop.time() - asked > limits.FAILED_SOON_S:
                self.set_silent()
            raise HubUnreachable(error.message, hint=error.hint) from None

    async def is_alive(self, *, known_s: float = 0) -> bool:
        """Ask the hub whether it lives, whatever is known of it; one that hangs is not silent by this.

        Args:
            known_s: For how long an answer to this counts.
        """
        loop = asyncio.get_running_loop()
        if loop.time() - self._asked_at < known_s:
            return self._was_alive
        try:
            await self._check(self.settings.check_s)
        except (TimeoutError, StrawberryError):
            self._was_alive = False
        else:
            self._was_alive = True
        self._asked_at = loop.time()
        return self._was_alive

    def set_silent(self) -> None:
        """Note that the hub does not answer although it can be connected to."""
        self.close()
        if not self._silence:
            self._silence = f"the hub at {self.enrolment().hub_url} does not answer"
            self.tasks.create_task(self._retry(), name="retry the hub")

    def close(self) -> None:
        """Close the connection that is kept; the next request opens another one."""
        if self._met is not None:
            self._met.http.drop()
            self._met = None

    async def _check(self, limit_s: float) -> Hub:
        async with asyncio.timeout(limit_s):
            met = self._met
            if met is not None and met.http.url == self.enrolment().hub_url:
                try:
                    answer = await met.http.request("GET", WELL_KNOWN, timeout_s=2 * limit_s + 1)
                    if answer.status != 200:
                        raise answer.no_hub()
                    card = HubCard.model_validate(answer.body)
                except (HubBroken, HubUntrusted, InvalidMessage, ValidationError):
                    # It may have closed the connection in this moment, or have new certificates.
                    card = None
                if card is not None and (card.hub_id, card.key) == (met.card.hub_id, met.card.key):
                    return met
            return await self._meet(timeout_s=2 * limit_s + 1)

    async def _meet(self, *, timeout_s: float = 10.0) -> Hub:
        met = await find_hub(self.enrolment(), key=self.key, timeout_s=timeout_s)
        self.close()
        met.http.keep()
        self._met = met
        return met

    async def _retry(self) -> None:
        backoff = Backoff(self.settings.retry_s, self.settings.retry_max_s)
        while True:
            await asyncio.sleep(backoff.next())
            try:
                await self._check(self.settings.check_s)
            except _ANSWERED_AT_ONCE:
                break
            except (TimeoutError, HubUnreachable):
                continue
            _log.info("the hub answers again")
            break
        self._silence = ""
