"""``strawberry home-assistant``: what of this home appears in Home Assistant."""

import argparse
from collections.abc import Iterator
from typing import Any, Final

from deploy.cli.client import hub_of
from deploy.cli.terminal.output import Output, note

_PATH: Final = "/api/home-assistant"
_COLUMNS: Final = ("path", "entity", "shown", "name")


def status(options: argparse.Namespace) -> None:
    """Print what could be shown, and what is."""
    found = hub_of(options).request("GET", _PATH)
    if options.json:
        Output(as_json=True).result(found)
        return
    rows = list(_rows(found))
    shown = rows if options.all else [row for row in rows if row["shown"]]
    empty = "Nothing is exposed. 'strawberry home-assistant status --all' lists what could be."
    Output(as_json=False).rows(shown, _COLUMNS, empty=empty)
    _note_broker(found)


def expose(options: argparse.Namespace) -> None:
    """Show something."""
    _change(options, "expose", "is exposed")


def hide(options: argparse.Namespace) -> None:
    """Hide something."""
    _change(options, "hide", "is hidden")


def _change(options: argparse.Namespace, what: str, done: str) -> None:
    found = hub_of(options).request("POST", f"{_PATH}/{what}", {"path": options.path})
    Output(options.json).result(found, text=f"{options.path} {done}.")
    if not options.json:
        _note_broker(found)


def _rows(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for device in found["devices"]:
        yield _row(device)
        for skill in device["skills"]:
            yield _row(skill)
            yield from (_row(entity) for entity in skill["entities"])
    yield from (_row(each) for each in found["hub"])


def _row(item: dict[str, Any]) -> dict[str, Any]:
    shown = "yes" if item["shown"] else ("only by its own path" if item.get("only_by_name") else "")
    return {**item, "entity": item["kind"], "shown": shown}


def _note_broker(found: dict[str, Any]) -> None:
    broker = found["broker"]
    if broker is None:
        note(
            "No home broker is configured, so nothing appears in Home Assistant yet: "
            "add [home_broker] to strawberry.toml."
        )
    elif not broker["connected"]:
        note(
            f"The home broker {broker['url']} is not connected: {broker.get('error', 'the hub tries again')}"
        )
