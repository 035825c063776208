"""The registry's HTTP API without a bus, and somebody who speaks to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette

from bus.ports import listen
from chat.http.errors import HANDLERS
from chat.http.server import serve
from contracts.claims import SCOPES, PrincipalKind, Scope
from hub_registry.access.accounts import User
from hub_registry.access.bearer import Gate
from hub_registry.access.tokens import TokenRequest
from hub_registry.bus.purging import Purged
from hub_registry.http import make_routes
from hub_registry.registry import Registry
from identity.keys import KeyPair
from tests.proofs import Authorization


class Remover:
    """Removes from the registry alone; there is no bus here."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def remove_device(self, device: str) -> None:
        await self._registry.revoke_device(device)
        await self._registry.remove_device(device)

    async def revoke_device(self, device: str) -> None:
        await self._registry.revoke_device(device)

    async def remove_client(self, name: str) -> None:
        await self._registry.clients.remove(name)

    async def purge(self) -> Purged:
        return Purged(3, ("hub/other/status",), ("tv",))


class Client:
    """Speaks to the API, as an admin if nothing else is said."""

    def __init__(self, http: httpx.AsyncClient, registry: Registry) -> None:
        self.http = http
        self.registry = registry
        self.keys: dict[str, KeyPair] = {}

    async def token(self, user: User | None = None, *scopes: Scope, kind: PrincipalKind = "user") -> str:
        user, key = user or self.registry.admin, None
        if kind == "device":
            key = KeyPair.generate()
            self.keys[key.kid] = key
        return await self.registry.authority.issue(
            TokenRequest(
                kind=kind,
                subject=user.id,
                owner=user.id,
                scopes=scopes or SCOPES,
                lifetime_s=60,
                key=key.public if key else None,
            )
        )

    async def __call__(self, method: str, path: str, body=None, *, token: str | None = None, status=200):
        auth = Authorization(token or await self.token(), self.keys)
        answer = await self.http.request(method, path, json=body, auth=auth)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None


def make_app(registry: Registry) -> Starlette:
    """Put together the registry's API alone."""
    gate = Gate(registry.authority, registry.accounts)
    routes = make_routes(registry, gate=gate, remover=Remover(registry))
    return Starlette(routes=routes, exception_handlers=HANDLERS)


@asynccontextmanager
async def speak_to(registry: Registry) -> AsyncIterator[Client]:
    """Serve a registry over HTTP."""
    transport = httpx.ASGITransport(app=make_app(registry))
    async with httpx.AsyncClient(transport=transport, base_url="http://hub.local:8321") as http:
        yield Client(http, registry)


@asynccontextmanager
async def over_http(registry: Registry) -> AsyncIterator[str]:
    """Serve a registry on a port of its own; gives the address."""
    with listen("127.0.0.1", 0, purpose="HTTP") as listener:
        async with serve(make_app(registry), listener):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
