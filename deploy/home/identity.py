"""Who the hub is: the id and the key that broker and hub share, whichever of them starts first."""

from dataclasses import dataclass

from deploy.home.directory import Home
from hub_registry.access.accounts import Accounts
from hub_registry.storage.store import open_store
from identity.keys import KeyPair


@dataclass(frozen=True)
class Identity:
    """The hub's id and its key."""

    hub_id: str
    key: KeyPair


async def load_identity(home: Home) -> Identity:
    """Read the identity of this home's hub, or make it.

    Raises:
        ConfigError: If the database or the key cannot be used.
    """
    key = KeyPair.load_or_create(home.hub / "key.pem")
    async with open_store(home.hub / "hub.db") as store:
        return Identity(await Accounts(store).hub_id(), key)
