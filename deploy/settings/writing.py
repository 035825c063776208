"""Single tables of ``strawberry.toml``, written by a program; comments and other tables stay."""

from collections.abc import Mapping
from pathlib import Path

from agent_core.models.entries import SETTINGS_FILE, read_tables
from contracts.wire import Json
from identity.files import write_private


def write_table(directory: Path, table: str, values: Mapping[str, Json]) -> None:
    """Set values of a table; everything else in the file stays as it is.

    Args:
        values: None removes a value.

    Raises:
        ConfigError: If the file cannot be used as it is.
    """
    import tomlkit

    read_tables(directory)
    file = directory / SETTINGS_FILE
    document = tomlkit.parse(file.read_text("utf-8") if file.exists() else "")
    written = document.setdefault(table, tomlkit.table())
    for name, value in values.items():
        if value is None:
            written.pop(name, None)
        else:
            written[name] = value
    write_private(file, tomlkit.dumps(document).encode())
