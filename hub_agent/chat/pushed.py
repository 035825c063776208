"""Turns that a device answered without the hub and hands in, in the table of turns."""

from collections.abc import Sequence
from typing import Any, Final

from sqlmodel import Session, col, select

from chat.turns import Turn
from contracts.chat.messages import TurnOutcome, TurnRecord
from hub_agent.chat.conversations import next_moment, recorded_as
from hub_agent.tables import TurnRow
from hub_registry.storage.tables import now

_RANK: Final = {None: 0, "offline": 1, "sentence": 2, "online": 2}
"""Of a turn that hub and device both answered, by mode: the higher one is recorded."""


class Push:
    """Turns of one device that are recorded in one transaction, with the rows that are there already."""

    def __init__(
        self, session: Session, user: str, device: str, through: str, turns: Sequence[TurnRecord]
    ) -> None:
        self._session = session
        self._user, self._device, self._through = user, device, through
        ids = [turn.turn for turn in turns]
        rows = session.exec(select(TurnRow).where(TurnRow.user == user, col(TurnRow.turn).in_(ids)))
        self._rows = {row.turn: row for row in rows}
        self._names: dict[str, str] = {}

    def adds(self, turn: TurnRecord) -> bool:
        """Return whether a turn has anything that is not recorded: not so where it is only sent again."""
        row = self._rows.get(turn.turn)
        return row is None or row.conversation is None or row.answer != turn.answer

    def take(self, turn: TurnRecord) -> bool:
        """Record a turn; return False if it is known as that of another device or person."""
        row = self._rows.get(turn.turn)
        if row is not None and row.through != self._through:
            return False
        if row is None:
            row = self._rows[turn.turn] = TurnRow(
                user=self._user,
                turn=turn.turn,
                through=self._through,
                instance="",
                replaced_by=None,
                **self._values(turn),
            )
            self._session.add(row)
        elif row.state == "not_started":
            for name, value in self._values(turn).items():
                setattr(row, name, value)
        elif row.conversation is not None:
            take_answer(row, turn, origin="device")
        return True

    def _values(self, turn: TurnRecord) -> dict[str, Any]:
        present, conversation = now(), self._recorded_as(turn.conversation)
        # A clock that is ahead must not put a turn after everything that is still to come.
        at = turn.at if turn.at <= present else next_moment(self._session, self._user, conversation)
        return {
            "conversation": conversation,
            "device": self._device,
            "origin": "device",
            "agent": turn.agent,
            "question": turn.question,
            "answer": turn.answer,
            "mode": turn.mode,
            "did": list(turn.did),
            "files": [each.model_dump() for each in turn.files],
            "untrusted": turn.untrusted,
            "state": "finished" if turn.state == "finished" else "cancelled",
            "outcome": _outcome_of(turn),
            "problem": turn.problem,
            "reason": turn.reason,
            "at": at,
            "ended_at": max(at, min(turn.ended_at or at, present)),
        }

    def _recorded_as(self, conversation: str) -> str:
        if conversation not in self._names:
            self._names[conversation] = recorded_as(self._session, self._user, conversation, self._through)
        return self._names[conversation]


def take_answer(row: TurnRow, turn: Turn | TurnRecord, *, origin: str) -> None:
    """Record an answer, unless a better one is there.

    The hub may have begun a turn that the device then answered itself. The hub's own complete answer is the
    best, since it may have acted; then that of the device; of two that broke off the longer one.
    """
    row.untrusted = row.untrusted or turn.untrusted
    row.did = row.did or list(turn.did)
    is_longer = turn.mode is None and row.mode is None and len(turn.answer or "") > len(row.answer or "")
    if is_longer or _RANK[turn.mode] > _RANK[row.mode]:
        row.answer, row.mode, row.origin = turn.answer, turn.mode, origin
        if turn.mode is not None:
            row.outcome, row.problem, row.reason = "answered", "", ""


def _outcome_of(turn: TurnRecord) -> TurnOutcome:
    """Return how a turn ended that a device hands in; older ones do not say it."""
    if turn.mode is not None:
        return "answered"
    return turn.outcome or ("failed" if turn.state == "finished" else "stopped")
