"""Writing models into ``strawberry.toml`` and their keys into ``.env``; what stands there stays."""

import re
from typing import Final

import tomlkit
from pydantic import SecretStr
from tomlkit.items import AoT, Table

from agent_core.models.entries import (
    KEYS_FILE,
    SETTINGS_FILE,
    ModelEntry,
    parse_entries,
    read_keys,
    read_tables,
)
from contracts.errors import ConfigError
from deploy.home.directory import Home
from identity.files import write_private

_HEAD: Final = "# Settings of Strawberry. The models are asked in this order.\n\n"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:+=@%,~-]+\Z")
"""A value that needs no quotes in ``.env``."""


def write_entry(home: Home, entry: ModelEntry) -> None:
    """Add an entry at the end of ``[[models]]``, or put it where one of that name stands.

    Comments, other entries and other tables stay as they are; the file is owner-only, and written
    whole or not at all.

    Raises:
        ConfigError: If the file cannot be used as it is.
    """
    file = home.directory / SETTINGS_FILE
    # A file that is wrong already is reported as everywhere, and left alone.
    parse_entries(read_tables(home.directory).get("models"), file=file)
    document = tomlkit.parse(file.read_text("utf-8") if file.exists() else _HEAD)
    table = tomlkit.table()
    for key, value in entry.model_dump(mode="json", exclude_defaults=True).items():
        table.add(key, value)
    entries = document.get("models")
    if not isinstance(entries, AoT):
        # None at all, or `models = []`, which is the same.
        document.pop("models", None)
        entries = tomlkit.aot()
        document.add("models", entries)
    place = next((place for place, each in enumerate(entries) if each.get("name") == entry.name), None)
    if place is None:
        entries.append(table)
    else:
        _replace(entries[place], table)
    text = tomlkit.dumps(document)
    parse_entries(tomlkit.parse(text).unwrap().get("models"), file=file)
    write_private(file, text.encode())


def write_key(home: Home, variable: str, key: SecretStr) -> None:
    """Set a variable in ``.env``; its other lines stay as they are.

    Raises:
        ConfigError: If the file cannot be used as it is, or the key holds what no key holds.
    """
    file = home.directory / KEYS_FILE
    read_keys(home.directory, {})
    line = f"{variable}={_quoted(key.get_secret_value())}"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    same = re.compile(rf"\s*(export\s+)?{re.escape(variable)}\s*=")
    places = [place for place, text in enumerate(lines) if same.match(text)]
    if places:
        # Of several the last counts.
        lines[places[-1]] = line
    else:
        lines.append(line)
    write_private(file, ("\n".join(lines) + "\n").encode())


def unused_name(home: Home, model: str) -> str:
    """Make a name for a model that no entry has: ``qwen3:4b`` becomes ``qwen3-4b``.

    Raises:
        ConfigError: If ``strawberry.toml`` cannot be used.
    """
    tables = read_tables(home.directory).get("models")
    taken = {entry.name for entry in parse_entries(tables, file=home.directory / SETTINGS_FILE)}
    made = re.sub(r"[^A-Za-z0-9_.-]+", "-", model.rpartition("/")[2]).strip("-._")[:60] or "model"
    number = 2
    name = made
    while name in taken:
        name, number = f"{made}-{number}", number + 1
    return name


def _replace(old: Table, new: Table) -> None:
    """Return a table other values; comments in it stay beside what they are about."""
    for key in [key for key in old if key not in new]:
        old.remove(key)
    for key, value in new.items():
        old[key] = value


def _quoted(value: str) -> str:
    if not value or any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise ConfigError(
            "this is not a key: it is empty or contains a control character", hint="Copy it again."
        )
    if _PLAIN.match(value):
        return value
    quote = "'" if '"' in value else '"'
    return f"{quote}{value}{quote}"
