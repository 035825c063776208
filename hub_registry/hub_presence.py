"""What the hub says about itself on the bus."""

import secrets

from broker.envelope import Seal
from broker.link import Message
from contracts import topics
from contracts.presence import HubStatus
from hub_registry.tables import now


class HubPresence:
    """The retained status of one hub process, and its Last Will.

    A session is new at each connection to the broker: spokes then publish again what they are.
    """

    def __init__(self, seal: Seal, *, instance: str, version: str = "") -> None:
        self._seal = seal
        self._topic = topics.HUB_STATUS.build(instance=instance)
        self._version = version
        self._started_at = now()
        self.session = secrets.token_hex(8)

    def will(self) -> Message:
        """Begin a session and make its Last Will; for ``open_link``, which asks before each connect."""
        self.session = secrets.token_hex(8)
        return self.offline()

    def online(self) -> Message:
        """Make the status that says that the hub is there."""
        return self._message("online")

    def offline(self) -> Message:
        """Make the status that says that the hub is gone."""
        return self._message("offline")

    def _message(self, state: str) -> Message:
        status = HubStatus.model_validate(
            {
                "state": state,
                "started_at": self._started_at,
                "session": self.session,
                "version": self._version,
            }
        )
        row = topics.HUB_STATUS
        return Message(self._topic, self._seal.seal(self._topic, status), row.qos, row.retained)
