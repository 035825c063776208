"""Changes of the second revision, as plain SQL: a new database is made without Alembic."""

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE device ADD COLUMN may_confirm BOOLEAN",
    "ALTER TABLE device ADD COLUMN trusted BOOLEAN DEFAULT 0 NOT NULL",
    """
    CREATE TABLE approval (
        device_id VARCHAR NOT NULL REFERENCES device (id),
        skill VARCHAR NOT NULL,
        known JSON NOT NULL,
        PRIMARY KEY (device_id, skill)
    )
    """,
    "ALTER TABLE audit ADD COLUMN token VARCHAR DEFAULT '' NOT NULL",
    "ALTER TABLE audit ADD COLUMN token_name VARCHAR DEFAULT '' NOT NULL",
    "ALTER TABLE audit ADD COLUMN through VARCHAR",
    "ALTER TABLE audit ADD COLUMN confirmed_by VARCHAR",
    "ALTER TABLE turn ADD COLUMN origin VARCHAR DEFAULT 'person' NOT NULL",
    # What a device handed in, or answered in place of this hub.
    "UPDATE turn SET origin = 'device' WHERE instance = '' OR mode = 'offline'",
    "ALTER TABLE token ADD COLUMN audience VARCHAR DEFAULT 'strawberry' NOT NULL",
)


def upgrade() -> None:
    """Change the tables."""
    from alembic import op  # imported only where a migration runs

    for statement in STATEMENTS:
        op.execute(statement)
