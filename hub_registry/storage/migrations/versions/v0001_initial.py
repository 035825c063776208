"""All tables of the hub's database as first released, those of the agent included.

They are plain SQLAlchemy tables, so that a new database is made without Alembic, whose import takes longer
than the rest of opening it.
"""

import sqlalchemy as sa

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

schema = sa.MetaData()

sa.Table(
    "hub",
    schema,
    sa.Column("id", sa.String(), primary_key=True),
    sa.Column("created_at", sa.String(24), nullable=False),
)
sa.Table(
    "user",
    schema,
    sa.Column("id", sa.String(), primary_key=True),
    sa.Column("display_name", sa.String(), nullable=False),
    sa.Column("role", sa.String(), nullable=False),
    sa.Column("language", sa.String()),
    sa.Column("time_zone", sa.String()),
    sa.Column("created_at", sa.String(24), nullable=False),
)
sa.Table(
    "device",
    schema,
    sa.Column("id", sa.String(), primary_key=True),
    sa.Column("owner", sa.String(), sa.ForeignKey("user.id"), nullable=False, index=True),
    sa.Column("display_name", sa.String(), nullable=False),
    sa.Column("key", sa.String(), nullable=False, unique=True),
    sa.Column("aliases", sa.JSON(), nullable=False),
    sa.Column("area", sa.String()),
    sa.Column("floor", sa.String()),
    sa.Column("public_key", sa.JSON(none_as_null=True)),
    sa.Column("key_id", sa.String()),
    sa.Column("epoch", sa.BigInteger(), nullable=False),
    sa.Column("connection", sa.Integer(), nullable=False),
    sa.Column("seq", sa.Integer(), nullable=False),
    sa.Column("ended", sa.Boolean(), nullable=False),
    sa.Column("last_seen", sa.String(24)),
    sa.Column("revoked_at", sa.String(24)),
    sa.Column("created_at", sa.String(24), nullable=False),
)
sa.Table(
    "retired_device",
    schema,
    sa.Column("id", sa.String(), primary_key=True),
    sa.Column("retired_at", sa.String(24), nullable=False),
)
sa.Table(
    "token",
    schema,
    sa.Column("jti", sa.String(), primary_key=True),
    sa.Column("kind", sa.String(), nullable=False),
    sa.Column("subject", sa.String(), nullable=False, index=True),
    sa.Column("owner", sa.String(), nullable=False),
    sa.Column("name", sa.String(), nullable=False),
    sa.Column("scope", sa.String(), nullable=False),
    sa.Column("issued_at", sa.String(24), nullable=False),
    sa.Column("expires_at", sa.String(24), nullable=False),
    sa.Column("used_at", sa.String(24)),
    sa.Column("revoked_at", sa.String(24)),
    sa.Column("replaces", sa.String()),
    sa.Column("key_id", sa.String()),
)
sa.Table(
    "enrolment",
    schema,
    sa.Column("locator", sa.String(), primary_key=True),
    sa.Column("digest", sa.String(), nullable=False),
    sa.Column("device_id", sa.String(), sa.ForeignKey("device.id"), nullable=False, index=True),
    sa.Column("created_at", sa.String(24), nullable=False),
    sa.Column("expires_at", sa.String(24), nullable=False),
    sa.Column("used_at", sa.String(24)),
)
sa.Table(
    "registration",
    schema,
    sa.Column("device_id", sa.String(), sa.ForeignKey("device.id"), primary_key=True),
    sa.Column("skill", sa.String(), primary_key=True),
    sa.Column("key_id", sa.String(), nullable=False),
    sa.Column("payload", sa.String(), nullable=False),
)
sa.Table(
    "audit",
    schema,
    sa.Column("id", sa.Integer(), primary_key=True),
    sa.Column("at", sa.String(24), nullable=False, index=True),
    sa.Column("call", sa.String(), nullable=False),
    sa.Column("user", sa.String(), nullable=False),
    sa.Column("actor", sa.JSON(), nullable=False),
    sa.Column("device", sa.String(), nullable=False),
    sa.Column("skill", sa.String(), nullable=False),
    sa.Column("method", sa.String(), nullable=False),
    sa.Column("arguments", sa.String(), nullable=False),
    sa.Column("outcome", sa.String(), nullable=False),
)
sa.Table(
    "turn",
    schema,
    sa.Column("user", sa.String(), primary_key=True),
    sa.Column("turn", sa.String(), primary_key=True),
    sa.Column("conversation", sa.String()),
    sa.Column("device", sa.String()),
    sa.Column("through", sa.String()),
    sa.Column("agent", sa.String(), nullable=False),
    sa.Column("question", sa.String(), nullable=False),
    sa.Column("answer", sa.String()),
    sa.Column("mode", sa.String()),
    sa.Column("did", sa.JSON(), nullable=False),
    sa.Column("untrusted", sa.Boolean(), nullable=False),
    sa.Column("state", sa.String(), nullable=False),
    sa.Column("instance", sa.String(), nullable=False),
    sa.Column("at", sa.String(24), nullable=False),
    sa.Column("ended_at", sa.String(24)),
    sa.Index("ix_turn_conversation", "user", "conversation", "at"),
    sa.Index("ix_turn_through", "user", "through", "conversation"),
)
sa.Table(
    "home_topic",
    schema,
    sa.Column("broker", sa.String(), primary_key=True),
    sa.Column("topic", sa.String(), primary_key=True),
)


def upgrade() -> None:
    """Create the tables."""
    from alembic import op  # imported only where a migration runs

    schema.create_all(op.get_bind())


def downgrade() -> None:
    """Drop the tables."""
    from alembic import op  # imported only where a migration runs

    schema.drop_all(op.get_bind())
