"""``strawberry home-assistant``: what of this home appears in Home Assistant."""

from deploy.cli.parser.shared import Commands, Parents, add_actions

_PATH = "DEVICE, DEVICE.SKILL, DEVICE.SKILL.MEMBER, hub.chat, hub.notify, hub.watchers or hub.watchers.NAME"


def add(commands: Commands, parents: Parents) -> None:
    """Add the commands."""
    actions = add_actions(
        commands, "home-assistant", help_="expose devices, skills and chat to Home Assistant"
    )
    status = actions.add_parser(
        "status",
        parents=[parents.client],
        help="list what is exposed",
        description="Lists what is exposed to Home Assistant, and says whether the home broker is connected.",
    )
    status.add_argument("--all", action="store_true", help="also list what could be exposed")
    status.set_defaults(run="deploy.cli.live.home_assistant:status")
    expose = actions.add_parser(
        "expose",
        parents=[parents.client],
        help="expose a device, a skill or a part of it",
        description="Everybody who uses Home Assistant then sees it and can use it, with your rights. A "
        "destructive method is exposed only by its own path, one that asks for a confirmation never.",
    )
    expose.add_argument("path", metavar="PATH", help=_PATH)
    expose.set_defaults(run="deploy.cli.live.home_assistant:expose")
    hide = actions.add_parser("hide", parents=[parents.client], help="stop exposing it")
    hide.add_argument("path", metavar="PATH", help=_PATH)
    hide.set_defaults(run="deploy.cli.live.home_assistant:hide")
