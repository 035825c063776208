"""The hub over HTTP, with the standard library alone: a headless spoke stays small."""

import asyncio
import json
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from contracts.errors import ConfigError, LinkError
from contracts.wire import Json

_MAX_ANSWER: Final = 256 * 1024
_TIMEOUT_S: Final = 10.0


class HubUnreachable(LinkError):
    """The hub gave no answer over HTTP, or not one of a hub."""


@dataclass(frozen=True)
class HubAnswer:
    """An answer of the hub.

    Attributes:
        status: HTTP status.
        body: The JSON of the body; None where it is none.
        clock_ahead_s: How far the hub's clock is ahead of this machine's, as its ``Date`` tells to
            about a second; None where it did not tell.
    """

    status: int
    body: Json
    clock_ahead_s: float | None

    @property
    def error(self) -> tuple[str, str]:
        """Message and hint of an error answer; the message may be empty."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        if not isinstance(error, dict):
            return "", ""
        return str(error.get("message") or ""), str(error.get("hint") or "")


class HubHttp:
    """Requests to one hub, each over a connection of its own.

    Args:
        url: ``http://host:port`` or ``https://…``, with the base path if there is one.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        try:
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            self._host = ""
        if parts.scheme not in ("http", "https") or not self._host:
            raise ConfigError(f"{url!r} is not the address of a hub", hint="Write it as http://host:8321.")
        self._is_secure = parts.scheme == "https"
        self._base = parts.path

    async def get(self, path: str, *, timeout_s: float = _TIMEOUT_S) -> HubAnswer:
        """Ask for a path.

        Raises:
            HubUnreachable: If no answer came.
        """
        return await asyncio.to_thread(self._exchange, "GET", path, None, timeout_s)

    async def post(self, path: str, body: dict[str, Any]) -> HubAnswer:
        """Send a JSON object to a path.

        Raises:
            HubUnreachable: If no answer came; the hub may have acted all the same.
        """
        return await asyncio.to_thread(self._exchange, "POST", path, json.dumps(body).encode(), _TIMEOUT_S)

    def _exchange(self, method: str, path: str, body: bytes | None, timeout_s: float) -> HubAnswer:
        connection = self._connection(timeout_s)
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            asked = time.time()
            connection.request(method, self._base + path, body=body, headers=headers)
            response = connection.getresponse()
            answered = time.time()
            content = response.read(_MAX_ANSWER + 1)
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise HubUnreachable(
                f"the hub at {self.url} cannot be reached: {reason}",
                hint="Check the address, and that it runs.",
            ) from None
        finally:
            connection.close()
        if len(content) > _MAX_ANSWER:
            raise HubUnreachable(f"{self.url} sends more than a hub does", hint="Check the address.")
        ahead = _ahead(response.getheader("Date"), (asked + answered) / 2)
        return HubAnswer(response.status, _parsed(content), ahead)

    def _connection(self, timeout_s: float) -> HTTPConnection:
        if self._is_secure:
            context = ssl.create_default_context()
            return HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)
        return HTTPConnection(self._host, self._port, timeout=timeout_s)


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
