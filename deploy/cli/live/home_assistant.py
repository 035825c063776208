"""``strawberry home-assistant``: what of this home appears in Home Assistant."""

import argparse
from collections.abc import Iterator
from typing import Final

from contracts.answers.system import ExposedEntity, ExposedItem, OutwardState
from deploy.cli.client import hub_of
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.parser import Actions

_PATH: Final = "/api/home-assistant"
_ITEM: Final = (
    "path",
    "DEVICE, DEVICE.SKILL, DEVICE.SKILL.MEMBER, hub.chat, hub.notify, hub.watchers or hub.watchers.NAME",
)


def status(options: argparse.Namespace) -> None:
    """List what is exposed.

    Lists what is exposed to Home Assistant, and says whether the home broker is connected.
    """
    found = hub_of(options).get(_PATH, OutwardState)
    items = [each for each in _items(found) if options.all or each.shown or _only_by_name(each)]
    empty = "Nothing is exposed. 'strawberry home-assistant status --all' lists what could be."
    Output(options.json).rows(items, _cells, empty=empty, answer=found)
    _note_broker(options, found)


def expose(options: argparse.Namespace) -> None:
    """Expose a device, a skill or a part of it.

    Everybody who uses Home Assistant then sees it and can use it, with your rights. A destructive method
    is exposed only by its own path, one that asks for a confirmation never.
    """
    _change(options, "expose", "is exposed")


def hide(options: argparse.Namespace) -> None:
    """Stop exposing it."""
    _change(options, "hide", "is hidden")


def _change(options: argparse.Namespace, what: str, done: str) -> None:
    found = hub_of(options).post(f"{_PATH}/{what}", {"path": options.path}, OutwardState)
    Output(options.json).result(found, text=f"{options.path} {done}.")
    _note_broker(options, found)


def _items(found: OutwardState) -> Iterator[ExposedItem]:
    for device in found.devices:
        yield device
        for skill in device.skills:
            yield skill
            yield from skill.entities
    yield from found.hub


def _only_by_name(item: ExposedItem) -> bool:
    return isinstance(item, ExposedEntity) and item.only_by_name


def _cells(item: ExposedItem) -> dict[str, object]:
    shown = "yes" if item.shown else "only by its own path" if _only_by_name(item) else ""
    return {"path": item.path, "entity": item.kind, "shown": shown, "name": item.name}


def _note_broker(options: argparse.Namespace, found: OutwardState) -> None:
    broker = found.broker
    if options.json:
        return
    if broker is None:
        note(
            "No home broker is configured, so nothing appears in Home Assistant yet: "
            "the page Home Assistant connects one."
        )
    elif not broker.connected:
        note(f"The home broker {broker.url} is not connected: {broker.error or 'the hub tries again'}")


def add_home_assistant_actions(actions: Actions) -> None:
    """Declare 'strawberry home-assistant'."""
    command = actions.add_parser("status", run=status, hub=True)
    command.add_flag("--all", "also list what could be exposed")
    actions.add_parser("expose", run=expose, hub=True, on=_ITEM)
    actions.add_parser("hide", run=hide, hub=True, on=_ITEM)
