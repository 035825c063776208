"""Whether the hub can be asked: known without waiting for a hub that is known to be silent."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from contracts.backoff import Backoff
from contracts.errors import ConfigError, InvalidMessage, StrawberryError
from spoke.membership.enrolment import Enrolment
from spoke.membership.hub_http import HubRefused, HubUnreachable, HubUntrusted
from spoke.membership.refreshing import find_hub
from spoke.membership.trust import Hub
from spoke.settings import ChatSettings

_LOG = logging.getLogger(__name__)

_COST_NOTHING: Final = (HubRefused, HubUntrusted, ConfigError, InvalidMessage)
"""Something is there, and told at once that it cannot be asked; a message can find that out by itself."""

_SOON_S: Final = 0.3
"""What fails otherwise and later is not waited for again: a machine that is off is noticed after some 3 s."""


class HubAway(HubUnreachable):
    """The hub cannot be asked now; nothing was sent to it."""


class Reach:
    """The way to the hub.

    A hub that refuses a connection costs no time, so each message tries it. One that is silent costs
    its time-out once: from then on it is tried in the background, with growing waits, and messages pass
    it by until it answers or refuses.

    Args:
        enrolment: Gives what is known of the hub now.
        tasks: Owns the trying.
    """

    def __init__(
        self, enrolment: Callable[[], Enrolment], *, settings: ChatSettings, tasks: asyncio.TaskGroup
    ) -> None:
        self._enrolment = enrolment
        self._settings = settings
        self._tasks = tasks
        self._silent = ""

    @property
    def is_silent(self) -> bool:
        """Whether messages pass the hub by."""
        return bool(self._silent)

    async def hub(self, *, until: float) -> Hub:
        """Give the hub, which has just answered.

        Args:
            until: How long it may take, as a time of the loop's clock.

        Raises:
            HubAway: If it does not answer, or what answers is not this device's hub.
        """
        if self._silent:
            raise HubAway(self._silent)
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            return await self._found(until - asked)
        except TimeoutError:
            self.silent()
            raise HubAway(self._silent) from None
        except StrawberryError as error:
            if not isinstance(error, _COST_NOTHING) and loop.time() - asked > _SOON_S:
                self.silent()
            raise HubAway(error.message, hint=error.hint) from None

    def silent(self) -> None:
        """Take note that the hub does not answer although it can be connected to."""
        if not self._silent:
            self._silent = f"the hub at {self._enrolment().hub_url} does not answer"
            self._tasks.create_task(self._try(), name="try the hub")

    async def is_alive(self) -> bool:
        """Ask the hub whether it lives, whatever is known of it."""
        try:
            await self._found(self._settings.check_s)
        except (TimeoutError, StrawberryError):
            return False
        return True

    async def _found(self, limit_s: float) -> Hub:
        async with asyncio.timeout(limit_s):
            # The socket's own time-out is only there for the thread that is left behind.
            return await find_hub(self._enrolment(), timeout_s=max(2 * limit_s, 1))

    async def _try(self) -> None:
        backoff = Backoff(self._settings.retry_s, self._settings.retry_max_s)
        while True:
            await asyncio.sleep(backoff.next())
            try:
                await self._found(self._settings.check_s)
            except _COST_NOTHING:
                break
            except (TimeoutError, HubUnreachable):
                continue
            else:
                _LOG.info("the hub answers again")
                break
        self._silent = ""
