"""Runs the migrations on the connection that the store hands over."""

from alembic import context

from hub_registry.storage.tables import Table

_given = context.config.attributes
context.configure(
    connection=_given["connection"],
    target_metadata=Table.metadata,
    version_table=_given["version_table"],
    render_as_batch=True,
)
context.run_migrations()
