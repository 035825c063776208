"""Home: what is on, room by room, with switches; the page that one opens on a phone by the door."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Final

from nicegui import ui

from contracts.answers.live import Event
from contracts.answers.skills import SkillBody
from contracts.text import shortened
from hub_live.events.kinds import TimerData, WatcherData
from hub_live.watchers.decisions.kinds import kind_of
from hub_live.watchers.operations import list_timers, remove_timer
from hub_live.watchers.timers import TimerSummary
from hub_live.world import operations as world
from hub_live.world.operations import WorldEvent
from hub_live.world.thing import Thing
from hub_registry.http.skills import list_methods
from hub_web import limits
from hub_web.api import part
from hub_web.parts.calls import human
from hub_web.parts.controls import Panel, is_on
from hub_web.parts.layout import Words, card, cut, dot, empty, grid, row, stack
from hub_web.parts.times import lasting
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import one_at_a_time, view

_ICONS: Final = (
    (("lamp", "light", "bulb"), "lightbulb"),
    (("media", "music", "player", "radio", "speaker", "volume"), "music_note"),
    (("heat", "boiler", "thermostat", "climate", "temperature"), "thermostat"),
    (("lock", "door", "gate"), "lock"),
    (("blind", "cover", "shutter", "curtain"), "blinds"),
    (("motion", "occupancy", "presence"), "sensors"),
    (("humidity", "water", "leak"), "water_drop"),
    (("power", "energy", "battery", "plug", "switch"), "bolt"),
    (("camera",), "videocam"),
    (("clock", "time"), "schedule"),
    (("note",), "sticky_note_2"),
)


@page("/", title="Home", icon="home", menu=0, width="wide")
async def home() -> None:
    """Show the rooms with their devices, and what is going on."""
    await _Board().open()


def icon_of(*words: str) -> str:
    """Return the icon for something that is called so."""
    text = " ".join(words).casefold()
    return next((icon for names, icon in _ICONS if any(name in text for name in names)), "widgets")


def state_words(thing: Thing) -> str:
    """Return a state as people say it."""
    value, unit = thing.state, thing.unit
    match value:
        case None:
            return "–"
        case bool():
            return text("On") if value else text("Off")
        case str() if value.casefold() in ("on", "off"):
            return text("On") if value.casefold() == "on" else text("Off")
        case int() | float():
            digits = 0 if float(value).is_integer() else 1
            return text.number(value, digits) + (f" {unit}" if unit else "")
        case list() | dict():
            return text("{n} values", n=len(value))
    return str(value)[:80] + (f" {unit}" if unit else "")


class _Board:
    """The page as one browser shows it."""

    def __init__(self) -> None:
        self._things: dict[tuple[str, str], Thing] = {}
        self._skills: dict[tuple[str, str], SkillBody] = {}
        self._shows: dict[tuple[str, str], list[Callable[[Thing], None]]] = {}
        self._refresh_timers = one_at_a_time(self._read_timers)
        self._fired: dict[int, Event[WatcherData]] = {}

    async def open(self) -> None:
        """Build the page, and keep it up to date."""
        self._on = ui.element("section").classes("sb-on").props("aria-live=polite")
        self._on.props["aria-label"] = text("What is on")
        self._now = ui.element("div").classes("sb-grid")
        self._rooms = stack().classes("sb-rooms")
        self._past = ui.element("div")
        reading = view.api(world.look, world.Wanted(limit=limits.MOST_THINGS))
        found, _ = await asyncio.gather(reading, self._read_methods())
        self._take(found.things)
        self._build()
        view.follow(
            partial(view.api.follow, world.follow, world.Wanted(limit=limits.MOST_THINGS)),
            self._changed,
        )
        # First, so that nothing happens unheard in between.
        view.on_event(TimerData, self._timer_changed)
        view.on_event(WatcherData, self._fired_now)
        await self._refresh_timers()
        ui.timer(1.0, self._count_down)
        for event in await view.stored_events(WatcherData, last=limits.DECISIONS_READ):
            self._fire(event)
        self._show_fired()

    async def _read_methods(self) -> None:
        found = await view.api(list_methods, arguments=limits.CONTROL_ARGUMENTS)
        self._skills = {(each.device, each.skill): each for each in found.skills}

    def _take(self, things: list[Thing]) -> None:
        for thing in things:
            self._things[thing.kind, thing.id] = thing

    async def _changed(self, event: WorldEvent) -> None:
        """Apply an event of the stream: new states are shown, anything else rebuilds the rooms."""
        is_new = bool(event.gone)
        for thing in event.things:
            key = (thing.kind, thing.id)
            before = self._things.get(key)
            self._things[key] = thing
            if before is None or (thing.kind == "device" and thing.state != before.state):
                is_new = True
            elif before.state != thing.state:
                for show in self._shows.get(key, ()):
                    show(thing)
        for kind, name in event.gone:
            self._things.pop((kind, name), None)
        if is_new:
            await self._read_methods()
            self._build()
        else:
            self._show_on()

    # -- what is on -------------------------------------------------------------------------------

    def _show_on(self) -> None:
        on = [thing for thing in self._things.values() if thing.is_entity and is_on(thing.state)]
        self._on.clear()
        if not any(thing.is_entity for thing in self._things.values()):
            return
        with self._on:
            if not on:
                with ui.element("span").classes("sb-chip sb-chip-off"):
                    ui.icon("check_circle_outline")
                    Words("span", text("Nothing is on"))
            for thing in sorted(on, key=lambda each: _name(each).casefold()):
                with ui.element("a").classes("sb-chip").props(f'href="#{_anchor(thing)}"'):
                    ui.icon(icon_of(thing.name, thing.device_class or "", thing.kind))
                    Words("span", _name(thing), "sb-cut")
                    if thing.area:
                        Words("span", thing.area, "sb-chip-more")

    # -- rooms ------------------------------------------------------------------------------------

    def _build(self) -> None:
        self._shows.clear()
        self._rooms.clear()
        rooms = self._by_room()
        with self._rooms:
            if not rooms:
                self._nothing()
            for room in sorted(rooms, key=lambda name: (name == "", name.casefold())):
                with ui.element("section").classes("sb-room") as made:
                    title = Words("h2", room or self._unnamed(len(rooms)), "sb-h2")
                    title.props["id"] = title.html_id
                    made.props["aria-labelledby"] = title.html_id
                    with grid(least=260):
                        for build in rooms[room]:
                            build()
        self._show_on()

    def _unnamed(self, rooms: int) -> str:
        return text("Elsewhere") if rooms > 1 else text("Not in a room")

    def _nothing(self) -> None:
        with empty(
            "home", text("Nothing here yet"), text("Add a device: what it can do then shows up here.")
        ):
            if view.is_admin:
                view.button(text("Add a device"), lambda: view.go("/devices"), icon="add", kind="primary")

    def _by_room(self) -> dict[str, list[Callable[[], None]]]:
        rooms: dict[str, list[Callable[[], None]]] = defaultdict(list)
        devices = {thing.device: thing for thing in self._things.values() if thing.kind == "device"}
        states: dict[tuple[str, str], dict[str, Thing]] = defaultdict(dict)
        others: dict[tuple[str, str], list[Thing]] = defaultdict(list)
        for thing in self._things.values():
            if thing.kind == "state":
                _, device, skill, name = thing.id.split(".", 3)
                states[device, skill][name] = thing
            elif thing.is_entity:
                others[thing.area or "", thing.device or thing.name].append(thing)
        for device, skill in sorted({*self._skills, *states}):
            its = states[device, skill]
            found = self._skills.get((device, skill))
            if found is None:
                # It has no simple method.
                area = next(each.area for each in its.values())
                found = SkillBody(
                    device=device,
                    device_name="",
                    area=area,
                    unavailable="",
                    skill=skill,
                    doc="",
                    device_agnostic=False,
                    methods=[],
                )
            if device in devices and (its or self._acts(found)):
                rooms[found.area or ""].append(partial(self._skill, found, its, devices[device]))
        for (area, name), things in sorted(others.items()):
            rooms[area].append(partial(self._entities, name, things))
        return rooms

    def _acts(self, skill: SkillBody) -> bool:
        controls = Panel(skill, {}).controls
        return view.may_change and bool(controls.simple or controls.power)

    def _skill(self, skill: SkillBody, states: dict[str, Thing], device: Thing) -> None:
        may_act = view.may_change and not skill.unavailable
        panel = Panel(skill, {name: thing.state for name, thing in states.items()})
        for name, thing in states.items():
            self._bind(thing, partial(lambda name, thing: panel.show(name, thing.state), name))
        with self._card(skill.skill, device, states.values()) as tools:
            with tools:
                if may_act:
                    panel.power()
            if may_act:
                panel.rest()
            left = panel.controls.states if may_act else list(states)
            self._rows([(human(name), states[name]) for name in left])

    def _entities(self, name: str, things: list[Thing]) -> None:
        with card(name, icon=icon_of(*(thing.device_class or thing.kind for thing in things), name)):
            self._rows([(thing.name.rpartition(".")[2].removeprefix(f"{name} "), thing) for thing in things])

    @contextmanager
    def _card(self, skill: str, device: Thing, states: Iterable[Thing]) -> Iterator[ui.element]:
        """Make a card with the name of its device below its title, and whether that can be reached."""
        with card(human(skill), icon=icon_of(skill), classes="sb-thing") as tools:
            for thing in states:
                ui.element("span").props(f'id="{_anchor(thing)}"').classes("sb-anchor")
            with ui.element("p").classes("sb-beneath"):
                path = f"/devices/{part(device.device)}"
                link = view.link(device.name, path, classes="sb-quiet sb-cut")
                link.props["title"] = device.name
                if (state := str(device.state)) != "online":
                    dot("bad", text(state))
            yield tools

    def _rows(self, rows: list[tuple[str, Thing]]) -> None:
        if not rows:
            return
        with ui.element("dl").classes("sb-states"):
            for name, thing in rows:
                cut("dt", name)
                value = cut("dd", state_words(thing), title=_told(thing))
                self._bind(thing, partial(self._show_row, value))

    def _show_row(self, value: Words, thing: Thing) -> None:
        value.set(state_words(thing))
        value.props["title"] = _told(thing)

    def _bind(self, thing: Thing, show: Callable[[Thing], None]) -> None:
        self._shows.setdefault((thing.kind, thing.id), []).append(show)

    # -- timers, and watchers that fired ----------------------------------------------------------

    async def _read_timers(self) -> None:
        timers = await view.api(list_timers)
        self._left: list[tuple[Words, datetime]] = []
        self._now.clear()
        self._now.set_visibility(bool(timers))
        if not timers:
            return
        with self._now, card(text("Timers"), icon="timer"):
            for timer in timers[:10]:
                with row(wrap=False):
                    cut("span", timer.text)
                    ui.element("div").classes("sb-grow")
                    due = timer.due
                    left = Words("span", "", "sb-strong sb-count")
                    left.props["title"] = view.at(due)
                    self._left.append((left, due))
                    view.button(
                        "",
                        partial(self._cancel, timer),
                        icon="close",
                        kind="flat",
                        tip=text("Cancel {timer}", timer=timer.text),
                    )
        self._count_down()

    def _count_down(self) -> None:
        for words, due in self._left:
            seconds = max(0, round((due - datetime.now(UTC)).total_seconds()))
            clock = f"{seconds // 60}:{seconds % 60:02d}"
            words.set(clock if seconds < 3_600 else lasting(seconds))

    async def _cancel(self, timer: TimerSummary) -> None:
        await view.api(remove_timer, timer.id)
        await self._refresh_timers()

    async def _timer_changed(self, event: Event[TimerData]) -> None:
        if event.user == view.user.id:
            await self._refresh_timers()

    def _fired_now(self, event: Event[WatcherData]) -> None:
        self._fire(event)
        self._show_fired()

    def _fire(self, event: Event[WatcherData]) -> None:
        if kind_of(event.data.decision or "").is_told:
            self._fired[event.id] = event
            while len(self._fired) > limits.DECISIONS_SHOWN:
                del self._fired[min(self._fired)]

    def _show_fired(self) -> None:
        self._past.clear()
        if not self._fired:
            return
        with self._past, card(text("Watchers that fired"), icon="notifications_none") as tools:
            with tools:
                view.link(text("All watchers"), "/watchers")
            for _, each in sorted(self._fired.items(), reverse=True):
                with ui.element("div").classes("sb-fired"):
                    with row(wrap=False):
                        Words("span", each.subject, "sb-strong sb-cut")
                        ui.element("div").classes("sb-grow")
                        Words("span", view.at(each.at), "sb-muted sb-small")
                    if said := each.data.reason:
                        Words("p", text.message(shortened(said, 300)), "sb-muted")


def _name(thing: Thing) -> str:
    if thing.kind != "state":
        return thing.device or thing.name
    _, _, skill, name = thing.id.split(".", 3)
    return (
        human(skill) if name in ("power", "state", "is_on", "on") else f"{human(skill)} {human(name).lower()}"
    )


def _anchor(thing: Thing) -> str:
    return "thing-" + "".join(each if each.isalnum() else "-" for each in thing.id)


def _told(thing: Thing) -> str:
    """Return how long something has been so."""
    value = state_words(thing)
    return value if thing.age_s is None else f"{value} · {lasting(thing.age_s)}"
