"""``strawberry backup``, ``restore``, ``certs``, ``purge``, ``doctor`` and ``update``: maintenance."""

import argparse

from deploy.cli.parser.shared import Commands, Parents


def add(commands: Commands, parents: Parents) -> None:
    """Add these commands."""
    _add_backup(commands, parents)
    certs = commands.add_parser(
        "certs",
        parents=[parents.common],
        help="make and show the certificates for --lan",
        description="Makes a certificate authority for this home, once, and a server certificate with the "
        "names and addresses of this machine. Devices that join trust this authority and no other.",
    )
    certs.add_argument(
        "--name",
        metavar="N",
        action="append",
        default=[],
        help="another name or address of this machine; may be repeated",
    )
    certs.add_argument(
        "--renew", action="store_true", help="make a new server certificate even if the present one is valid"
    )
    certs.set_defaults(run="deploy.cli.home:certs")

    purge = commands.add_parser(
        "purge",
        parents=[parents.client],
        help="remove everything that Strawberry published from the brokers",
    )
    purge.add_argument("--yes", action="store_true", help="do not ask")
    purge.set_defaults(run="deploy.cli.home:purge")

    doctor = commands.add_parser(
        "doctor", parents=[parents.client], help="check this installation and say how to fix it"
    )
    doctor.add_argument(
        "--running",
        action="store_true",
        help="only tell whether hub or spoke of this machine answer, for a container's health check",
    )
    doctor.add_argument(
        "--support",
        metavar="FILE",
        help="write a .zip for a report of a fault: versions, results, settings and logs, without secrets",
    )
    doctor.set_defaults(run="deploy.cli.home:doctor")

    update = commands.add_parser(
        "update",
        parents=[parents.common],
        help="update this program, or say how that is done here",
        description="Updates an installation that install.sh made, and restarts its services; if one does "
        "not start, the version before is used again. For others it prints the command that updates them.",
    )
    choice = update.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="only ask whether there is a newer version")
    choice.add_argument("--rollback", action="store_true", help="use the version before again")
    choice.add_argument("--from", dest="wheel", metavar="WHEEL", help="use this file, not the newest release")
    update.set_defaults(run="deploy.cli.home:update")


def _add_backup(commands: Commands, parents: Parents) -> None:
    backup = commands.add_parser(
        "backup",
        parents=[parents.common],
        help="write all data of this home into one encrypted file",
        description="Writes database, keys, certificates, settings, memory, agents and skills into one file, "
        "encrypted with a passphrase. The hub may run. Any program for the age format opens it: "
        "age -d FILE | tar xz",
    )
    backup.add_argument("file", metavar="FILE", help="the file to write, for example home.age")
    backup.add_argument(
        "--captures", action="store_true", help="also captures, and values recorded for watchers"
    )
    _add_passphrase(backup)
    backup.set_defaults(run="deploy.cli.backup:backup")

    restore = commands.add_parser(
        "restore",
        parents=[parents.common],
        help="restore a backup while no hub runs here",
        description="Checks all of a backup before it changes anything. Restoring ends all logins of people "
        "and programs, except where the home that is replaced knows which of them are still valid.",
    )
    restore.add_argument("file", metavar="FILE", help="a file that 'strawberry backup' wrote")
    restore.add_argument("--check", action="store_true", help="check it and show what it holds, no more")
    restore.add_argument(
        "--replace", action="store_true", help="replace what is in this home, and keep it in replaced/"
    )
    restore.add_argument(
        "--revoke",
        metavar="DEVICE",
        action="append",
        default=[],
        help="revoke this device, which is valid in the backup; may be repeated",
    )
    restore.add_argument("--yes", action="store_true", help="do not ask")
    _add_passphrase(restore)
    restore.set_defaults(run="deploy.cli.backup:restore")


def _add_passphrase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--passphrase-file",
        metavar="PATH",
        help="file with the passphrase, - for standard input; default: it is typed, unseen",
    )
