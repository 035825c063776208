"""The form of a watcher: instruction, topics and calls; made, and changed later."""

import re
from typing import Any, Final, cast

from nicegui import ui

from contracts.answers.live import LinkName
from contracts.answers.watchers import Allowed, WatchedTopic, WatcherSummary
from contracts.wire import Json
from hub_live import limits
from hub_live.watchers import operations
from hub_live.watchers.definition import Edit, WatchedValue, WatcherRequest, free_name
from hub_live.watchers.words.reading import title_of
from hub_web import sb
from hub_web.pages.live.watcher_words import SentenceForm, load_choices
from hub_web.pages.live.watchers import rule_of
from hub_web.parts.calls.calls import labels_of, method_summary
from hub_web.parts.calls.forms import SchemaForm, choice, refuse, switch, text_field
from hub_web.shell import page
from hub_web.texts import lasting, text
from hub_web.view import part, view

_LINK: Final = re.compile(r" \((home|home_assistant)\)\Z")
"""At the end of a topic that is not on the bus."""
_FIELD: Final = " → "
_OFTEN: Final = (60, 300, 3_600)
"""Seconds between two looks that are offered."""


@page("/watchers/new", title="New watcher", icon="visibility", writer=True)
async def new_watcher() -> None:
    place = sb.stack()

    async def with_model() -> None:
        with sb.refilled(place):
            await _Form().open()

    with place:
        await SentenceForm(on_model=with_model).open()


@page("/watchers/{name}/edit", title="Edit a watcher", icon="visibility", writer=True)
async def edit_watcher(name: str) -> None:
    """Show the form that changes one."""
    watcher = await view.api(operations.show, name)
    view.title(watcher.title)
    await (SentenceForm(watcher) if watcher.then else _Form(watcher)).open()


def source_line(source: WatchedTopic) -> str:
    """Return a topic that a watcher sees as one line, as the form reads it."""
    field = f"{_FIELD}{source.value}" if source.value else ""
    return f"{source.topic}{field}" + (f" ({source.link})" if source.link != "bus" else "")


