"""A token can be signed again from its row: the key that its bearer has bound stands there too."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a good token of a device is for the key that the device has."""
    op.add_column("token", sa.Column("key_id", sa.String(), nullable=True))
    op.execute(
        "UPDATE token SET key_id = (SELECT device.key_id FROM device WHERE device.id = token.subject)"
        " WHERE kind = 'device'"
    )


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("token", "key_id")
