"""``strawberry users``: the people who log in to the hub."""

import argparse

from contracts.answers.people import CodeAnswer, UserAnswer
from contracts.errors import NotFound
from deploy.cli.client import api, hub_of
from deploy.cli.terminal.asking import is_sure
from deploy.cli.terminal.output import Output
from deploy.cli.terminal.tables import moment


def add(options: argparse.Namespace) -> None:
    """Add a person, and print the code with which they choose a password."""
    answer = hub_of(options).post("/api/users", {"name": options.name, "role": options.role}, CodeAnswer)
    Output(options.json).result(answer, text=_code(answer))


def code(options: argparse.Namespace) -> None:
    """Print a new code, for a user who has forgotten their password or has not chosen one."""
    answer = hub_of(options).post(api("users", options.user, "code"), {}, CodeAnswer)
    Output(options.json).result(answer, text=_code(answer))


def _code(answer: CodeAnswer) -> str:
    user, expiry = answer.user, moment(answer.expires_at)
    lines = [
        f"{user.name} ({user.role}) chooses a password here. The link works once and expires {expiry}:",
        "",
        f"  {answer.link}",
    ]
    if not answer.reachable:
        lines += ["", "This link opens on this machine only. For other machines, start the hub with --lan."]
    return "\n".join(lines)


def rename(options: argparse.Namespace) -> None:
    """Call a person something else; their id stays."""
    answer = hub_of(options).send("PATCH", api("users", options.user), {"name": options.name}, UserAnswer)
    Output(options.json).result(answer, text=f"{options.user} is now {answer.name}.")


def role(options: argparse.Namespace) -> None:
    """Change the role of a person, which ends their sessions."""
    answer = hub_of(options).send("PATCH", api("users", options.user), {"role": options.role}, UserAnswer)
    Output(options.json).result(
        answer, text=f"{answer.name} has the role {answer.role} now, and has to log in again."
    )


def remove(options: argparse.Namespace) -> int:
    """Remove a person with what is theirs alone."""
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
