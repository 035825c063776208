"""Whether a watcher fires when its predicate is true next, which a restart must not forget."""

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE watcher ADD COLUMN armed BOOLEAN DEFAULT 1 NOT NULL",
    # What has done something has fired.
    "UPDATE watcher SET armed = 0 WHERE done <> '[]'",
)


def upgrade() -> None:
    """Change the table."""
    from alembic import op  # imported only where a migration runs

    for statement in STATEMENTS:
        op.execute(statement)
