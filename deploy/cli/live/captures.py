"""``strawberry captures start`` and ``plot``."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from contracts.answers.live import CaptureSummary
from contracts.errors import ConfigError, NotFound
from deploy.cli.client import hub_of
from deploy.cli.terminal.output import Output, note, screen_width
from deploy.logs.terminal import visible

_COLORS: Final = ("green", "blue", "red", "yellow", "magenta", "cyan")
"""One for each line: more could not be told apart."""
_SCREEN: Final = (100, 20)
"""Columns and rows of a plot where the terminal tells none."""

Lines = Mapping[str, Sequence[tuple[float, float]]]


def start(options: argparse.Namespace) -> None:
    """Start a capture."""
    suffix = Path(options.path.removesuffix(".zst")).suffix.removeprefix(".")
    body = {
        "topics": [{"topic": topic, "link": options.link} for topic in options.topics],
        "path": options.path,
        "format": options.format or (suffix if suffix in ("csv", "raw", "h264") else "jsonl"),
        "zstd": options.zstd,
        "max_age_s": options.max_age,
        "max_files": options.max_files,
        "keep_days": options.keep_days,
        "sequence": options.sequence,
    }
    if options.max_bytes:
        body["max_bytes"] = options.max_bytes
    started = hub_of(options).post("/api/captures", body, CaptureSummary)
    Output(options.json).result(started, text=f"The capture {started.id} writes to {started.file}.")


def plot(options: argparse.Namespace) -> None:
    """Draw the numbers of a capture in the terminal, as a PNG, or print them as JSON."""
    # What reads captures is slow to import, and no other command needs it.
    from hub_live.captures.files.formats import moment
    from hub_live.captures.files.numbers import Numbers, plotted

    file, fields = Path(options.file), tuple(options.field)
    try:
        found = plotted(file, fields=fields)
    except NotFound:
        if len(file.parts) > 1 or file.suffix:
            raise
        path = (
            f"/api/captures/{quote(options.file, safe='')}/numbers?{urlencode({'field': ','.join(fields)})}"
        )
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
    if options.json:
        points = {
            name: [{"at": moment(at), "value": value} for at, value in line] for name, line in numbers.items()
        }
        Output(as_json=True).result(points)
    elif options.png is not None:
        Output(as_json=False).result(f"Drew {options.png}.")
    else:
        print(_drawn(lines))


def _drawn(lines: Lines) -> str:
    import plotille

    figure = plotille.Figure()
    # Beside the plot stand the labels of its axis.
    figure.width, figure.height = max(20, (screen_width() or _SCREEN[0]) - 20), _SCREEN[1]
    figure.color_mode = "names"
    figure.with_colors = sys.stdout.isatty()
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
