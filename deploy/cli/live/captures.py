"""``strawberry captures start`` and ``plot``."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from contracts.answers.live import CaptureSummary
from contracts.errors import ConfigError, NotFound
from contracts.wire import Json
from deploy.cli.client import api, hub_of
from deploy.cli.resources import add_declared
from deploy.cli.terminal.output import Output, note, screen_width
from deploy.cli.terminal.parser import Actions, positive
from deploy.logs.terminal import has_colours, visible

_COLORS: Final = ("green", "blue", "red", "yellow", "magenta", "cyan")
"""One for each line: more could not be told apart."""
_SCREEN: Final = (100, 20)
"""Columns and rows of a plot where the terminal tells none."""

Lines = Mapping[str, Sequence[tuple[float, float]]]


def start(options: argparse.Namespace) -> None:
    """Record topics until the capture is stopped.

    Records topics into a file on the hub's machine until it is stopped, over restarts.
    """
    body = {
        "topics": [{"topic": topic, "link": options.link} for topic in options.topics],
        "path": options.path,
        "zstd": options.zstd,
        "max_age_s": options.max_age,
        "max_files": options.max_files,
        "keep_days": options.keep_days,
        "sequence": options.sequence,
    }
    body |= {name: value for name in ("format", "max_bytes") if (value := getattr(options, name))}
    # Programs read what it was asked for, too.
    answer = hub_of(options).post("/api/captures", body, dict[str, Json])
    started = CaptureSummary.model_validate(answer, extra="ignore")
    Output(options.json).result(answer, text=f"The capture {started.id} writes to {started.file}.")


def plot(options: argparse.Namespace) -> None:
    """Draw the numbers of a jsonl or csv capture.

    Draws the numbers in the files of a capture over time, in the terminal or as a PNG.
    """
    # What reads captures is slow to import, and no other command needs it.
    from hub_live.captures.files.formats import moment
    from hub_live.captures.files.numbers import Numbers, plotted

    file, fields = Path(options.file), tuple(options.field)
    try:
        found = plotted(file, fields=fields)
    except NotFound:
        if len(file.parts) > 1 or file.suffix:
            raise
        path = api("captures", options.file, "numbers", field=",".join(fields))
        found = hub_of(options).get(path, Numbers)
    numbers: Lines = found.lines
    if found.cut:
        note("Only its newest files are drawn.")
    if not numbers:
        wanted = f" in {', '.join(options.field)}" if options.field else ""
        raise NotFound(
            f"there are no numbers{wanted} in {options.file}", hint="--field names a field of the payloads."
        )
    lines = dict(sorted(numbers.items(), key=lambda line: -len(line[1]))[: len(_COLORS)])
    if len(numbers) > len(lines) and not options.json:
        note(f"{len(numbers) - len(lines)} more have fewer values; --field chooses.")
    if options.png is not None:
        _write_png(lines, options.png)
    points = {
        name: [{"at": moment(at), "value": value} for at, value in line] for name, line in numbers.items()
    }
    if options.json or options.png is not None:
        Output(options.json).result(points, text=f"Drew {options.png}.")
    else:
        print(_drawn(lines))


def _drawn(lines: Lines) -> str:
    import plotille

    figure = plotille.Figure()
    # Beside the plot stand the labels of its axis.
    figure.width, figure.height = max(20, (screen_width() or _SCREEN[0]) - 20), _SCREEN[1]
    figure.color_mode = "names"
    figure.with_colors = has_colours(sys.stdout)
    figure.x_label, figure.y_label = "time", "value"
    moments = [at for line in lines.values() for at, _ in line]
    if min(moments) == max(moments):
        # One moment alone is no axis.
        begin, end = _times([(moments[0] - 30, 0.0), (moments[0] + 30, 0.0)])
        figure.set_x_limits(min_=begin, max_=end)
    for color, (name, line) in zip(_COLORS, lines.items(), strict=False):
        figure.plot(_times(line), [value for _, value in line], lc=color, label=visible(name))
    return str(figure.show(legend=True))


def _write_png(lines: Lines, file: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "matplotlib is not installed, which draws pictures",
            hint='Install it with: pip install "strawberry-home[plots]". The terminal needs none.',
        ) from None
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    for name, line in lines.items():
        axes.plot(_times(line), [value for _, value in line], label=name)
    axes.legend()
    axes.grid(visible=True, alpha=0.3)
    figure.autofmt_xdate()
    try:
        figure.savefig(file, format="png")
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}", hint="Choose another file.") from None


def _times(line: Sequence[tuple[float, float]]) -> Any:
    return [datetime.fromtimestamp(at).astimezone() for at, _ in line]


def add_captures_actions(actions: Actions) -> None:
    """Declare 'strawberry captures'."""
    add_declared(actions, "captures")
    command = actions.add_parser("start", run=start, hub=True)
    command.takes("path", "in the hub's folder for captures, for example nas/disk.jsonl")
    command.takes("topics", "topic filters", metavar="TOPIC", nargs="+")
    command.takes("--format", "how it is written; default: by the name of the file, else jsonl")
    command.takes("--link", "home for the home broker; default bus", default="bus")
    command.add_flag("--zstd", "compress the files")
    command.add_number("--max-bytes", "begin a new file at this size; default 64 MB")
    command.takes("--max-age", "begin a new file after so many seconds", type=positive, metavar="S")
    command.add_number("--max-files", "remove the oldest file when there are more")
    command.add_number("--keep-days", "remove files that are older")
    command.takes("--sequence", "field that counts messages: a hole in it is a gap", metavar="NAME")
    command = actions.add_parser("plot", run=plot, hub=True)
    command.takes("file", "a capture of the hub, or a file of one", metavar="ID|FILE")
    command.add_list("--field", "only this field of the payloads; may be repeated", metavar="NAME")
    command.takes("--png", "write a picture", type=Path, metavar="OUT")
