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
    # Captures: what is recorded into which files.
    """
    CREATE TABLE capture (
        id VARCHAR PRIMARY KEY NOT NULL,
        instance VARCHAR NOT NULL,
        owner VARCHAR NOT NULL,
        spec JSON NOT NULL,
        root VARCHAR NOT NULL,
        is_stopped BOOLEAN NOT NULL,
        messages INTEGER NOT NULL,
        gaps INTEGER NOT NULL,
        begun_at FLOAT NOT NULL,
        created_at VARCHAR(24) NOT NULL
    )
    """,
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
        instance VARCHAR NOT NULL,
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
        instance VARCHAR NOT NULL,
        owner VARCHAR NOT NULL,
        text VARCHAR NOT NULL,
        due VARCHAR(24) NOT NULL,
        schedule VARCHAR,
        missed VARCHAR NOT NULL
    )
    """,
    # Conversations: their titles, and summaries of long ones.
    """
    CREATE TABLE conversation (
        user VARCHAR NOT NULL,
        conversation VARCHAR NOT NULL,
        title VARCHAR,
        PRIMARY KEY (user, conversation)
    )
    """,
    """
    CREATE TABLE conversation_summary (
        user VARCHAR NOT NULL,
        conversation VARCHAR NOT NULL,
        reader VARCHAR NOT NULL,
        text VARCHAR NOT NULL,
        turn VARCHAR NOT NULL,
        at VARCHAR(24) NOT NULL,
        exchanges INTEGER NOT NULL,
        untrusted BOOLEAN NOT NULL,
        skilled BOOLEAN NOT NULL,
        PRIMARY KEY (user, conversation, reader)
    )
    """,
    # The words of all turns. It holds no text of its own, only numbers of rows of "turn": a VACUUM changes
    # those, and must be followed by INSERT INTO turn_words(turn_words) VALUES ('rebuild').
    """
    CREATE VIRTUAL TABLE turn_words USING fts5(
        question, answer, content = 'turn', tokenize = 'porter unicode61 remove_diacritics 2'
    )
    """,
    "INSERT INTO turn_words(turn_words) VALUES ('rebuild')",
    """
    CREATE TRIGGER turn_words_of_new AFTER INSERT ON turn BEGIN
        INSERT INTO turn_words(rowid, question, answer) VALUES (new.rowid, new.question, new.answer);
    END
    """,
    """
    CREATE TRIGGER turn_words_of_changed AFTER UPDATE OF question, answer ON turn BEGIN
        INSERT INTO turn_words(turn_words, rowid, question, answer)
            VALUES ('delete', old.rowid, old.question, old.answer);
        INSERT INTO turn_words(rowid, question, answer) VALUES (new.rowid, new.question, new.answer);
    END
    """,
    """
    CREATE TRIGGER turn_words_of_gone AFTER DELETE ON turn BEGIN
        INSERT INTO turn_words(turn_words, rowid, question, answer)
            VALUES ('delete', old.rowid, old.question, old.answer);
    END
    """,
)


def upgrade() -> None:
    """Make the tables."""
    from alembic import op  # imported only where a migration runs

    for statement in STATEMENTS:
        op.execute(statement)
