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
    # Watchers: as they were made and how far they are, what they decided, and timers.
    """
    CREATE TABLE watcher (
        name VARCHAR PRIMARY KEY NOT NULL,
        owner VARCHAR NOT NULL,
        created_at VARCHAR(24) NOT NULL,
        state VARCHAR NOT NULL,
        instruction VARCHAR NOT NULL,
        topics JSON NOT NULL,
        every_s FLOAT,
        schedule VARCHAR,
        missed VARCHAR NOT NULL,
        predicate VARCHAR,
        note VARCHAR NOT NULL,
        allow JSON NOT NULL,
        approved_by VARCHAR,
        dry_run BOOLEAN NOT NULL,
        snoozed_until VARCHAR(24),
        actions_per_hour INTEGER,
        done JSON NOT NULL,
        fired INTEGER NOT NULL,
        evaluations INTEGER NOT NULL,
        model_calls INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        next_at VARCHAR(24)
    )
    """,
    """
    CREATE TABLE watcher_decision (
        id INTEGER PRIMARY KEY NOT NULL,
        watcher VARCHAR NOT NULL,
        at VARCHAR(24) NOT NULL,
        state VARCHAR NOT NULL,
        decision VARCHAR NOT NULL,
        reason VARCHAR NOT NULL,
        seen JSON NOT NULL,
        actions JSON NOT NULL,
        tokens INTEGER NOT NULL,
        dry_run BOOLEAN NOT NULL
    )
    """,
    "CREATE INDEX ix_watcher_decision ON watcher_decision (watcher, id)",
    """
    CREATE TABLE timer (
        id VARCHAR PRIMARY KEY NOT NULL,
        owner VARCHAR NOT NULL,
        text VARCHAR NOT NULL,
        due VARCHAR(24) NOT NULL,
        schedule VARCHAR,
        missed VARCHAR NOT NULL
    )
    """,
)


def upgrade() -> None:
    """Make the tables."""
    from alembic import op  # imported only where a migration runs

    for statement in STATEMENTS:
        op.execute(statement)
