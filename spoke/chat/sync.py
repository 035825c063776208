"""Bringing this device's history and the hub's together, again and again, however often it is cut short."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from pydantic import ValidationError

from contracts.backoff import Backoff
from contracts.errors import InvalidMessage, StrawberryError
from contracts.history import SyncAnswer, SyncRequest
from spoke.chat.history import History
from spoke.membership.enrolment import Enrolment
from spoke.membership.hub_http import HubUnreachable
from spoke.membership.refreshing import find_hub, refusal_of
from spoke.membership.trust import Hub

_LOG = logging.getLogger(__name__)

_SYNC: Final = "/api/history/sync"


class SyncClient(Protocol):
    """The hub, as far as history goes."""

    async def exchange(self, request: SyncRequest) -> SyncAnswer:
        """Send one request.

        Raises:
            StrawberryError: If no answer came; the hub may have stored everything all the same.
        """
        ...


@dataclass(frozen=True)
class SyncSettings:
    """When the spoke syncs, besides when it is told to.

    Attributes:
        every_s: Between two times; what was said elsewhere in a shared conversation comes then.
        retry_s: After one that failed; doubled each time up to ``retry_max_s``, which is how late what was
            said offline may reach a hub that is back.
    """

    every_s: float = 300
    retry_s: float = 2
    retry_max_s: float = 30


class HubSyncClient:
    """The hub over HTTP.

    Args:
        enrolment: Gives this device's enrolment as it is now.
    """

    def __init__(self, enrolment: Callable[[], Enrolment]) -> None:
        self._enrolment = enrolment
        self._met: tuple[str, Hub] | None = None

    async def exchange(self, request: SyncRequest) -> SyncAnswer:
        """See `SyncClient`.

        Raises:
            Unauthorized: If the hub does not take this device's token.
            HubUnreachable: If no answer came.
            ConfigError: If another hub answers.
            InvalidMessage: If what answers is no hub.
        """
        enrolment = self._enrolment()
        hub = await self._hub(enrolment)
        try:
            # Not a renewed token that was not used yet: its first use is for `membership` to time.
            answer = await hub.http.post(_SYNC, request.model_dump(mode="json"), bearer=enrolment.token)
        except HubUnreachable:
            self._met = None
            raise
        if answer.status != 200:
            self._met = None
            raise refusal_of(hub, answer)
        try:
            return SyncAnswer.model_validate(answer.body)
        except ValidationError:
            raise InvalidMessage(
                f"{hub.http.url} does not answer as a hub does", hint="Bring hub and spoke to one version."
            ) from None

    async def _hub(self, enrolment: Enrolment) -> Hub:
        if self._met is None or self._met[0] != enrolment.hub_url:
            self._met = (enrolment.hub_url, await find_hub(enrolment))
        return self._met[1]


class HistorySync:
    """Syncs one history: when told, after that now and then, later and later while the hub is away."""

    def __init__(self, history: History, client: SyncClient, *, settings: SyncSettings | None = None) -> None:
        self._history = history
        self._client = client
        self._settings = settings or SyncSettings()
        self._wanted = asyncio.Event()
        self._one = asyncio.Lock()

    def wake(self) -> None:
        """Have `run` sync soon: a turn has ended."""
        self._wanted.set()

    async def sync_now(self) -> None:
        """Sync until neither side has anything for the other.

        Raises:
            StrawberryError: If the hub cannot be asked, or makes no sense; what was exchanged stays.
        """
        async with self._one:
            begun_anew = False
            while True:
                request = await self._history.outgoing()
                answer = await self._client.exchange(request)
                is_nearer = await self._history.take(request, answer)
                if not answer.more and await self._history.is_told():
                    return
                # Where nothing was to be exchanged, what is not told yet was said in the meantime.
                is_stuck = not is_nearer and (bool(request.entries) or answer.more)
                if is_stuck or (answer.again and begun_anew):
                    raise InvalidMessage(
                        "the hub takes nothing more of this device's history",
                        hint="Bring hub and spoke to one version.",
                    )
                begun_anew = begun_anew or answer.again

    async def run(self) -> None:
        """Sync again and again until cancelled; a hub that is away is not an error."""
        settings, wait_s, told = self._settings, 0.0, ""
        backoff = Backoff(settings.retry_s, settings.retry_max_s)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.sync_now()
            except StrawberryError as error:
                if error.message != told:
                    _LOG.info("the history is not synced yet: %s", error)
                told = error.message
                wait_s = backoff.next()
            else:
                backoff.reset()
                wait_s, told = settings.every_s, ""
