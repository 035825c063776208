"""The audit of calls and refused attempts.

It is written in batches: a commit for each record would double the time of a short call.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, insert
from sqlmodel import Session, col, delete, func, select

from contracts.claims import Claims
from contracts.errors import ErrorCode, Forbidden, StorageError, TooManyRequests
from contracts.rates import TokenBuckets
from contracts.wire import Json
from hub_agent import limits
from hub_registry.storage.store import Store
from hub_registry.storage.tables import AuditRow, TokenRow, now
from identity.ids import uuid7

_log = logging.getLogger(__name__)


_REFUSED: Final = ("forbidden", "rate_limited", ErrorCode.REFUSED.value, ErrorCode.NEEDS_CONFIRMATION.value)
"""Outcomes of attempts that cost their sender nothing, so of each token only some are recorded."""
PEOPLE: Final = "People"
"""What acts about people, tokens and rights are filed under, as if it were a skill of the hub."""


@dataclass(frozen=True)
class Origin:
    """The token with which something is asked for.

    Attributes:
        token: Its ``jti``.
        through: The device whose token it is, where it is a device's.
        confirmed_by: ``jti`` of the token with which a person confirmed a call.
    """

    token: str = ""
    through: str | None = None
    confirmed_by: str | None = None

    @classmethod
    def of(cls, claims: Claims, *, confirmed: bool = False) -> "Origin":
        """Return the origin of a request; ``confirmed`` if it confirms itself."""
        through = claims.sub if claims.kind == "device" else None
        return cls(claims.jti, through, claims.jti if confirmed else None)


@dataclass(kw_only=True)
class CallRecord:
    """One call or refused attempt; its fields are columns of the table, see `AuditRow`.

    Attributes:
        at: When it ended.
        call: Its id.
        user: On whose behalf it was made; ``actor`` says through what.
        arguments: SHA-256 of the arguments; they themselves may hold secrets and are not kept.
        outcome: ``result``, or the code of the error; ``forbidden`` where the token lacks the right, and
            ``rate_limited`` where its quota was used up.
    """

    at: datetime = field(default_factory=now)
    call: str = field(default_factory=uuid7)
    user: str
    actor: Json
    device: str = ""
    skill: str = ""
    method: str
    arguments: str = ""
    outcome: str
    token: str = ""
    through: str | None = None
    confirmed_by: str | None = None
    read_only: bool = False


class AuditTrail:
    """Gathers records and writes them in the order they came, many in one transaction.

    Args:
        keep_days: How long records are kept.
        rows: Records that are kept at most.
    """

    def __init__(
        self, store: Store, *, keep_days: float = 365, rows: int = limits.AUDIT_RECORDS_KEPT
    ) -> None:
        self._store = store
        self._keep = timedelta(days=keep_days)
        self._rows = rows
        self._refusals = TokenBuckets(burst=limits.AUDITED_REFUSALS, per_second=0.1)
        self._records: list[CallRecord] = []
        # Who reads right after a call waits for the write that has begun.
        self._writing = asyncio.Lock()
        self._noted = asyncio.Event()

    def note(self, record: CallRecord) -> None:
        """Note a call that has ended; it is written within moments."""
        if record.outcome in _REFUSED and not self._refusals.take(record.token or record.user):
            _log.debug("%s of token %s: %s, as many before it", record.method, record.token, record.outcome)
            return
        self._records.append(record)
        self._noted.set()

    @contextmanager
    def refusals(self, claims: Claims, *, method: str) -> Iterator[None]:
        """Note it if the block refuses what is asked for, by a right or by a quota.

        Args:
            method: What is asked for: ``chat``, ``confirm``, or a request such as ``POST /api/devices``.
        """
        try:
            yield
        except (Forbidden, TooManyRequests) as error:
            self.note(
                CallRecord(
                    user=claims.own,
                    actor={"user": claims.own},
                    method=method,
                    outcome="forbidden" if isinstance(error, Forbidden) else "rate_limited",
                    **vars(Origin.of(claims)),
                )
            )
            raise

    def act(
        self, act: str, *, user: str, claims: Claims | None = None, address: str = "", outcome: str = "result"
    ) -> None:
        """Note a change of people, tokens or rights; see `Gate.note`."""
        self.note(
            CallRecord(
                user=user,
                actor={"user": user, **({"address": address} if address else {})},
                device="hub",
                skill=PEOPLE,
                method=act,
                outcome=outcome,
                **vars(Origin.of(claims) if claims is not None else Origin()),
            )
        )

    async def run(self) -> None:
        """Write records as they come, until cancelled."""
        while True:
            await self._noted.wait()
            await asyncio.sleep(limits.AUDIT_GATHER_S)
            if not await self.flush():
                await asyncio.sleep(limits.AUDIT_RETRY_S)
                self._noted.set()

    async def flush(self) -> bool:
        async with self._writing:
            return await self._flush()

    async def _flush(self) -> bool:
        records, self._records = self._records, []
        self._noted.clear()
        if not records:
            return True

        def work(session: Session) -> None:
            tokens = {record.token for record in records}
            known = session.exec(select(TokenRow).where(col(TokenRow.jti).in_(tokens)))
            names = {row.jti: row.name or row.subject for row in known}
            # A plain INSERT with many rows: objects that the session follows would take ten times as long.
            rows = [{**vars(record), "token_name": names.get(record.token, "")} for record in records]
            session.execute(insert(AuditRow), rows)

        try:
            # A write that has begun is finished in the store's thread, also when the hub stops.
            await asyncio.shield(self._store.write(work))
        except StorageError as error:
            _log.error("%d calls are written into the audit later: %s", len(records), error)
            self._records = [*records, *self._records][-limits.MOST_UNWRITTEN_RECORDS :]
            return False
        return True

    async def trim(self) -> None:
        """Delete old records, and where there are too many, the oldest of the token that has most of them.

        So a token cannot push what others did out of the audit.

        Raises:
            StorageError: If the database cannot be used.
        """

        def delete_some(session: Session, chosen: ColumnElement[bool], most: int) -> bool:
            batch = (
                select(AuditRow.id)
                .where(chosen)
                .order_by(col(AuditRow.id))
                .limit(min(most, limits.AUDIT_DELETED_AT_ONCE))
            )
            return bool(session.exec(delete(AuditRow).where(col(AuditRow.id).in_(batch))).rowcount)

        def work(session: Session) -> bool:
            if delete_some(session, col(AuditRow.at) < now() - self._keep, limits.AUDIT_DELETED_AT_ONCE):
                return True
            count = func.count()
            excess = session.exec(select(count).select_from(AuditRow)).one() - self._rows
            if excess <= 0:
                return False
            groups = select(AuditRow.token_name).group_by(col(AuditRow.token_name))
            largest = session.exec(groups.order_by(count.desc()).limit(1)).one()
            return delete_some(session, col(AuditRow.token_name) == largest, excess)

        while await self._store.write(work):
            pass
