"""Synchronisation of the broker's logins with the database."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from broker.logins import BrokerLogins, BusLogin
from chat.tasks import supervise
from contracts.access import Principal
from contracts.devices.presence import Revocation
from contracts.errors import Disconnected, LinkError, StorageError, StrawberryError
from contracts.rates import Backoff
from hub_registry import limits
from hub_registry.access.tokens import TokenAuthority

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class LoginSync:
    """Keeps the broker's logins as in the database; `run` it while the hub is on the bus.

    What the broker refuses is raised. A broker that is away is no error; it is updated when it is back.
    After each connect, and after a change that failed, the broker is given the full list of logins.

    Attributes:
        on_out: Called with each principal whose login was removed and that was disconnected.
    """

    authority: TokenAuthority
    logins: BrokerLogins
    _: KW_ONLY
    on_out: Callable[[Principal], None] = lambda _: None
    _outdated: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def allow(self, login: BusLogin) -> None:
        """Allow a login with this token and with no other.

        Raises:
            StrawberryError: If the broker refuses.
        """
        try:
            await self.logins.allow(login)
            self._sync_late()
        except Disconnected as error:
            self._put_off(f"the login of {login.principal.id} is added", error)

    async def revoke(self, principal: Principal, revocation: Revocation) -> None:
        """Remove a login and disconnect its client.

        Raises:
            LinkError: If the broker refuses; it is asked again.
        """
        try:
            await self.logins.revoke(principal, revocation)
            self._sync_late()
            self.on_out(principal)
        except Disconnected as error:
            self._put_off(f"the login of {principal.id} is removed", error)
        except StrawberryError as error:
            self.resync()
            raise LinkError(
                "the broker still accepts the login of {id}: {error}",
                id=principal.id,
                error=error.message,
                hint="Its token is refused over HTTP already; the broker is asked again.",
            ) from error

    def resync(self) -> None:
        """Send the broker the full list soon: it may have accepted a login that was then not stored."""
        self._outdated.set()
        self._sync_late()

    def _sync_late(self) -> None:
        # By then those are connected that were allowed before.
        if self.logins.answer_s:
            asyncio.get_running_loop().call_later(self.logins.answer_s, self._outdated.set)

    async def sync(self) -> None:
        """Make the broker agree with the database as a whole.

        Raises:
            StrawberryError: If it is away, or refuses something; it is tried again.
        """
        async with self.authority.acts:
            self._outdated.clear()
            try:
                # Not what is remembered: an act that was cut short may have reached the database.
                await self.authority.load()
                async with asyncio.timeout(limits.LOGIN_SETTLE_S):
                    await self.logins.sync(
                        self.authority.bus_logins(), self.authority.unexpired_revocations()
                    )
            except TimeoutError:
                self.resync()
                raise LinkError("the broker takes too long to accept the list of logins") from None
            except BaseException:
                self.resync()
                raise

    async def run(self) -> None:
        """Remove logins whose token expires, and repeat what failed, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            supervise(tasks, self._expire, name="logins: expiry")
            supervise(tasks, self._repeat, name="logins: repeat")

    def _put_off(self, what: str, error: Disconnected) -> None:
        self.resync()
        _log.warning("%s when the broker is back: %s", what, error.message)

    async def _expire(self) -> None:
        while True:
            try:
                await self.authority.end_expired()
            except StrawberryError as error:
                _log.error("%s", error)
            await asyncio.sleep(limits.LOGIN_LOOK_S)

    async def _repeat(self) -> None:
        backoff, told = Backoff(limits.LOGIN_RETRY_S, limits.LOGIN_RETRY_MAX_S, jitter=0), ""
        while True:
            await self._outdated.wait()
            try:
                await self.sync()
            except StorageError as error:
                _log.error(
                    "the logins of the broker are updated later, the database cannot be read: %s", error
                )
            except StrawberryError as error:
                # Once is enough: it needs a person, and it is tried every minute.
                if not isinstance(error, Disconnected) and error.message != told:
                    _log.error("the broker refuses the list of logins: %s. %s", error, error.hint)
                    told = error.message
            else:
                backoff.reset()
                told = ""
            await asyncio.sleep(backoff.next())
            if not self._outdated.is_set():
                backoff.reset()  # a connect has done it meanwhile
