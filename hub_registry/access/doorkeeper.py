"""Keeps the door of the broker in step with the database, whatever happens in between."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from broker.door import BusLogin, Door
from contracts.access import Principal
from contracts.backoff import Backoff
from contracts.errors import Disconnected, LinkError, StrawberryError
from contracts.presence import Revocation
from hub_registry.access.tokens import TokenAuthority

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
"""Seconds between two looks for tokens that have expired, as the embedded broker itself looks."""
_AGAIN_S: Final = 1.0
_AGAIN_MAX_S: Final = 60.0
_SETTLE_S: Final = 60.0
"""How long a broker may take to be told everything: five hundred devices at Mosquitto took 2.6 s."""


class Doorkeeper:
    """Drives a `Door`; a `hub_registry.access.tokens.BusDoor`. `run` it while the hub is on the bus.

    Whatever the broker could not be told is made up for by telling it everything: at the next connect, and
    by itself after a failure.

    Args:
        on_out: Told whom the broker has disconnected and lets in no longer.
    """

    def __init__(
        self, authority: TokenAuthority, door: Door, *, on_out: Callable[[Principal], None] = lambda _: None
    ) -> None:
        self._authority = authority
        self._door = door
        self._on_out = on_out
        self._in_doubt = asyncio.Event()

    async def admit(self, login: BusLogin) -> None:
        """Let one in with this token and with no other.

        Raises:
            StrawberryError: If the broker refuses.
        """
        try:
            await self._door.admit(login)
        except Disconnected as error:
            self._put_off(f"{login.principal.id} is let in", error)

    async def shut_out(self, principal: Principal, revocation: Revocation) -> None:
        """Let one in no longer, and disconnect it.

        Raises:
            LinkError: If the broker refuses; it is asked again.
        """
        try:
            await self._door.shut_out(principal, revocation)
            self._on_out(principal)
        except Disconnected as error:
            self._put_off(f"{principal.id} is shut out", error)
        except StrawberryError as error:
            self.doubt()
            raise LinkError(
                f"the broker still lets {principal.id} in: {error.message}",
                hint="Over HTTP its token is refused already; the broker is asked again.",
            ) from error

    def doubt(self) -> None:
        """Have the broker be told everything anew."""
        self._in_doubt.set()

    async def settle(self) -> None:
        """Make the broker agree with the database as a whole.

        Raises:
            StrawberryError: If it is away, or refuses something; it is tried again.
        """
        async with self._authority.acts:
            self._in_doubt.clear()
            try:
                # Not what is remembered: an act that was cut short may have reached the database.
                await self._authority.load()
                async with asyncio.timeout(_SETTLE_S):
                    await self._door.settle(
                        self._authority.bus_logins(), self._authority.unexpired_revocations()
                    )
            except TimeoutError:
                self.doubt()
                raise LinkError("the broker takes too long to be told who may log in") from None
            except BaseException:
                self.doubt()
                raise

    async def run(self) -> None:
        """Shut out whose token expires, and set right what failed, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._expire(), name="door: expiry")
            tasks.create_task(self._set_right(), name="door: set right")

    def _put_off(self, what: str, error: Disconnected) -> None:
        self.doubt()
        _log.warning("%s on the bus as soon as the broker can be told: %s", what, error.message)

    async def _expire(self) -> None:
        while True:
            try:
                await self._authority.end_expired()
            except (StrawberryError, SQLAlchemyError) as error:
                _log.error("%s", error)
            await asyncio.sleep(_LOOK_S)

    async def _set_right(self) -> None:
        backoff, told = Backoff(_AGAIN_S, _AGAIN_MAX_S, jitter=0), ""
        while True:
            await self._in_doubt.wait()
            await asyncio.sleep(backoff.next())
            if not self._in_doubt.is_set():
                backoff.reset()
                continue  # a connect has done it meanwhile
            try:
                await self.settle()
            except SQLAlchemyError as error:
                _log.error("the broker is told later who may log in, the database cannot be read: %s", error)
            except StrawberryError as error:
                # Once is enough: somebody has to do something about it, and it is tried every minute.
                if not isinstance(error, Disconnected) and error.message != told:
                    _log.error("the broker does not agree on who may log in: %s. %s", error, error.hint)
                    told = error.message
            else:
                backoff.reset()
                told = ""