class _Form:
    """The form as one browser shows it.

    Args:
        watcher: The one that is changed; None for a new one.
    """

    def __init__(self, watcher: WatcherSummary | None = None) -> None:
        self._watcher = watcher
        self._allowed = {call.path: call.arguments for call in watcher.allow} if watcher else {}
        self._calls: dict[str, tuple[SchemaForm | None, dict[str, Json]]] = {}

    async def open(self) -> None:
        """Build the page."""
        present = self._watcher
        self._choices = await load_choices()
        with sb.card(text("In your words"), icon="edit_note"):
            self._words = text_field(
                text("What should it do?"),
                present.instruction if present else "",
                hint=text("For example: tell me when the disk is above 95 %"),
                lines=True,
            )
            self._name = text_field(text("Name"), present.title if present else "")
        with sb.card(text("What it sees"), icon="sensors"):
            self._seen = choice(text("Values of your home"), self._choices.names, [], several=True)
            sources = present.topics if present else {}
            with sb.folded(text("As code")):
                self._topics = text_field(
                    text("Topics") if present else text("Other topics"),
                    "\n".join(f"{name} = {source_line(each)}" for name, each in sources.items()),
                    hint=text("One in each line, as disk = devices/nas/state/…"),
                    lines=True,
                )
                if present:
                    self._predicate = text_field(text("Predicate"), present.predicate or "", lines=True)
                    self._predicate.props("input-class=sb-mono spellcheck=false")
        with sb.card(text("What it may do"), icon="bolt"):
            sb.note(
                text("It notifies you. It may also call what you choose here, with exactly these arguments.")
            )
            paths = {path: self._choices.method(path) for path in (*self._choices.methods, *self._allowed)}
            self._paths = choice(text("Calls"), paths, list(self._allowed), several=True)
            self._paths.on_value_change(self._show_calls)
            self._forms = sb.stack()
            self._show_calls()
        with sb.card(text("When"), icon="schedule"):
            self._timing()
        if present:
            sb.note(text("With calls, it does nothing after a change until you approve it again."))
        with sb.actions():
            back = f"/watchers/{part(present.name)}" if present else "/watchers"
            view.button(text("Cancel"), lambda: view.go(back), kind="flat")
            if present:
                view.button(text("Save"), self._change, kind="primary")
            else:
                view.button(text("Make a watcher"), self._make, icon="auto_awesome", kind="primary")

    def _timing(self) -> None:
        every_s, schedule = (self._watcher.every_s, self._watcher.schedule) if self._watcher else (None, None)
        when = {
            "on_change": text("When a value changes"),
            "every_s": text("At an interval"),
            "schedule": text("At set times"),
        }
        chosen = "every_s" if every_s else "schedule" if schedule else "on_change"
        every = every_s or limits.DEFAULT_EVERY_S
        often = {each: lasting(each) for each in sorted({*_OFTEN, every})}
        with sb.row().classes("sb-search"):
            self._when = choice(text("It looks"), when, chosen).classes("sb-narrow")
            self._seconds = choice(text("Every"), often, every).classes("sb-narrow")
            self._schedule = text_field(
                text("Times"), schedule or "", hint=text("As: every weekday at 7, or sunset")
            )
            self._schedule.classes("sb-grow")
        self._seconds.bind_visibility_from(self._when, "value", value="every_s")
        self._schedule.bind_visibility_from(self._when, "value", value="schedule")
        if self._watcher is None:
            self._dry = switch(text("Dry run: decide and report, but call nothing"))

    def _show_calls(self) -> None:
        self._forms.clear()
        self._calls = {}
        with self._forms:
            for path in self._paths.value or []:
                with ui.element("fieldset").classes("sb-fieldset sb-form"):
                    sb.Words("legend", self._choices.method(path), title=path)
                    self._calls[path] = self._call(path)

    def _call(self, path: str) -> tuple[SchemaForm | None, dict[str, Json]]:
        """Make the fields of a call; a range, and what is not there now, stays as it was approved."""
        found, given = self._choices.methods.get(path), self._allowed.get(path, {})
        kept = {name: each for name, each in given.items() if found is None or _is_rule(each)}
        for name, each in kept.items():
            sb.note(f"{name} = {rule_of(each)}", classes="sb-mono")
        if found is None:
            return None, kept
        skill, method = found
        sb.note(method_summary(skill, method))
        schema = method.parameters
        fields = {name: each for name, each in schema.get("properties", {}).items() if name not in kept}
        needed = [name for name in schema.get("required", ()) if name not in kept]
        schema = {**schema, "properties": fields, "required": needed}
        return SchemaForm(schema, given, doc=method.doc, label=labels_of(skill)), kept

    def _allow(self) -> tuple[Allowed, ...]:
        return tuple(
            Allowed.model_construct(path=path, arguments={**kept, **(form.values() if form else {})})
            for path, (form, kept) in self._calls.items()
        )

    def _sources(self) -> dict[str, WatchedValue]:
        sources: dict[str, WatchedValue] = {}
        for line in filter(None, map(str.strip, (self._topics.value or "").splitlines())):
            name, equals, topic = (each.strip() for each in line.partition("="))
            found = _LINK.search(line)
            link = cast("LinkName", found[1]) if found else "bus"
            topic, _, field = _LINK.sub("", topic if equals else name).partition(_FIELD)
            base = name if equals else topic.rpartition("/")[2]
            known = self._watcher.topics.get(name) if self._watcher else None
            asked = known.model_dump(include={"ask", "arguments", "every"}) if known else {}
            source = WatchedValue.model_construct(topic=topic, value=field or None, link=link, **asked)
            sources[name if self._watcher else free_name(base, sources)] = source
        for key in self._seen.value or []:
            thing = self._choices.things[key]
            topic, link = thing.topic or "", thing.link or "bus"
            last = topic.rpartition("/")[2] if link == "bus" else thing.name
            # A state on the bus is its value anyway.
            value = None if link == "bus" and thing.field == "value" else thing.field
            source = WatchedValue.model_construct(topic=topic, value=value, link=link)
            sources[free_name(last, sources)] = source
        return sources

    def _request(self) -> WatcherRequest:
        """Return the watcher that is wanted, which the routes check."""
        words = (self._words.value or "").strip()
        if not words and not (self._watcher and self._watcher.then):
            refuse(self._words, text("Say in words what it should do."))
        when, topics, title = self._when.value, self._sources(), (self._name.value or "").strip()
        if not topics and when != "schedule":
            refuse(self._seen, text("Choose at least one value"))
        present = self._watcher
        return WatcherRequest.model_construct(
            name=present.name if present else title or title_of(words),
            title=title,
            topics=topics,
            instruction=words,
            every_s=self._seconds.value if when == "every_s" else None,
            on_change=when == "on_change",
            schedule=self._schedule.value if when == "schedule" else None,
            allow=self._allow(),
            dry_run=present.dry_run if present else self._dry.value,
        )

    async def _change(self) -> None:
        wanted = self._request()
        edit = Edit.model_construct(
            title=wanted.title or None,
            instruction=wanted.instruction,
            topics={**wanted.topics},
            predicate=(self._predicate.value or "").strip(),
            # Of one with steps they are those of the steps.
            allow=None if self._watcher and self._watcher.then else wanted.allow,
            every_s=wanted.every_s,
            on_change=wanted.on_change,
            schedule=wanted.schedule,
        )
        await view.api(operations.edit, wanted.name, edit)
        view.go(f"/watchers/{part(wanted.name)}")

    async def _make(self) -> None:
        made = await view.api(operations.create, self._request())
        view.go(f"/watchers/{part(made.name)}")


def _is_rule(given: Any) -> bool:
    return isinstance(given, dict) and bool(given.keys() & {"minimum", "maximum", "enum"})
