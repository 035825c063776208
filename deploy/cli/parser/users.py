"""``strawberry users``, ``tokens`` and ``audit``: people, programs that act for them, and what they did."""

from deploy.cli.parser.shared import Commands, Parents, add_actions, positive
from deploy.cli.parser.usage import Parser

_ROLES = ("admin", "member", "guest")
_USER = "their name or id"
_ROLE = "admin: manages the home; member: uses it; guest: calls only methods that change nothing"


def add(commands: Commands, parents: Parents) -> None:
    """Add the commands with their actions."""
    _add_users(commands, parents.client)
    _add_tokens(commands, parents.client)
    _add_audit(commands, parents.client)


def _add_users(commands: Commands, client: Parser) -> None:
    actions = add_actions(commands, "users", help_="list, add, change and remove people")
    each = actions.add_parser("list", parents=[client], help="list all people")
    each.set_defaults(run="deploy.cli.hub.users:list_users")

    new = actions.add_parser(
        "add",
        parents=[client],
        help="add a person, and print a link for their password",
        description="Prints a link with a one-time code, with which the person chooses a password.",
    )
    new.add_argument("name", metavar="NAME", help="name of the person, also for logging in")
    new.add_argument("--role", choices=_ROLES, default="member", help=f"default %(default)s. {_ROLE}")
    new.set_defaults(run="deploy.cli.hub.users:add")

    code = actions.add_parser(
        "code",
        parents=[client],
        help="print a new link for a forgotten password",
        description="Prints a link with a one-time code, with which the person chooses a new password. "
        "Until then the old password works.",
    )
    code.add_argument("user", metavar="USER", help=_USER)
    code.set_defaults(run="deploy.cli.hub.users:code")

    rename = actions.add_parser("rename", parents=[client], help="change the name of a person")
    rename.add_argument("user", metavar="USER", help=_USER)
    rename.add_argument("name", metavar="NAME", help="the new name")
    rename.set_defaults(run="deploy.cli.hub.users:rename")

    role = actions.add_parser(
        "role", parents=[client], help="change the role of a person, and end their sessions"
    )
    role.add_argument("user", metavar="USER", help=_USER)
    role.add_argument("role", choices=_ROLES, help=_ROLE)
    role.set_defaults(run="deploy.cli.hub.users:role")

    remove = actions.add_parser(
        "remove",
        parents=[client],
        help="remove a person, and delete their private data",
        description="Deletes a person's conversations, private memory, watchers and timers, and revokes "
        "their tokens and devices. Devices and captures become yours; files stay.",
    )
    remove.add_argument("user", metavar="USER", help=_USER)
    remove.add_argument("--yes", action="store_true", help="do not ask")
    remove.set_defaults(run="deploy.cli.hub.users:remove")


def _add_tokens(commands: Commands, client: Parser) -> None:
    actions = add_actions(commands, "tokens", help_="make, list and revoke tokens for programs")
    new = actions.add_parser("add", parents=[client], help="make a token with which a program acts as you")
    new.add_argument("name", metavar="NAME", help="what the token is for, for example node-red")
    new.add_argument(
        "--scope",
        default="chat",
        metavar="SCOPES",
        help="what it allows: chat, call, confirm, admin, metrics, or several as chat,call; "
        "default %(default)s",
    )
    new.set_defaults(run="deploy.cli.hub.tokens:add")
    each = actions.add_parser(
        "list", parents=[client], help="list your valid tokens, of programs and of browser sessions"
    )
    each.add_argument(
        "--all", action="store_true", help="tokens of all people and devices, also revoked and expired ones"
    )
    each.set_defaults(run="deploy.cli.hub.tokens:list_tokens")
    revoke = actions.add_parser("revoke", parents=[client], help="revoke a token at once")
    revoke.add_argument("token", metavar="TOKEN", help="its name, or its id as 'tokens list' shows it")
    revoke.set_defaults(run="deploy.cli.hub.tokens:revoke")


def _add_audit(commands: Commands, client: Parser) -> None:
    audit = commands.add_parser(
        "audit",
        parents=[client],
        help="show who called what, and what was refused",
        description="Lists calls and refused attempts, newest first. An admin sees those of all people, "
        "others their own and those on their devices. Of arguments only a hash is kept.",
    )
    audit.add_argument(
        "q", nargs="?", metavar="TEXT", help="only records that contain this text, for example unlock"
    )
    audit.add_argument("--user", metavar="USER", help="only records of this person, by name or id")
    audit.add_argument(
        "--device", metavar="DEVICE", help="only calls on this device; hub for the hub's own skills"
    )
    audit.add_argument("--outcome", help="only with this outcome: result, forbidden, refused, offline, …")
    audit.add_argument(
        "--since", metavar="TIME", help="only after this: a duration such as 2h or 7d, or a time"
    )
    audit.add_argument("--until", metavar="TIME", help="only before this: a duration or a time")
    audit.add_argument(
        "--limit",
        type=positive,
        default=100,
        metavar="N",
        help="at most this many records; default %(default)s",
    )
    audit.set_defaults(run="deploy.cli.hub.audit:audit")
