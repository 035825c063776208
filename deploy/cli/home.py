"""``strawberry doctor``, ``certs``, ``purge`` and ``update``: the state of this home and its program."""

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from contracts import own_version
from contracts.answers.devices import Purged
from contracts.errors import ConfigError
from contracts.wire import rfc3339
from deploy import limits
from deploy.certificate import provide_certificate
from deploy.cli.client import find_nearest, hub_of
from deploy.cli.terminal.asking import is_sure
from deploy.cli.terminal.output import Output, note, waiting
from deploy.cli.terminal.parser import Parser
from deploy.directory import Home
from deploy.doctor.doctor import examine
from deploy.logs.terminal import BAD, GOOD, coloured, visible
from deploy.update import installation

T = TypeVar("T")


def doctor(options: argparse.Namespace) -> int:
    """Check this installation and say how to fix it.

    Ends with code 1 where something does not work.
    """
    home = Home.named()
    if options.running:
        state = find_nearest(home).request("GET", "/api/health", timeout=limits.HEALTH_TIMEOUT_S)
        Output(options.json).result(state, text="It runs.")
        return 0

    def ask(path: str, kind: type[T] | TypeAdapter[T]) -> T:
        return hub_of(options).get(path, kind, timeout=limits.HEALTH_TIMEOUT_S)

    checks = []
    for check in examine(home, ask=ask, elsewhere=options.hub is not None):
        checks.append(check)
        if not options.json:
            mark = coloured("ok  ", GOOD, sys.stdout) if check.ok else coloured("FAIL", BAD, sys.stdout)
            print(f"{mark}  {visible(f'{check.check}: {check.detail}')}")
            if check.hint:
                print(visible(f"      {installation.fitting(check.hint)}"))
    if options.support is not None:
        from deploy.doctor.support import write_bundle

        file = Path(options.support)
        names = write_bundle(file, home, checks)
        note(
            f"{file} is written, for you alone: {', '.join(names)}. Secrets are taken out; look at it all the"
        )
        note("same before you give it to others: names of devices and hosts are still in it.")
    if options.json:
        Output(as_json=True).result([asdict(check) for check in checks])
    return 0 if all(check.ok for check in checks) else 1


def certs(options: argparse.Namespace) -> None:
    """Show, make and renew the certificates for --lan.

    Shows the certificates. With --name or --renew it makes an authority for this home, once, and a server
    certificate with names and addresses of this machine. Devices that join trust this authority and no
    other.
    """
    home = Home.find()
    if not (options.name or options.renew or (home.certs / "ca.pem").exists()):
        hint = "'strawberry up --lan' makes them when it starts, 'strawberry certs --renew' now."
        raise ConfigError("this home has no certificates", hint=hint)
    with waiting("making certificates"):
        provided = provide_certificate(home, more=options.name, renew=options.renew)
    certificate = provided.certificate
    lines = [
        *provided.describe(),
        "",
        f"  authority    {home.certs / 'ca.pem'}",
        f"  certificate  {certificate.certificate}",
        f"  key          {certificate.key}",
    ]
    if provided.made_authority:
        lines += ["", "A device that joins from now on trusts this authority; keep its key where it is."]
    Output(options.json).result(
        {
            "authority": str(home.certs / "ca.pem"),
            "certificate": str(certificate.certificate),
            "key": str(certificate.key),
            "names": list(certificate.names),
            "addresses": list(certificate.addresses),
            "expires_at": rfc3339(datetime.fromtimestamp(certificate.expires_at, UTC)),
            "days_left": provided.days_left,
            "made": provided.made_certificate,
        },
        text="\n".join(lines),
    )


