"""Putting a backup that was unpacked and checked into the place of what is in the home.

A plan on the disk says that it was decided. From then on a restore that is interrupted goes on at the next
start, until all of the old is aside and all of the new is there.
"""

import json
import shutil
import sqlite3
from collections.abc import Collection
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from broker.embedded.authentication import Revocations
from contracts.errors import ConfigError
from deploy.backup.contents import ASIDE, Rules, units
from deploy.backup.reading import staged_files
from deploy.directory import STAGE, Home
from deploy.settings.settings import find_database
from hub_registry.access.hub_key import is_empty
from hub_registry.storage.copying import copy_rows
from hub_registry.storage.restoring import settle
from hub_registry.storage.store import opened
from identity.files import is_held, make_private_directory, write_private


def has_data(home: Home) -> bool:
    return home.directory.exists() and bool(_old_units(home))


def plan(home: Home, *, revoke: Collection[str] = ()) -> None:
    """Decide that what was unpacked takes the place of what is there.

    Args:
        revoke: Ids of devices in the backup that do not come back.
    """
    aside = f"{ASIDE}/{datetime.now(UTC).strftime('%Y-%m-%dT%H-%M-%S')}"
    content = {"aside": aside, "revoke": sorted(revoke), "is_settled": False, "is_aside": False}
    write_private(home.restore_plan, json.dumps(content).encode())


def check_unused(home: Home) -> None:
    """Check that no broker and no spoke uses the files of this home, and no other hub its database.

    Raises:
        ConfigError: If one runs; names it.
    """
    for directory, what in ((home.broker, "its broker"), (home.spoke, "its spoke")):
        if is_held(directory):
            raise ConfigError(
                "{home} cannot be restored while {what} runs",
                home=home.directory,
                what=what,
                hint="Stop it first.",
            )
    place = find_database(home)
    # To open an empty one would make its tables, and then no home could begin in it.
    if isinstance(place, str) and not is_empty(place):
        with closing(opened(place)) as database:
            database.claim()


def complete(home: Home) -> Path | None:
    """Carry out the plan, or what is left of it; nothing of this home may run.

    Returns:
        Where the old files are; None where there were none.

    Raises:
        ConfigError: If a broker or a spoke of this home runs, another hub uses its database, or that cannot
            be written.
    """
    check_unused(home)
    files = staged_files(home)
    decided: dict[str, Any] = json.loads((home.restore_plan).read_bytes())
    aside = home.directory / decided["aside"]
    if not decided["is_settled"]:
        _settle(home, files, decided["revoke"])
        # Only once: later the replaced database may be aside without the last of its journal.
        decided["is_settled"] = True
        write_private(home.restore_plan, json.dumps(decided).encode())
    if not decided["is_aside"]:
        for unit in _old_units(home):
            _move(home.directory / unit, aside / unit)
        decided["is_aside"] = True
        write_private(home.restore_plan, json.dumps(decided).encode())
    for unit in list(units(files)):
        _move(files / unit, home.directory / unit)
    restored = home.hub / "hub.db"
    if isinstance(place := find_database(home), str) and restored.exists():
        copy_rows(restored, place)
        restored.unlink()
    # First: a plan whose files are gone could not be completed.
    home.restore_plan.unlink()
    shutil.rmtree(home.directory / STAGE)
    return aside if aside.exists() else None


def is_untouched(home: Home) -> bool:
    """Return whether nothing of the home was moved yet for the restore that was decided."""
    return not json.loads(home.restore_plan.read_bytes())["is_settled"]


def _settle(home: Home, files: Path, revoke: Collection[str]) -> None:
    """Keep revoked tokens revoked, over HTTP and at the embedded broker."""
    old = home.hub / "hub.db"
    if isinstance(place := find_database(home), str):
        # It says who may log in, and is kept aside as a file.
        old.unlink(missing_ok=True)
        copy_rows(place, old)
    try:
        settled = settle(files / "hub" / "hub.db", replaced=old if old.exists() else None, revoke=revoke)
    except sqlite3.Error as error:
        raise ConfigError(
            "the restored database cannot be written: {error}",
            error=error,
            hint="Is the disk full? The next start continues the restore. "
            "'strawberry restore FILE' takes another backup instead.",
        ) from None
    file = files / "broker" / "revoked.json"
    make_private_directory(file.parent)
    revocations = Revocations.load(file)
    known = Revocations.load(home.broker / file.name) if settled.is_same_hub else None
    revocations.restored(settled.revoked, replaced=known)
    revocations.save()


def _old_units(home: Home) -> list[PurePosixPath]:
    rules = Rules.of(home)
    return [unit for unit in units(home.directory) if not rules.stays(unit)]


def _move(source: Path, target: Path) -> None:
    make_private_directory(target.parent)
    if target.is_dir() and not target.is_symlink():
        # A folder of captures that stays: what the backup has of it goes beside what is there.
        for each in list(source.iterdir()):
            _move(each, target / each.name)
    elif not target.exists():
        source.replace(target)
