"""People who log in, and devices that are shared, as plain SQL: a new database is made without Alembic."""

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE user ADD COLUMN password VARCHAR",
    "ALTER TABLE user ADD COLUMN removed_at VARCHAR(24)",
    "ALTER TABLE token ADD COLUMN is_session BOOLEAN DEFAULT 0 NOT NULL",
    "ALTER TABLE device ADD COLUMN shared BOOLEAN DEFAULT 0 NOT NULL",
    # One-time codes with which people choose their password.
    """
    CREATE TABLE password_code (
        user VARCHAR PRIMARY KEY NOT NULL REFERENCES user (id),
        digest VARCHAR NOT NULL,
        expires_at VARCHAR(24) NOT NULL
    )
    """,
    "ALTER TABLE watcher ADD COLUMN approver VARCHAR",
    # Turns: how each ended, and where its time went.
    "ALTER TABLE turn ADD COLUMN outcome VARCHAR",
    "ALTER TABLE turn ADD COLUMN problem VARCHAR DEFAULT '' NOT NULL",
    """
    UPDATE turn SET outcome = CASE
        WHEN mode IS NOT NULL THEN 'answered' WHEN state = 'finished' THEN 'failed' ELSE 'stopped' END
    WHERE state IN ('finished', 'cancelled')
    """,
    "CREATE INDEX ix_turn_at ON turn (at)",
    """
    CREATE TABLE turn_trace (
        user VARCHAR NOT NULL,
        turn VARCHAR NOT NULL,
        at VARCHAR(24) NOT NULL,
        model VARCHAR,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cost FLOAT,
        ms JSON NOT NULL,
        left_out INTEGER NOT NULL,
        spans BLOB NOT NULL,
        PRIMARY KEY (user, turn)
    )
    """,
)


def upgrade() -> None:
    """Change the tables."""
    from alembic import op  # imported only where a migration runs

    for statement in STATEMENTS:
        op.execute(statement)
