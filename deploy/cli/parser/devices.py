"""``strawberry devices`` and ``tokens``: who may take part."""

import argparse

from deploy.cli.parser.shared import Commands, Parents, add_actions


def add(commands: Commands, parents: Parents) -> None:
    """Add both commands with their actions."""
    client = parents.client
    actions = add_actions(commands, "devices", help_="list, let in, rename and lock out devices")
    each = actions.add_parser("list", parents=[client], help="all devices, and whether they are there")
    each.set_defaults(run="deploy.cli.devices:list_devices")
    new = actions.add_parser("add", parents=[client], help="make an enrolment token for a new spoke")
    new.add_argument("name", metavar="NAME", help="what people call it, for example 'Bedroom PC'")
    _add_minutes(new)
    new.set_defaults(run="deploy.cli.devices:add")
    invite = actions.add_parser(
        "invite",
        parents=[client],
        help="make an enrolment token for a device that is in the list, also for one that was locked out",
        description="Once it has joined anew, whoever has its old token is locked out.",
    )
    invite.add_argument("device", metavar="DEVICE")
    _add_minutes(invite)
    invite.set_defaults(run="deploy.cli.devices:invite")
    approve = actions.add_parser(
        "approve",
        parents=[client],
        help="let in a device that shows a code",
        description="Shows which device it is; its screen must show the same fingerprint.",
    )
    approve.add_argument(
        "code", nargs="?", metavar="CODE", help="as its screen shows it; without it, all that wait are listed"
    )
    approve.add_argument("--name", help="what people call it; default: the name it gave itself")
    approve.add_argument("--yes", action="store_true", help="without asking")
    approve.set_defaults(run="deploy.cli.devices:approve")
    rename = actions.add_parser("rename", parents=[client], help="change the display name; the id stays")
    rename.add_argument("device", metavar="DEVICE")
    rename.add_argument("name", metavar="NAME")
    rename.set_defaults(run="deploy.cli.devices:rename")
    revoke = actions.add_parser("revoke", parents=[client], help="lock a device out at once")
    revoke.add_argument("device", metavar="DEVICE")
    revoke.set_defaults(run="deploy.cli.devices:revoke")
    remove = actions.add_parser(
        "remove", parents=[client], help="lock a device out, forget it, and clear its topics"
    )
    remove.add_argument("device", metavar="DEVICE")
    remove.set_defaults(run="deploy.cli.devices:remove")

    actions = add_actions(commands, "tokens", help_="tokens for programs")
    new = actions.add_parser("add", parents=[client], help="make a token with which a program acts as you")
    new.add_argument("name", metavar="NAME", help="what the token is for, for example node-red")
    new.add_argument("--scope", default="chat", metavar="SCOPES", help="of chat, call; default %(default)s")
    new.set_defaults(run="deploy.cli.devices:add_token")


def _add_minutes(command: argparse.ArgumentParser) -> None:
    command.add_argument("--minutes", type=int, metavar="N", help="how long the token is good; default: ten")
