"""``strawberry users``: the people who log in to the hub."""

import argparse
from typing import Final

from contracts.answers.people import CodeAnswer, UserAnswer
from contracts.errors import NotFound
from deploy.cli.client import api, hub_of
from deploy.cli.resources import add_declared
from deploy.cli.terminal.asking import is_sure
from deploy.cli.terminal.output import Output, moment
from deploy.cli.terminal.parser import Actions

_USER: Final = ("user", "their name or id")
_ROLES: Final = "admin: manages the home; member: uses it; guest: calls only methods that change nothing"


def add(options: argparse.Namespace) -> None:
    """Add a person, and print a link for their password.

    Prints a link with a one-time code, with which the person chooses a password.
    """
    body = {"name": options.name, "role": options.role}
    _show_code(options, hub_of(options).post("/api/users", body, CodeAnswer))


def code(options: argparse.Namespace) -> None:
    """Print a new link for a forgotten password.

    Prints a link with a one-time code, with which the person chooses a new password. Until then the old
    password works.
    """
    _show_code(options, hub_of(options).post(api("users", options.user, "code"), {}, CodeAnswer))


def _show_code(options: argparse.Namespace, answer: CodeAnswer) -> None:
    user, expiry = answer.user, moment(answer.expires_at)
    lines = [
        f"{user.name} ({user.role}) chooses a password here. The link works once and expires {expiry}:",
        "",
        f"  {answer.link}",
    ]
    if not answer.reachable:
        lines += ["", "This link opens on this machine only. For other machines, start the hub with --lan."]
    Output(options.json).result(answer, text="\n".join(lines))


def rename(options: argparse.Namespace) -> None:
    """Change the name of a person."""
    answer = hub_of(options).send("PATCH", api("users", options.user), {"name": options.name}, UserAnswer)
    Output(options.json).result(answer, text=f"{options.user} is now {answer.name}.")


def role(options: argparse.Namespace) -> None:
    """Change the role of a person, and end their sessions."""
    answer = hub_of(options).send("PATCH", api("users", options.user), {"role": options.role}, UserAnswer)
    Output(options.json).result(
        answer, text=f"{answer.name} has the role {answer.role} now, and has to log in again."
    )


def remove(options: argparse.Namespace) -> int:
    """Remove a person, and delete their private data.

    Deletes a person's conversations, private memory, watchers and timers, and revokes their tokens and
    devices. Devices and captures become yours; files stay.
    """
    client = hub_of(options)
    # No question about a person who does not exist.
    user = _found(client.get("/api/users", list[UserAnswer]), options.user)
    if not is_sure(
        f"Remove {user.name}? Their conversations, private memory, watchers and timers are deleted, their "
        "tokens and devices revoked. Devices and captures become yours.",
        yes=options.yes,
    ):
        return 1
    answer = client.delete(api("users", user.id), UserAnswer)
    Output(options.json).result(answer, text=f"{answer.name} is removed.")
    return 0


def _found(users: list[UserAnswer], user: str) -> UserAnswer:
    wanted = user.strip().casefold()
    found = next((each for each in users if wanted in (each.name.casefold(), each.id)), None)
    if found is None:
        raise NotFound(f"there is no user {user!r}", hint="'strawberry users list' shows all of them.")
    return found


def add_users_actions(actions: Actions) -> None:
    """Declare 'strawberry users'."""
    add_declared(actions, "users")
    command = actions.add_parser("add", run=add, hub=True)
    command.takes("name", "name of the person, also for logging in")
    command.takes("--role", f"default %(default)s. {_ROLES}", default="member")
    actions.add_parser("code", run=code, hub=True, on=_USER)
    actions.add_parser("rename", run=rename, hub=True, on=_USER).takes("name", "the new name")
    actions.add_parser("role", run=role, hub=True, on=_USER).takes("role", _ROLES)
    actions.add_parser("remove", run=remove, hub=True, on=_USER).add_flag("--yes", "do not ask")
