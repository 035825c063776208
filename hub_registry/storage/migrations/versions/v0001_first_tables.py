"""The registry's first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.String(24), nullable=False),
        sa.Column("call", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("actor", sa.JSON(), nullable=False),
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("class_name", sa.String(), nullable=False),
        sa.Column("function_name", sa.String(), nullable=False),
        sa.Column("arguments", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_audit_at"), "audit", ["at"], unique=False)
    op.create_table(
        "hub",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(24), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "retired_device",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("retired_at", sa.String(24), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "token",
        sa.Column("jti", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("issued_at", sa.String(24), nullable=False),
        sa.Column("expires_at", sa.String(24), nullable=False),
        sa.Column("used_at", sa.String(24), nullable=True),
        sa.Column("revoked_at", sa.String(24), nullable=True),
        sa.Column("replaces", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("jti"),
    )
    op.create_index(op.f("ix_token_subject"), "token", ["subject"], unique=False)
    op.create_table(
        "user",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("display_name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("language", sa.String(), nullable=True),
        sa.Column("time_zone", sa.String(), nullable=True),
        sa.Column("created_at", sa.String(24), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "device",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("display_name", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("aliases", sa.JSON(), nullable=False),
        sa.Column("area", sa.String(), nullable=True),
        sa.Column("floor", sa.String(), nullable=True),
        sa.Column("public_key", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("key_id", sa.String(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("connection", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("last_seen", sa.String(24), nullable=True),
        sa.Column("revoked_at", sa.String(24), nullable=True),
        sa.Column("created_at", sa.String(24), nullable=False),
        sa.ForeignKeyConstraint(
            ["owner"],
            ["user.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_index(op.f("ix_device_owner"), "device", ["owner"], unique=False)
    op.create_table(
        "enrolment",
        sa.Column("locator", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(24), nullable=False),
        sa.Column("expires_at", sa.String(24), nullable=False),
        sa.Column("used_at", sa.String(24), nullable=True),
        sa.ForeignKeyConstraint(
            ["device_id"],
            ["device.id"],
        ),
        sa.PrimaryKeyConstraint("locator"),
    )
    op.create_index(op.f("ix_enrolment_device_id"), "enrolment", ["device_id"], unique=False)
    op.create_table(
        "registration",
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("class_name", sa.String(), nullable=False),
        sa.Column("docstring", sa.String(), nullable=False),
        sa.Column("area", sa.String(), nullable=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_id"],
            ["device.id"],
        ),
        sa.PrimaryKeyConstraint("device_id", "class_name"),
    )
    op.create_table(
        "skill",
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("class_name", sa.String(), nullable=False),
        sa.Column("function_name", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("signature", sa.String(), nullable=False),
        sa.Column("docstring", sa.String(), nullable=False),
        sa.Column("device_agnostic", sa.Boolean(), nullable=False),
        sa.Column("last_heartbeat", sa.String(24), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("positional", sa.JSON(), nullable=False),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("flags", sa.JSON(), nullable=False),
        sa.Column("timeout_ms", sa.Integer(), nullable=False),
        sa.Column("progress", sa.Boolean(), nullable=False),
        sa.Column("sentences", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_id"],
            ["device.id"],
        ),
        sa.PrimaryKeyConstraint("device_id", "class_name", "function_name"),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("skill")
    op.drop_table("registration")
    op.drop_index(op.f("ix_enrolment_device_id"), table_name="enrolment")
    op.drop_table("enrolment")
    op.drop_index(op.f("ix_device_owner"), table_name="device")
    op.drop_table("device")
    op.drop_table("user")
    op.drop_index(op.f("ix_token_subject"), table_name="token")
    op.drop_table("token")
    op.drop_table("retired_device")
    op.drop_table("hub")
    op.drop_index(op.f("ix_audit_at"), table_name="audit")
    op.drop_table("audit")
