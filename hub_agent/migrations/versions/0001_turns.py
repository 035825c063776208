"""Turns."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go one step forward."""
    op.create_table(
        "turn",
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("conversation", sa.String(), nullable=True),
        sa.Column("instance", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("question", sa.String(), nullable=False),
        sa.Column("answer", sa.String(), nullable=True),
        sa.Column("mode", sa.String(), nullable=True),
        sa.Column("untrusted", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.String(24), nullable=False),
        sa.Column("ended_at", sa.String(24), nullable=True),
        sa.PrimaryKeyConstraint("user", "id"),
    )
    op.create_index("ix_turn_position", "turn", ["position"])
    op.create_index("ix_turn_conversation", "turn", ["user", "conversation", "position"])


def downgrade() -> None:
    """Go one step back."""
    op.drop_table("turn")
