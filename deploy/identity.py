"""Who the hub is: the id and the key that broker and hub share, whichever of them starts first."""

from dataclasses import dataclass

from broker.keys import KeyPair
from deploy.home import Home
from hub_registry.accounts import Accounts
from hub_registry.store import open_store


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
