"""Status of the hub's processes, as a spoke receives it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from bus.link import Message
from contracts import topics
from contracts.devices.presence import HubStatus
from identity.envelope import unseal
from identity.keys import PublicKey


@dataclass
class _Instance:
    started_at: datetime
    is_online: bool = False
    sessions: dict[str, None] = field(default_factory=dict)


class HubPresence:
    """Tracks the signed statuses of the hub's processes and ignores replayed ones.

    Args:
        on_words: Called when something else can be said in the home.

    Attributes:
        session: The newest session of the hub; None before the first.
    """

    def __init__(self, hub_id: str, key: PublicKey, *, on_words: Callable[[], None] = lambda: None) -> None:
        self.session: str | None = None
        self._words = ""
        self._on_words = on_words
        self._hub_id = hub_id
        self._key = key
        self._instances: dict[str, _Instance] = {}

    @property
    def is_online(self) -> bool:
        return any(instance.is_online for instance in self._instances.values())

    def hear(self, message: Message) -> bool:
        """Handle a message on a hub status topic.

        Returns:
            Whether it begins a new session.

        Raises:
            InvalidMessage: If this hub did not sign it.
        """
        values = topics.HUB_STATUS.match(message.topic)
        if values is None or not message.payload:
            return False
        document = unseal(self._hub_id, message.topic, message.payload, self._key)
        status = topics.HUB_STATUS.parse(document)
        return self._take(values["instance"], status)

    def _take(self, name: str, status: HubStatus) -> bool:
        known = self._instances.get(name)
        if known is None or status.started_at > known.started_at:
            known = self._instances[name] = _Instance(status.started_at)
        elif status.started_at < known.started_at:
            return False
        if status.session not in known.sessions:
            return self._begin(known, status)
        if status.session == next(reversed(known.sessions)):
            known.is_online = status.state == "online"
            self._hear_words(status)
        return False

    def _begin(self, instance: _Instance, status: HubStatus) -> bool:
        instance.sessions[status.session] = None
        instance.is_online = status.state == "online"
        if instance.is_online:
            self.session = status.session
            self._hear_words(status)
        return instance.is_online

    def _hear_words(self, status: HubStatus) -> None:
        if status.words and status.words != self._words:
            self._words = status.words
            self._on_words()
