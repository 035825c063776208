"""One connection after another: which address is tried, in which version of MQTT, and when."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from bus.limits import STEADY_S
from bus.link.connection import Connection, ConnectRequest, ConnectResult, Protocol, Verdict
from bus.link.drivers import make_driver
from bus.link.message import Message
from bus.link.settings import Address, LinkSettings, parse_addresses
from contracts.errors import Disconnected, LinkError, LoginRefused, StrawberryError
from contracts.phrases import Phrase
from contracts.rates import Backoff
from identity.certificates import client_context

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Reconnection:
    """Makes connections for a link, each when the one before has ended.

    Attributes:
        will: Makes the Last Will, with the prefix in its topic, before each connection.
        on_message: Called for each message that arrives.
        stay: Has a connection that is logged in, until it ends; gives the reason.
        left: Told of each connection that has ended.

    Attributes:
        settings: Those that the next attempt goes by.
        url: Where the last login succeeded; None before the first.
        last_error: Why there is no connection, or None.
    """

    settings: LinkSettings
    _: KW_ONLY
    will: Callable[[], Message | None]
    on_message: Callable[[Message], None]
    stay: Callable[[Connection], Awaitable[str]]
    left: Callable[[Connection], None]

    def __post_init__(self) -> None:
        self.url: str | None = None
        self.last_error: LinkError | None = None
        self._addresses = parse_addresses(self.settings.urls)
        self._protocols: dict[str, Protocol] = {}
        self._told = ""
        self._began = 0.0
        self._hurry = asyncio.Event()
        self._wanted = asyncio.Event()
        self._wanted.set()

    @property
    def protocol(self) -> Protocol | None:
        return self._protocols.get(self.url) if self.url else None

    @property
    def interrupted(self) -> bool:
        return self._hurry.is_set()

    def hurry(self) -> None:
        """End the present attempt and make the next one at once."""
        self._hurry.set()

    def use(self, settings: LinkSettings) -> None:
        """Go by other settings from the next attempt on.

        Raises:
            ConfigError: If a URL is not one of a broker.
        """
        self._addresses = parse_addresses(settings.urls)
        self.settings = settings

    def pause(self) -> None:
        self._wanted.clear()

    def resume(self) -> None:
        """Make attempts again, at once."""
        self._hurry.set()
        self._wanted.set()

    def established(self) -> None:
        """Note that a connection is of use now, so that whatever fails next is news."""
        self.last_error = None
        self._told = ""

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        backoff = Backoff(self.settings.backoff_s, self.settings.backoff_max_s)
        refusals = Backoff(self.settings.backoff_s, self.settings.refused_s)
        while True:
            await self._wanted.wait()
            self._hurry.clear()
            settings = self.settings
            errors = await self._round(settings, self._addresses)
            if not errors and asyncio.get_running_loop().time() - self._began > STEADY_S:
                backoff.reset()
            if errors and all(isinstance(error, LoginRefused) for error in errors):
                await self._rest(refusals.next())
            else:
                refusals.reset()
                await self._rest(backoff.next())

    async def _round(self, settings: LinkSettings, addresses: tuple[Address, ...]) -> list[LinkError]:
        """Try each address until one accepts the login, and stay there while it lasts.

        Returns:
            Why each of them failed; nothing where one did not.
        """
        errors: list[LinkError] = []
        for address in addresses:
            answer = await self._connect(settings, address)
            if answer.verdict is Verdict.ACCEPTED:
                return []
            errors.append(_explained(address, answer, settings.username))
            self.last_error = _combined(errors)
            if self.interrupted:
                return errors
        # The same reason is a warning once; at each further attempt it tells nothing new.
        level = logging.DEBUG if str(self.last_error) == self._told else logging.WARNING
        self._told = str(self.last_error)
        _log.log(level, "%s", self._told)
        return errors

    async def _rest(self, seconds: float) -> None:
        """Wait before the next attempt, unless `hurry` is called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()

    async def _connect(self, settings: LinkSettings, address: Address) -> ConnectResult:
        """Connect, with the other MQTT version where one is not understood, and stay while it lasts."""
        answer = ConnectResult(Verdict.CLOSED, "")
        versions: tuple[Protocol, ...] = (5, 4) if self._protocols.get(address.url, 5) == 5 else (4, 5)
        for version in versions:
            answer = await self._attempt(settings, address, version)
            # A refused login is an answer in a version that was understood: it stays refused.
            if answer.verdict not in (Verdict.VERSION_REFUSED, Verdict.CLOSED) or self.interrupted:
                break
        return answer

    async def _attempt(self, settings: LinkSettings, address: Address, version: Protocol) -> ConnectResult:
        try:
            login = await self._login(settings, address)
        except StrawberryError as error:
            return ConnectResult(Verdict.UNREACHABLE, error.message, error.hint)
        connection = Connection(
            login,
            make_driver(settings.driver),
            protocol=version,
            limit=settings.max_in_flight,
            on_message=self.on_message,
        )
        try:
            answer = await connection.open()
            if answer.verdict is Verdict.ACCEPTED:
                self._protocols[address.url] = version
                self.url = address.url
                self._began = asyncio.get_running_loop().time()
                reason = await self.stay(connection)
                self.last_error = Disconnected(f"the connection to {address.url} was lost: {reason}")
                # Who was asked to leave did not lose it.
                _log.log(logging.INFO if self.interrupted else logging.WARNING, "%s", self.last_error)
            return answer
        except asyncio.CancelledError:
            self.left(connection)
            await connection.close(politely=True)
            raise
        finally:
            self.left(connection)
            await connection.close(politely=False)

    async def _login(self, settings: LinkSettings, address: Address) -> ConnectRequest:
        password = settings.password() if callable(settings.password) else settings.password
        context = None
        if address.scheme == "mqtts":
            ca = settings.ca() if callable(settings.ca) else settings.ca
            # The system's authorities are read from many files.
            context = await asyncio.to_thread(client_context, ca)
        return ConnectRequest(
            host=address.host,
            port=address.port,
            tls=context,
            client_id=settings.client_id,
            username=settings.username,
            password=password.get_secret_value() if password else None,
            keepalive=settings.keepalive,
            will=self.will(),
            timeout_s=settings.connect_timeout_s,
        )


def _explained(address: Address, answer: ConnectResult, username: str | None) -> LinkError:
    if answer.verdict is Verdict.LOGIN_REFUSED:
        login = f"the login of {username}" if username else "a connection without a login"
        return LoginRefused(
            f"{address.url} refuses {login}: {answer.reason}",
            hint="Check the token or the password."
            if username
            else "In strawberry.toml, username and password_env of [broker] or [home_broker] name a login.",
        )
    hint = answer.hint or "Check the address, and that the broker runs."
    if answer.verdict is Verdict.CLOSED and address.scheme == "mqtt":
        hint += " If this is its port for TLS, the address begins with mqtts://."
    reason = Phrase(answer.reason)
    return Disconnected("no connection to {url}: {reason}", url=address.url, reason=reason, hint=hint)


def _combined(errors: list[LinkError]) -> LinkError:
    """Make one error of those of all addresses; a refused login tells more than an address without answer."""
    if len(errors) == 1:
        return errors[0]
    first = next((error for error in errors if isinstance(error, LoginRefused)), errors[0])
    return type(first)("; ".join(error.message for error in errors), hint=first.hint)
