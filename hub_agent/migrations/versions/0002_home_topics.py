"""What was published on brokers beside the bus."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go one step forward."""
    op.create_table(
        "home_topic",
        sa.Column("broker", sa.String(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("broker", "topic"),
    )


def downgrade() -> None:
    """Go one step back."""
    op.drop_table("home_topic")
