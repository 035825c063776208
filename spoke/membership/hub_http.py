"""The hub over HTTP: single requests, or many over one connection that is kept open."""

import asyncio
import errno
import os
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr, TypeAdapter, ValidationError

from contracts.addresses import host_of, is_loopback
from contracts.errors import (
    ConfigError,
    HubRefused,
    HubUnreachable,
    HubUntrusted,
    InvalidMessage,
    ProblemDetails,
    Unauthorized,
)
from contracts.wire import Json
from identity.certificates import client_context
from identity.keys import KeyPair
from spoke import limits
from spoke.membership.hub_connection import TRY_LATER, HubConnection

T = TypeVar("T")

_STALE: Final = "stale_proof"
"""Error code where the hub's clock is another one than it was."""

_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")

# OpenSSL's numbers for why a certificate is not valid (X509_V_ERR_*).
_WRONG_TIME: Final = {9: "is not valid yet", 10: "has expired"}
_WRONG_NAME: Final = (62, 64)
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)


@dataclass(frozen=True)
class HubAnswer:
    """An answer of the hub.

    Attributes:
        url: Of the hub.
        status: HTTP status.
        body: The JSON of the body; None where it is none.
        clock_ahead_s: How far the hub's clock is ahead of this machine's, from its ``Date``, to about a
            second; None where the answer has none.
        retry_after_s: How long the hub asks to be left alone; None where it does not.
    """

    url: str
    status: int
    body: Json
    clock_ahead_s: float | None
    retry_after_s: float | None = None

    @property
    def problem(self) -> ProblemDetails:
        return ProblemDetails.read(self.body) or ProblemDetails("", "", "", {})

    @property
    def is_temporary(self) -> bool:
        return self.status in TRY_LATER

    def read(self, kind: type[T] | TypeAdapter[T]) -> T:
        """Return the body of a good answer.

        Raises:
            Unauthorized: If the hub refuses the token.
            HubUnreachable: If it cannot answer now.
            InvalidMessage: If the server is not a hub, or one of another version.
        """
        if self.status != HTTPStatus.OK:
            raise self.refusal()
        return self.parse(kind, self.body)

    def parse(self, kind: type[T] | TypeAdapter[T], body: object) -> T:
        """Return a part of the body; see `read`."""
        try:
            return (kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)).validate_python(body)
        except ValidationError:
            hint = "Bring hub and spoke to one version."
            raise InvalidMessage(f"{self.url} does not answer as a hub does", hint=hint) from None

    def refusal(self) -> Unauthorized | HubUnreachable | InvalidMessage:
        """Return why there is no good answer to a token; see `read`."""
        problem = self.problem
        if self.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) and problem.message:
            return Unauthorized(problem.message, hint=problem.hint)
        return self.no_hub()

    def no_hub(self) -> HubUnreachable | InvalidMessage:
        """Return the error for an answer that no hub gives, or none that can answer now."""
        problem = self.problem
        if self.is_temporary:
            message = problem.message or f"the hub at {self.url} answered {self.status}"
            return HubUnreachable(message, hint=problem.hint)
        told = f": {problem.message}" if problem.message else ""
        return InvalidMessage(
            f"{self.url} is not a Strawberry hub: it answered {self.status}{told}", hint="Check the address."
        )


def is_readable(url: str) -> bool:
    """Return whether a connection there is unencrypted and leaves this machine."""
    return urlsplit(url).scheme in ("http", "mqtt") and not is_loopback(host_of(url))


