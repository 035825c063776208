"""``strawberry watchers``: keep an eye on values."""

from deploy.cli.parser.shared import Commands, Parents, add_actions, positive
from deploy.cli.parser.usage import Parser

_RUN = "deploy.cli.live.watchers"


def add(commands: Commands, parents: Parents) -> None:
    """Add the command with its actions."""
    client = parents.client
    actions = add_actions(commands, "watchers", help_="keep an eye on values, and notify or act")
    listed = actions.add_parser("list", parents=[client], help="list the watchers and what they last decided")
    listed.set_defaults(run=f"{_RUN}:list_watchers")
    _add_new(actions, client)

    show = _of_one(actions, client, "show", "show a watcher and its history")
    show.add_argument("--limit", type=positive, default=10, metavar="N", help="entries; default %(default)s")

    approve = _of_one(
        actions,
        client,
        "approve",
        "approve a watcher, with changes, so that it begins",
        description="Approves the calls of a watcher, and lets it begin. Also changes one that runs.",
    )
    approve.add_argument("--predicate", metavar="EXPR", help="another condition; '' for none")
    mode = approve.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", dest="dry_run", action="store_true", default=None, help="call nothing")
    mode.add_argument("--live", dest="dry_run", action="store_false", help="make the calls: no dry run")
    approve.add_argument("--yes", action="store_true", help="do not ask")

    test = _of_one(
        actions,
        client,
        "test",
        "show when a watcher would have fired",
        description="Runs the predicate over recorded values. Nothing is called and nobody is notified.",
    )
    data = test.add_mutually_exclusive_group()
    data.add_argument("--since", default=None, metavar="TIME", help="how far back, as 7d; default 7d")
    data.add_argument("--capture", metavar="ID", help="a capture: 'captures list' shows them")
    test.add_argument("--model", action="store_true", help="have the model decide each time, up to 10 times")

    for name, help_ in (
        ("pause", "stop a watcher until it is resumed"),
        ("resume", "let a watcher go on"),
        ("run", "have the model evaluate a watcher now; it may act"),
    ):
        _of_one(actions, client, name, help_)
    snooze = _of_one(actions, client, "snooze", "keep a watcher quiet for some time")
    snooze.add_argument("duration", metavar="DURATION", help="for example 30m or 8h")
    remove = _of_one(actions, client, "remove", "delete a watcher and its history")
    remove.add_argument("--yes", action="store_true", help="do not ask")


def _of_one(actions: Commands, client: Parser, name: str, help_: str, *, description: str = "") -> Parser:
    parser = actions.add_parser(name, parents=[client], help=help_, description=description or None)
    parser.add_argument("name", metavar="NAME", help="the watcher")
    parser.set_defaults(run=f"{_RUN}:{name}")
    return parser


def _add_new(actions: Commands, client: Parser) -> None:
    new = actions.add_parser(
        "add",
        parents=[client],
        help="make a watcher",
        description="Makes a watcher. Without --predicate a model proposes one, which you approve.",
    )
    new.add_argument("name", metavar="NAME", help="letters, digits, '_', '-' and '.'")
    new.add_argument("instruction", metavar="INSTRUCTION", help="what it should do, in your words")
    new.add_argument(
        "--topic",
        dest="topics",
        action="append",
        default=[],
        metavar="[NAME=]TOPIC",
        help="a topic of the bus and its name in the predicate; default: its last level",
    )
    new.add_argument(
        "--home-topic",
        dest="home_topics",
        action="append",
        default=[],
        metavar="[NAME=]TOPIC",
        help="a topic of the home broker",
    )
    new.add_argument(
        "--entity",
        dest="entities",
        action="append",
        default=[],
        metavar="[NAME=]ID",
        help="an entity of Home Assistant, as binary_sensor.door",
    )
    new.add_argument(
        "--value",
        dest="values",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="where the value is in the payload, as temp=state.temperature",
    )
    when = new.add_mutually_exclusive_group()
    when.add_argument("--every", metavar="DURATION", help="evaluate at most so often, as 30s")
    when.add_argument("--on-change", action="store_true", help="evaluate each new value")
    when.add_argument("--schedule", metavar="WHEN", help="'every weekday at 7', 'sunset', or cron")
    new.add_argument(
        "--missed",
        choices=("tell", "run"),
        default="tell",
        help="what happens to scheduled times that come while the hub is stopped; default %(default)s",
    )
    new.add_argument("--predicate", metavar="EXPR", help="condition, as 'disk > 95'")
    new.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="CALL",
        help="a call that it may make: 'devices.nas.CameraSkill.stop node=camera'; a range is level=0..50, "
        "a choice mode=low|high",
    )
    new.add_argument("--dry-run", action="store_true", help="decide and report, but call nothing")
    new.add_argument("--yes", action="store_true", help="approve it without asking")
    new.set_defaults(run=f"{_RUN}:add")
