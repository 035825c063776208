"""The registry's HTTP API without a bus, and somebody who speaks to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette

from bus.ports import listen
from chat.http.errors import HANDLERS
from chat.http.server import serve
from chat.http.streams import Connections
from chat.operations import Operations
from contracts.answers.devices import Purged
from contracts.claims import SCOPES, PrincipalKind, Scope
from hub_registry.access.accounts import User
from hub_registry.access.bearer import Gate
from hub_registry.access.token_rows import TokenRequest
from hub_registry.http import make_routes
from hub_registry.registry import Registry
from identity.keys import KeyPair
from tests.proofs import Authorization

ORIGIN = "http://hub.local:8321"
PASSWORD = "correct horse battery"


class Remover:
    """Removes from the registry alone; there is no bus here."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def remove_device(self, device: str) -> None:
        await self._registry.revoke_device(device)
        await self._registry.devices.remove(device)

    async def revoke_device(self, device: str) -> None:
        await self._registry.revoke_device(device)

    def tell_names(self, device: str) -> None:
        pass

    async def purge(self) -> Purged:
        return Purged(3, ("hub/other/status",), ("tv",))


class Client:
    """Speaks to the API, as an admin if nothing else is said."""

    def __init__(self, app: Starlette, http: httpx.AsyncClient, registry: Registry) -> None:
        self.app = app
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


class Browser:
    """A page of the hub's in a browser, which keeps the cookie."""

    def __init__(self, client: Client) -> None:
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(client.app),
            base_url=ORIGIN,
            headers={"origin": ORIGIN, "user-agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"},
        )

    async def __call__(self, method: str, path: str, body=None, *, status: int = 200, **headers: str):
        answer = await self.http.request(method, path, json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def set_up(self, client: Client, user: str = "admin", **more: str) -> None:
        code = (await client.registry.people.make_code(user)).code
        await self("POST", "/api/setup", {"code": code, "password": PASSWORD, **more})


def make_app(registry: Registry) -> Starlette:
    """Put together the registry's API alone."""
    gate = Gate(registry.authority, registry.accounts)
    operations = Operations(gate, Connections(asyncio.TaskGroup()))
    routes = make_routes(registry, gate=gate, operations=operations, remover=Remover(registry))
    return Starlette(routes=routes, exception_handlers=HANDLERS)


@asynccontextmanager
async def speak_to(registry: Registry) -> AsyncIterator[Client]:
    """Serve a registry over HTTP."""
    app = make_app(registry)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
        yield Client(app, http, registry)


@asynccontextmanager
async def over_http(registry: Registry) -> AsyncIterator[str]:
    """Serve a registry on a port of its own; gives the address."""
    with listen("127.0.0.1", 0, purpose="HTTP") as listener:
        async with serve(make_app(registry), listener):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
