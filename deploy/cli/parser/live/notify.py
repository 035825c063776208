"""``strawberry notify``: notifications outside of the web UI."""

from deploy.cli.parser.shared import Commands, Parents, add_actions


def add(commands: Commands, parents: Parents) -> None:
    """Add the commands."""
    actions = add_actions(
        commands, "notify", help_="try the notifications that go to your phone, messenger or mail"
    )
    test = actions.add_parser(
        "test",
        parents=[parents.client],
        help="send yourself a notification",
        description="Sends a notification to each address that [notifications] in strawberry.toml has for "
        "you.",
    )
    test.set_defaults(run="deploy.cli.live.notify:test")
