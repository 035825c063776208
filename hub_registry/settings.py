"""Settings of the registry."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from contracts.devices.joining import Authentication, BusAccess, Login
from contracts.names import InstanceName
from contracts.wire import Strict


class RegistrySettings(Strict):
    """Settings of the registry.

    Attributes:
        database: SQLite file, made owner-only, or the URL of a PostgreSQL database.
        instance: The stable name of this hub process.
        is_replica: Whether other hubs use the database, too.
        brokers: Addresses under which spokes reach the broker, as the answer to joining lists them.
        topic_prefix: Prefix of every topic of the bus.
        login: The ordinary login of a broker that is shared with others; None on one of our own.
        ca: PEM of the certificate authority of this home, None where none was made.
        qos: See `BusAccess.qos`.
        url: Where other machines reach the hub over HTTP, None where they cannot.
        authentication: How devices log in on a broker of our own.
        for_emqx: Whether tokens for MQTT tell EMQX what they allow.
    """

    database: Path | str = Field(repr=False)
    instance: InstanceName = "main"
    is_replica: bool = False
    brokers: tuple[str, ...] = ()
    topic_prefix: str = ""
    authentication: Authentication = "proof"
    for_emqx: bool = False
    login: Login | None = None
    ca: str | None = None
    qos: Literal[0, 1] = 1
    url: str | None = None

    @property
    def bus(self) -> BusAccess:
        """Addresses and login of the bus, as a device receives them."""
        return BusAccess(
            brokers=self.brokers,
            prefix=self.topic_prefix,
            authentication="login" if self.login else self.authentication,
            login=self.login,
            ca=self.ca,
            qos=self.qos,
        )
