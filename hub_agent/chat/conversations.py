"""Conversations in the table of turns: who may join, read and change one.

A device joins and reads the conversations that a turn through it began, and no others: under the name of
another one it has a conversation of its own. It is known by its key and not by its id, so that a device that
was removed and joins again with its key still has them.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, func
from sqlmodel import Session, col, select

from chat.service import unknown_conversation
from contracts.chat.messages import moment_after
from contracts.errors import Forbidden
from hub_agent.tables import ConversationRow, TurnRow
from hub_registry.storage.tables import Moment, now

_OWN_CHARS: Final = 16
"""Of a device's key, in front of the names of its conversations."""
_NAME_CHARS: Final = 64 - _OWN_CHARS - 1
_UNGUESSABLE: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""UUIDs, as the command line, spokes and hubs make them."""


def turns_of(user: str, conversation: str, view: str | None = None) -> tuple[ColumnElement[bool], ...]:
    """Return the condition for the turns of a conversation; see `view_of`."""
    all_ = (col(TurnRow.user) == user, col(TurnRow.conversation) == conversation)
    return all_ if view is None else (*all_, col(TurnRow.through) == view)


def view_of(conversation: str, through: str | None) -> str | None:
    """Return the key of the device whose own turns are all that is read of a conversation; None for all."""
    return through if through is not None and not _UNGUESSABLE.fullmatch(conversation) else None


def own_prefix(through: str) -> str:
    """Return the prefix of the names of the conversations that a device has of its own."""
    return f"{through[:_OWN_CHARS]}."


def recorded_as(session: Session, user: str, conversation: str, through: str) -> str:
    """Return the name under which a conversation is recorded that a device names."""
    own = own_prefix(through)
    if conversation.startswith(own) or may_join(session, user, conversation, through):
        return conversation
    if len(conversation) > _NAME_CHARS:
        conversation = hashlib.sha256(conversation.encode()).hexdigest()[:_NAME_CHARS]
    return own + conversation


def may_join(session: Session, user: str, conversation: str, through: str) -> bool:
    """Return whether a conversation is new, or was begun through this device."""
    return _first_through(session, user, conversation) in ([], [through])


def _first_through(session: Session, user: str, conversation: str) -> list[str | None]:
    """Return the key of the device through which a conversation was begun; an empty list if it is new."""
    query = (
        select(TurnRow.through)
        .where(TurnRow.user == user, TurnRow.conversation == conversation)
        .order_by(col(TurnRow.at), col(TurnRow.turn))
    )
    return list(session.exec(query.limit(1)))


def require_own(session: Session, user: str, conversation: str, through: str | None, *, what: str) -> None:
    """Check that a user may change a conversation, and through a device."""
    takers = set(session.exec(select(TurnRow.through).where(*turns_of(user, conversation))).all())
    if not takers or (through is not None and not may_join(session, user, conversation, through)):
        raise unknown_conversation(conversation)
    if through is not None and takers != {through}:
        raise Forbidden(
            "a device {what} only conversations that were held through it alone",
            what=what,
            hint="Use your own token, at the hub.",
        )


def next_moment(session: Session, user: str, conversation: str) -> datetime:
    """Return when a new turn of a conversation began: now, and after its latest one."""
    latest = select(func.max(TurnRow.at, type_=Moment)).where(
        TurnRow.user == user, TurnRow.conversation == conversation
    )
    return moment_after(now(), session.exec(latest).one())


def first_questions(session: Session, user: str, conversations: Sequence[str]) -> dict[str, str]:
    """Return the first question of each conversation, of those that were not replaced if there is any."""
    order = (col(TurnRow.replaced_by).is_not(None), col(TurnRow.at), col(TurnRow.turn))
    place = func.row_number().over(partition_by=col(TurnRow.conversation), order_by=order)
    ranked = (
        select(TurnRow.conversation, TurnRow.question, place.label("place"))
        .where(TurnRow.user == user, col(TurnRow.conversation).in_(conversations))
        .subquery()
    )
    first = select(ranked.c.conversation, ranked.c.question).where(ranked.c.place == 1)
    return dict(session.exec(first).all())


def titles(session: Session, user: str, conversations: Sequence[str]) -> dict[str, str | None]:
    """Return the title of each conversation to which a person gave one."""
    given = select(ConversationRow.conversation, ConversationRow.title).where(
        ConversationRow.user == user, col(ConversationRow.conversation).in_(conversations)
    )
    return dict(session.exec(given).all())


def title_of(session: Session, user: str, conversation: str) -> str | None:
    """Return the title that a person gave to a conversation."""
    row = session.get(ConversationRow, (user, conversation))
    return row.title if row is not None else None
