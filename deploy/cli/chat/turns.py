"""``strawberry turns``: what was asked, how it ended, and where the time went."""

import argparse
from collections.abc import Iterator
from typing import Any, Final

from contracts.text import shortened
from deploy import limits
from deploy.cli.client import api, hub_of
from deploy.cli.terminal.output import Output
from deploy.cli.terminal.tables import cell, moment, table

_COLUMNS: Final = ("when", "asked", "outcome", "took", "model", "tokens", "turn")
_SPANS: Final = ("began", "took", "what", "name", "outcome", "error")


def turns(options: argparse.Namespace) -> None:
    """List the latest turns, newest first; or show one, part by part."""
    client, output = hub_of(options), Output(options.json)
    if options.id is not None:
        turn = client.request("GET", api("turns", options.id))
        output.result(turn, text="\n".join(_lines(turn)))
        return
    path = api("turns", limit=options.limit, outcome=options.outcome, since=options.since)
    output.rows(
        client.request("GET", path)["turns"],
        _COLUMNS,
        empty="There is no such turn. 'strawberry chat' starts one.",
        shown=_shown,
    )


def _shown(turn: dict[str, Any]) -> dict[str, Any]:
    asked = turn["question"] or f"(by {turn['user']})"
    return {
        "when": moment(turn["at"]),
        "asked": shortened(asked, limits.MAX_ASKED_SHOWN),
        "outcome": turn["outcome"] or "running",
        "took": _time(turn["ms"]),
        "model": turn["model"] or turn["mode"],
        "tokens": (turn["input_tokens"] + turn["output_tokens"]) or None,
        "turn": turn["turn"],
    }


def _lines(turn: dict[str, Any]) -> Iterator[str]:
    shown = _shown(turn)
    yield turn["question"] or f"A turn of {turn['user']}"
    said = [shown["when"], shown["outcome"], shown["took"], shown["model"]]
    if shown["tokens"]:
        said.append(f"{shown['tokens']} tokens")
    if turn["cost"] is not None:
        said.append(f"cost {turn['cost']:g}")
    yield "  ".join(str(each) for each in said if each)
    if turn["problem"]:
        yield turn["problem"]
    yield ""
    if turn["spans"] is None:
        yield "It is not known where the time went."
        return
    depths: list[int] = []
    rows: list[list[str]] = []
    for span in turn["spans"]:
        depths.append(0 if span["parent"] is None else depths[span["parent"]] + 1)
        rows.append(
            [
                _time(span["start_ms"]),
                _time(span["ms"]),
                "  " * depths[-1] + span["kind"],
                cell(span["name"]),
                span["outcome"],
                cell(span["detail"].get("error", "")),
            ]
        )
    yield table(rows, _SPANS, width=None)
    if turn["left_out"]:
        yield f"{turn['left_out']} more are left out"


def _time(ms: float | None) -> str:
    if ms is None:
        return ""
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"
