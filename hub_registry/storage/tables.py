"""The registry's tables, and the base of all tables of the hub's database.

Moments are stored as RFC 3339 text in UTC, so that they also sort as text.
"""

import json
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from types import UnionType
from typing import Any, Final, Literal, TypeVar, cast, get_args

from sqlalchemy import JSON, BigInteger, Column, String, TypeDecorator, event, inspect
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from contracts.errors import StrawberryError
from contracts.phrases import MEMBER, read_phrases, with_phrases
from contracts.wire import Json, rfc3339

_log = logging.getLogger(__name__)

Role = Literal["admin", "member", "guest"]
Row = TypeVar("Row")
T = TypeVar("T")


def now() -> datetime:
    """Return the present moment, in UTC and to the millisecond, as the database keeps it."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


_PHRASE: Final = "\x02"
"""Begins a phrase in the database; no text for people has this control character."""
_LONG_PAST: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""A token that was altered in the database has expired, or was revoked."""


class PhraseColumn(TypeDecorator[str]):
    """A text for people; a phrase is kept with what it was made of, as JSON after a character of its own."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Write a phrase as JSON, and any other text as it is."""
        made = with_phrases({"text": value})
        return _PHRASE + json.dumps(made) if MEMBER in made else value

    def process_result_value(self, value: Any | None, dialect: Dialect) -> str | None:
        """Read the text back; what is no phrase is text, whatever it begins with."""
        if isinstance(value, str) and value.startswith(_PHRASE):
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                return cast("str", read_phrases(json.loads(value[len(_PHRASE) :]))["text"])
        return value


class Moment(TypeDecorator[datetime]):
    """A point in time as RFC 3339 text."""

    impl = String(24)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else rfc3339(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Read the text back; what is no moment is long past, so that no row keeps a hub from starting."""
        if value is None:
            return None
        try:
            moment = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            return _LONG_PAST
        # At the ends of the calendar, arithmetic overflows.
        is_usual = moment.tzinfo is not None and 1970 <= moment.year < 9999
        return moment.astimezone(UTC) if is_usual else _LONG_PAST


class Table(SQLModel, registry=registry()):
    """Base of all tables of the hub's database."""

    # Rows are checked by `_check` alone: their schemas need not be built at each start.
    model_config = {"defer_build": True}


_LARGEST: Final[dict[Any, int]] = {int: 2**53, float: 10**11}
"""No column has numbers below 0, or larger ones: JSON keeps them exact, and moments do not overflow."""


@event.listens_for(Table, "load", propagate=True)
def _check(row: Table, _: object) -> None:
    """Replace what is not of its column's type, as SQLite keeps whatever a person or a fault puts there.

    One altered row then neither keeps a hub from starting nor hides the other rows.
    """
    values = row.__dict__
    for name, (kind, neutral) in _plain_columns(type(row)).items():
        value = values.get(name, neutral)
        if value != neutral and not _fits(value, kind):
            values[name] = neutral
            _report(row, f"its {name} cannot be read and counts as empty")


def _fits(value: Any, kind: type) -> bool:
    if (largest := _LARGEST.get(kind)) is None:
        return isinstance(value, kind)
    return type(value) in (int, kind) and 0 <= value < largest


@cache
def _plain_columns(table: type[Table]) -> dict[str, tuple[type, Any]]:
    """Return by the name of a column its type and what stands there if another is stored."""
    found: dict[str, tuple[type, Any]] = {}
    for name, field in table.model_fields.items():
        kind: Any = field.annotation
        is_optional = isinstance(kind, UnionType)
        kind = get_args(kind)[0] if is_optional else kind
        # SQLite itself keeps anything but numbers out of an id.
        if kind in (str, int, float, bytes) and (name != "id" or kind is not int):
            found[name] = kind, None if is_optional else kind()
    return found


def readable(rows: Iterable[Row], read: Callable[[Row], T], *, most: int | None = None) -> list[T]:
    """Return what is read of each row; leave out one that was altered so that it cannot be read.

    Args:
        rows: Rows of a table, or tuples of columns.
        most: How many are returned; no further rows are fetched then.
    """
    found: list[T] = []
    for row in rows:
        if len(found) == most:
            break
        try:
            found.append(read(row))
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            StrawberryError,
        ) as error:
            _report(row, f"it is left out ({error!r:.200})")
    return found


