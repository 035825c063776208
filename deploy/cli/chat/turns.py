"""``strawberry turns``: what was asked, how it ended, and where the time went."""

import argparse
from collections.abc import Iterator
from typing import Final

from contracts.answers.record import TurnPage, TurnShown, TurnSummary
from contracts.text import shortened
from deploy import limits
from deploy.cli.client import api, hub_of, whole_id
from deploy.cli.terminal.output import Output, cell, moment, table
from deploy.cli.terminal.parser import Parser

_SPANS: Final = ("began", "took", "what", "name", "outcome", "error")


def turns(options: argparse.Namespace) -> None:
    """Show what was asked, how it ended, and where the time went.

    Lists the latest turns, newest first; with an ID, shows where its time went.
    """
    client, output = hub_of(options), Output(options.json)
    if options.id is not None:
        latest = client.get(api("turns", limit=100), TurnPage).turns
        turn = client.get(api("turns", whole_id(options.id, [each.turn for each in latest])), TurnShown)
        output.result(turn, text="\n".join(_lines(turn)))
        return
    path = api("turns", limit=options.limit, outcome=options.outcome, since=options.since)
    output.rows(
        client.get(path, TurnPage).turns, _cells, empty="There is no such turn. 'strawberry chat' starts one."
    )


def _cells(turn: TurnSummary) -> dict[str, object]:
    asked = turn.question or f"(by {turn.user})"
    return {
        "when": moment(turn.at),
        "asked": shortened(asked, limits.MAX_ASKED_SHOWN),
        "outcome": turn.outcome or "running",
        "took": _time(turn.ms),
        "model": turn.model or turn.mode,
        "tokens": (turn.input_tokens + turn.output_tokens) or None,
        "turn": turn.turn,
    }


def _lines(turn: TurnShown) -> Iterator[str]:
    yield turn.question or f"A turn of {turn.user}"
    tokens = turn.input_tokens + turn.output_tokens
    said = [moment(turn.at), turn.outcome or "running", _time(turn.ms), turn.model or turn.mode]
    if tokens:
        said.append(f"{tokens} tokens")
    if turn.cost is not None:
        said.append(f"cost {turn.cost:g}")
    yield "  ".join(str(each) for each in said if each)
    if turn.problem:
        yield turn.problem
    yield ""
    if turn.spans is None:
        yield "It is not known where the time went."
        return
    depths: list[int] = []
    rows: list[list[str]] = []
    for span in turn.spans:
        depths.append(0 if span.parent is None else depths[span.parent] + 1)
        rows.append(
            [
                _time(span.start_ms),
                _time(span.ms),
                "  " * depths[-1] + span.kind,
                cell(span.name),
                span.outcome,
                cell(span.detail.error),
            ]
        )
    yield table(rows, _SPANS, width=None)
    if turn.left_out:
        yield f"{turn.left_out} more are left out"


def _time(ms: float | None) -> str:
    if ms is None:
        return ""
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"


def register_turns(parser: Parser) -> None:
    """Declare 'strawberry turns'."""
    parser.runs(turns, hub=True)
    parser.takes("id", "the turn; the beginning of its ID is enough", nargs="?")
    parser.add_number("--limit", "how many of the latest; default 50")
    parser.takes("--outcome", "only those that ended so, such as failed or running")
    parser.takes("--since", "a duration such as 2h or 7d, or a time", metavar="TIME")
