"""Keys of a home on NATS: the hub derives its own from its key, and each node knows their public parts."""

import base64
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Self

import nkeys
from pydantic import SecretStr, ValidationError

from contracts.errors import ConfigError
from contracts.wire import Strict
from identity.files import write_private
from identity.keys import KeyPair

__all__ = ["ACCOUNT", "NatsKeys", "NodeKeys"]

ACCOUNT: Final = "home"
"""Account of the devices and clients of the home, with its topics."""


@dataclass(frozen=True)
class NatsKeys:
    """What a hub signs and logs in with. None is stored: all replicas with the hub's key derive the same."""

    key: KeyPair

    @cached_property
    def issuer(self) -> nkeys.KeyPair:
        # Signs who may log in.
        return self._derived("nats issuer", nkeys.PREFIX_BYTE_ACCOUNT)

    @cached_property
    def hub(self) -> nkeys.KeyPair:
        # Answers the servers' questions who may log in.
        return self._derived("nats hub", nkeys.PREFIX_BYTE_USER)

    @cached_property
    def system(self) -> nkeys.KeyPair:
        # Lists and ends connections.
        return self._derived("nats system", nkeys.PREFIX_BYTE_USER)

    def for_nodes(self) -> "NodeKeys":
        issuer, hub, system = (each.public_key.decode() for each in (self.issuer, self.hub, self.system))
        return NodeKeys(issuer=issuer, hub=hub, system=system, secret=self.key.secret("nats cluster"))

    def _derived(self, purpose: str, kind: int) -> nkeys.KeyPair:
        secret = base64.urlsafe_b64decode(self.key.secret(purpose).get_secret_value() + "=")
        return nkeys.from_seed(nkeys.encode_seed(secret, kind))


class NodeKeys(Strict):
    """What a node needs to know of the hub of its home: public keys, and what nodes prove to each other.

    Attributes:
        secret: Password of a node at the others.
    """

    issuer: str
    hub: str
    system: str
    secret: SecretStr

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read them from a file.

        Raises:
            ConfigError: If it cannot be read, or holds something else.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            raise ConfigError(
                f"{path} cannot be read", hint="Copy it again from the machine with the hub."
            ) from None

    def save(self, path: Path) -> None:
        """Store them owner-only."""
        content = self.model_dump() | {"secret": self.secret.get_secret_value()}
        write_private(path, json.dumps(content, indent=1).encode())
