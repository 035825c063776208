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