def purge(options: argparse.Namespace) -> int:
    """Remove everything that Strawberry published from the brokers."""
    client = hub_of(options)
    if not options.yes:
        note(
            "This removes every retained message of Strawberry from its broker and from the home broker.\n"
            "Devices, tokens and conversations stay. Stop the spokes first: a running one publishes again.\n"
            "'strawberry up --no-spoke' runs without the local one."
        )
    if not is_sure("Remove them?", yes=options.yes):
        return 1
    with waiting("removing messages"):
        answer = client.post("/api/purge", {}, Purged)
    Output(options.json).result(answer, text="\n".join(_report(answer)))
    return 1 if answer.left else 0


def _report(answer: Purged) -> Iterator[str]:
    yield f"{answer.emptied} topics are empty now."
    if answer.left:
        yield f"Not emptied: {', '.join(answer.left)}"
    if answer.connected:
        yield f"Still running, and publishing again: {', '.join(answer.connected)}"
    yield "The hub publishes again after its next start."


def update(options: argparse.Namespace) -> None:
    """Update this program, or say how that is done here.

    Updates an installation that install.sh made, and restarts its services; if one does not start, the
    version before is used again. For others it prints the command that updates them.
    """
    installed = installation.find_installation()
    if options.check:
        _show_newest(options, installed)
        return
    if installed.root is None:
        if options.rollback:
            raise ConfigError(
                f"this Strawberry was installed {installed.about}, which keeps no earlier version",
                hint="Install the earlier one again in the way that you installed this one.",
            )
        command = installed.command(options.wheel)
        needs_wheel = installed.from_file and options.wheel is None
        where = ", where WHEEL is the file of the new version" if needs_wheel else ""
        Output(options.json).result(
            {"installed": installed.kind, "command": command},
            text=f"Strawberry {own_version()} was installed {installed.about}. "
            f"Update it with the following command{where}:\n"
            f"  {command}",
        )
        return
    words = ["--rollback"] if options.rollback else ["--update"]
    if options.wheel is not None:
        # A name is of the package index, and no file.
        named = options.wheel == installation.PACKAGE
        words += ["--from", options.wheel if named else str(Path(options.wheel).absolute())]
    environment = {**os.environ, "STRAWBERRY_ROOT": str(installed.root)}
    # In place of this process, which at Ctrl-C would kill a script that ignores it.
    os.execvpe("sh", ["sh", str(installation.SCRIPT), *words], environment)  # noqa: S606


def _show_newest(options: argparse.Namespace, installed: installation.Installation) -> None:
    own = own_version()
    with waiting("asking for the newest version"):
        newest = installation.newest_release()
    command = installed.command(installation.PACKAGE)
    newer = newest is not None and installation.is_newer(newest, own)
    if newer:
        text = f"Version {newest} is available, this is {own}. Update it with: {command}"
    elif newest is None:
        text = f"No version is published yet; this is {own}."
    else:
        text = f"{own} is the newest version."
    Output(options.json).result(
        {"version": own, "newest": newest, "update": newer, "command": command}, text=text
    )


def register_certs(parser: Parser) -> None:
    """Declare 'strawberry certs'."""
    parser.runs(certs)
    parser.add_list("--name", "another name or address of this machine; may be repeated", metavar="N")
    parser.add_flag("--renew", "make a new server certificate even if the present one is valid")


def register_purge(parser: Parser) -> None:
    """Declare 'strawberry purge'."""
    parser.runs(purge, hub=True)
    parser.add_flag("--yes", "do not ask")


def register_doctor(parser: Parser) -> None:
    """Declare 'strawberry doctor'."""
    parser.runs(doctor, hub=True)
    parser.add_flag(
        "--running", "only tell whether hub or spoke of this machine answer, for a container's health check"
    )
    parser.takes(
        "--support",
        "write a .zip for a report of a fault: versions, results, settings and logs, without secrets",
        metavar="FILE",
    )


def register_update(parser: Parser) -> None:
    """Declare 'strawberry update'."""
    parser.runs(update)
    choice = parser.add_mutually_exclusive_group()
    choice.add_flag("--check", "only ask whether there is a newer version")
    choice.add_flag("--rollback", "use the version before again")
    choice.takes("--from", "use this file, not the newest release", dest="wheel")
