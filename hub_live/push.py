"""Web push: notifications on phones and in browsers that asked for them, also while no page is open.

``/api/push`` is what a browser asks for itself.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import StringConstraints
from sqlmodel import Field, Session, col, delete, select

from agent_core.prompt import Household
from chat.operations import LOOK, Resource
from chat.outbound import answered
from contracts.answers.live import PushDevice, PushDevices
from contracts.devices.presence import Revocation
from contracts.errors import Conflict, InvalidMessage, LinkError, NotFound, StrawberryError
from contracts.phrases import for_people
from contracts.text import shortened
from contracts.wire import Part
from hub_agent.tables import EventRow
from hub_live import limits
from hub_registry.access.bearer import Bearer
from hub_registry.storage.store import Store
from hub_registry.storage.tables import Moment, Table, now
from identity.ids import uuid7
from identity.web_push import BrowserKey, VapidKey

_log = logging.getLogger(__name__)

KEY_FILE: Final = "web_push.pem"
_GONE: Final = (404, 410)
_TTL_S: Final = 24 * 3600
"""Seconds for which a push service keeps a message for a browser that is away."""


class PushRow(Table, table=True):
    """A browser that wants a person's notifications.

    Attributes:
        token: ``jti`` of the token or session that asked; with its revocation it ends.
        endpoint: Where its push service takes messages for it; who knows it can send.
        point: See `identity.web_push.BrowserKey`, as is ``secret``.
        origin: The address of the hub's pages in this browser, by which the service reaches its owner.
        language: BCP 47, of what it shows.
        name: What the person recognises it by.
    """

    __tablename__ = "push_subscription"

    id: str = Field(primary_key=True)
    user: str = Field(index=True)
    token: str
    endpoint: str
    point: str
    secret: str
    origin: str
    language: str
    name: str
    created_at: datetime = Field(sa_type=Moment)


@dataclass(frozen=True)
class Notice:
    """A notification on its way.

    Attributes:
        left_out: How many were not sent before it, since they were too many.
        household: As its person has it.
    """

    event: EventRow
    left_out: int = 0
    household: Household = field(default_factory=Household)

    @property
    def title(self) -> str:
        return str(self.event.data.get("title") or self.event.subject)[: limits.MOST_TITLE]

    @property
    def text(self) -> str:
        text = for_people(str(self.event.data.get("text") or self.title))[: limits.MOST_NOTIFICATION]
        if self.left_out:
            text = f"{text}\n({self.left_out} more came in a short time and were not sent.)"
        return text


class PushText(NamedTuple):
    """A notification as a browser shows it.

    Attributes:
        path: Of the page that it opens.
    """

    title: str
    body: str
    path: str = "/"


Words = Callable[[Notice, str], PushText]
"""Writes a notification in a language (BCP 47)."""


def plain(notice: Notice, language: str) -> PushText:
    """Return a notification in English, for a hub without a web UI."""
    return PushText(notice.title, notice.text)


class Push:
    """Keeps the subscriptions of people, and sends them notifications.

    Attributes:
        words: Writes a notification in a language; the web UI has more of them.
        allow_private: Whether a push service may be in this network, and without TLS.

    Args:
        directory: Of the hub's key, which is made at the first subscription.
    """

    def __init__(self, store: Store, *, directory: Path) -> None:
        self.words: Words = plain
        self._store = store
        self._path = directory / KEY_FILE
        self.allow_private = False
        self._rows: dict[str, PushRow] = {}
        self._loaded: VapidKey | None = None
        self._one = asyncio.Lock()

    async def load(self) -> None:
        rows = await self._store.read(lambda session: list(session.exec(select(PushRow))))
        self._rows = {row.id: row for row in rows}

    def devices(self, user: str) -> list[PushDevice]:
        return [PushDevice(id=row.id, name=row.name, created_at=row.created_at) for row in self._of(user)]

    async def key(self) -> str:
        """Return the key that a browser subscribes with, in base64url."""
        return (await self._key()).public

    async def add(self, row: PushRow) -> PushDevice:
        """Keep a subscription; one with the same endpoint is replaced, whosoever it was.

        Raises:
            InvalidMessage: If its address or its keys cannot be used.
            Conflict: If the person has too many.
        """
        self._check(row.endpoint)
        BrowserKey(row.point, row.secret)
        async with self._one:
            same = [each.id for each in self._rows.values() if each.endpoint == row.endpoint]
            if len([each for each in self._of(row.user) if each.id not in same]) >= limits.MOST_PUSH_DEVICES:
                raise Conflict(
                    "you have {most} devices that are told already",
                    most=limits.MOST_PUSH_DEVICES,
                    hint="Remove one first.",
                )
            values = row.model_dump()

            def work(session: Session) -> None:
                session.exec(delete(PushRow).where(col(PushRow.id).in_(same)))
                session.add(PushRow(**values))

            await self._store.write(work)
            for each in same:
                self._rows.pop(each, None)
            self._rows[row.id] = row
        return PushDevice(id=row.id, name=row.name, created_at=row.created_at)

    def _check(self, endpoint: str) -> None:
        schemes = ("https", "http") if self.allow_private else ("https",)
        try:
            parts = urlsplit(endpoint)
            is_good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_good = False
        if not is_good or not endpoint.isascii() or not endpoint.isprintable() or "@" in endpoint:
            raise InvalidMessage("the address of a push service begins with https://")

    async def remove(self, user: str, id_: str) -> None:
        """Remove a browser of a person.

        Raises:
            NotFound: If there is none with this id.
        """
        if id_ not in {row.id for row in self._of(user)}:
            raise NotFound("there is no such device")
        await self._drop([id_])

    async def end_revoked(self, revocation: Revocation) -> None:
        await self._drop([row.id for row in self._rows.values() if row.token in revocation.tokens])

    async def forget_person(self, user: str) -> None:
        await self._drop([row.id for row in self._of(user)])

    def reaches(self, user: str) -> bool:
        return bool(self._of(user))

    async def send(self, notice: Notice) -> None:
        """Send a notification to all browsers of its person.

        Raises:
            LinkError: If none of them could be sent.
        """
        results = await asyncio.gather(*(self._send(row, notice) for row in self._of(notice.event.user)))
        if problems := [each for each in results if each]:
            _log.warning("web push: %s", "; ".join(dict.fromkeys(problems)))
            if len(problems) == len(results):
                raise LinkError("{problem}", problem=problems[0])

    async def _send(self, row: PushRow, notice: Notice) -> str:
        """Send to one browser; return what went wrong."""
        import httpx

        said = self.words(notice, row.language)
        shown = {
            "title": shortened(said.title, limits.MOST_TITLE),
            "body": shortened(said.body, limits.MOST_PUSH_BODY),
            "path": said.path,
            "tag": str(notice.event.id),
        }
        host = urlsplit(row.endpoint).hostname
        headers = {
            "authorization": (await self._key()).authorization(row.endpoint, contact=row.origin),
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(_TTL_S),
            "urgency": "high",
        }
        message = json.dumps(shown, ensure_ascii=False).encode()
        try:
            body = BrowserKey(row.point, row.secret).encrypt(message)
            asked = answered(
                "POST", row.endpoint, headers=headers, body=body, allow_private=self.allow_private
            )
            async with asyncio.timeout(limits.PUSH_S), asked as response:
                status = response.status_code
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, ValueError):
            return f"{host} does not answer"
        except StrawberryError as error:
            return f"{host} {error}"
        if status in _GONE:
            await self._drop([row.id])
            return ""
        return "" if status < 300 else f"{host} answered with status {status}"

    async def _key(self) -> VapidKey:
        if self._loaded is None:
            self._loaded = await asyncio.to_thread(VapidKey.load, self._path)
        return self._loaded

    async def _drop(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        await self._store.write(lambda session: session.exec(delete(PushRow).where(col(PushRow.id).in_(ids))))
        for each in ids:
            self._rows.pop(each, None)

    def _of(self, user: str) -> list[PushRow]:
        return [row for row in self._rows.values() if row.user == user]


push: Resource[Push, Bearer] = Resource("push", "/api/push")

Address = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]


class PushKeys(Part):
    """The keys of a browser, in base64url."""

    p256dh: Annotated[str, StringConstraints(max_length=100)]
    auth: Annotated[str, StringConstraints(max_length=40)]


@push.get(LOOK)
async def devices(push: Push, asking: Bearer) -> PushDevices:
    """List your phones and browsers that get notifications, with the key that another one subscribes with."""
    return PushDevices(key=await push.key(), devices=push.devices(asking.user.id))


@push.post(LOOK)
async def add(
    push: Push,
    asking: Bearer,
    endpoint: Address,
    keys: PushKeys,
    origin: Address,
    language: Annotated[str, StringConstraints(max_length=35)] = "en",
    name: Annotated[str, StringConstraints(max_length=60)] = "",
) -> PushDevice:
    """Send notifications to a browser.

    Args:
        endpoint: as its `PushSubscription` has it, as do the keys
        origin: address of this hub's pages in the browser
        language: BCP 47, of what it shows
        name: what you recognise it by
    """
    row = PushRow(
        id=str(uuid7()),
        user=asking.user.id,
        token=asking.claims.jti,
        endpoint=endpoint,
        point=keys.p256dh,
        secret=keys.auth,
        origin=origin,
        language=language,
        name=name or "Browser",
        created_at=now(),
    )
    return await push.add(row)


@push.delete(LOOK, "/{device}")
async def remove(push: Push, asking: Bearer, device: str) -> None:
    """Send no more notifications to a browser."""
    await push.remove(asking.user.id, device)
