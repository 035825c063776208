"""Conversations as entries of (origin, number); the table of turns keeps which turn may run."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# A start that no process has: what was said before entries were counted by origin.
_BEFORE = "000000000000"
_PIECE = 16_000


def upgrade() -> None:
    """Go one step forward."""
    op.create_table(
        "history_entry",
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("conversation", sa.String(), nullable=False),
        sa.Column("turn", sa.String(), nullable=False),
        sa.Column("at", sa.String(24), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=True),
        sa.Column("mode", sa.String(), nullable=True),
        sa.Column("did", sa.JSON(), nullable=False),
        sa.Column("untrusted", sa.Boolean(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("user", "origin", "seq"),
    )
    op.create_index("ix_history_entry_conversation", "history_entry", ["user", "conversation", "at"])
    op.create_table(
        "history_part",
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("conversation", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("user", "conversation", "device"),
    )
    op.create_table(
        "history_feed",
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("device", "number"),
    )
    _move_texts()
    op.drop_index("ix_turn_conversation", "turn")
    op.drop_index("ix_turn_position", "turn")
    with op.batch_alter_table("turn") as turn:
        for name in ("position", "question", "answer", "mode", "untrusted"):
            turn.drop_column(name)


def downgrade() -> None:
    """Go one step back; what was said with the hub away is not in the older form."""
    with op.batch_alter_table("turn") as turn:
        turn.add_column(sa.Column("position", sa.Integer(), nullable=False, server_default="0"))
        turn.add_column(sa.Column("question", sa.String(), nullable=False, server_default=""))
        turn.add_column(sa.Column("answer", sa.String(), nullable=True))
        turn.add_column(sa.Column("mode", sa.String(), nullable=True))
        turn.add_column(sa.Column("untrusted", sa.Boolean(), nullable=False, server_default=sa.false()))
    _move_texts_back()
    op.create_index("ix_turn_position", "turn", ["position"])
    op.create_index("ix_turn_conversation", "turn", ["user", "conversation", "position"])
    for table in ("history_feed", "history_part", "history_entry"):
        op.drop_table(table)


def _move_texts() -> None:
    connection = op.get_bind()
    turn = _turn()
    entry = _entry()
    numbers: dict[tuple[str, str], int] = {}
    kept = sa.select(turn).where(turn.c.conversation.is_not(None)).order_by(turn.c.position)
    for row in connection.execute(kept).mappings().all():
        origin = f"hub-{row['instance']}.{_BEFORE}"
        said = [("question", row["started_at"], row["question"])]
        if row["answer"] is not None:
            said.append(("answer", row["ended_at"] or row["started_at"], row["answer"]))
        for kind, at, text in said:
            answers = kind == "answer"
            for start in range(0, max(1, len(text)), _PIECE):
                seq = numbers[row["user"], origin] = numbers.get((row["user"], origin), 0) + 1
                made = {
                    "user": row["user"],
                    "origin": origin,
                    "seq": seq,
                    "conversation": row["conversation"],
                    "turn": row["id"],
                    "at": at,
                    "kind": kind,
                    "text": text[start : start + _PIECE],
                    "agent": "" if answers else "assistant",
                    "device": row["device"],
                    "mode": row["mode"] if answers else None,
                    "did": [],
                    "untrusted": answers and bool(row["untrusted"]),
                    "complete": row["mode"] is not None if answers else True,
                }
                connection.execute(sa.insert(entry).values(**made))


def _move_texts_back() -> None:
    connection = op.get_bind()
    turn = _turn()
    entry = _entry()
    places = sa.select(turn.c.user, turn.c.id).order_by(turn.c.started_at, turn.c.id)
    for position, (user, id_) in enumerate(connection.execute(places).all(), start=1):
        mine = sa.select(entry).where(entry.c.user == user, entry.c.turn == id_, entry.c.origin.like("hub-%"))
        rows = connection.execute(mine.order_by(entry.c.origin, entry.c.seq)).mappings().all()
        answers = [row for row in rows if row["kind"] == "answer"]
        connection.execute(
            sa.update(turn)
            .where(turn.c.user == user, turn.c.id == id_)
            .values(
                position=position,
                question="".join(row["text"] for row in rows if row["kind"] == "question"),
                answer="".join(row["text"] for row in answers) if answers else None,
                mode=answers[-1]["mode"] if answers else None,
                untrusted=any(row["untrusted"] for row in answers),
            )
        )


def _turn() -> sa.TableClause:
    names = ("user", "id", "position", "conversation", "instance", "device", "state", "question", "answer")
    moments = ("mode", "untrusted", "started_at", "ended_at")
    return sa.table("turn", *(sa.column(name) for name in (*names, *moments)))


def _entry() -> sa.TableClause:
    plain = ("user", "origin", "seq", "conversation", "turn", "at", "kind", "text", "agent", "device", "mode")
    return sa.table(
        "history_entry",
        *(sa.column(name) for name in plain),
        sa.column("did", sa.JSON()),
        sa.column("untrusted", sa.Boolean()),
        sa.column("complete", sa.Boolean()),
    )
