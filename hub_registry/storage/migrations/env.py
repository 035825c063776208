"""Alembic environment: migrations run on the connection that the store passes in."""

from alembic import context

from hub_registry.storage.tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    render_as_batch=True,
)
context.run_migrations()
