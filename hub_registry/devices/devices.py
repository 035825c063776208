"""The devices of the home, as the database holds them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime

from sqlmodel import Session, col, delete, select

from contracts.claims import DEVICE_SCOPES, DeviceScope, device_scopes
from contracts.devices.joining import DeviceProfile
from contracts.errors import Conflict, InvalidMessage, NotFound
from contracts.names import device_key
from contracts.wire import Strict
from hub_registry.storage.queries import client_names, require_user
from hub_registry.storage.store import Store
from hub_registry.storage.tables import (
    ApprovalRow,
    DeviceRow,
    EnrolmentRow,
    RegistrationRow,
    RetiredDeviceRow,
    now,
)
from identity.keys import PublicKey

_MAX_NAME = 64
_MAX_ALIASES = 16


@dataclass(frozen=True)
class Device:
    """A device, whether or not it is there.

    Attributes:
        id: Part of its topics; never changes and is never used again.
        key: Its name in generated code; made from the display name.
        public_key: What it signs with, None until it has enrolled.
        revoked: Whether its tokens and signatures no longer count.
        may_confirm: Whether a person at it confirms calls; None where the owner has not decided, which is no.
        trusted: Whether what it declares needs no approval.
        shared: Whether it is for all people of the home; otherwise only its owner sees and calls it.
        scopes: What its tokens open besides ``register``.
    """

    id: str
    owner: str
    display_name: str
    key: str
    aliases: tuple[str, ...]
    area: str | None
    floor: str | None
    public_key: PublicKey | None
    revoked: bool
    last_seen: datetime | None
    created_at: datetime
    may_confirm: bool | None = None
    trusted: bool = False
    shared: bool = False
    scopes: tuple[DeviceScope, ...] = DEVICE_SCOPES

    @property
    def profile(self) -> DeviceProfile:
        """The names of the device, as the hub sends them to it."""
        names = {"name": self.display_name, "may_confirm": bool(self.may_confirm)}
        return DeviceProfile.model_validate(vars(self) | names)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.display_name, *self.aliases)


class DeviceChange(Strict):
    """What to change about a device; what is left out or None stays, an empty text clears it.

    Attributes:
        confirm: Whether a person at the device may confirm calls.
        owner: A user's id.
    """

    name: str | None = None
    aliases: Sequence[str] | None = None
    area: str | None = None
    floor: str | None = None
    confirm: bool | None = None
    trusted: bool | None = None
    owner: str | None = None
    shared: bool | None = None
    scopes: Sequence[DeviceScope] | None = None


@dataclass(eq=False)
class Devices:
    """Adds, changes and removes devices in the database.

    Attributes:
        on_changed: Called with each device that was added or changed.
        on_removed: Called with the id of each that was removed.
    """

    store: Store
    _: KW_ONLY
    on_changed: Callable[[Device], object] = lambda device: None
    on_removed: Callable[[str], object] = lambda device: None

    async def add(
        self,
        display_name: str,
        *,
        owner: str,
        aliases: Sequence[str] = (),
        area: str | None = None,
        floor: str | None = None,
        may_confirm: bool = False,
        trusted: bool = False,
        shared: bool = False,
    ) -> Device:
        """Add a device that may then enrol.

        Raises:
            Conflict: If another device has that name already.
            NotFound: If there is no such owner.
        """

        def work(session: Session) -> Device:
            require_user(session, owner)
            rows = session.exec(select(DeviceRow)).all()
            check_text(area, floor)
            name, others = _checked_names(display_name, aliases, rows)
            retired = set(session.exec(select(RetiredDeviceRow.id)).all())
            row = DeviceRow(
                # It is a user name on the bus, where programs have theirs.
                id=device_key(name, retired | _words(rows) | client_names(session)),
                owner=owner,
                display_name=name,
                key=device_key(name, _words(rows)),
                aliases=others,
                area=area or None,
                floor=floor or None,
                may_confirm=may_confirm,
                trusted=trusted,
                shared=shared,
                created_at=now(),
            )
            session.add(row)
            return device_of(row)

        return await self._write(work)

    async def change(self, device: str, change: DeviceChange) -> Device:
        """Change what a device is called, where it stands and what it may; its id stays.

        Raises:
            Conflict: If another device has that name already.
            NotFound: If there is no such device, or no such owner.
        """

        def work(session: Session) -> Device:
            row = require_device(session, device)
            others = [other for other in session.exec(select(DeviceRow)).all() if other.id != device]
            aliases = _aliases_of(row) if change.aliases is None else change.aliases
            name, row.aliases = _checked_names(change.name or row.display_name, aliases, others)
            if name != row.display_name:
                row.display_name, row.key = name, device_key(name, _words(others))
            check_text(change.area, change.floor)
            given = change.model_dump(exclude_none=True)
            row.area = given.get("area", row.area) or None
            row.floor = given.get("floor", row.floor) or None
            row.may_confirm = given.get("confirm", row.may_confirm)
            row.trusted = given.get("trusted", row.trusted)
            row.shared = given.get("shared", row.shared)
            if change.scopes is not None:
                row.scope = " ".join(device_scopes(" ".join(change.scopes)))
            if change.owner is not None:
                row.owner = require_user(session, change.owner).id
            session.add(row)
            return device_of(row)

        return await self._write(work)

    async def revoke(self, device: str) -> Device:
        """Revoke a device; it stays in the list, and may be invited again.

        Raises:
            NotFound: If there is no such device.
        """

        def work(session: Session) -> Device:
            row = require_device(session, device)
            # One that is not used yet would admit the device that is being locked out.
            session.exec(delete(EnrolmentRow).where(col(EnrolmentRow.device_id) == device))
            row.revoked_at = row.revoked_at or now()
            session.add(row)
            return device_of(row)

        return await self._write(work)

    async def with_key(self, key: PublicKey) -> Device | None:
        """Return the device that has bound this key, if there is one."""

        def work(session: Session) -> Device | None:
            row = session.exec(select(DeviceRow).where(DeviceRow.key_id == key.kid)).first()
            return device_of(row) if row else None

        return await self.store.read(work)

    async def retired(self) -> set[str]:
        return await self.store.read(lambda session: set(session.exec(select(RetiredDeviceRow.id))))

    async def discard(self, device: str) -> None:
        """Remove a device that was added and never heard of; its id may be used again."""

        def work(session: Session) -> None:
            session.exec(delete(EnrolmentRow).where(col(EnrolmentRow.device_id) == device))
            session.delete(require_device(session, device))

        await self.store.write(work)
        self.on_removed(device)

    async def remove(self, device: str) -> None:
        """Remove a device; its id is never used again.

        Raises:
            NotFound: If there is no such device.
        """

        def work(session: Session) -> None:
            row = require_device(session, device)
            for table in (RegistrationRow, EnrolmentRow, ApprovalRow):
                session.exec(delete(table).where(col(table.device_id) == device))
            session.delete(row)
            session.add(RetiredDeviceRow(id=device, retired_at=now()))

        await self.store.write(work)
        self.on_removed(device)

    async def _write(self, work: Callable[[Session], Device]) -> Device:
        device = await self.store.write(work)
        self.on_changed(device)
        return device


def require_device(session: Session, device: str) -> DeviceRow:
    """Return the row of a device.

    Raises:
        NotFound: If there is none.
    """
    row = session.get(DeviceRow, device)
    if row is None:
        raise NotFound(
            "there is no device {name!r}", name=device, hint="'strawberry devices list' lists them."
        )
    return row


def device_of(row: DeviceRow) -> Device:
    """Read a row; a key that cannot be used is as none, and so are aliases."""
    return Device(
        id=row.id,
        owner=row.owner,
        display_name=row.display_name,
        key=row.key,
        aliases=_aliases_of(row),
        area=row.area,
        floor=row.floor,
        public_key=_public_key_of(row),
        revoked=row.revoked_at is not None,
        last_seen=row.last_seen,
        created_at=row.created_at,
        may_confirm=row.may_confirm,
        trusted=row.trusted,
        shared=row.shared,
        scopes=device_scopes(row.scope),
    )


def _aliases_of(row: DeviceRow) -> tuple[str, ...]:
    stored: object = row.aliases
    return tuple(each for each in stored if isinstance(each, str)) if isinstance(stored, list) else ()


def _public_key_of(row: DeviceRow) -> PublicKey | None:
    stored: object = row.public_key
    try:
        return PublicKey.from_jwk(stored) if isinstance(stored, dict) else None
    except InvalidMessage:
        return None


def _words(rows: Iterable[DeviceRow]) -> set[str]:
    # Ids and keys share one space, so that none of them can mean two devices.
    return {word for row in rows for word in (row.id, row.key)}


def check_text(*texts: str | None) -> None:
    """Refuse what a screen cannot show: it could make one name look like another.

    Raises:
        InvalidMessage: If a text has control characters or is too long.
    """
    for text in filter(None, texts):
        if not text.isprintable():
            raise InvalidMessage(
                "{text!r} contains a control character or a line end",
                text=text,
                hint="Use letters, digits and blanks.",
            )
        if len(text) > _MAX_NAME:
            raise InvalidMessage(
                "{text!r}… is too long",
                text=text[:20],
                most=_MAX_NAME,
                hint="Names, areas and floors have up to {most} characters.",
            )


def _checked_names(
    display_name: str, aliases: Sequence[str], others: Iterable[DeviceRow]
) -> tuple[str, list[str]]:
    name = display_name.strip()
    cleaned = list(dict.fromkeys(alias.strip() for alias in aliases if alias.strip()))
    check_text(name, *cleaned)
    if not name:
        raise InvalidMessage("a device needs a name", hint="For example 'Bedroom PC'.")
    if len(cleaned) > _MAX_ALIASES:
        raise InvalidMessage("too many aliases", most=_MAX_ALIASES, hint="A device has at most {most}.")
    taken = {each.casefold(): row for row in others for each in (row.display_name, *_aliases_of(row))}
    for each in (name, *cleaned):
        if other := taken.get(each.casefold()):
            raise Conflict(
                "{each!r} is a name of the device {other!r} already",
                each=each,
                other=other.display_name,
                hint="Choose another name.",
            )
    return name, cleaned
