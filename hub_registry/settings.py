"""Settings of the registry."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from contracts.devices.joining import Authentication, BusAccess, Login
from contracts.names import InstanceName
from contracts.wire import Strict
from identity.logins.passwords import COST, HashCost

_DAY_S = 24 * 60 * 60
CENTURY_S = 36_500 * _DAY_S
"""For ever, and still a time that every broker, browser and clock can count to."""


class DeviceBounds(Strict):
    """What one device may put on the bus; what exceeds it is refused and shown to its owner.

    Attributes:
        skills: Skills in one manifest.
        methods: Methods of all its skills together.
        registered_bytes: Size of all its registrations together; twice as much may come at once, and as much
            again each minute.
        status_bytes: Size of one status.
        registration_bytes: Size of one registration.
        heartbeat_bytes: Size of one heartbeat.
        statuses: Statuses it may send at once; one more is allowed each second.
        registrations: Registrations it may send at once; ten more are allowed each second.
        heartbeats: Heartbeats it may send at once; two more are allowed each second.
        states: Values that the broker may retain of it.
        retained_bytes: Bytes of those and of its registrations on the broker, with their topics.
    """

    skills: Annotated[int, Field(gt=0)] = 128
    methods: Annotated[int, Field(gt=0)] = 1_000
    # A thousand methods with 2 KiB of text and schema each.
    registered_bytes: Annotated[int, Field(gt=0)] = 2 * 1024 * 1024
    status_bytes: Annotated[int, Field(gt=0)] = 64 * 1024
    # 256 methods with long docstrings and schemas come to a few hundred KiB.
    registration_bytes: Annotated[int, Field(gt=0)] = 512 * 1024
    heartbeat_bytes: Annotated[int, Field(gt=0)] = 4 * 1024
    statuses: Annotated[int, Field(gt=0)] = 60
    # A spoke sends all its skills at each session of the hub: twice the skills lets two follow closely.
    registrations: Annotated[int, Field(gt=0)] = 256
    heartbeats: Annotated[int, Field(gt=0)] = 60
    # With the skills they make the thousand retained topics that the embedded broker grants.
    states: Annotated[int, Field(gt=0)] = 870
    retained_bytes: Annotated[int, Field(gt=0)] = 8 * 1024 * 1024


class JoiningBounds(Strict):
    """Joining by code: how long, how often, how many.

    Attributes:
        lifetime_s: How long a code is good, and from its approval on what it brings.
        interval_s: How often a device may ask whether it was approved.
        waiting: Devices that may wait at once.
        asked: Codes that one address may ask for a minute; all together ten times as many.
        guessed: Wrong secrets that one address, and wrong codes that one admin, may try a minute.
    """

    lifetime_s: Annotated[int, Field(gt=0)] = 10 * 60
    interval_s: Annotated[float, Field(ge=0)] = 2.0
    waiting: Annotated[int, Field(gt=0)] = 32
    asked: Annotated[int, Field(gt=0)] = 6
    guessed: Annotated[int, Field(gt=0)] = 10


class TokenLifetimes(Strict):
    """How long what the hub issues is good for, in seconds."""

    enrolment_s: Annotated[int, Field(gt=0)] = 10 * 60
    device_s: Annotated[int, Field(gt=0)] = 365 * _DAY_S
    user_s: Annotated[int, Field(gt=0)] = 365 * _DAY_S
    home_assistant_s: Annotated[int, Field(gt=0)] = CENTURY_S
    session_s: Annotated[int, Field(gt=0)] = 30 * _DAY_S
    # Handed from person to person, who may look into their mail in the evening only.
    code_s: Annotated[int, Field(gt=0)] = _DAY_S


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
        skill_expiry_s: Without a sign of life for this long, a skill leaves the search.
        authentication: How devices log in on a broker of our own.
        for_emqx: Whether tokens for MQTT tell EMQX what they allow.
        removal_wait_s: How long removing a connected device waits for its last will.
        heartbeat_flush_s: How often signs of life are written to the database.
        enrolment_failures: Wrong enrolment tokens that one address may try a minute.
        login_failures: Wrong passwords and codes that one address may try a minute; for one name, from
            wherever they come, so many at once and then one a minute.
        hash_cost: Of passwords.
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
    skill_expiry_s: Annotated[float, Field(gt=0)] = 30 * 60
    removal_wait_s: Annotated[float, Field(ge=0)] = 5
    # Only expiry after a restart reads them, and that counts in half hours.
    heartbeat_flush_s: Annotated[float, Field(gt=0)] = 30
    enrolment_failures: Annotated[int, Field(gt=0)] = 10
    login_failures: Annotated[int, Field(gt=0)] = 10
    hash_cost: HashCost = COST
    bounds: DeviceBounds = DeviceBounds()
    joining: JoiningBounds = JoiningBounds()
    lifetimes: TokenLifetimes = TokenLifetimes()

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
