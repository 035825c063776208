"""Tables of the live home, as plain SQL: a new database is made without Alembic."""

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATEMENTS = (
    # Events: what happened, for each person.
    """
    CREATE TABLE event (
        id INTEGER PRIMARY KEY NOT NULL,
        user VARCHAR NOT NULL,
        kind VARCHAR NOT NULL,
        subject VARCHAR NOT NULL,
        data JSON NOT NULL,
        at VARCHAR(24) NOT NULL
    )
    """,
    "CREATE INDEX ix_event_kept ON event (user, kind, id)",
    # Topics: until when each link was heard.
    """
    CREATE TABLE heard (
        instance VARCHAR NOT NULL,
        link VARCHAR NOT NULL,
        at FLOAT NOT NULL,
        PRIMARY KEY (instance, link)
    )
    """,
)


def upgrade() -> None:
    """Make the tables."""
    from alembic import op  # imported only where a migration runs

    for statement in STATEMENTS:
        op.execute(statement)
