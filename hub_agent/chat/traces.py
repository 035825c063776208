"""Where the time of turns went: kept with the turns, listed and shown to people.

A person sees their own turns whole. An admin sees those of all people, but what others said and what their
calls said is theirs: of their turns it is only shown what ran when, where, how long, and how it ended.
"""

import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, cast

from pydantic import Field, TypeAdapter
from sqlalchemy import ColumnElement, func, literal, tuple_
from sqlmodel import Session, col, delete, select

from agent_core.times import Since, utc
from chat.turns import Turn, Turns
from contracts.answers.record import TurnCosts, TurnPage, TurnShown, TurnSummary
from contracts.chat.messages import TurnOutcome
from contracts.errors import InvalidMessage, NotFound
from contracts.names import Token
from contracts.tracing.trace import SpanDetail, TurnSpan, own_ms
from contracts.wire import Strict, rfc3339
from hub_agent import limits
from hub_agent.tables import TraceRow, TurnRow
from hub_registry.storage.store import Store
from hub_registry.storage.tables import Moment, readable

_PLAIN: Final = {
    *("provider", "model", "first_ms", "run_ms", "ran_ms", "input_tokens", "output_tokens", "cost", "stop")
}
"""Details in which there is nothing of what anybody said."""

_SPANS: TypeAdapter[list[TurnSpan]] = TypeAdapter(list[TurnSpan])


