"""What clients of other kinds need, and turns that were replaced, as plain SQL: see v0004."""

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = (
    # Turns: the error that ended one, and which one took its place.
    "ALTER TABLE turn ADD COLUMN reason VARCHAR DEFAULT '' NOT NULL",
    "ALTER TABLE turn ADD COLUMN replaced_by VARCHAR",
    # Whether a call could change anything.
    "ALTER TABLE audit ADD COLUMN read_only BOOLEAN DEFAULT 0 NOT NULL",
    # What the owner of a device leaves to it.
    "ALTER TABLE device ADD COLUMN scope VARCHAR DEFAULT 'chat' NOT NULL",
    # The device through which the calls of a watcher were approved.
    "ALTER TABLE watcher ADD COLUMN approved_through VARCHAR",
    # What the owner shows to Home Assistant.
    """
    CREATE TABLE home_assistant_exposure (
        path VARCHAR PRIMARY KEY NOT NULL,
        shown BOOLEAN NOT NULL,
        user VARCHAR NOT NULL,
        at VARCHAR(24) NOT NULL
    )
    """,
)


def upgrade() -> None:
    """Change the tables."""
    from alembic import op  # imported only where a migration runs

    for statement in STATEMENTS:
        op.execute(statement)
