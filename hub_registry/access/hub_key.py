"""The hub's identity key, which belongs to its database."""

from pathlib import Path

from contracts.errors import ConfigError
from identity.keys import KeyPair


def load_hub_key(directory: Path) -> KeyPair:
    """Return the key of the hub with this directory; create it only where there is no database yet.

    With another key the hub would be a stranger to all its devices.

    Raises:
        ConfigError: If the key cannot be read, or is missing beside a database.
    """
    path, database = directory / "key.pem", directory / "hub.db"
    if database.exists() and not path.exists():
        raise ConfigError(
            f"{path} is missing: it is the identity of the hub whose database is {database}",
            hint="Restore it from a backup. To start with an empty home, where every device joins again, "
            "move the database away too.",
        )
    return KeyPair.load_or_create(path)