def _report(row: object, problem: str) -> None:
    place = row[0] if isinstance(row, tuple) else row
    if isinstance(place, Table):
        place = f"{type(place).__tablename__} {inspect(place).identity}"
    _log_once(f"{place!r:.200}", problem)


@lru_cache(maxsize=1_000)
def _log_once(row: str, problem: str) -> None:
    _log.error("a row of the database was altered, %s: %s", row, problem)


class HubRow(Table, table=True):
    """The identity of this hub: one row.

    Attributes:
        key: Fingerprint of its key; empty until a hub has opened the database.
    """

    __tablename__ = "hub"

    id: str = Field(primary_key=True)
    key: str = ""
    created_at: datetime = Field(sa_type=Moment)


class ReplicaRow(Table, table=True):
    """A hub that shares the database with others; a hub alone has no row.

    Attributes:
        url: Where other replicas reach it.
        on_bus: Whether it is connected to the broker.
        term: Of its latest lead, 0 before the first. The highest one of all is that of the leader.
    """

    __tablename__ = "replica"

    instance: str = Field(primary_key=True)
    url: str
    version: str
    on_bus: bool = False
    started_at: datetime = Field(sa_type=Moment)
    seen_at: datetime = Field(sa_type=Moment)
    term: int = Field(default=0, sa_type=BigInteger)
    leads_since: datetime | None = Field(default=None, sa_type=Moment)


class SharedFileRow(Table, table=True):
    """A file that all replicas have.

    Attributes:
        digest: Its SHA-256 in hex, empty of a file that was removed.
    """

    __tablename__ = "shared_file"

    name: str = Field(primary_key=True)
    digest: str = ""
    content: bytes = b""


class UserRow(Table, table=True):
    """A person. ``language`` and ``time_zone`` are None where the household's apply.

    ``password`` is its argon2 hash, None until the person has chosen one. The row of a person who was removed
    stays, so that the id is never given out again and the audit can name them.
    """

    __tablename__ = "user"

    id: str = Field(primary_key=True)
    display_name: str
    role: str
    language: str | None = None
    time_zone: str | None = None
    created_at: datetime = Field(sa_type=Moment)
    password: str | None = Field(default=None, repr=False)
    removed_at: datetime | None = Field(default=None, sa_type=Moment)


class PasswordCodeRow(Table, table=True):
    """The right of a person to choose a password once; of the code only its SHA-256 is kept."""

    __tablename__ = "password_code"

    user: str = Field(primary_key=True, foreign_key="user.id")
    digest: str
    expires_at: datetime = Field(sa_type=Moment)


class HomeLayoutRow(Table, table=True):
    """A person's *Home*: a `contracts.answers.people.HomeLayout` as JSON."""

    __tablename__ = "home_layout"

    user: str = Field(primary_key=True, foreign_key="user.id")
    layout: str


class DeviceRow(Table, table=True):
    """A device, enrolled (it has a public key) or still awaited.

    ``epoch``, ``connection`` and ``seq`` are the highest of any status accepted from its present key;
    ``ended`` says that this connection has said ``offline``, which is final. ``may_confirm`` is None until
    the owner has decided. What a ``trusted`` device declares needs no approval. A ``shared`` one is for all
    people of the home. ``scope`` is what its tokens open besides ``register``, whatever they say.
    """

    __tablename__ = "device"

    id: str = Field(primary_key=True)
    owner: str = Field(foreign_key="user.id", index=True)
    display_name: str
    key: str = Field(unique=True)
    aliases: list[str] = Field(default_factory=list, sa_column=Column(JSON, nullable=False))
    area: str | None = None
    floor: str | None = None
    public_key: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    key_id: str | None = None
    epoch: int = Field(default=0, sa_type=BigInteger)
    connection: int = 0
    seq: int = 0
    ended: bool = False
    may_confirm: bool | None = None
    last_seen: datetime | None = Field(default=None, sa_type=Moment)
    revoked_at: datetime | None = Field(default=None, sa_type=Moment)
    trusted: bool = False
    shared: bool = False
    scope: str = Field(default="chat", sa_column_kwargs={"server_default": "chat"})
    created_at: datetime = Field(sa_type=Moment)


