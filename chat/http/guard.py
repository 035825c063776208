"""Checks of every request before it reaches an endpoint: Host, Origin, and the size of its body.

A page in a browser can make requests to a loopback address, and a name that its owner points there
(DNS rebinding) makes them look like requests to itself. So only ``localhost``, IP addresses and the names of
this machine are served, and only pages of the hub itself may ask.
"""

import re
from collections.abc import Callable, Container
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chat.http.errors import error_response
from contracts.addresses import endpoint
from contracts.correlation import correlated
from identity.ids import uuid7

_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Guard:
    """ASGI middleware around the whole app.

    Args:
        max_body_bytes: The largest body of a request.
        base_path: Where a proxy puts the hub; paths are taken with it and, where the proxy takes it
            off, without.
        names: Gives the host names, in small letters, by which this machine goes besides ``localhost``.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body_bytes: int,
        base_path: str = "",
        names: Callable[[], Container[str]] = tuple,
    ) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._base_path = base_path
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            status, code, message, hint = refusal
            response = error_response(scope["path"], status, code, message, hint)
            await response(scope, receive, send)
            return
        await self._serve({**scope, "root_path": self._base_path}, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str, str, str] | None:
        hosts = headers.getlist("host")
        host = _host(hosts[0]) if len(hosts) == 1 else None
        if host is None or not (_is_ours(host) or host in self._names()):
            return (
                421,
                "wrong_host",
                "this hub does not go by the name in the Host header",
                "Use its IP address or a name that 'strawberry certs' shows; [http] names adds others.",
            )
        origin = headers.get("origin")
        if origin is not None and not is_own_page(origin, scope["scheme"], hosts[0]):
            return (
                403,
                "wrong_origin",
                "pages of another origin may not use this hub",
                "Open the hub's own pages; programs send a token and no Origin.",
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._max_body_bytes:
            return (413, "too_large", f"a request may have {self._max_body_bytes:,} bytes", "")
        return None

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = 0
        given = Headers(scope=scope).get("x-request-id", "")
        id_ = given if _REQUEST_ID.fullmatch(given) else uuid7()

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise HTTPException(413, f"a request may have {self._max_body_bytes:,} bytes")
            return message

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                missing = (pair for pair in _HEADERS if pair[0] not in present)
                message["headers"] = [*message["headers"], *missing, (b"x-request-id", id_.encode())]
            await send(message)

        with correlated(request=id_):
            await self._app(scope, counted, hardened)


def _is_ours(host: str) -> bool:
    """Return whether a name is the hub's; an IP address cannot be rebound, so any is."""
    if host == "localhost":
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_own_page(origin: str, scheme: str, host: str) -> bool:
    """Return whether a page of this origin is a page of the hub itself.

    Args:
        scheme: Of the request, and ``host`` with the port, if it names one.
    """
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
