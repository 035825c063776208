"""Devices: who is there and how they are; adding one, and letting one in that asks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from nicegui import ui

from contracts.answers.devices import DeviceAnswer, InvitationAnswer, Waiting
from contracts.errors import NotFound
from hub_registry.devices.devices import DeviceChange
from hub_registry.http import devices as operations
from hub_web import limits, sb
from hub_web.parts.calls.forms import choice, search_field, switch, text_field
from hub_web.parts.invitation import show_invitation
from hub_web.parts.plots import show_sparkline, sparkline
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import part, view

_CHANGING: Final = ("last_seen", "load", "loads", "memory_mb", "uptime_s")


@page("/devices", title="Devices", icon="devices", menu=20, width="wide")
async def devices() -> None:
    """Show all devices, live."""
    with sb.row():
        if view.is_admin:
            view.button(text("Add a device"), lambda: view.go("/join"), icon="add", kind="primary")
            view.button(text("Enter a code"), enter_code, icon="pin")
    waiting = ui.element("div")
    kinds = {
        "": text("All"),
        "online": text("online"),
        "offline": text("offline"),
        "to_review": text("to approve"),
        "problems": text("with a problem"),
    }
    with sb.row().classes("sb-search") as narrowing:
        narrow = view.showing(lambda: show())
        words = search_field(text("Find a device"), narrow).classes("sb-grow")
        kind = choice(text("Show"), kinds, "").classes("sb-narrow").on_value_change(narrow)
    place = ui.element("div").classes("sb-groups")
    shape: Any = None
    updates: dict[str, Callable[[DeviceAnswer], None]] = {}

    @sb.one_at_a_time
    async def show() -> None:
        nonlocal shape
        found = await view.api(operations.list_devices, loads=True)
        asking = await view.api(operations.list_waiting) if view.is_admin else []
        narrowing.set_visibility(len(found) >= limits.SEARCHED_DEVICES)
        shown = [each for each in found if _matches(each, str(words.value or ""), str(kind.value or ""))]
        still = [each.model_copy(update=dict.fromkeys(_CHANGING)) for each in shown]
        before, shape = shape, (asking, still)
        if shape == before:
            # What changes all the time is shown in its place, so that no other dialog closes.
            for device in shown[: limits.DEVICES_SHOWN]:
                updates[device.id](device)
            return
        with sb.refilled(waiting):
            if asking:
                _asking(asking, show)
        with sb.refilled(place):
            if not found:
                _none()
            elif not shown:
                sb.empty("search_off", text("Nothing found"), text("Other words may find it."))
            for room, there in _by_room(shown[: limits.DEVICES_SHOWN]):
                if room:
                    sb.heading(room)
                with sb.grid(least=300):
                    for device in there:
                        updates[device.id] = _device(device)
            if (more := len(shown) - limits.DEVICES_SHOWN) > 0:
                sb.note(text("{n} more: narrower words find fewer.", n=more))

    # First, so that nothing happens unheard in between.
    view.follow_devices(show, every_s=limits.DEVICES_REFRESH_S)
    await show()


def _matches(device: DeviceAnswer, words: str, kind: str) -> bool:
    """Return whether a device is one of a kind and has some words in its name, room, owner or skills."""
    is_kind = not kind or device.state == kind or bool(getattr(device, kind, None))
    is_kind |= kind == "problems" and bool(device.failing)
    said = " ".join((device.name, device.area or "", device.owner, *device.skills)).casefold()
    return is_kind and all(word in said for word in words.casefold().split())


def _by_room(devices: Sequence[DeviceAnswer]) -> list[tuple[str, list[DeviceAnswer]]]:
    """Return devices by room; where none has a room, in one group without a name."""
    rooms: dict[str, list[DeviceAnswer]] = {}
    for device in devices:
        rooms.setdefault(device.area or "", []).append(device)
    named = sorted((room, there) for room, there in rooms.items() if room)
    rest = rooms.get("", [])
    return [*named, *([(text("Without a room") if named else "", rest)] if rest else [])]


def state_of(state: str) -> tuple[sb.Tone, str]:
    """Return how the state of a device looks, and its words."""
    known: dict[str, tuple[sb.Tone, str]] = {
        "online": ("good", text("online")),
        "offline": ("plain", text("offline")),
        "revoked": ("bad", text("revoked")),
        "invited": ("warn", text("not joined yet")),
    }
    return known[state]


def _none() -> None:
    more = text("A computer or a Raspberry Pi: what it can do, the assistant can do.")
    with sb.empty("devices", text("No devices yet"), more):
        if view.is_admin:
            view.button(text("Add a device"), lambda: view.go("/join"), icon="add", kind="primary")


def _device(device: DeviceAnswer) -> Callable[[DeviceAnswer], None]:
    """Make the card of a device; return what shows its newest heartbeat."""
    with view.anchor(f"/devices/{part(device.id)}", "sb-card sb-card-link"):
        with ui.element("div").classes("sb-card-head"):
            sb.cut("h2", device.name, "sb-h2")
            ui.element("div").classes("sb-grow")
            sb.dot(*state_of(device.state))
        with sb.row():
            place_and_owner(device)
            if device.to_review:
                sb.badge(text.count(device.to_review, "{n} to approve", "{n} to approve"), "warn")
            if problems := len(device.problems) + len(device.failing):
                sb.badge(text.count(problems, "{n} problem", "{n} problems"), "bad")
        told = ui.element("div")
        plot = sparkline((), label=text("Load of the last hour"))

    def update(device: DeviceAnswer) -> None:
        with sb.refilled(told):
            sb.facts(
                (text("Seen"), view.ago(device.last_seen)),
                (text("Skills"), str(len(device.skills))),
                (text("Load"), load_words(device)),
            )
        loads = [value for _, value, _ in device.loads or () if value is not None]
        plot.set_visibility(len(loads) > 1)
        show_sparkline(plot, loads, label=text("Load of the last hour"))

    update(device)
    return update


def place_and_owner(device: DeviceAnswer) -> None:
    """Show where a device is and whose it is."""
    if device.area:
        sb.badge(device.area, icon="place")
    sb.badge(text("shared") if device.shared else device.owner, icon="group" if device.shared else "person")


def load_words(device: DeviceAnswer) -> str:
    """Return the load of a device; empty where what is known of it is old."""
    if device.load is None or device.state != "online":
        return ""
    return f"{text.number(100 * device.load)} %"


async def add_device(
    show: Callable[[str, InvitationAnswer], None] = show_invitation, *, lifetime_s: int | None = None
) -> None:
    """Ask for the name of a new device, and show how it joins.

    Args:
        show: Gets the name, and what lets it join.
        lifetime_s: How long that is good; None for the hub's default.
    """

    async def add() -> None:
        called, room = name.value.strip(), area.value.strip() or None
        given = {"area": room, "shared": shared.value, "lifetime_s": lifetime_s}
        show(called, await view.api(operations.add_device, called, **given))

    with view.form(text("Add a device"), add, yes=text("Add")):
        name = text_field(text("Name"), hint=text("As you call it, for example Kitchen Pi"))
        name.props("autofocus")
        area = text_field(f"{text('Room')} ({text('optional')})")
        shared = switch(text("For everybody at home"), True)


def _asking(asking: list[Waiting], show: sb.Callback) -> None:
    """Show the devices that ask to join; their codes are not shown here but on their own screens."""
    with sb.card(text("Devices that ask to join"), icon="sensors"):
        sb.Words("p", text("Press “Enter a code” and type the code that the device shows."), "sb-muted")
        for each in asking:
            with sb.row():
                sb.cut("span", each.name, "sb-strong")
                sb.Words("span", text("from {address}", address=each.source), "sb-muted sb-small")
                ends = text("its code ends {time}", time=view.ago(each.expires_at))
                sb.Words("span", ends, "sb-muted sb-small")
                ui.element("div").classes("sb-grow")

                view.button(text("Refuse"), partial(refuse, each.code, show), kind="danger")


async def refuse(code: str, show: sb.Callback) -> None:
    """Refuse a device that asks to join."""
    await view.api(operations.refuse, code)
    await show()


async def enter_code() -> None:
    """Admit a device by the code that it shows, after its fingerprint was compared."""

    async def look() -> bool:
        wanted = _plain(code.value)
        waiting = await view.api(operations.list_waiting)
        match = [each for each in waiting if _plain(each.code) == wanted]
        if not match:
            hint = text("A code is good for ten minutes.")
            raise NotFound(text("No device waits with this code."), hint=hint)
        with sb.refilled(found):
            _compare(match[0], box)
        return False

    with view.form(text("Let a device in"), look, yes=text("Look")) as box:
        sb.note(text("A device that asks to join shows a code and a fingerprint."))
        code = text_field(text("Code"))
        code.props("autofocus autocomplete=off")
        found = sb.stack().props("aria-live=polite")


def _compare(asking: Waiting, box: ui.dialog) -> None:
    sb.Words("p", text("Does the device show the same fingerprint?"), "sb-strong")
    sb.Words("p", asking.fingerprint, "sb-mono sb-fingerprint")
    name = text_field(text("Name"), asking.name)
    shared = switch(text("For everybody at home"), True)

    async def approve() -> None:
        approved = await view.api(operations.approve, asking.code, asking.fingerprint, name.value.strip())
        if shared.value:
            await view.api(operations.change_device, approved.id, DeviceChange(shared=True))
        box.close()
        view.notify(text("{name} joins within seconds", name=approved.name))

    view.button(text("It is the same: let it in"), approve, icon="check", kind="primary")


def _plain(code: str) -> str:
    return "".join(each for each in code.upper() if each.isalnum())
