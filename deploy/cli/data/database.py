"""``strawberry database`` and ``cluster``: the hub's database, moved, and its replicas."""

import argparse
from pathlib import Path

from contracts.errors import ConfigError
from deploy.cli.resources import add_declared
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.parser import Actions
from deploy.directory import Home, only_hub
from deploy.settings.settings import in_schema


def copy(options: argparse.Namespace) -> None:
    """Copy a hub's database into another one, and check each row.

    FROM and TO are SQLite files or PostgreSQL databases, such as postgresql://strawberry@db.lan/home. A
    password belongs into ~/.pgpass, or into the variable PGPASSWORD. The hub must not run meanwhile. Where
    [home] in strawberry.toml has a name, the schema of that name is meant.
    """
    from hub_registry.access.hub_key import is_empty, shown
    from hub_registry.storage.copying import copy_rows

    source, target = _place(options.source), _place(options.target)
    if source == target:
        raise ConfigError("FROM and TO are the same database")
    if is_empty(source):
        raise ConfigError(
            f"FROM is missing or empty: {shown(source)}",
            hint="'strawberry doctor' says where the database is.",
        )
    if not options.replace and not is_empty(target):
        raise ConfigError(f"TO is in use already: {shown(target)}", hint="--replace overwrites it.")
    counted: dict[str, int] = {}

    def copied(table: str, rows: int) -> None:
        counted[table] = rows
        note(f"{table}: {rows} rows")

    with only_hub(Home.find()):
        copy_rows(source, target, is_move=True, progress=copied)
    next_ = f'\nLet the hub use it, in strawberry.toml:\n[database]\nurl = "{options.target}"'
    Output(options.json).result(
        {"rows": counted},
        text=f"Copied {sum(counted.values())} rows; each is the same in the copy."
        + (next_ if isinstance(target, str) else ""),
    )


def _place(text: str) -> Path | str:
    if "://" not in text:
        return Path(text).absolute()
    from hub_registry.storage.postgresql import parsed

    if parsed(text).password is not None:
        raise ConfigError(
            "a password on the command line can be read by others on this machine",
            hint="Put it into ~/.pgpass or the variable PGPASSWORD, and leave it out here.",
        )
    return in_schema(Home.find(), text)


def add_database_actions(actions: Actions) -> None:
    """Declare 'strawberry database'."""
    copying = actions.add_parser("copy", run=copy, help="copy it to PostgreSQL, or back to a file")
    copying.takes("source", "a SQLite file, or postgresql://user@host/name", metavar="FROM")
    copying.takes("target", "likewise; it is made if it is a file", metavar="TO")
    copying.add_flag("--replace", "overwrite what is in TO")


def add_cluster_actions(actions: Actions) -> None:
    add_declared(actions, "cluster")
