"""Settings of the registry."""

from pathlib import Path

from pydantic import Field

from contracts.devices.joining import BusAccess
from contracts.names import InstanceName
from contracts.wire import Strict


class RegistrySettings(Strict):
    """Settings of the registry.

    Attributes:
        database: SQLite file, made owner-only, or the URL of a PostgreSQL database.
        instance: The stable name of this hub process.
        is_replica: Whether other hubs use the database, too.
        bus: Addresses and login of the bus, as a device receives them.
        url: Where other machines reach the hub over HTTP, None where they cannot.
        for_emqx: Whether tokens for MQTT tell EMQX what they allow.
    """

    database: Path | str = Field(repr=False)
    instance: InstanceName = "main"
    is_replica: bool = False
    bus: BusAccess = BusAccess(brokers=(), authentication="proof")
    for_emqx: bool = False
    url: str | None = None
