"""People and their programs on the bus: MQTT Explorer, Node-RED, a script. The rows are their tokens."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from pydantic import SecretStr
from sqlmodel import Session

from contracts.access import Principal
from contracts.answers.devices import BusClient
from contracts.errors import Conflict, InvalidMessage, NotFound
from contracts.names import RESERVED
from hub_registry.access.accounts import ADMIN_ID
from hub_registry.access.token_rows import TokenRequest
from hub_registry.access.tokens import TokenAuthority
from hub_registry.storage.queries import client_names, good_clients
from hub_registry.storage.store import Store
from hub_registry.storage.tables import DeviceRow, RetiredDeviceRow, UserRow

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")
_OURS: Final = "strawberry-"
"""What user names begin with that the hub itself has on a broker."""


class Clients:
    """Adds and removes the logins of programs on the bus."""

    def __init__(self, store: Store, authority: TokenAuthority, *, instance: str) -> None:
        self._store = store
        self._authority = authority
        self._instance = instance
        self._adding = asyncio.Lock()

    async def add(
        self, name: str, *, owner: str, lifetime_s: int, chat: bool = False, home_assistant: bool = False
    ) -> tuple[BusClient, SecretStr]:
        """Add a client; give it with its password.

        Args:
            owner: Id of the user whose events it may see.
            chat: Whether it may chat with the hub.
            home_assistant: Whether it is Home Assistant, which does not chat.

        Raises:
            InvalidMessage: If that is no name, or both are wanted.
            Conflict: If the name is taken, here or on the broker.
            LinkError: If the broker refuses the login.
        """
        if not _NAME.match(name) or name.startswith(_OURS):
            raise InvalidMessage(
                f"{name!r} cannot be the name of a login",
                hint=f"Small letters, digits, - and _, up to 32, a letter first, not {_OURS}….",
            )
        if chat and home_assistant:
            raise InvalidMessage(
                "a login of Home Assistant cannot chat", hint="Expose hub.chat to Home Assistant instead."
            )
        scopes = Principal("client", name, chat=chat, home_assistant=home_assistant).scopes
        request = TokenRequest(
            kind="client", subject=name, owner=owner, scopes=scopes, lifetime_s=lifetime_s, name=name
        )
        async with self._adding:
            await self._store.read(lambda session: self._require_free(session, name))
            token = await self._authority.issue(request)
        return await self.get(name), SecretStr(token)

    async def list(self) -> Sequence[BusClient]:
        return await self._store.read(_good)

    async def get(self, name: str) -> BusClient:
        """Return the client of this name.

        Raises:
            NotFound: If there is none.
        """
        for client in await self.list():
            if client.name == name:
                return client
        raise NotFound(f"there is no login {name!r}", hint="'strawberry broker logins' lists them.")

    async def remove(self, name: str) -> None:
        """Revoke a login and disconnect its client.

        Raises:
            NotFound: If there is none.
            LinkError: If the broker still accepts the login; it is asked again.
        """
        await self.get(name)
        await self._authority.revoke_subject("client", name)

    def _require_free(self, session: Session, name: str) -> None:
        if name in client_names(session):
            what = "a login"
        elif any(session.get(table, name) is not None for table in (DeviceRow, RetiredDeviceRow)):
            what = "the id of a device"
        elif name == ADMIN_ID or session.get(UserRow, name) is not None:
            what = "the id of a user"
        elif name in RESERVED or name == self._instance:
            what = "the name of the hub"
        else:
            return
        raise Conflict("{name!r} is {what} already", name=name, what=what, hint="Choose another name.")


def _good(session: Session) -> list[BusClient]:
    return [
        BusClient(
            name=row.subject,
            username=row.subject,
            owner=row.owner,
            chat="chat" in row.scope.split(),
            home_assistant="home_assistant" in row.scope.split(),
            created_at=row.issued_at,
            expires_at=row.expires_at,
        )
        for row in good_clients(session)
    ]
