"""Requests of integrations: bounded in size and time, to the address that was checked."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from chat.outbound import PrivateAddress, answered
from contracts.errors import ConfigError, Forbidden, LinkError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    import httpx

REQUEST_S: Final = 20.0
"""All redirects together; below the time of a call."""
_MOST_REDIRECTS: Final = 5
_SCHEMES: Final = ("http", "https")
_AGENT: Final = "Strawberry (home assistant)"


@dataclass(frozen=True)
class Fetched:
    """An answer.

    Attributes:
        url: Where it came from in the end.
        content_type: Media type in lower case, without parameters.
        charset: As the server says; empty where it does not.
    """

    url: str
    content_type: str
    charset: str
    content: bytes

    @property
    def text(self) -> str:
        return self.decoded(self.charset or "utf-8")

    def decoded(self, charset: str) -> str:
        try:
            return self.content.decode(charset, "replace")
        except LookupError:
            return self.content.decode("utf-8", "replace")


async def fetch(
    url: str,
    *,
    max_bytes: int,
    allow_private: bool = False,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Fetched:
    """Send a request, follow redirects, and return the answer.

    Args:
        headers: Sent to the first host only.
        allow_private: Whether addresses of the home, and of this machine, may be asked; not by way of another
            host that redirects there.

    Raises:
        Forbidden: The address is in the home and may not be asked.
        LinkError: There is no answer, or one with an error.
        ConfigError: The address cannot be used.
    """
    import httpx  # 80 ms

    try:
        async with asyncio.timeout(REQUEST_S):
            sent = dict(headers or {})
            for _ in range(_MOST_REDIRECTS + 1):
                _check(url)
                basic = {"user-agent": _AGENT, "accept-encoding": "identity"}
                asked = answered(method, url, headers=basic | sent, body=body, allow_private=allow_private)
                found = await _answer(asked, method, url, max_bytes)
                if isinstance(found, Fetched):
                    return found
                if urlsplit(found).netloc != urlsplit(url).netloc:
                    sent = {}
                # A server on the Internet must not send us to one in the home.
                allow_private = allow_private and urlsplit(found).hostname == urlsplit(url).hostname
                url = found
    except PrivateAddress as error:
        raise Forbidden(
            error.message, hint="The owner can allow private addresses in the settings."
        ) from None
    except LinkError as error:
        raise LinkError("{host}: {reason}", host=urlsplit(url).hostname, reason=error.message) from None
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, ValueError, TimeoutError) as error:
        reason = "does not answer" if isinstance(error, TimeoutError) else type(error).__name__
        raise LinkError("{host}: {reason}", host=urlsplit(url).hostname, reason=reason) from None
    raise LinkError("{host}: redirects without end", host=urlsplit(url).hostname)


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname or "@" in parts.netloc:
        raise ConfigError("{url!r} is no address of a web page", url=url[:200], hint="Use https://…")


async def _answer(
    asked: "AbstractAsyncContextManager[httpx.Response]", method: str, url: str, max_bytes: int
) -> Fetched | str:
    """Read the answer to a request, or return where it redirects to."""
    async with asked as response:
        if response.has_redirect_location:
            target = urljoin(url, response.headers["location"])
            if method != "GET" or (url.startswith("https:") and not target.startswith("https:")):
                raise LinkError("redirects to where this cannot go")
            return target
        if response.status_code >= 400:
            raise LinkError("answers with status {status}", status=response.status_code)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise LinkError("sends a compressed answer, which was not asked for")
        content = bytearray()
        async for piece in response.aiter_raw():
            content += piece
            if len(content) > max_bytes:
                break
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Fetched(url, kind, response.charset_encoding or "", bytes(content[:max_bytes]))
