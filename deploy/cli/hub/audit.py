"""``strawberry audit``: who called what, and what was refused."""

import argparse
from functools import partial
from typing import Any, Final

from deploy.cli.client import api, hub_of
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.tables import moment

_COLUMNS: Final = ("at", "user", "call", "outcome", "through")
_FILTERS: Final = ("q", "user", "device", "outcome", "since", "until", "limit")


def audit(options: argparse.Namespace) -> None:
    """Print the newest records that fit."""
    hub = hub_of(options)
    found = hub.request("GET", api("audit", **{name: getattr(options, name) for name in _FILTERS}))
    keys = {} if options.json else {each["id"]: each["key"] for each in hub.request("GET", "/api/devices")}
    shown = partial(_shown, keys)
    Output(options.json).rows(found["entries"], _COLUMNS, empty="No records match.", shown=shown)
    if found["before"] is not None and not options.json:
        note("There is more: --since, --until, --user, --device and --outcome find less, --limit shows more.")


def _shown(keys: dict[str, str], entry: dict[str, Any]) -> dict[str, Any]:
    actor, device = entry["actor"], keys.get(entry["device"], entry["device"])
    by = next((f"{name} {actor[name]}" for name in ("watcher", "agent", "address") if actor.get(name)), "")
    return {
        "at": moment(entry["at"]),
        "user": entry["user"],
        "call": ".".join(filter(None, (device, entry["skill"], entry["method"]))),
        "outcome": entry["outcome"],
        "through": by or entry["through"] or entry["token_name"],
    }
