"""Home: what is on, room by room, with switches; the page that one opens on a phone by the door."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from nicegui import ui

from agent_core.skills.labels import Labels
from contracts.answers.live import Event
from contracts.answers.people import HomeCard
from contracts.answers.skills import SkillBody
from contracts.limits import MAX_HOME_CARD_ID
from contracts.phrases import for_people
from contracts.text import shortened
from hub_live.events.kinds import NotificationData, TimerData, WatcherData
from hub_live.watchers.decisions.kinds import NOTIFY, kind_of
from hub_live.watchers.operations import list_timers, pause_timer, remove_timer, resume_timer
from hub_live.watchers.timers import TimerSummary
from hub_live.world import operations as world
from hub_live.world.operations import WorldEvent
from hub_live.world.thing import Thing
from hub_registry.http.skills import list_methods
from hub_web import limits, sb
from hub_web.parts.calls.controls import COLOR_NAMES, Panel, is_on
from hub_web.parts.home.arrangement import Arrangement
from hub_web.parts.home.message_box import MessageBox
from hub_web.shell import page
from hub_web.texts import LANGUAGE, countdown, lasting, text
from hub_web.view import part, view

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
    await _Board().open()


def icon_of(*words: str) -> str:
    """Return the icon for something that is called so."""
    text = " ".join(words).casefold()
    return next((icon for names, icon in _ICONS if any(name in text for name in names)), "widgets")


def state_words(thing: Thing, label: Labels) -> str:
    """Return a state as people say it."""
    value, unit = thing.state, thing.unit
    match value:
        case None:
            return "–"
        case bool():
            return text("On") if value else text("Off")
        case str() if value.casefold() in ("on", "off"):
            return text("On") if value.casefold() == "on" else text("Off")
        case str() if value.casefold() in COLOR_NAMES:
            return label.value(COLOR_NAMES[value.casefold()])
        case int() | float():
            digits = 0 if float(value).is_integer() else 1
            return text.number(value, digits) + (f" {unit}" if unit else "")
        case list() | dict():
            return text("{n} values", n=len(value))
    return label.value(str(value)[:80]) + (f" {unit}" if unit else "")


@dataclass(frozen=True)
class _Card:
    """One card of the page: a skill of a device, or entities of the home broker.

    Attributes:
        id: By which a person's layout names it.
        keys: Of its things, by the name of their value.
        skill: None for entities.
        device: Key of the device.
    """

    id: str
    room: str
    title: str
    keys: Mapping[str, tuple[str, str]]
    skill: SkillBody | None = None
    device: tuple[str, str] | None = None


class _Board:
    """The page as one browser shows it."""

    def __init__(self) -> None:
        self._things: dict[tuple[str, str], Thing] = {}
        self._skills: dict[tuple[str, str], SkillBody] = {}
        self._shows: dict[tuple[str, str], list[Callable[[Thing], None]]] = {}
        self._refresh_timers = sb.one_at_a_time(self._read_timers)
        self._told: dict[int, Event[WatcherData] | Event[NotificationData]] = {}
        self._mine = Arrangement(self._build)
        self._whole: set[str] = set()
        """Rooms of which all cards are shown."""
        self._common = Labels({}, LANGUAGE.get())

    async def open(self) -> None:
        """Build the page, and keep it up to date."""
        MessageBox()
        self._past = ui.element("div")
        with sb.row(wrap=False).classes("sb-home-top"):
            self._on = sb.named(ui.element("section").classes("sb-on sb-grow"), text("What is on"))
            self._on.props("aria-live=polite")
            self._arrange = view.button(text("Arrange"), self._switch, icon="tune", kind="flat")
        self._now = ui.element("div").classes("sb-grid")
        self._rooms = sb.stack().classes("sb-rooms")
        wanted = world.Wanted(limit=limits.MOST_THINGS)
        reading = view.api(world.look, wanted)
        found, _, _ = await asyncio.gather(reading, self._read_methods(), self._mine.load())
        self._things = {(thing.kind, thing.id): thing for thing in found.things}
        self._build()
        view.follow(partial(view.api.follow, world.follow, wanted), self._changed)
        # First, so that nothing happens unheard in between.
        view.on_event(TimerData, self._timer_changed)
        view.on_event(WatcherData, self._told_now)
        view.on_event(NotificationData, self._told_now)
        await self._refresh_timers()
        ui.timer(1.0, self._count_down)
        for event in await view.stored_events(WatcherData, last=limits.DECISIONS_READ):
            self._tell(event)
        for said in await view.stored_events(NotificationData, last=limits.TOLD_SHOWN, own=True):
            self._tell(said)
        self._show_told()

    async def _read_methods(self) -> None:
        found = await view.api(list_methods, arguments=limits.CONTROL_ARGUMENTS)
        self._skills = {(each.device, each.skill): each for each in found.skills}

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

    # -- the person's arrangement -----------------------------------------------------------------

    def _switch(self) -> None:
        self._mine.is_on = not self._mine.is_on
        self._arrange.text = text("Done") if self._mine.is_on else text("Arrange")
        self._arrange.props["icon"] = "check" if self._mine.is_on else "tune"
        self._arrange.props["aria-pressed"] = str(self._mine.is_on).lower()
        self._build()

    def _labels(self, skill: SkillBody | None, mine: HomeCard) -> Labels:
        return Labels(skill.labels if skill is not None else {}, LANGUAGE.get(), mine.names)

    # -- what is on -------------------------------------------------------------------------------

    def _show_on(self) -> None:
        on = [thing for thing in self._things.values() if thing.is_entity and is_on(thing.state)]
        with sb.refilled(self._on):
            if not any(thing.is_entity for thing in self._things.values()):
                return
            if not on:
                with ui.element("span").classes("sb-chip sb-chip-off"):
                    ui.icon("check_circle_outline")
                    sb.Words("span", text("Nothing is on"))
            shown = sorted(((self._name(thing), thing) for thing in on), key=lambda each: each[0].casefold())
            for name, thing in shown[: limits.CHIPS_SHOWN]:
                with ui.element("a").classes("sb-chip").props(f'href="#{_anchor(thing)}"') as chip:
                    ui.icon(icon_of(thing.name, thing.device_class or "", thing.kind))
                    sb.Words("span", name, "sb-cut")
                    if thing.area:
                        sb.Words("span", thing.area, "sb-chip-more")
                if (thing.kind, thing.id) not in self._shows:
                    chip.on("click", partial(self._reveal, thing))
            if len(shown) > limits.CHIPS_SHOWN:
                more = text("and {n} more", n=len(shown) - limits.CHIPS_SHOWN)
                sb.Words("span", more, "sb-chip sb-chip-off")

    def _name(self, thing: Thing) -> str:
        if thing.kind != "state":
            return thing.device or thing.name
        _, device, skill, name = thing.id.split(".", 3)
        mine = self._mine.card(f"{device}.{skill}")
        label = self._labels(self._skills.get((device, skill)), mine)
        called = mine.name or label(skill)
        return called if name in ("power", "state", "is_on", "on") else f"{called}: {label(name)}"

    def _reveal(self, thing: Thing) -> None:
        """Show all of the room of a thing whose card is not shown yet."""
        self._whole.add(thing.area or "")
        self._build()
        view.client.run_javascript(f"strawberry.focus({_anchor(thing)!r})")

    # -- rooms ------------------------------------------------------------------------------------

    def _build(self) -> None:
        self._shows.clear()
        cards = self._mine.ordered(self._cards(), lambda each: each.id)
        stars: list[_Card] = []
        rooms: dict[str, list[_Card]] = defaultdict(list)
        for each in cards:
            mine = self._mine.card(each.id)
            if self._mine.is_on or not mine.hidden:
                (stars if mine.star else rooms[each.room]).append(each)
        with sb.refilled(self._rooms):
            if self._mine.is_on:
                with sb.row():
                    said = text("Drag a card, or use its buttons. Only your Home changes.")
                    sb.Words("p", said, "sb-muted sb-grow")
                    view.button(text("Reset"), self._mine.reset, kind="flat")
            if not cards:
                self._nothing()
            elif not stars and not rooms:
                sb.empty("visibility_off", text("All cards are hidden"), text("“Arrange” shows them again."))
            if stars:
                self._section(text("Favourites"), stars, len(stars))
            left = limits.CARDS_SHOWN
            for room in sorted(rooms, key=lambda name: (name == "", name.casefold())):
                shown = len(rooms[room]) if room in self._whole else min(left, len(rooms[room]))
                left = max(0, left - shown)
                elsewhere = text("Elsewhere") if len(rooms) > 1 else text("Not in a room")
                self._section(room or elsewhere, rooms[room], shown, room)
        self._show_on()

    def _section(self, name: str, cards: Sequence[_Card], shown: int, room: str = "") -> None:
        """Make a heading with its first cards, and a button for the others."""
        with ui.element("section").classes("sb-room") as made:
            title = sb.Words("h2", name, "sb-h2")
            title.props["id"] = title.html_id
            made.props["aria-labelledby"] = title.html_id
            among = [each.id for each in cards]
            with sb.grid(least=260) as place:
                for each in cards[:shown]:
                    self._card(each, among)
            if not shown:
                place.delete()
            if shown < len(cards):

                def show_all() -> None:
                    self._whole.add(room)
                    self._build()

                with sb.actions().classes("sb-start"):
                    label = text("Show {n} more", n=len(cards) - shown)
                    tip = text("Show {n} more of {room}", n=len(cards) - shown, room=name)
                    sb.named(view.button(label, show_all, icon="expand_more"), tip)

    def _nothing(self) -> None:
        more = text("Add a device: what it can do then shows up here.")
        with sb.empty("home", text("Nothing here yet"), more):
            if view.is_admin:
                view.button(text("Add a device"), lambda: view.go("/devices"), icon="add", kind="primary")

    def _cards(self) -> list[_Card]:
        devices = {thing.device: key for key, thing in self._things.items() if thing.kind == "device"}
        states: dict[tuple[str, str], dict[str, tuple[str, str]]] = defaultdict(dict)
        others: dict[tuple[str, str], dict[str, tuple[str, str]]] = defaultdict(dict)
        for key, thing in self._things.items():
            if thing.kind == "state":
                _, device, skill, name = thing.id.split(".", 3)
                states[device, skill][name] = key
            elif thing.is_entity:
                device = thing.device or thing.name
                others[thing.area or "", device][thing.id] = key
        cards: list[_Card] = []
        for device, skill in sorted({*self._skills, *states}):
            its = states[device, skill]
            found = self._skills.get((device, skill))
            if found is None:
                # It has no simple method.
                area = next(self._things[each].area for each in its.values())
                found = SkillBody(
                    device=device,
                    device_name="",
                    area=area,
                    unavailable="",
                    skill=skill,
                    doc="",
                    device_agnostic=False,
                    methods=[],
                    labels={},
                )
            if device in devices and (its or self._acts(found)):
                name = f"{device}.{skill}"
                cards.append(_Card(name, found.area or "", skill, its, found, devices[device]))
        for (area, device), things in sorted(others.items()):
            cards.append(_Card(f"{area}/{device}"[:MAX_HOME_CARD_ID], area, device, things))
        return cards

    def _acts(self, skill: SkillBody) -> bool:
        controls = Panel(skill, {}, label=self._common).controls
        return view.may_change and bool(controls.simple or controls.power)

    def _card(self, each: _Card, among: Sequence[str]) -> None:
        mine = self._mine.card(each.id)
        label = self._labels(each.skill, mine)
        things = {name: self._things[key] for name, key in each.keys.items() if key in self._things}
        if each.skill is None:
            title = each.title
            icon = icon_of(*(thing.device_class or thing.kind for thing in things.values()), title)
        else:
            title, icon = label(each.title), icon_of(each.title)
        with sb.card(mine.name or title, icon=icon, classes="sb-thing") as tools:
            box = list(tools.ancestors())[1]
            for thing in things.values():
                ui.element("span").props(f'id="{_anchor(thing)}" tabindex=-1').classes("sb-anchor")
            if each.skill is not None and each.device is not None:
                usual = self._skill(each.skill, things, self._things[each.device], label, tools)
            else:
                usual = {
                    name: label.entity(thing.name.rpartition(".")[2].removeprefix(f"{title} "))
                    for name, thing in things.items()
                }
                rows = [(mine.names.get(name) or usual[name], thing) for name, thing in things.items()]
                self._rows(rows, label)
            if self._mine.is_on:
                self._mine.tools(each.id, usual, title=title, among=among)
                self._mine.drag(box, each.id, among)
                if mine.hidden:
                    box.classes("sb-card-hidden")

    def _skill(
        self, skill: SkillBody, states: Mapping[str, Thing], device: Thing, label: Labels, tools: ui.element
    ) -> dict[str, str]:
        """Make the controls and values of a skill; return what they are called without the person's names."""
        may_act = view.may_change and not skill.unavailable
        values = {name: thing.state for name, thing in states.items()}
        units = {name: thing.unit for name, thing in states.items() if thing.unit}
        panel = Panel(skill, values, label=label, units=units)
        for name, thing in states.items():
            self._bind(thing, partial(lambda name, thing: panel.show(name, thing.state), name))
        with ui.element("p").classes("sb-beneath"):
            link = view.link(device.name, f"/devices/{part(device.device)}", classes="sb-quiet sb-cut")
            link.props["title"] = device.name
            if (state := str(device.state)) != "online":
                sb.dot("bad", self._common.value(state))
            elif skill.unavailable:
                sb.dot("bad", text("does not work")).props["title"] = text.message(skill.unavailable)
        if may_act:
            with tools:
                panel.power()
            panel.rest()
        left = panel.controls.states if may_act else list(states)
        self._rows([(label(name), states[name]) for name in left], label)
        usual = Labels(skill.labels, LANGUAGE.get())
        return {name: usual(name) for name in panel.names} if may_act else {n: usual(n) for n in states}

    def _rows(self, rows: list[tuple[str, Thing]], label: Labels) -> None:
        if not rows:
            return
        with ui.element("dl").classes("sb-states"):
            for name, thing in rows:
                sb.cut("dt", name)
                value = sb.cut("dd", state_words(thing, label), title=_since(thing, label))
                self._bind(thing, partial(self._show_row, value, label))

    def _show_row(self, value: sb.Words, label: Labels, thing: Thing) -> None:
        value.set(state_words(thing, label))
        value.props["title"] = _since(thing, label)

    def _bind(self, thing: Thing, show: Callable[[Thing], None]) -> None:
        self._shows.setdefault((thing.kind, thing.id), []).append(show)

    # -- timers, and what people were told ---------------------------------------------------------

    async def _read_timers(self) -> None:
        timers = await view.api(list_timers)
        self._left: list[tuple[sb.Words, TimerSummary]] = []
        self._now.clear()
        self._now.set_visibility(bool(timers))
        if not timers:
            return
        with self._now, sb.card(text("Timers"), icon="timer"):
            for timer in timers[:10]:
                with sb.row(wrap=False):
                    is_paused = timer.left_s is not None
                    sb.cut("span", f"{timer.text} ({text('paused')})" if is_paused else timer.text)
                    ui.element("div").classes("sb-grow")
                    left = sb.Words("span", "", "sb-strong sb-count")
                    left.props["title"] = text("paused") if is_paused else view.at(timer.due)
                    self._left.append((left, timer))
                    if timer.is_timer:
                        tip = text("Resume {timer}" if is_paused else "Pause {timer}", timer=timer.text)
                        icon = "play_arrow" if is_paused else "pause"
                        view.tool(icon, tip, partial(self._pause, timer))
                    view.tool("close", text("Cancel {timer}", timer=timer.text), partial(self._cancel, timer))
        self._count_down()

    def _count_down(self) -> None:
        for words, timer in self._left:
            runs_s = (timer.due - datetime.now(UTC)).total_seconds()
            seconds = max(0, round(runs_s if timer.left_s is None else timer.left_s))
            words.set(countdown(seconds) if seconds < 86_400 else lasting(seconds))

    async def _pause(self, timer: TimerSummary) -> None:
        await view.api(pause_timer if timer.left_s is None else resume_timer, timer.id)

    async def _cancel(self, timer: TimerSummary) -> None:
        await view.api(remove_timer, timer.id)
        await self._refresh_timers()

    async def _timer_changed(self, event: Event[TimerData]) -> None:
        if event.user == view.user.id:
            await self._refresh_timers()

    def _told_now(self, event: Event[WatcherData] | Event[NotificationData]) -> None:
        if isinstance(event.data, NotificationData) and event.user != view.user.id:
            return  # an admin's stream has everybody's
        self._tell(event)
        self._show_told()

    def _tell(self, event: Event[WatcherData] | Event[NotificationData]) -> None:
        data = event.data
        kind = None if isinstance(data, NotificationData) else kind_of(data.decision or "")
        # What told its owner something only is here already, as what was told.
        is_here = kind is NOTIFY and event.user == view.user.id
        if kind is None or (kind.is_told and not is_here):
            self._told[event.id] = event
            while len(self._told) > limits.TOLD_SHOWN:
                del self._told[min(self._told)]

    def _show_told(self) -> None:
        self._past.clear()
        if not self._told:
            return
        with (
            self._past,
            sb.card(text("What happened"), icon="notifications_none", classes="sb-told") as tools,
        ):
            with tools:
                view.link(text("All watchers"), "/watchers")
            for _, each in sorted(self._told.items(), reverse=True):
                with ui.element("div").classes("sb-fired"):
                    with sb.row(wrap=False):
                        sb.Words("span", each.data.title or each.subject, "sb-strong sb-cut")
                        ui.element("div").classes("sb-grow")
                        sb.Words("span", view.at(each.at), "sb-muted sb-small")
                    data = each.data
                    said = data.text if isinstance(data, NotificationData) else data.reason
                    if said and said != each.subject:
                        sb.cut("p", shortened(text.message(for_people(said)), 300), "sb-muted")


def _anchor(thing: Thing) -> str:
    return "thing-" + "".join(each if each.isalnum() else "-" for each in thing.id)


def _since(thing: Thing, label: Labels) -> str:
    """Return how long something has been so."""
    value = state_words(thing, label)
    return value if thing.age_s is None else f"{value} · {lasting(thing.age_s)}"
