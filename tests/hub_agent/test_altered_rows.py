"""Rows that were altered in the database: the hub starts, shows the others, and answers."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sqlalchemy import JSON, Boolean, Column, Integer, Numeric

from hub_registry.storage.tables import Moment, Table
from tests.hub_agent.home import open_home

BYTES: Final = b"\xff\0"
JSONS: Final = ("x", "null", "1", '"x"', "[[1]]", '{"a": {"b": [1]}}', '{"a": 1e999}', "[" * 100_000, BYTES)
NUMBERS: Final = ("x", -1, 2**63 - 1, 1e308, float("inf"), BYTES)
MOMENTS: Final = ("x", "2026-11-22", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", BYTES)
TEXTS: Final = ("x", "", "../\n\0", "x" * 10_000, BYTES)

VALID: Final[dict[str, dict[str, Any]]] = {
    "capture": {"root": "/nowhere", "spec": '{"topics": ["a"], "path": "a.jsonl"}', "is_stopped": 1},
    "device": {"owner": "admin", "scope": "chat"},
    "home_assistant_exposure": {"shown": 1},
    "token": {
        "kind": "device",
        "scope": "register chat",
        "audience": "http",
        "expires_at": "2099-01-01T00:00:00.000Z",
    },
    "turn": {"state": "finished", "origin": "person", "conversation": "c"},
    "user": {"role": "member"},
    "watcher": {"state": "active", "topics": '{"a": {"topic": "devices/tv/events/bell"}}'},
}
LISTS: Final = ("aliases", "did", "files", "done", "allow", "actions")
SHOWN: Final = {
    "/api/devices": "device-good",
    "/api/users": "user-good",
    "/api/watchers": "watcher-good",
    "/api/conversations/c": "turn-good",
    "/api/home-assistant": "home_assistant_exposure-good",
}
"""What of the rows that nobody has altered is seen where."""


def valid(table: str, column: Column[Any]) -> Any:
    """Return a value that a column may have."""
    if (value := VALID.get(table, {}).get(column.name)) is not None:
        return value
    if column.nullable:
        return None
    if isinstance(column.type, JSON):
        return "[]" if column.name in LISTS else "{}"
    if isinstance(column.type, Moment):
        return "2026-11-22T10:00:00.000Z"
    if column.name in ("user", "owner", "subject"):
        return "admin"
    return {"instance": "main"}.get(column.name, "x" if column.type.python_type is str else 0)


def wrong(column: Column[Any]) -> tuple[Any, ...]:
    """Return values that a column may not have, or that nobody expects there."""
    match column.type:
        case JSON():
            return JSONS
        case Moment():
            return MOMENTS
        case Integer() | Numeric() | Boolean():
            # SQLite itself keeps others out of an id.
            return NUMBERS if not column.primary_key else (-1, 2**63 - 2)
    return TEXTS


def alter(database: Path) -> int:
    """Add to each table a good row, and one for each of its columns and each value that is wrong there.

    Returns:
        The first record of the audit.
    """
    with closing(sqlite3.connect(database)) as connection, connection:
        number = 1_000
        for table in Table.metadata.sorted_tables:
            row = {column.name: valid(table.name, column) for column in table.columns}
            unique = [list(table.primary_key)[-1], *(column for column in table.columns if column.unique)]
            columns, marks = ", ".join(f'"{name}"' for name in row), ", ".join(f":{name}" for name in row)
            command = f'INSERT INTO "{table.name}" ({columns}) VALUES ({marks})'
            altered = [{column.name: value} for column in table.columns for value in wrong(column)]
            for change in [{}, *altered]:
                number += 1
                for each in unique:
                    end = number if change else "good"
                    row[each.name] = number if isinstance(each.type, Integer) else f"{table.name}-{end}"
                connection.execute(command, row | change)
        return int(connection.execute("SELECT min(id) FROM audit").fetchone()[0])


def _slice(before: int | None) -> dict[str, int]:
    return {"limit": 3} | ({} if before is None else {"before": before})


async def test_an_altered_row_ends_no_hub_and_hides_no_other_row(tmp_path: Path) -> None:
    async with open_home(tmp_path / "home"):
        pass
    first = alter(tmp_path / "home" / "hub" / "hub.db")
    async with open_home(tmp_path / "home") as home, home.client() as client:
        document = (await client.get("/api/openapi.json")).json()
        routes = [path for path, known in document["paths"].items() if "get" in known and "{" not in path]
        failed, missing = [], []
        for path in {*routes, *SHOWN}:
            async with client.stream("GET", path) as answer:
                is_endless = answer.headers.get("content-type", "").startswith("text/event-stream")
                text = "" if is_endless else (await answer.aread()).decode()
            failed += [path] if answer.status_code >= 500 else []
            missing += [path] if SHOWN.get(path, "") not in text else []
        assert (failed, missing) == ([], [])
        before: int | None = None
        while (page := (await client.get("/api/audit", params=_slice(before))).json())["before"]:
            before = page["before"]
        assert page["entries"][-1]["id"] == first
