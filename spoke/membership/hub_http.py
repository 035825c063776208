"""The hub over HTTP, with the standard library alone: a headless spoke stays small."""

import asyncio
import json
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from contracts.errors import ConfigError, LinkError
from contracts.wire import Json
from identity.certificates import client_context
from spoke.membership.addresses import is_readable

_MAX_ANSWER: Final = 256 * 1024
_TIMEOUT_S: Final = 10.0

# OpenSSL's numbers for why a certificate does not hold (X509_V_ERR_*).
_WRONG_TIME: Final = {9: "is not valid yet", 10: "has expired"}
_WRONG_NAME: Final = (62, 64)
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)


class HubUnreachable(LinkError):
    """The hub gave no answer over HTTP, or not one of a hub."""


class HubRefused(HubUnreachable):
    """Nobody takes connections at the hub's address."""


class HubUntrusted(HubUnreachable):
    """What answers cannot prove to be the hub: its certificate does not hold. Nothing was sent to it."""


@dataclass(frozen=True)
class HubAnswer:
    """An answer of the hub.

    Attributes:
        status: HTTP status.
        body: The JSON of the body; None where it is none.
        clock_ahead_s: How far the hub's clock is ahead of this machine's, as its ``Date`` tells to
            about a second; None where it did not tell.
        retry_after_s: How long the hub asks to be left alone; None where it does not.
    """

    status: int
    body: Json
    clock_ahead_s: float | None
    retry_after_s: float | None = None

    @property
    def error(self) -> tuple[str, str]:
        """Message and hint of an error answer; the message may be empty."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        if not isinstance(error, dict):
            return "", ""
        return str(error.get("message") or ""), str(error.get("hint") or "")


def encoded(body: Json) -> bytes:
    """Make the body of a request; not escaped, so that three bytes of Chinese do not become six."""
    return json.dumps(body, ensure_ascii=False).encode(errors="replace")


class HubHttp:
    """Requests to one hub, each over a connection of its own.

    Args:
        url: ``http://host:port`` or ``https://…``, with the base path if there is one.
        ca: PEM of the authority that its certificate must come from; None for the system's.
        verify: False only to fetch what is public and proves itself; no token is sent then.

    Raises:
        ConfigError: If the address is none of a hub.
    """

    def __init__(self, url: str, *, ca: str | None = None, verify: bool = True) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        try:
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            self._host = ""
        if parts.scheme not in ("http", "https") or not self._host:
            raise ConfigError(f"{url!r} is not the address of a hub", hint="Write it as https://host:8443.")
        self.is_secure = parts.scheme == "https"
        self._base = parts.path
        self._ca = ca
        self._verify = verify

    @property
    def is_verified(self) -> bool:
        """Whether an answer can only be the hub's."""
        return self.is_secure and self._verify

    @property
    def is_readable(self) -> bool:
        """Whether others could read on the way what is sent there."""
        return is_readable(self.url)

    async def get(
        self, path: str, *, bearer: SecretStr | None = None, timeout_s: float = _TIMEOUT_S
    ) -> HubAnswer:
        """Ask for a path.

        Raises:
            HubUnreachable: If no answer came.
        """
        return await self._ask("GET", path, None, bearer, timeout_s)

    async def post(
        self,
        path: str,
        body: dict[str, Any],
        *,
        bearer: SecretStr | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> HubAnswer:
        """Send a JSON object to a path.

        Raises:
            HubUnreachable: If no answer came; the hub may have acted all the same.
        """
        return await self._ask("POST", path, encoded(body), bearer, timeout_s)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection for a request that is spoken by whoever asks for it.

        Raises:
            HubUnreachable: If there is none; `HubUntrusted` if its certificate does not hold.
        """
        if not self._verify:
            raise RuntimeError("nothing is sent over a connection that was not verified")
        try:
            return await asyncio.open_connection(
                self._host,
                self._port or (443 if self.is_secure else 80),
                ssl=self._context if self.is_secure else None,
            )
        except ssl.SSLCertVerificationError as error:
            raise self._untrusted(error) from None
        except OSError as error:
            raise self._unreachable(error) from None

    def target(self, path: str) -> tuple[str, str]:
        """Give ``Host`` header and target of a request for a path."""
        return urlsplit(self.url).netloc, self._base + path

    async def _ask(
        self, method: str, path: str, body: bytes | None, bearer: SecretStr | None, timeout_s: float
    ) -> HubAnswer:
        if not self._verify and (bearer is not None or body is not None):
            raise RuntimeError("nothing is sent over a connection that was not verified")
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer.get_secret_value()}"
        connection = self._connection(timeout_s)
        try:
            return await asyncio.to_thread(self._exchange, connection, method, path, body, headers)
        except asyncio.CancelledError:
            # The thread would otherwise wait for its time-out, and the end of the process for it.
            _hang_up(connection)
            raise

    def _exchange(
        self, connection: HTTPConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> HubAnswer:
        try:
            asked = time.time()
            connection.request(method, self._base + path, body=body, headers=headers)
            response = connection.getresponse()
            answered = time.time()
            content = response.read(_MAX_ANSWER + 1)
        except ssl.SSLCertVerificationError as error:
            raise self._untrusted(error) from None
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()
        if len(content) > _MAX_ANSWER:
            raise HubUnreachable(f"{self.url} sends more than a hub does", hint="Check the address.")
        return HubAnswer(
            response.status,
            _parsed(content),
            _ahead(response.getheader("Date"), (asked + answered) / 2),
            _seconds(response.getheader("Retry-After")),
        )

    def _unreachable(self, error: Exception) -> HubUnreachable:
        if isinstance(error, ssl.SSLError):
            reason = "it does not answer with TLS there"
        else:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        kind = HubRefused if isinstance(error, ConnectionRefusedError) else HubUnreachable
        return kind(
            f"the hub at {self.url} cannot be reached: {reason}", hint="Check the address, and that it runs."
        )

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> HubUntrusted:
        code = error.verify_code
        if code in _WRONG_TIME:
            return HubUntrusted(
                f"the certificate of {self.url} {_WRONG_TIME[code]}",
                hint="Check this machine's clock; 'strawberry certs --renew' on the hub makes a new one.",
            )
        if code in _WRONG_NAME:
            return HubUntrusted(
                f"the certificate of {self.url} is not for {self._host}",
                hint=f"Use another address of the hub, or 'strawberry certs --name {self._host}' on it.",
            )
        if code in _UNKNOWN_AUTHORITY:
            whom = "the authority of this hub" if self._ca else "an authority that this machine knows"
            return HubUntrusted(
                f"the certificate of {self.url} is not from {whom}",
                hint="Add '--hub-key' with the fingerprint that 'strawberry devices add' prints on the hub, "
                "or join with 'strawberry spoke join'.",
            )
        return HubUntrusted(
            f"the certificate of {self.url} does not hold: {error.verify_message}",
            hint="'strawberry certs --renew' on the hub makes a new one.",
        )

    def _connection(self, timeout_s: float) -> HTTPConnection:
        if self.is_secure:
            return HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._context)
        return HTTPConnection(self._host, self._port, timeout=timeout_s)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        context = client_context(self._ca)
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _hang_up(connection: HTTPConnection) -> None:
    # `sock` is missing until it is connected. The plain socket's own shutdown, since the one of an SSL
    # socket takes its state away from under the thread that reads.
    if connection.sock is not None:
        with suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def _parsed(content: bytes) -> Json:
    with suppress(ValueError):
        return json.loads(content)
    return None


def _ahead(date: str | None, here: float) -> float | None:
    if date is None:
        return None
    try:
        there = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
    # The header drops the fraction of the second: on average half a second.
    return there + 0.5 - here


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
