"""``strawberry devices``: which devices may take part."""

import argparse

from deploy.cli.parser.shared import Commands, Parents, add_actions, positive

_DEVICE = "its name, key or id"
_SHARED = "everybody at home sees and calls it, not only its owner"
_TRUST = "approve what its skills declare, now and later: see 'devices review'"


def add(commands: Commands, parents: Parents) -> None:
    """Add the command with its actions."""
    client = parents.client
    actions = add_actions(commands, "devices", help_="list, add, change, revoke and remove devices")
    each = actions.add_parser("list", parents=[client], help="list all devices, their state and problems")
    each.set_defaults(run="deploy.cli.hub.devices:list_devices")

    new = actions.add_parser(
        "add",
        parents=[client],
        help="add a device: make its enrolment token",
        description="Makes an enrolment token, and prints the command to run on the device.",
    )
    new.add_argument("name", metavar="NAME", help="display name, for example 'Bedroom PC'")
    new.add_argument("--trust-skills", action="store_true", help=_TRUST)
    new.add_argument("--shared", action="store_true", help=_SHARED)
    _add_minutes(new)
    new.set_defaults(run="deploy.cli.hub.devices:add")

    invite = actions.add_parser(
        "invite",
        parents=[client],
        help="make a new enrolment token for a device of the list",
        description="Makes a new enrolment token, also for a revoked device. Once the device has "
        "used it, its old tokens are revoked.",
    )
    invite.add_argument("device", metavar="DEVICE", help=_DEVICE)
    _add_minutes(invite)
    invite.set_defaults(run="deploy.cli.hub.devices:invite")

    approve = actions.add_parser(
        "approve",
        parents=[client],
        help="approve a device that shows a code",
        description="Shows the device that waits with this code. Its screen must show the same fingerprint. "
        "Answering no makes the code void.",
    )
    approve.add_argument(
        "code", nargs="?", metavar="CODE", help="as its screen shows it; default: list the devices that wait"
    )
    approve.add_argument("--name", help="display name; default: the one that the device gave itself")
    approve.add_argument("--trust-skills", action="store_true", help=_TRUST)
    approve.add_argument("--shared", action="store_true", help=_SHARED)
    approve.add_argument("--yes", action="store_true", help="do not ask")
    approve.set_defaults(run="deploy.cli.hub.devices:approve")

    rename = actions.add_parser("rename", parents=[client], help="change the display name of a device")
    rename.add_argument("device", metavar="DEVICE", help=_DEVICE)
    rename.add_argument("name", metavar="NAME", help="the new display name")
    rename.set_defaults(run="deploy.cli.hub.devices:rename")

    change = actions.add_parser(
        "set",
        parents=[client],
        help="set area, floor, aliases and owner of a device, and what you leave to it",
        description="Sets what is given; the rest stays. An empty text ('') clears it.",
    )
    change.add_argument("device", metavar="DEVICE", help=_DEVICE)
    change.add_argument("--area", help="for example 'Living room'")
    change.add_argument("--floor", help="for example 'Ground floor'")
    change.add_argument(
        "--alias",
        metavar="NAME",
        action="append",
        help="another name for it; may be repeated, and replaces the earlier ones",
    )
    change.add_argument(
        "--confirm",
        choices=("on", "off"),
        help="whether a person at this device may confirm the calls that its messages lead to; "
        "off for a new device",
    )
    change.add_argument("--trust-skills", choices=("on", "off"), help=_TRUST)
    change.add_argument(
        "--scope",
        metavar="SCOPES",
        help="what it may do on its own: chat as its owner, call skills of other devices, or both as "
        "chat,call; '' for neither; default for a new device chat",
    )
    change.add_argument("--owner", metavar="USER", help="the person who owns it from now on, by name or id")
    sharing = change.add_mutually_exclusive_group()
    sharing.add_argument("--shared", action="store_const", const=True, help=_SHARED)
    sharing.add_argument(
        "--not-shared",
        dest="shared",
        action="store_const",
        const=False,
        help="only its owner sees and calls it",
    )
    change.set_defaults(run="deploy.cli.hub.devices:change")

    review = actions.add_parser(
        "review",
        parents=[client],
        help="approve what skills of devices declare",
        description="Shows what waits for your approval: looser flags, sentences with free text, serving the "
        "whole home, documentation for the assistant. In a terminal it asks for each device.",
    )
    review.add_argument("device", nargs="?", metavar="DEVICE", help=f"{_DEVICE}; default: all devices")
    decision = review.add_mutually_exclusive_group()
    decision.add_argument(
        "--approve", dest="decision", action="store_const", const=True, help="approve all of it"
    )
    decision.add_argument(
        "--deny", dest="decision", action="store_const", const=False, help="deny all of it for good"
    )
    review.set_defaults(run="deploy.cli.hub.review:review")

    revoke = actions.add_parser(
        "revoke", parents=[client], help="revoke a device's tokens at once; it stays in the list"
    )
    revoke.add_argument("device", metavar="DEVICE", help=_DEVICE)
    revoke.set_defaults(run="deploy.cli.hub.devices:revoke")

    remove = actions.add_parser(
        "remove", parents=[client], help="revoke a device, delete it and clear its topics"
    )
    remove.add_argument("device", metavar="DEVICE", help=_DEVICE)
    remove.set_defaults(run="deploy.cli.hub.devices:remove")


def _add_minutes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--minutes", type=positive, metavar="N", help="how long the token is valid; default 10"
    )
