"""``strawberry audit``: who called what, and what was refused."""

import argparse
from typing import Any, Final

from deploy.cli.client import api, hub_of
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.tables import moment

_COLUMNS: Final = ("at", "user", "call", "outcome", "through")
_FILTERS: Final = ("q", "user", "device", "outcome", "since", "until", "limit")


def audit(options: argparse.Namespace) -> None:
    """Print the newest records that fit."""
    found = hub_of(options).request(
        "GET", api("audit", **{name: getattr(options, name) for name in _FILTERS})
    )
    Output(options.json).rows(found["entries"], _COLUMNS, empty="No records match.", shown=_shown)
    if found["before"] is not None and not options.json:
        note("There is more: --since, --until, --user, --device and --outcome find less, --limit shows more.")


def _shown(entry: dict[str, Any]) -> dict[str, Any]:
    actor = entry["actor"]
    by = next((f"{name} {actor[name]}" for name in ("watcher", "agent", "address") if actor.get(name)), "")
    return {
        "at": moment(entry["at"]),
        "user": entry["user"],
        "call": ".".join(filter(None, (entry["device"], entry["skill"], entry["method"]))),
        "outcome": entry["outcome"],
        "through": by or entry["through"] or entry["token_name"],
    }
