"""Migrations of the agent's tables, by Alembic; run when the store is opened."""
