"""Checks of every request before it reaches an endpoint, and the headers that keep browsers to it.

A page in a browser can make requests to a loopback address, and a name that its owner points there
(DNS rebinding) makes them look like requests to itself. So only ``localhost``, IP addresses and the names of
this machine are served, and only pages of the hub itself may ask.
"""

import re
from collections.abc import Callable, Container
from dataclasses import KW_ONLY, dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chat.http.errors import error_response
from contracts.addresses import endpoint, is_address
from contracts.tracing.correlation import correlated
from identity.ids import uuid7

_NO_PAGE: Final = {"default-src": "'none'", "frame-ancestors": "'none'"}
"""Content security policy of an answer that is no page; pages allow more."""
_PLAIN_PAGE: Final = _NO_PAGE | {
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
}
_APP_PAGE: Final = _PLAIN_PAGE | {
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "media-src": "'self' blob:",
    "font-src": "'self'",
    "manifest-src": "'self'",
    "worker-src": "'self'",
}

_HARMLESS: Final = ("GET", "HEAD")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def page_policy(nonce: str | None = None) -> str:
    """Return the content security policy of a page.

    Args:
        nonce: Marks the scripts in a page of NiceGUI, which compiles templates and runs the code that the
            server sends over the socket. A page without one runs the hub's own files alone.
    """
    if nonce is None:
        return _written(_PLAIN_PAGE)
    return _written(_APP_PAGE | {"script-src": f"'self' 'nonce-{nonce}' 'unsafe-eval'"})


def _written(policy: dict[str, str]) -> str:
    return "; ".join(f"{directive} {sources}" for directive, sources in policy.items())


_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", _written(_NO_PAGE).encode()),
)


@dataclass(eq=False)
class Guard:
    """ASGI middleware around the whole app.

    Attributes:
        max_body_bytes: The largest body of a request.
        base_path: Where a proxy puts the hub; paths are taken with it and, where the proxy takes it
            off, without.
        names: Gives the host names, in small letters, by which this machine goes besides ``localhost``.
    """

    app: ASGIApp
    _: KW_ONLY
    max_body_bytes: int
    base_path: str = ""
    names: Callable[[], Container[str]] = tuple

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        app = self.app if refusal is None else error_response(scope["path"], *refusal)
        received = 0
        given = headers.get("x-request-id", "")
        id_ = given if _REQUEST_ID.fullmatch(given) else uuid7()

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_body_bytes:
                raise HTTPException(413, f"a request may have {self.max_body_bytes:,} bytes")
            return message

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                missing = (pair for pair in _HEADERS if pair[0] not in present)
                # Spokes set their clocks by the date. uvicorn's own is that of its latest tick: the first
                # answers after a suspend bear the time before it.
                added = (b"x-request-id", id_.encode()), (b"date", formatdate(usegmt=True).encode())
                message["headers"] = [*message["headers"], *missing, *added]
            await send(message)

        with correlated(request=id_):
            await app({**scope, "root_path": self.base_path}, counted, hardened)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str, str, str] | None:
        hosts = headers.getlist("host")
        host = _host(hosts[0]) if len(hosts) == 1 else None
        if host is None or not (_is_address(host) or host in self.names()):
            return (
                421,
                "wrong_host",
                "this hub does not go by the name in the Host header",
                "Use its IP address or a name that 'strawberry certs' shows; [http] names adds others.",
            )
        origin = headers.get("origin")
        if origin is not None and not _is_own_page(origin, scope["scheme"], hosts[0]):
            return (
                403,
                "wrong_origin",
                "pages of another origin may not use this hub",
                "Open the hub's own pages; programs send a token and no Origin.",
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.max_body_bytes:
            return (413, "too_large", f"a request may have {self.max_body_bytes:,} bytes", "")
        return None


@lru_cache(maxsize=64)
def _is_address(host: str) -> bool:
    # ``localhost`` and IP addresses cannot be rebound.
    return host == "localhost" or is_address(host)


def is_from_own_page(connection: HTTPConnection) -> bool:
    """Return whether a page of the hub itself makes a request.

    Browsers name the origin of a page that opens a socket or changes something; only a read may have none.
    """
    origin, url = connection.headers.get("origin", ""), connection.url
    if not origin:
        return connection.scope.get("method") in _HARMLESS
    return _is_own_page(origin, url.scheme, url.netloc)


def _is_own_page(origin: str, scheme: str, host: str) -> bool:
    place = _place(origin)
    return place is not None and place == _place(f"{scheme}://{host}")


def _host(header: str) -> str | None:
    """Return the name in a Host header, without port and brackets."""
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None


def _place(origin: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an origin; None if it has none, such as ``null``."""
    found = endpoint(origin)
    return None if found is None else (found.scheme.replace("ws", "http", 1), found.host, found.port)
