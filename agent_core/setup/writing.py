"""Writing models into ``strawberry.toml`` and their keys into ``.env``; what stands there stays."""

import math
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from agent_core.models.entries import (
    KEYS_FILE,
    SETTINGS_FILE,
    SETTINGS_LOCK,
    ModelEntry,
    parse_entries,
    read_entries,
    read_keys,
    read_tables,
)
from agent_core.setup.probe import Probe
from contracts.errors import ConfigError, InvalidMessage
from identity.files import write_private

if TYPE_CHECKING:
    from tomlkit.items import Table

_HEAD: Final = "# Settings of Strawberry. The models are asked in this order.\n\n"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:+=@%,~-]+\Z")
"""A value that needs no quotes in ``.env``."""


def write_entry(home: Path, entry: ModelEntry) -> None:
    """Add an entry at the end of ``[[models]]``, or put it where one of that name stands.

    Comments, other entries and other tables stay as they are; the file is owner-only, and written
    whole or not at all.

    Raises:
        ConfigError: If the file cannot be used as it is.
    """
    with SETTINGS_LOCK:
        entries = read_entries(home)
        if all(each.name != entry.name for each in entries):
            entries = (*entries, entry)
        write_entries(home, [entry if each.name == entry.name else each for each in entries])


def write_entries(home: Path, entries: Sequence[ModelEntry]) -> None:
    """Make these entries, in this order, the ones of ``[[models]]``; see `write_entry`.

    Raises:
        ConfigError: If the file cannot be used as it is, or two entries have one name.
    """
    import tomlkit
    from tomlkit.items import AoT

    with SETTINGS_LOCK:
        file = home / SETTINGS_FILE
        # A file that is wrong already is reported as everywhere, and left alone.
        parse_entries(read_tables(home).get("models"), file=file)
        document = tomlkit.parse(file.read_text("utf-8") if file.exists() else _HEAD)
        present = document.get("models")
        tables = {str(table.get("name")): table for table in present} if isinstance(present, AoT) else {}
        wanted = [_changed(tables.get(entry.name), entry) for entry in entries]
        if isinstance(present, AoT) and wanted[: len(present)] == list(present):
            # Nothing but values, and entries at the end: every line stays where it is.
            for table in wanted[len(present) :]:
                present.append(table)
        else:
            others = tomlkit.aot()
            for table in wanted:
                others.append(table)
            if isinstance(present, AoT) and wanted:
                document["models"] = others
            else:
                # None at all, or `models = []`, which is the same.
                document.pop("models", None)
                if wanted:
                    document.add("models", others)
        text = tomlkit.dumps(document)
        if parse_entries(tomlkit.parse(text).unwrap().get("models"), file=file) != tuple(entries):
            raise ConfigError(
                "the entries of {file} cannot be put in this order", file=file, hint="Edit the file."
            )
        write_private(file, text.encode())


def write_key(home: Path, variable: str, key: SecretStr) -> None:
    """Set a variable in ``.env``; its other lines stay as they are.

    Raises:
        ConfigError: If the file cannot be used as it is.
        InvalidMessage: If the key holds what no key holds.
    """
    file = home / KEYS_FILE
    read_keys(home, {})
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


def unused_name(home: Path, model: str) -> str:
    """Make a name for a model that no entry has: ``qwen3:4b`` becomes ``qwen3-4b``.

    Raises:
        ConfigError: If ``strawberry.toml`` cannot be used.
    """
    tables = read_tables(home).get("models")
    return name_for(model, {entry.name for entry in parse_entries(tables, file=home / SETTINGS_FILE)})


def name_for(model: str, taken: Collection[str]) -> str:
    """Make a name for a model that is not taken."""
    made = re.sub(r"[^A-Za-z0-9_.-]+", "-", model.rpartition("/")[2]).strip("-._")[:60] or "model"
    number, name = 2, made
    while name in taken:
        name, number = f"{made}-{number}", number + 1
    return name


def own_variable(name: str) -> str:
    """Return the variable that holds the key of a model of this name: ``QWEN_API_KEY``."""
    letters = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name.upper())
    return f"{'_' if letters[0].isdigit() else ''}{letters}_API_KEY"


def with_time(entry: ModelEntry, tried: Probe | None) -> ModelEntry:
    """Allow a model that is slow to begin three times as long as it took, where that is more."""
    needed = math.ceil(3 * tried.first_s) if tried is not None else 0
    return entry.model_copy(update={"first_token_s": needed}) if needed > entry.first_token_s else entry


def _changed(old: "Table | None", entry: ModelEntry) -> "Table":
    """Return the table of an entry: the old one with other values, whose comments stay beside their lines."""
    import tomlkit

    table = tomlkit.table() if old is None else old
    values = entry.model_dump(mode="json", exclude_defaults=True)
    for key in [key for key in table if key not in values]:
        table.remove(key)
    for key, value in values.items():
        table[key] = value
    return table


def _quoted(value: str) -> str:
    # The readers of `.env` split its lines also at U+0085, U+2028 and U+2029.
    if value.splitlines() != [value] or any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise InvalidMessage(
            "this is not a key: it is empty or contains a control character", hint="Copy it again."
        )
    if _PLAIN.match(value):
        return value
    quote = "'" if '"' in value else '"'
    return f"{quote}{value}{quote}"
