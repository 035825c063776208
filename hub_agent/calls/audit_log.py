"""The audit as people read it: searched, filtered, in pages, and exported a slice at a time."""

import csv
import io
import json
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

from pydantic import Field
from sqlmodel import Session, col, or_, select

from agent_core.times import Since, utc
from contracts.answers.record import AuditEntry, AuditPage
from contracts.chat.messages import TurnRecord
from contracts.errors import ErrorCode
from contracts.wire import Json, Strict
from hub_agent import limits
from hub_agent.calls.audit import AuditTrail
from hub_registry.storage.store import Store
from hub_registry.storage.tables import AuditRow, readable

ExportFormat = Literal["csv", "jsonl"]

_CHANGED: Final = (
    "result",
    *(code.value for code in (ErrorCode.TIMEOUT, ErrorCode.CANCELLED, ErrorCode.SKILL_ERROR)),
    ErrorCode.OUTCOME_UNKNOWN.value,
)
"""Outcomes of calls that did something, or may have done it."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet runs. Names of devices and arguments may be anybody's."""


_Text = Annotated[str, Field(max_length=200)]


class AuditFilter(Strict):
    """Which records are wanted; None for all. In a query, person and device go by any of their names.

    Attributes:
        q: A text that who, what, or the name of the token contains.
        before: Only records before this id.
    """

    q: _Text = ""
    user: _Text | None = None
    device: _Text | None = None
    outcome: _Text | None = None
    since: Since | None = None
    until: Since | None = None
    before: Annotated[int, Field(ge=0, lt=2**63)] | None = None


class Seer(NamedTuple):
    """A person who sees only records of their own calls, and of calls on their own ``devices``."""

    user: str
    devices: Collection[str]


class AuditLog:
    """Reads the audit, the newest records first."""

    def __init__(self, store: Store, trail: AuditTrail) -> None:
        self._store = store
        self._trail = trail

    async def page(self, wanted: AuditFilter, seer: Seer | None, *, limit: int) -> AuditPage:
        """Return the newest records that fit, of all people where no ``seer`` is given."""
        # What was called a moment ago is among them.
        await self._trail.flush()
        return await self._read(wanted, seer, limit)

    async def changes(self, user: str, turns: Sequence[TurnRecord]) -> list[AuditRow]:
        """Return the calls of turns that changed something, or may have, oldest first.

        Args:
            turns: Of this person, the oldest first.
        """
        await self._trail.flush()
        made_by = cast("Any", col(AuditRow.actor))["turn"].as_string()
        chosen = (
            select(AuditRow)
            .where(AuditRow.user == user, col(AuditRow.at) >= turns[0].at, col(AuditRow.read_only).is_(False))
            .where(made_by.in_([turn.turn for turn in turns]), col(AuditRow.outcome).in_(_CHANGED))
            .order_by(col(AuditRow.id))
        )
        return await self._store.read(lambda session: list(session.exec(chosen)))

    async def export(
        self, wanted: AuditFilter, seer: Seer | None, kind: ExportFormat
    ) -> AsyncGenerator[bytes, None]:
        """Yield all records that fit, as a document in slices."""
        await self._trail.flush()
        if kind == "csv":
            yield _csv([[*AuditEntry.model_fields]])
        while True:
            page = await self._read(wanted, seer, limits.AUDIT_READ_AT_ONCE)
            if kind == "csv":
                yield _csv([[*map(_cell, each.model_dump(mode="json").values())] for each in page.entries])
            else:
                yield "".join(f"{each.model_dump_json()}\n" for each in page.entries).encode()
            if page.before is None:
                return
            wanted = wanted.model_copy(update={"before": page.before})

    async def _read(self, wanted: AuditFilter, seer: Seer | None, limit: int) -> AuditPage:
        conditions = _conditions(wanted, seer)
        chosen = select(AuditRow).where(*conditions).order_by(col(AuditRow.id).desc()).limit(limit + 1)

        def work(session: Session) -> AuditPage:
            rows = session.exec(chosen).all()
            entries = readable(rows[:limit], AuditEntry.model_validate)
            return AuditPage(entries=entries, before=rows[limit - 1].id if len(rows) > limit else None)

        return await self._store.read(work)


def _conditions(wanted: AuditFilter, seer: Seer | None) -> list[Any]:
    made: list[Any] = []
    if seer is not None:
        made.append(or_(col(AuditRow.user) == seer.user, col(AuditRow.device).in_(seer.devices)))
    if wanted.q.strip():
        path = col(AuditRow.device) + "." + col(AuditRow.skill) + "." + col(AuditRow.method)
        texts = (path, col(AuditRow.user), col(AuditRow.outcome), col(AuditRow.token_name))
        made.append(or_(*(each.contains(wanted.q.strip(), autoescape=True) for each in texts)))
    given = ((name, getattr(wanted, name)) for name in ("user", "device", "outcome"))
    made += [getattr(AuditRow, name) == value for name, value in given if value is not None]
    if wanted.since is not None:
        made.append(col(AuditRow.at) >= utc(wanted.since))
    if wanted.until is not None:
        made.append(col(AuditRow.at) < utc(wanted.until))
    if wanted.before is not None:
        made.append(col(AuditRow.id) < wanted.before)
    return made


def _cell(value: Json) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def _csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
