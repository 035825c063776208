"""``strawberry chat``, ``tray``, ``history``, ``turns``, ``call``, ``exec``, ``skills``: using the home."""

from deploy.cli.parser.shared import Commands, Parents, add_actions, positive


def add(commands: Commands, parents: Parents) -> None:
    """Add these commands."""
    client = parents.client
    chat = commands.add_parser(
        "chat",
        parents=[client],
        help="talk to the assistant",
        description="Sends one message, or starts a conversation if there is none.",
    )
    chat.add_argument("words", nargs="*", default=[], metavar="MESSAGE", help="what to say")
    chat.add_argument("--agent", metavar="NAME", help="which agent answers; default: assistant")
    chat.add_argument("--device", metavar="NAME", help="the device to act on when the message names none")
    earlier = chat.add_mutually_exclusive_group()
    earlier.add_argument(
        "--conversation", metavar="ID", help="continue this conversation; 'history' lists them"
    )
    earlier.add_argument(
        "--continue", dest="newest", action="store_true", help="continue the latest conversation"
    )
    chat.set_defaults(run="deploy.cli.chat.command:chat")
    _add_tray(commands, parents)

    history = commands.add_parser(
        "history",
        parents=[client],
        help="list, show, rename, export or delete conversations",
        description="Lists the conversations, newest first; with an ID, shows that one, or does with it what "
        "the options say.",
    )
    history.add_argument("id", nargs="?", metavar="ID", help="the conversation")
    history.add_argument(
        "--limit", type=positive, metavar="N", help="how many of the latest; default 20, within one 100"
    )
    change = history.add_mutually_exclusive_group()
    change.add_argument(
        "--rename", metavar="TITLE", help="give the conversation ID a title; '' takes it away"
    )
    change.add_argument(
        "--export", metavar="FILE", help="write all of the conversation ID to a file: .json, else Markdown"
    )
    change.add_argument("--delete", action="store_true", help="delete the conversation ID for good")
    history.add_argument("--yes", action="store_true", help="delete, or replace the file, without asking")
    history.set_defaults(run="deploy.cli.chat.history:history")

    turns = commands.add_parser(
        "turns",
        parents=[client],
        help="show what was asked, how it ended, and where the time went",
        description="Lists the latest turns, newest first; with an ID, shows where its time went.",
    )
    turns.add_argument("id", nargs="?", metavar="ID", help="the turn")
    turns.add_argument("--limit", type=positive, metavar="N", help="how many of the latest; default 50")
    turns.add_argument(
        "--outcome",
        choices=("answered", "stopped", "failed", "interrupted", "running"),
        help="only those that ended so",
    )
    turns.add_argument("--since", metavar="TIME", help="a duration such as 2h or 7d, or a time")
    turns.set_defaults(run="deploy.cli.chat.turns:turns")

    call = commands.add_parser(
        "call", parents=[client], help="call a method of a skill", description="Calls a method of a skill."
    )
    call.add_argument(
        "device",
        metavar="DEVICE",
        help="its name, key or id; 'hub' for the hub's own skills, and for any device that has the skill",
    )
    call.add_argument("method", metavar="METHOD", help="for example LampSkill.turn_on")
    call.add_argument(
        "arguments",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="arguments by name, or values in order; JSON or text",
    )
    call.set_defaults(run="deploy.cli.hub.skills:call")

    run = commands.add_parser(
        "exec",
        parents=[client],
        help="run Python in the sandbox, as the assistant does",
        description="Runs Python in the sandbox, as the assistant does; variables stay for the next run.",
    )
    run.add_argument(
        "code",
        metavar="CODE",
        help="for example 'devices.bedroom_pc.LampSkill.turn_on()'; - for standard input",
    )
    run.set_defaults(run="deploy.cli.hub.skills:execute")

    actions = add_actions(commands, "skills", help_="what the devices can do")
    each = actions.add_parser("list", parents=[client], help="list every method of every device")
    each.set_defaults(run="deploy.cli.hub.skills:list_skills")
    search = actions.add_parser("search", parents=[client], help="find methods by words, best match first")
    search.add_argument("query", nargs="+", metavar="WORD")
    search.set_defaults(run="deploy.cli.hub.skills:search")
    prefer = actions.add_parser(
        "prefer",
        parents=[client],
        help="set which devices serve a skill for any device",
        description="Sets which devices are called first for devices.hub.SKILL, and approves them as its "
        "providers. Without a DEVICE it prints the order.",
    )
    prefer.add_argument("skill", metavar="SKILL", help="for example CalculatorSkill")
    prefer.add_argument("devices", nargs="*", default=[], metavar="DEVICE", help="first one first")
    prefer.add_argument("--reset", action="store_true", help="forget the order")
    prefer.set_defaults(run="deploy.cli.hub.skills:prefer")
    describe = actions.add_parser("describe", parents=[client], help="show a skill, or one of its methods")
    describe.add_argument(
        "path",
        metavar="NAME",
        help="for example LampSkill, LampSkill.turn_on or devices.bedroom_pc.LampSkill.turn_on",
    )
    describe.set_defaults(run="deploy.cli.hub.skills:describe")


def _add_tray(commands: Commands, parents: Parents) -> None:
    tray = commands.add_parser(
        "tray",
        parents=[parents.common],
        help="show an icon and a quick chat on the desktop",
        description="Shows the state of this machine's spoke in the tray, and a small window to chat. Where "
        "a tray runs already, its window is shown. Needs: pip install 'strawberry-home[desktop]'.",
    )
    tray.add_argument("--chat", action="store_true", help="show the window at once")
    tray.add_argument("--no-tray", action="store_true", help="only the window; closing it ends the program")
    tray.add_argument(
        "--shortcut",
        metavar="KEYS",
        default="Ctrl+Alt+Space",
        help="global shortcut of the window, none for none; default Ctrl+Alt+Space",
    )
    tray.set_defaults(run="deploy.cli.tray:run")
