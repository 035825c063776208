"""``strawberry world`` and ``prompt``: the state of the home, and the prompt of the assistant."""

from deploy.cli.parser.shared import Commands, Parents, add_actions, positive


def add(commands: Commands, parents: Parents) -> None:
    """Add the commands."""
    world = commands.add_parser(
        "world",
        parents=[parents.client],
        help="show what there is in the home, with its state",
        description="Lists devices, skills, areas and entities, with state and age.",
    )
    world.add_argument("--area", metavar="NAME", help="only what is in this area or on this floor")
    world.add_argument(
        "--kind", help="device, skill, node, area, state or a kind of entity such as light; entity for all"
    )
    world.add_argument("--name", help="only what is called so, or has these words in its name")
    world.add_argument(
        "--limit", type=positive, default=200, metavar="N", help="at most so many; default %(default)s"
    )
    world.set_defaults(run="deploy.cli.live.world:world")

    actions = add_actions(commands, "prompt", help_="show the assistant's prompt, or edit SOUL.md")
    show = actions.add_parser(
        "show",
        parents=[parents.client],
        help="show the prompt in sections, each with its tokens",
        description="Shows the prompt of the next message, in sections, with an estimate of their tokens.",
    )
    show.add_argument("--agent", metavar="NAME", help="of this agent; default: assistant")
    show.add_argument("--message", metavar="TEXT", default="", help="the message it is for")
    show.set_defaults(run="deploy.cli.live.world:show_prompt")
    edit = actions.add_parser(
        "edit",
        parents=[parents.common],
        help="edit SOUL.md: what the assistant is like",
        description="Opens SOUL.md of this machine's hub in $VISUAL or $EDITOR; a new one has an example.",
    )
    edit.set_defaults(run="deploy.cli.live.world:edit_soul")
