"""``strawberry chat``, ``history``, ``call``, ``exec`` and ``skills``: what a home is for."""

from deploy.cli.parser.shared import Commands, Parents, add_actions


def add(commands: Commands, parents: Parents) -> None:
    """Add these commands."""
    client = parents.client
    chat = commands.add_parser("chat", parents=[client], help="talk to the assistant")
    chat.add_argument(
        "words", nargs="*", metavar="[AGENT] MESSAGE", help="one quoted message; without it, a conversation"
    )
    chat.add_argument("--device", help="the device to act on when the message names none")
    former = chat.add_mutually_exclusive_group()
    former.add_argument("--conversation", metavar="ID", help="go on with this one; 'history' lists them")
    former.add_argument(
        "--continue", dest="newest", action="store_true", help="go on with the newest conversation"
    )
    chat.set_defaults(run="deploy.cli.chat:chat")

    history = commands.add_parser(
        "history", parents=[client], help="what was said: the conversations, or one of them"
    )
    history.add_argument("id", nargs="?", metavar="ID", help="the conversation to show")
    history.add_argument(
        "--limit", type=int, metavar="N", help="the last N; default 20, of one conversation 100"
    )
    history.set_defaults(run="deploy.cli.history:history")

    call = commands.add_parser("call", parents=[client], help="call a method of a skill")
    call.add_argument(
        "device", metavar="DEVICE", help="name, key or id of the device; 'hub' for any that has it"
    )
    call.add_argument("method", metavar="Skill.method")
    call.add_argument("arguments", nargs="*", metavar="KEY=VALUE", help="JSON, or plain text")
    call.set_defaults(run="deploy.cli.skills:call")

    run = commands.add_parser(
        "exec", parents=[client], help="run Python in the sandbox as the assistant would"
    )
    run.add_argument(
        "code",
        metavar="CODE",
        help="for example 'devices.bedroom_pc.LampSkill.turn_on()'; - for standard input",
    )
    run.set_defaults(run="deploy.cli.skills:execute")

    actions = add_actions(commands, "skills", help_="what the devices can do")
    each = actions.add_parser("list", parents=[client], help="every method of every device")
    each.set_defaults(run="deploy.cli.skills:list_skills")
    search = actions.add_parser("search", parents=[client], help="the methods that fit some words")
    search.add_argument("query", nargs="+", metavar="WORD")
    search.set_defaults(run="deploy.cli.skills:search")
    describe = actions.add_parser(
        "describe", parents=[client], help="signature and documentation of a method"
    )
    describe.add_argument(
        "path", metavar="PATH", help="for example devices.bedroom_pc.LampSkill.turn_on, or LampSkill.turn_on"
    )
    describe.set_defaults(run="deploy.cli.skills:describe")