class RetiredDeviceRow(Table, table=True):
    """The id of a removed device, which is never given out again."""

    __tablename__ = "retired_device"

    id: str = Field(primary_key=True)
    retired_at: datetime = Field(sa_type=Moment)


class TokenRow(Table, table=True):
    """A token that was issued; the token itself is nowhere stored, but can be signed again from this.

    Of a device, ``owner`` and ``scope`` are as signed; what counts is what the device's row says now.

    ``audience`` of a device's two, which differ in nothing else, is that of the one for HTTP. ``key_id`` is
    the thumbprint of the key that its bearer has bound. ``used_at`` is when a device's was first used over
    HTTP. ``replaces`` is the token that this one renews, which is revoked then. ``is_session`` marks that of
    a browser in which a person logged in.
    """

    __tablename__ = "token"

    jti: str = Field(primary_key=True)
    kind: str
    subject: str = Field(index=True)
    owner: str
    name: str = ""
    audience: str
    scope: str
    issued_at: datetime = Field(sa_type=Moment)
    expires_at: datetime = Field(sa_type=Moment)
    used_at: datetime | None = Field(default=None, sa_type=Moment)
    revoked_at: datetime | None = Field(default=None, sa_type=Moment)
    replaces: str | None = None
    key_id: str | None = None
    is_session: bool = False


class EnrolmentRow(Table, table=True):
    """A right to join once; of the secret only its SHA-256 is kept."""

    __tablename__ = "enrolment"

    locator: str = Field(primary_key=True)
    digest: str
    device_id: str = Field(foreign_key="device.id", index=True)
    created_at: datetime = Field(sa_type=Moment)
    expires_at: datetime = Field(sa_type=Moment)
    used_at: datetime | None = Field(default=None, sa_type=Moment)


class RegistrationRow(Table, table=True):
    """A skill of a device: the payload that the device signed with the key ``key_id``.

    It is parsed and checked when it is read, as it was when it came from the bus.
    """

    __tablename__ = "registration"

    device_id: str = Field(primary_key=True, foreign_key="device.id")
    skill: str = Field(primary_key=True)
    key_id: str
    payload: str


class ApprovalRow(Table, table=True):
    """What is known and approved of a skill of a device; see `hub_registry.devices.review.Known`.

    It stays while the skill is gone, so that registering it again is no way around an approval.
    """

    __tablename__ = "approval"

    device_id: str = Field(primary_key=True, foreign_key="device.id")
    skill: str = Field(primary_key=True)
    known: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))


class AuditRow(Table, table=True):
    """One call or refused attempt, with the hash of its arguments and never the arguments themselves.

    ``token`` is the ``jti`` of the token it was made with, ``through`` the device whose token that is, and
    ``confirmed_by`` the ``jti`` of the token with which a person confirmed it. ``read_only`` is a flag of the
    method.
    """

    __tablename__ = "audit"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=Moment, index=True)
    call: str
    user: str
    actor: Json = Field(sa_column=Column(JSON, nullable=False))
    device: str
    skill: str
    method: str
    arguments: str
    outcome: str
    token: str = Field(default="", sa_column_kwargs={"server_default": ""})
    token_name: str = Field(default="", sa_column_kwargs={"server_default": ""})
    through: str | None = None
    confirmed_by: str | None = None
    read_only: bool = False
