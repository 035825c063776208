"""``strawberry captures``: topics recorded into files."""

from pathlib import Path

from deploy.cli.parser.shared import LINKS, Commands, Parents, add_actions, positive

_FORMATS = ("jsonl", "csv", "raw", "h264")


def add(commands: Commands, parents: Parents) -> None:
    """Add the commands."""
    actions = add_actions(commands, "captures", help_="record topics into files")
    each = actions.add_parser(
        "list", parents=[parents.client], help="list captures, also those that were stopped"
    )
    each.set_defaults(run="deploy.cli.live.captures:list_captures")
    start = actions.add_parser(
        "start",
        parents=[parents.client],
        help="record topics until the capture is stopped",
        description="Records topics into a file on the hub's machine until it is stopped, over restarts.",
    )
    start.add_argument(
        "path", metavar="PATH", help="in the hub's folder for captures, for example nas/disk.jsonl"
    )
    start.add_argument("topics", nargs="+", metavar="TOPIC", help="topic filters")
    start.add_argument("--format", choices=_FORMATS, help="default: by the name of the file, else jsonl")
    start.add_argument("--link", choices=LINKS, default="bus", help="home for the home broker; default bus")
    start.add_argument("--zstd", action="store_true", help="compress the files")
    start.add_argument(
        "--max-bytes", type=positive, metavar="N", help="begin a new file at this size; default 64 MB"
    )
    start.add_argument("--max-age", type=positive, metavar="S", help="begin a new file after so many seconds")
    start.add_argument(
        "--max-files", type=positive, metavar="N", help="remove the oldest file when there are more"
    )
    start.add_argument("--keep-days", type=positive, metavar="N", help="remove files that are older")
    start.add_argument("--sequence", metavar="NAME", help="field that counts messages: a hole in it is a gap")
    start.set_defaults(run="deploy.cli.live.captures:start")
    stop = actions.add_parser("stop", parents=[parents.client], help="stop a capture; its files stay")
    stop.add_argument("capture", metavar="ID")
    stop.set_defaults(run="deploy.cli.live.captures:stop")
    plot = actions.add_parser(
        "plot",
        parents=[parents.client],
        help="draw the numbers of a jsonl or csv capture",
        description="Draws the numbers in the files of a capture over time, in the terminal or as a PNG.",
    )
    plot.add_argument("file", metavar="ID|FILE", help="a capture of the hub, or a file of one")
    plot.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="NAME",
        help="only this field of the payloads; may be repeated",
    )
    plot.add_argument("--png", type=Path, metavar="OUT", help="write a picture")
    plot.set_defaults(run="deploy.cli.live.captures:plot")
