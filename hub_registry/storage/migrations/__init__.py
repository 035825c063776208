"""Migrations of the registry's tables, by Alembic; run when the store is opened."""