class TurnFilter(Strict):
    """Which turns are listed: the query parameters of the list.

    Attributes:
        device: Id of the current device of the turn.
        outcome: How it ended, or ``running``.
        since: Only turns that began then or later.
        before: What the list before this one gave as ``next``.
    """

    conversation: Token | None = None
    device: Token | None = None
    outcome: Literal[TurnOutcome, "running"] | None = None
    since: Since | None = None
    before: Annotated[str, Field(max_length=200)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class Traces:
    """The turns of all people, with where their time went.

    Args:
        running: The turns that run in this process.
    """

    def __init__(self, store: Store, running: Turns) -> None:
        self._store = store
        self._running = running

    async def page(self, wanted: TurnFilter, *, user: str, all_people: bool) -> TurnPage:
        """Return turns, newest first.

        Args:
            user: Id of the person who asks.
            all_people: Whether the turns of others are listed, too.

        Raises:
            InvalidMessage: If ``before`` is nothing that a list gave.
        """
        query = (
            cast("Any", select)(TurnRow, *_SUMMARY)
            .outerjoin(TraceRow, _same_turn())
            .where(*_conditions(wanted, user, all_people=all_people))
            .order_by(*(column.desc() for column in _ORDER))
            .limit(wanted.limit + 1)
        )
        found = await self._store.read(lambda session: session.exec(query).all())
        rows = found[: wanted.limit]

        def summary(row: Any) -> TurnSummary:
            turn, model, input_tokens, output_tokens, cost, ms = row
            # A turn that ran elsewhere, or long ago, has none of them.
            costs = TurnCosts(
                model=model,
                input_tokens=input_tokens or 0,
                output_tokens=output_tokens or 0,
                cost=cost,
                ms_by_kind=ms or {},
            )
            return _summary(turn, costs, user)

        return TurnPage(
            turns=readable(rows, summary), next=_cursor(rows[-1][0]) if len(found) > len(rows) else None
        )

    async def get(self, turn: str, *, user: str, all_people: bool) -> TurnShown:
        """Return one turn with its spans.

        Args:
            user: Id of the person who asks.
            all_people: Whether it may be the turn of another person.

        Raises:
            NotFound: If there is no such turn that this person may see.
        """

        def work(session: Session) -> tuple[TurnRow, TraceRow | None] | None:
            row = session.get(TurnRow, (user, turn))
            if row is None and all_people:
                row = session.exec(select(TurnRow).where(TurnRow.turn == turn)).first()
            if row is None or row.conversation is None:
                return None
            return row, session.get(TraceRow, (row.user, turn))

        found = await self._store.read(work)
        if found is None:
            raise NotFound("there is no turn {turn!r} here", turn=turn, hint="'strawberry turns' lists them.")
        row, kept = found
        running = self._running.get(row.user, turn)
        spans: list[TurnSpan] | None = None
        left_out = 0
        if kept is not None:
            spans, left_out = _SPANS.validate_json(zlib.decompress(kept.spans)), kept.left_out
        elif running is not None:
            spans, left_out = running.trace.spans(), running.trace.left_out
        is_own = row.user == user
        if spans is not None and not is_own:
            spans = [each.model_copy(update={"detail": plain_detail(each)}) for each in spans]
        return TurnShown(
            **vars(_summary(row, _costs(spans), user)),
            answer=row.answer if is_own else None,
            did=row.did if is_own else [],
            spans=spans,
            left_out=left_out,
        )

    async def trim(self) -> None:
        """Forget where the time of old turns went."""
        newest = func.row_number().over(
            partition_by=col(TraceRow.user), order_by=(col(TraceRow.at).desc(), col(TraceRow.turn))
        )
        numbered = select(TraceRow.user, TraceRow.turn, newest.label("number")).subquery()
        old = select(numbered.c.user, numbered.c.turn).where(numbered.c.number > limits.TRACES_KEPT)
        query = delete(TraceRow).where(tuple_(col(TraceRow.user), col(TraceRow.turn)).in_(old))
        # The session would read the keys of all of them, for objects that it does not have: 0.4 kB each.
        await self._store.write(
            lambda session: session.exec(query, execution_options={"synchronize_session": False})
        )


def trace_row(turn: Turn, at: datetime) -> TraceRow:
    """Return what is kept of where the time of a turn went."""
    spans = turn.trace.spans()
    costs = _costs(spans)
    return TraceRow(
        user=turn.user,
        turn=turn.id,
        at=at,
        model=costs.model,
        input_tokens=costs.input_tokens,
        output_tokens=costs.output_tokens,
        cost=costs.cost,
        ms=costs.ms_by_kind,
        left_out=turn.trace.left_out,
        spans=zlib.compress(_SPANS.dump_json(spans, exclude_defaults=True)),
    )


def traces_of(user: str, conversation: str) -> tuple[ColumnElement[bool], ...]:
    """Return the condition for the traces of a conversation."""
    turns = select(TurnRow.turn).where(TurnRow.user == user, TurnRow.conversation == conversation)
    return col(TraceRow.user) == user, col(TraceRow.turn).in_(turns)


_SUMMARY: Final = (
    TraceRow.model,
    TraceRow.input_tokens,
    TraceRow.output_tokens,
    TraceRow.cost,
    TraceRow.ms,
)
_ORDER: Final = (col(TurnRow.at), col(TurnRow.user), col(TurnRow.turn))


def _costs(spans: Sequence[TurnSpan] | None) -> TurnCosts:
    models = [span for span in spans or () if span.kind == "model"]
    answered = [span.name for span in models if span.outcome == "ok"]
    said = [span.detail.cost for span in models if span.detail.cost is not None]
    return TurnCosts(
        model=answered[-1] if answered else None,
        input_tokens=sum(span.detail.input_tokens or 0 for span in models),
        output_tokens=sum(span.detail.output_tokens or 0 for span in models),
        cost=sum(said) if said else None,
        ms_by_kind=dict(own_ms(spans or ())),
    )


def _summary(row: TurnRow, costs: TurnCosts, user: str) -> TurnSummary:
    """Return a turn for a person, with what its models took."""
    ended = row.ended_at
    shown = vars(row) | vars(costs)
    shown["question"] = row.question[: limits.MAX_QUESTION_LISTED]
    shown["ms"] = None if ended is None else round((ended - row.at).total_seconds() * 1000)
    if row.user != user:
        shown |= {"conversation": None, "question": None, "problem": ""}
    return TurnSummary.model_validate(shown, extra="ignore")


def plain_detail(span: TurnSpan) -> SpanDetail:
    """Return the details of a span without any text of a conversation."""
    return SpanDetail.model_construct(**span.detail.model_dump(include=_PLAIN))


def _same_turn() -> ColumnElement[bool]:
    return (col(TraceRow.user) == col(TurnRow.user)) & (col(TraceRow.turn) == col(TurnRow.turn))


def _conditions(wanted: TurnFilter, user: str, *, all_people: bool) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [col(TurnRow.conversation).is_not(None)]
    # The name of a conversation may be that of another person's, whose words it would lead to.
    if not all_people or wanted.conversation is not None:
        conditions.append(col(TurnRow.user) == user)
    if wanted.conversation is not None:
        conditions.append(col(TurnRow.conversation) == wanted.conversation)
    if wanted.device is not None:
        conditions.append(col(TurnRow.device) == wanted.device)
    if wanted.outcome == "running":
        conditions.append(col(TurnRow.state) == "running")
    elif wanted.outcome is not None:
        conditions.append(col(TurnRow.outcome) == wanted.outcome)
    if wanted.since is not None:
        conditions.append(col(TurnRow.at) >= utc(wanted.since))
    if wanted.before is not None:
        at, user, turn = _read_cursor(wanted.before)
        conditions.append(tuple_(*_ORDER) < tuple_(literal(at, Moment()), user, turn))
    return conditions


def _cursor(row: TurnRow) -> str:
    # No id contains a blank.
    return f"{rfc3339(row.at)} {row.user} {row.turn}"


def _read_cursor(text: str) -> tuple[datetime, str, str]:
    at, _, rest = text.partition(" ")
    user, _, turn = rest.partition(" ")
    try:
        moment = datetime.fromisoformat(at).astimezone()
    except (ValueError, OverflowError):
        raise InvalidMessage(
            "before: {text!r} is no end of a list",
            text=text[:40],
            hint="Send what the list before gave as 'next'.",
        ) from None
    return moment, user, turn
