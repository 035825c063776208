"""The bus: all topics that a person may see, live, and publishing by hand."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

from nicegui import ui

from contracts.answers.live import LinkName
from contracts.topics import is_exact, is_filter
from hub_live.topics import operations as topics
from hub_live.topics.tree import ShownTopic, TreeEvent
from hub_web import limits, sb
from hub_web.pages.live.publishing import publish
from hub_web.pages.live.topic_tree import Line, TopicState, TopicTree, numbers_in, short
from hub_web.parts.calls.forms import choice, text_field
from hub_web.parts.plots import plot, show_sparkline, sparkline
from hub_web.shell import page
from hub_web.texts import size, text
from hub_web.view import view

_EVERYTHING: Final = "#"


@page("/bus", title="Bus", icon="hub", menu=220, width="wide", writer=True)
async def bus() -> None:
    """Show the tree of topics, and one of them whole."""
    health = view.api.hub.health()
    links = {"bus": text("Strawberry's bus")}
    if health.home_broker is not None:
        links |= {"home": text("Home broker")}
    if health.home_assistant is not None:
        links |= {"home_assistant": "Home Assistant"}
    sb.note(text("What devices and the hub say to each other, as it happens."))
    with sb.row().classes("sb-filters"):
        link = choice(text("Broker"), links, "bus")
        link.set_visibility(len(links) > 1)
        wanted = text_field(text("Filter"), hint=text("Words, or a topic filter such as devices/+/state/#"))
        wanted.props("clearable debounce=120").classes("sb-topic-filter")
        ui.element("div").classes("sb-grow")
        if view.is_admin:
            view.button(text("Publish"), lambda: publish(links, link.value, ""), icon="publish")

    def chosen() -> LinkName:
        return cast(LinkName, link.value)

    with ui.element("div").classes("sb-bus"):
        with sb.card(classes="sb-bus-tree"):
            left = sb.stack()
        with sb.card(classes="sb-bus-topic"):
            topic = _Topic(links, chosen)
    with left:
        tree = _Tree(topic)
    tree.follow(chosen())

    def filtered() -> None:
        tree.filter(str(wanted.value or ""))

    def switched() -> None:
        topic.clear()
        tree.follow(chosen())
        filtered()

    wanted.on_value_change(filtered)
    link.on_value_change(switched)


class _Row:
    """A line of the tree in the page."""

    def __init__(self, line: Line, *, click: Callable[[], None]) -> None:
        self._state = line.branch.topic
        self._spark: ui.html | None = None
        with ui.element("button").classes("sb-topic").props("type=button") as self.element:
            self.element.style(f"--indent: {line.depth * 16}px")
            icon = "" if line.is_open is None else "expand_more" if line.is_open else "chevron_right"
            ui.icon(icon).classes("sb-chevron")
            sb.cut("span", line.label, "sb-topic-name", title=line.branch.path)
            if line.is_open is not None:
                sb.Words("span", text.number(line.branch.size), "sb-badge")
            self._value = sb.Words("span", "", "sb-topic-value sb-cut sb-mono")
            self._plot = ui.element("span").classes("sb-topic-plot")
            self._pin = ui.icon("push_pin").classes("sb-topic-pin")
            self._pin.tooltip(text("retained: the broker keeps it"))
            self._rate = sb.Words("span", "", "sb-topic-rate")
        self.element.on("click", click)
        if line.is_open is not None:
            self.element.props["aria-expanded"] = str(line.is_open).lower()
        self.change()

    def change(self) -> None:
        """Show the last value."""
        state = self._state
        self._pin.set_visibility(state is not None and state.last.retained)
        if state is None:
            return
        self._value.set(size(state.last.bytes) if state.last.cut else short(state.value))
        self._rate.set(_rate(state.last))
        if len(state.numbers) >= limits.LEAST_POINTS:
            label = text("the last values of {topic}", topic=state.topic)
            if self._spark is None:
                with self._plot:
                    self._spark = sparkline(list(state.numbers), label=label, height=20)
            else:
                show_sparkline(self._spark, list(state.numbers), label=label, height=20)

    def mark(self, *, chosen: bool) -> None:
        """Show whether it is the one that is shown whole."""
        self.element.classes(add="sb-here" if chosen else "", remove="" if chosen else "sb-here")
        if chosen:
            self.element.props["aria-current"] = "true"
        else:
            self.element.props.pop("aria-current", None)


class _Tree:
    """The tree in the page; it is drawn at most twice a second, and only as much of it as is open.

    Args:
        topic: Shows the one that was clicked.
    """

    def __init__(self, topic: "_Topic") -> None:
        self._topic = topic
        self._tree = TopicTree()
        self._rows: dict[tuple[Any, ...], _Row] = {}
        self._by_topic: dict[str, _Row] = {}
        self._drawn = -1
        self._most = limits.TREE_LINES
        self._chosen = ""
        self._changed: set[str] = set()
        self._news = asyncio.Event()
        self._stop: Callable[[], object] = lambda: None
        self._followed: tuple[LinkName, str, str] = ("bus", "", "")
        self._wanted = ""
        self._is_full = False
        self._warning = sb.stack()
        with sb.row(wrap=False):
            self._count = sb.Words("span", text("Looking…"), "sb-muted sb-small")
        self._list = sb.named(ui.element("div").classes("sb-topics").props("role=group"), text("Topics"))
        self._more = sb.row()
        view.run(self._draw_again(), name="topics")

    def follow(self, link: LinkName, filter_: str = _EVERYTHING, words: str = "") -> None:
        """Show the topics of a filter in place of those before."""
        if self._followed == (link, filter_, words):
            return
        self._stop()
        if link != self._followed[0]:
            self._chosen = ""
        self._followed, self._is_full = (link, filter_, words), False
        self._changed.clear()
        self._tree.clear()
        self._warning.clear()
        self._count.set(text("Looking…"))
        with self._list:
            self._stop = view.follow(partial(view.api.follow, topics.tree, filter_, words, link), self._heard)
        self._news.set()

    def filter(self, wanted: str) -> None:
        """Show only some topics."""
        wanted = self._wanted = wanted.strip()
        link, filter_, words = self._followed
        # The hub looks for it, too, where there are more topics than it sends.
        if not is_exact(wanted) and is_filter(wanted):
            self.follow(link, wanted)
        elif self._is_full or filter_ != _EVERYTHING or words not in wanted:
            self.follow(link, words=wanted)
        self._tree.want(wanted)
        self._most = limits.TREE_LINES
        self._news.set()

    def _heard(self, event: TreeEvent) -> None:
        for last in event.topics or ():
            self._tree.put(last)
            self._changed.add(last.topic)
        if event.full and not self._is_full:
            self._is_full = True
            # Typed before it was known that the hub has more topics than it sent.
            self.filter(self._wanted)
        if event.refused:
            self._warn(text("The home broker does not let the hub see this."), event.refused)
        if gap := event.gap:
            self._warning.clear()
            if gap.until is None:
                since = view.at(gap.since)
                self._warn(text("The broker is away since {time}.", time=since), "")
        self._news.set()

    def _warn(self, message: str, hint: str) -> None:
        with sb.refilled(self._warning):
            sb.problem(message, hint)

    async def _draw_again(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            with self._list:
                self._draw()
            await asyncio.sleep(limits.BUS_TICK_S)

    def _draw(self) -> None:
        changed, self._changed = self._changed, set()
        if self._drawn != self._tree.shape:
            self._drawn = self._tree.shape
            self._lay_out()
        for name in changed:
            if (shown := self._by_topic.get(name)) is not None:
                shown.change()
            if name == self._chosen:
                self._topic.changed(self._tree.topics[name])
        self._say_count()

    def _lay_out(self) -> None:
        """Make the lines that are new, drop those that are gone, and put them in order."""
        lines, has_more = self._tree.lines(self._most)
        rows: dict[tuple[Any, ...], _Row] = {}
        self._by_topic.clear()
        with self._list:
            for line in lines:
                count = line.branch.size if line.is_open is not None else 0
                # With the topic itself: after another filter it may be a new one in the same place.
                key = (line.branch.path, line.depth, line.label, line.is_open, count, id(line.branch.topic))
                made = self._rows.pop(key, None)
                if made is None:
                    made = _Row(line, click=partial(self._click, line))
                rows[key] = made
                if line.branch.topic is not None:
                    self._by_topic[line.branch.topic.topic] = made
                    made.mark(chosen=line.branch.path == self._chosen)
        for gone in self._rows.values():
            gone.element.delete()
        self._rows = rows
        self._list.default_slot.children = [each.element for each in rows.values()]
        self._list.update()
        with sb.refilled(self._more):
            if has_more:
                view.button(text("Show more"), self._show_more, icon="expand_more")
            elif not lines:
                sb.empty("hub", text("No topic here"))

    def _show_more(self) -> None:
        self._most += limits.TREE_LINES
        self._tree.shape += 1
        self._news.set()

    def _click(self, line: Line) -> None:
        state = line.branch.topic
        if line.is_open is not None and (state is None or self._chosen == state.topic):
            self._tree.turn(line.branch)
        elif state is not None:
            for name, shown in self._by_topic.items():
                if name in (self._chosen, state.topic):
                    shown.mark(chosen=name == state.topic)
            self._chosen = state.topic
            view.run(self._topic.show(state), name="topic")
        with self._list:
            self._draw()

    def _say_count(self) -> None:
        total, matching = len(self._tree.topics), self._tree.matching()
        said = text("{n} topic" if total == 1 else "{n} topics", n=text.number(total))
        if matching != total:
            said = text("{n} of {total} topics", n=text.number(matching), total=text.number(total))
        if self._is_full:
            said = text("The first {total} topics; a filter shows others.", total=text.number(total))
        self._count.set(said)


class _Topic:
    """One topic whole: its value, its numbers over time, and what it was before."""

    def __init__(self, links: Mapping[str, str], link: Callable[[], LinkName]) -> None:
        self._links = links
        self._link = link
        self._wanted = ""
        self._state: TopicState | None = None
        self._history: deque[tuple[datetime, Any]] = deque(maxlen=limits.TOPIC_HISTORY)
        self._field: str | None = None
        self._content = sb.stack()
        self.clear()

    def clear(self) -> None:
        """Show nothing."""
        self._wanted, self._state = "", None
        with sb.refilled(self._content):
            sb.empty("touch_app", text("Choose a topic to see all of it"))

    async def show(self, state: TopicState) -> None:
        """Show a topic."""
        self._wanted = state.topic
        async with view.busy():
            answer = await view.api(topics.history, state.topic, self._link(), limit=limits.TOPIC_HISTORY)
        if self._wanted != state.topic:
            return  # another one was chosen meanwhile
        self._state, self._field = state, None
        self._history.clear()
        self._history.extend((each.at, each.value) for each in answer.samples)
        with sb.refilled(self._content):
            with sb.row(wrap=False):
                sb.Words("h2", state.topic, "sb-h2 sb-mono sb-topic-title").props["tabindex"] = "-1"
                if view.is_admin:
                    publishing = partial(publish, self._links, self._link(), state.topic)
                    view.tool("publish", text("Publish on this topic"), publishing)
            self._body = sb.stack()
        self.changed(state)
        # On a phone it stands above the tree.
        view.client.run_javascript(
            f"if (innerWidth < 1024) getHtmlElement({self._content.id}).scrollIntoView({{block: 'center'}})"
        )

    def changed(self, state: TopicState) -> None:
        """Show what a topic says now."""
        if self._state is None or state.topic != self._state.topic:
            return
        self._state = state
        at = state.last.at
        # What was on its way when the history was read is in it already.
        if not self._history or at > self._history[-1][0]:
            self._history.append((at, state.value))
        self._draw()

    def _draw(self) -> None:
        assert self._state is not None
        state, last = self._state, self._state.last
        with sb.refilled(self._body):
            with sb.row():
                if last.retained:
                    sb.badge(text("retained"), "accent", icon="push_pin")
                sb.badge(size(last.bytes))
                if rate := _rate(last):
                    sb.badge(rate)
            count = text.count(
                last.messages,
                "{n} message since this page was opened",
                "{n} messages since this page was opened",
            )
            sb.facts((text("Last message"), _clock(last.at)), (text("Counted"), count))
            self._draw_numbers(state)
            with sb.stack() as values:
                if isinstance(state.value, str):
                    sb.code(state.value or text("(empty)"), label=text("Value"))
                else:
                    sb.as_json(state.value, label=text("Value"))
                if last.cut:
                    show_all = partial(self._show_all, values)
                    view.button(text("Show all of it"), show_all, icon="unfold_more")
            if len(self._history) > 1:
                earlier = list(self._history)[-limits.EARLIER_VALUES - 1 : -1][::-1]
                sb.heading(text("Before that"), level=3)
                sb.table(
                    [text("When"), text("Value")],
                    [(_clock(at), short(value)) for at, value in earlier],
                    label=text("Earlier values"),
                )

    def _draw_numbers(self, state: TopicState) -> None:
        fields = numbers_in(state.value)
        if not fields or len(self._history) < limits.LEAST_POINTS:
            return
        if self._field not in fields:
            self._field = "value" if "value" in fields else next(iter(fields))
        if len(fields) > 1:
            names = {name: name for name in fields}
            choice(text("Field"), names, self._field).on_value_change(self._choose_field)
        plot(
            [(at.timestamp(), numbers_in(value).get(self._field)) for at, value in self._history],
            label=text("the last values of {topic}", topic=state.topic),
            unit=str(state.value.get("unit") or "") if isinstance(state.value, dict) else "",
            height=150,
            width=380,
        )

    def _choose_field(self, event: Any) -> None:
        self._field = event.value
        self._draw()

    async def _show_all(self, place: ui.element) -> None:
        answer = await view.api(topics.latest, self._wanted, self._link())
        with sb.refilled(place):
            for sample in answer.samples:
                sb.as_json(sample.value, label=text("Value"))


def _clock(at: datetime) -> str:
    """Return a moment with its seconds, where it is of today."""
    there = at.astimezone(view.zone)
    if there.date() == datetime.now(view.zone).date():
        return there.strftime("%H:%M:%S")
    return view.at(at)


def _rate(last: ShownTopic) -> str:
    rate = last.per_minute
    if rate is None or rate < 0.01:
        return ""
    if rate >= 60:
        return text("{n} a second", n=text.number(rate / 60, 1))
    return text("{n} a minute", n=text.number(rate, 0 if rate >= 10 else 1))