class HubHttp:
    """Requests to one hub.

    Each has a connection of its own, unless `keep` was called: then one connection stays open between
    requests, until `drop`.

    Args:
        url: ``http://host:port`` or ``https://…``, with the base path if there is one.
        ca: PEM of the authority that its certificate must come from; None for the system's.
        verify: False only to fetch what is public and proves itself; no token is sent then.
        hub_key: Thumbprint of the hub's key, which each new connection has to prove before it is used. None
            only to fetch what is public.
        key: This device's key.

    Raises:
        ConfigError: If the address is none of a hub.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: str | None = None,
        verify: bool = True,
        hub_key: str | None = None,
        key: KeyPair | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._parts = parts = urlsplit(self.url)
        try:
            self._host, self._port = parts.hostname or "", parts.port
            self._host.encode("idna")  # as the connection does
        except ValueError:
            self._host = ""
        if parts.scheme not in ("http", "https") or not self._host:
            raise ConfigError(f"{url!r} is not the address of a hub", hint="Write it as https://host:8443.")
        self.is_secure = parts.scheme == "https"
        self._ca = ca
        self._hub_key = hub_key
        self._key = key
        self._verify = verify
        self._is_kept = False
        self._idle: HubConnection | None = None

    def keep(self) -> None:
        """Keep a connection open between requests."""
        self._is_kept = True

    @property
    def is_verified(self) -> bool:
        """Return whether an answer can only be the hub's."""
        return self.is_secure and self._verify

    @property
    def is_readable(self) -> bool:
        return is_readable(self.url)

    async def request(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        bearer: SecretStr | None = None,
        timeout_s: float = limits.HUB_TIMEOUT_S,
    ) -> HubAnswer:
        """Send a request.

        Raises:
            HubUnreachable: If no answer came; the hub may have acted all the same.
        """
        if (not self._verify or self._hub_key is None) and (bearer is not None or body is not None):
            raise RuntimeError("nothing is sent over a connection that was not verified")
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._request(method, path, body, bearer)
                if answer.problem.code == _STALE:
                    # A new connection begins with the time of the hub.
                    self._close(self._idle)
                    answer = await self._request(method, path, body, bearer)
        except TimeoutError:
            raise HubUnreachable(
                f"the hub at {self.url} cannot be reached: no answer within {timeout_s:g} s",
                hint="Check the address, and that it runs.",
            ) from None
        return answer

    async def _request(self, method: str, path: str, body: Json, bearer: SecretStr | None) -> HubAnswer:
        async with self.connection() as connection:
            received = await connection.send(method, path, body, bearer=bearer)
            content = await connection.json(at_most=limits.MAX_ANSWER_BYTES)
        wait_s = _seconds(received.headers.get("retry-after"))
        return HubAnswer(self.url, received.status, content, received.clock_ahead_s, wait_s)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[HubConnection]:
        """Yield a connection: the one that is kept if it is idle, else a new one.

        Raises:
            HubUnreachable: If there is none; `HubUntrusted` if the certificate is not valid.
        """
        connection, self._idle = self._idle, None
        if connection is None or not connection.is_open:
            self._close(connection)
            connection = await self._connect()
        is_whole = False
        try:
            yield connection
            is_whole = True
        finally:
            if is_whole and self._is_kept and self._idle is None and connection.reuse():
                self._idle = connection
            else:
                connection.close()

    def drop(self) -> None:
        """Close the connection that is kept, and keep none from now on."""
        self._is_kept = False
        connection, self._idle = self._idle, None
        self._close(connection)

    def _close(self, connection: HubConnection | None) -> None:
        if connection is not None:
            connection.close()

    async def _connect(self) -> HubConnection:
        try:
            reader, writer = await asyncio.open_connection(
                self._host,
                self._port or (443 if self.is_secure else 80),
                ssl=self._context if self.is_secure else None,
            )
        except ssl.SSLCertVerificationError as error:
            raise self._untrusted(error) from None
        except OSError as error:
            raise self._unreachable(error) from None
        bare = SplitResult(self._parts.scheme, self._parts.netloc, "", "", "")
        connection = HubConnection(
            reader, writer, url=bare, base=self._parts.path, key=self._key, is_kept=self._is_kept
        )
        if self._hub_key is not None:
            try:
                await connection.check_hub(self._hub_key)
            except BaseException:
                connection.close()
                raise
        return connection

    def _unreachable(self, error: OSError) -> HubUnreachable:
        reason = error.strerror or str(error) or type(error).__name__
        if isinstance(error, ssl.SSLError):
            reason = "it does not answer with TLS there"
        kind = HubUnreachable
        # asyncio puts the address in place of the system's words, and where a name has several addresses
        # one error in place of several.
        if found := {int(number) for number in _ERRNO.findall(str(error))}:
            reason = ", ".join(map(os.strerror, sorted(found)))
            kind = HubRefused if found == {errno.ECONNREFUSED} else HubUnreachable
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
            f"the certificate of {self.url} is not valid: {error.verify_message}",
            hint="'strawberry certs --renew' on the hub makes a new one.",
        )

    @cached_property
    def _context(self) -> ssl.SSLContext:
        context = client_context(self._ca)
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
