"""``strawberry spoke join``: join a hub by a code that its owner approves."""

import argparse
import asyncio
import socket
from typing import TYPE_CHECKING

from contracts.errors import ConfigError
from deploy.cli.terminal.asking import agreed, number_up_to
from deploy.cli.terminal.output import Output, note, waiting
from deploy.directory import Home
from deploy.logs.logs import set_up_logging
from identity.files import make_private_directory

if TYPE_CHECKING:
    from spoke.membership.enrolment import Enrolment
    from spoke.membership.join_code import JoinCode
    from spoke.settings import SpokeSettings


def join(options: argparse.Namespace) -> None:
    """Join a hub by a code that its owner approves.

    Shows a code and waits for its approval with 'strawberry devices approve CODE' on the hub. Both
    screens must show the same fingerprint.
    """
    # Here: what other commands of this group import is slow to import.
    from spoke.settings import SpokeSettings

    set_up_logging(debug=options.debug, quiet=True)
    home = Home.find()
    make_private_directory(home.directory)
    settings = SpokeSettings(
        home=home.directory,
        hub_url=options.url or _choose(),
        hub_key=options.hub_key,
        insecure=options.insecure,
    )
    enrolment = asyncio.run(_join(settings, options.name or socket.gethostname(), as_json=options.json))
    Output(options.json).result(
        {"device": enrolment.device, "hub": enrolment.hub_url, "hub_key": enrolment.hub_key.kid},
        text=f"Joined {enrolment.hub_url} as {enrolment.shown}.\n"
        "Next: 'strawberry spoke run' offers the skills of this machine.",
    )


async def _join(settings: "SpokeSettings", name: str, *, as_json: bool) -> "Enrolment":
    from spoke.membership.join_code import join_by_code

    def show(code: "JoinCode") -> None:
        note(_instructions(code))

    with waiting("waiting to be approved"):
        return await join_by_code(settings, name=name, show=show)


def _instructions(code: "JoinCode") -> str:
    return (
        f"This device asks to join the hub at {code.hub_url}.\n\n"
        f"  code         {code.code}\n"
        f"  fingerprint  {code.fingerprint}\n\n"
        "Type the code on the hub's page Devices, with 'Enter a code'. Or run on the hub:\n"
        f"  strawberry devices approve {code.code}\n"
        "Approve only if it shows the same fingerprint. The code is valid for "
        f"{round(code.expires_in_s / 60)} minutes. Ctrl-C gives up."
    )


def _choose() -> str:
    """Search for hubs and ask which one; an announcement proves nothing, the fingerprint does later."""
    from spoke.membership.discovery import look_around

    with waiting("looking for hubs"):
        found = asyncio.run(look_around())
    if not found:
        raise ConfigError(
            "no hub was found in this network",
            hint="Start the hub with --lan, or give its address, for example https://hub.local:8443.",
        )
    note("Hubs in this network:\n")
    for number, each in enumerate(found, start=1):
        note(f"  {number}  {each.url}  {each.name}")
    give = "Give its address: strawberry spoke join URL."
    if len(found) == 1:
        if agreed("\nJoin it?", otherwise=give):
            return found[0].url
        raise ConfigError("no hub was chosen", hint=give)
    return found[number_up_to(len(found), "\nWhich one?", otherwise=give) - 1].url
