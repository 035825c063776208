"""Turns that a device answered without the hub and hands in, in the table of turns."""

from typing import Final

from sqlmodel import Session

from chat.turns import Turn
from contracts.chat import TurnOutcome, TurnRecord
from hub_agent.chat.conversations import next_moment, recorded_as
from hub_agent.tables import TurnRow
from hub_registry.storage.tables import now

_RANK: Final = {None: 0, "offline": 1, "sentence": 2, "online": 2}
"""Of a turn that hub and device both answered, by mode: the higher one is recorded."""


def adds(row: TurnRow | None, turn: TurnRecord) -> bool:
    """Return whether a pushed turn has anything that is not recorded: not so where it is only sent again."""
    return row is None or row.conversation is None or row.answer != turn.answer


def take_pushed(session: Session, user: str, device: str, through: str, turn: TurnRecord) -> bool:
    """Record a turn; return False if it is known as that of another device or person."""
    row = session.get(TurnRow, (user, turn.turn))
    if row is not None and row.through != through:
        return False
    if row is None or row.state == "not_started":
        present, conversation = now(), recorded_as(session, user, turn.conversation, through)
        # A clock that is ahead must not put a turn after everything that is still to come.
        at = turn.at if turn.at <= present else next_moment(session, user, conversation)
        values = {
            "conversation": conversation,
            "device": device,
            "origin": "device",
            "agent": turn.agent,
            "question": turn.question,
            "answer": turn.answer,
            "mode": turn.mode,
            "did": list(turn.did),
            "untrusted": turn.untrusted,
            "state": "finished" if turn.state == "finished" else "cancelled",
            "outcome": _outcome_of(turn),
            "problem": turn.problem,
            "reason": turn.reason,
            "at": at,
            "ended_at": max(at, min(turn.ended_at or at, present)),
        }
        if row is None:
            row = TurnRow(user=user, turn=turn.turn, through=through, instance="", state="", at=at)
        for name, value in values.items():
            setattr(row, name, value)
        session.add(row)
        # The next turn of the push may belong to the same conversation.
        session.flush()
    elif row.conversation is not None:
        take_answer(row, turn, origin="device")
        session.add(row)
    return True


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
