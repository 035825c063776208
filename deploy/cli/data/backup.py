"""``strawberry backup`` and ``restore``: all of a home in one encrypted file."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr

from agent_core.sentences.responses import bytes_text
from contracts.errors import ConfigError
from deploy.backup.contents import temporary_directory
from deploy.backup.reading import unpack
from deploy.backup.restoring import check_unused, complete, has_data, is_untouched, plan
from deploy.backup.writing import check_passphrase, write_backup
from deploy.cli.terminal.asking import is_sure, secret_in, typed_unseen
from deploy.cli.terminal.output import Output, note, progress_line
from deploy.cli.terminal.parser import Parser
from deploy.directory import Home, discard_restore, only_hub
from hub_server.system.host import BackupContents
from identity.files import make_private_directory


def backup(options: argparse.Namespace) -> None:
    """Write all data of this home into one encrypted file.

    Writes database, keys, certificates, settings, memory, agents and skills into one file, encrypted with
    a passphrase. The hub may run. Any program for the age format opens it: age -d FILE | tar xz
    """
    home, file = Home.find(), Path(options.file).absolute()
    if file.exists():
        raise ConfigError(f"there is a file {file} already", hint="Name another, or remove it.")
    if not file.parent.is_dir():
        raise ConfigError(f"there is no directory {file.parent}", hint="Make it first.")
    passphrase = _passphrase(options.passphrase_file, twice=True)
    check_passphrase(passphrase)
    # Made for its owner alone before a byte is in it.
    handle, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as target, _progress("writing") as progress:
            size = write_backup(home, target, passphrase, captures=options.captures, progress=progress)
            target.flush()
            os.fsync(target.fileno())
        Path(partial).rename(file)
    finally:
        Path(partial).unlink(missing_ok=True)
    written = file.stat().st_size
    Output(options.json).result(
        {"file": str(file), "bytes": written, "content_bytes": size},
        text=f"Written: {file} ({bytes_text(written)}). It holds all keys of this home. Without its "
        "passphrase it cannot be opened, not even by you.",
    )


def restore(options: argparse.Namespace) -> int:
    """Restore a backup while no hub runs here.

    Checks all of a backup before it changes anything. Restoring ends all logins of people and programs,
    except where the home that is replaced knows which of them are still valid.
    """
    home = Home.named()
    if home.directory.is_file():
        raise ConfigError(f"{home.directory} is a file", hint="Set STRAWBERRY_HOME to a directory.")
    make_private_directory(home.directory)
    if options.check:
        return _check(home, options)
    with only_hub(home):
        # Before anything is prepared, which the next start would go on with.
        check_unused(home)
        is_decided = home.restore_plan.exists()
        if is_decided and not is_untouched(home):
            note("An earlier restore was interrupted and is completed; this file is not read.")
            return _completed(home, options)
        if not options.replace and has_data(home):
            raise ConfigError(
                f"{home.directory} is in use already",
                hint="--replace keeps what is there aside, below replaced/; or set another STRAWBERRY_HOME.",
            )
        if is_decided:
            # Perhaps it cannot be carried out, and this file is the way out.
            home.restore_plan.unlink()
            note("An earlier restore, for which nothing was changed yet, is given up.")
        try:
            summary = _unpacked(home, options)
            revoke = _named(summary, options.revoke)
            if not options.yes:
                note(_described(summary))
            if not is_sure("Restore it?", yes=options.yes):
                return 1
            plan(home, revoke=revoke)
            return _completed(home, options)
        finally:
            discard_restore(home)


def _check(home: Home, options: argparse.Namespace) -> int:
    """Show what a backup holds; it is unpacked aside, because the hub may run."""
    with temporary_directory(home) as aside:
        summary = _unpacked(Home(aside), options)
    Output(options.json).result(summary, text=_described(summary))
    return 0


def _unpacked(home: Home, options: argparse.Namespace) -> BackupContents:
    with Path(options.file).open("rb") as source:
        passphrase = _passphrase(options.passphrase_file, twice=False)
        with _progress("checking") as progress:
            return unpack(home, source, passphrase, progress=progress)


def _completed(home: Home, options: argparse.Namespace) -> int:
    aside = complete(home)
    kept = f" What was there before is in {aside}." if aside is not None else ""
    Output(options.json).result(
        {"home": str(home.directory), "replaced": str(aside) if aside is not None else None},
        text=f"Restored to {home.directory}.{kept}\nStart it as before, for example with 'strawberry up'.",
    )
    return 0


def _named(summary: BackupContents, wanted: list[str]) -> list[str]:
    """Find devices by id or name."""
    found = []
    for each in wanted:
        ids = [device.id for device in summary.devices if each in (device.id, device.name)]
        if not ids:
            known = ", ".join(device.name for device in summary.devices) or "none"
            raise ConfigError(f"the backup has no device {each!r}", hint=f"It has: {known}.")
        found += ids
    return found


def _described(summary: BackupContents) -> str:
    people, devices = ", ".join(summary.people), ", ".join(each.name for each in summary.devices)
    size = f"{summary.files} files, {bytes_text(summary.bytes)}"
    lines = [
        f"A backup of {summary.created_at}, by Strawberry {summary.version}: {size}",
        f"  people         {people}",
        f"  devices        {devices or 'none'}",
        f"  conversations  {summary.conversations}",
        "Devices that were revoked since then, and are not known as such here, come back: see --revoke.",
    ]
    return "\n".join([*lines, *(f"  problem        {problem}" for problem in summary.problems)])


def _passphrase(file: str | None, *, twice: bool) -> SecretStr:
    if file is not None or not sys.stdin.isatty():
        text = secret_in(file or "-", what="passphrase")
    else:
        text = typed_unseen("Passphrase: ")
        if twice and typed_unseen("Once more: ") != text:
            raise ConfigError("the two passphrases differ", hint="Run it again.")
    if not text:
        raise ConfigError("no passphrase was given", hint="Type it, or name a file with --passphrase-file.")
    return SecretStr(text)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    with progress_line() as line:
        yield lambda done, total: line(f"  {what}, {100 * done // total if total else 100} %")


def _add_passphrase(parser: Parser) -> None:
    parser.takes(
        "--passphrase-file",
        "file with the passphrase, - for standard input; default: it is typed, unseen",
        metavar="PATH",
    )


def register_backup(parser: Parser) -> None:
    """Declare 'strawberry backup'."""
    parser.runs(backup)
    parser.takes("file", "the file to write, for example home.age")
    parser.add_flag("--captures", "also captures, and values recorded for watchers")
    _add_passphrase(parser)


def register_restore(parser: Parser) -> None:
    """Declare 'strawberry restore'."""
    parser.runs(restore)
    parser.takes("file", "a file that 'strawberry backup' wrote")
    parser.add_flag("--check", "check it and show what it holds, no more")
    parser.add_flag("--replace", "replace what is in this home, and keep it in replaced/")
    parser.add_list(
        "--revoke", "revoke this device, which is valid in the backup; may be repeated", metavar="DEVICE"
    )
    parser.add_flag("--yes", "do not ask")
    _add_passphrase(parser)
