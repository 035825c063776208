"""The agent's part of the hub's database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from hub_registry.storage.store import Schema, Store, open_store

_SCHEMA: Final = Schema(scripts=Path(__file__).parent / "migrations", version_table="agent_version")


@asynccontextmanager
async def open_agent_store(database: Path) -> AsyncIterator[Store]:
    """Open the agent's tables in the hub's database.

    Raises:
        ConfigError: If the database cannot be used.
    """
    async with open_store(database, schema=_SCHEMA) as store:
        yield store
