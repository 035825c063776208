"""The form of a watcher that needs no model: one sentence, and its parts as controls."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from nicegui import ui
from nicegui.elements.mixins.value_element import ValueElement

from contracts.answers.skills import MethodBody, SkillBody
from contracts.answers.watchers import Step, WatcherSummary
from contracts.errors import StrawberryError
from contracts.validation import validated
from contracts.wire import Json
from hub_live.watchers import operations
from hub_live.watchers.definition import Edit, WatchedValue, WatcherRequest, duration_of, free_name
from hub_live.watchers.predicates.clock import WEEKDAYS
from hub_live.watchers.words.parts import Condition, Part, condition_of, predicate_of, schedule_of, times_of
from hub_live.watchers.words.reading import source_of, title_of
from hub_live.watchers.words.sentence import lasting, plain, schedule_text
from hub_live.world.operations import Wanted, look
from hub_live.world.thing import Thing
from hub_live.world.world import ENTITY
from hub_registry.http.skills import list_methods
from hub_web import sb
from hub_web.limits import MANY_TOPICS
from hub_web.parts.calls.calls import labels_of, method_words
from hub_web.parts.calls.forms import SchemaForm, choice, refuse, switch, text_field
from hub_web.parts.names import load_names, now_words
from hub_web.texts import LANGUAGE, text
from hub_web.view import part, view

_TELL: Final = ""
"""Stands for a text among the paths of calls."""
_DELAYS: Final = ("", "1m", "5m", "10m", "20m", "1h")
_EMPTY: Final = Step.model_construct(notify="")
_PLACE: Final = re.compile(r" \([^()]*\)")
"""Where a thing is and how it is now: not for a title."""
_LIMITS: Final = frozenset({">", "<", ">=", "<=", "==", "!="})


@dataclass
class _Step:
    """A step as it is edited.

    Attributes:
        read: Returns what its fields have now; with True, all that it needs.
        controls: Returns those of the bold parts of its sentence.
    """

    step: Step
    read: Callable[[bool], Step] = field(default=lambda _: Step())
    controls: Callable[[], list[ValueElement[Any]]] = field(default=list)


@dataclass(frozen=True)
class Choices:
    """What a watcher may look at and call.

    Attributes:
        things: What has a topic, by kind and id.
        names: What these are called, with their present values.
        methods: Those that change something, by path.
    """

    things: dict[str, Thing]
    names: dict[str, str]
    methods: dict[str, tuple[SkillBody, MethodBody]]

    def method(self, path: str) -> str:
        return method_words(*self.methods[path]) if path in self.methods else path.removeprefix("devices.")


async def load_choices() -> Choices:
    world = await view.api(look, Wanted(kind=ENTITY, limit=MANY_TOPICS))
    found = await view.api(list_methods)
    names = await load_names()
    things = {f"{each.kind} {each.id}": each for each in world.things if each.topic}
    methods = {
        method.path: (skill, method)
        for skill in found.skills
        for method in skill.methods
        if "read_only" not in method.flags
    }
    called = {key: f"{names.value(each)}{now_words(each)}" for key, each in things.items()}
    return Choices(things, called, methods)


class SentenceForm:
    """The form as one browser shows it.

    Args:
        watcher: The one that is changed; None for a new one.
        on_model: Opens the form of a watcher for which a model decides.
    """

    def __init__(self, watcher: WatcherSummary | None = None, on_model: sb.Callback | None = None) -> None:
        self._watcher = watcher
        self._on_model = on_model
        self._values: dict[str, WatchedValue] = {}
        self._names: dict[str, str] = {}
        self._steps: list[_Step] = []
        self._rows: list[tuple[str, Any, Any, Any]] = []
        self._followed: set[int] = set()
        self._drawn: WatcherRequest | None = None
        self._draw = sb.one_at_a_time(self._draw_sentence)

    async def open(self) -> None:
        """Build the page."""
        self._choices = await load_choices()
        for key, thing in self._choices.things.items():
            self._add_value(source_of(thing), self._choices.names[key])
        if self._watcher is None:
            with sb.card(text("In one sentence"), icon="edit_note"):
                hint = text("For example: tell me when the disk is above 95 %")
                self._said = text_field(text("What should happen, and when?"), hint=hint, lines=True)
                self._said.classes("sb-draft")
                with sb.actions():
                    view.button(text("Let a model decide"), self._on_model or (lambda: None), kind="flat")
                    view.button(text("Choose the parts"), lambda: self._build(None), kind="flat")
                    view.button(text("Understand"), self._understand, icon="auto_awesome", kind="primary")
        self._told = sb.stack().props("aria-live=polite")
        self._place = sb.stack().classes("sb-parts")
        if self._watcher is not None:
            kept = {"name", "title", "topics", "predicate", "schedule", "then", "dry_run"}
            given = self._watcher.model_dump(include=kept, exclude_none=True)
            self._build(WatcherRequest.model_validate(given))
            await self._draw()

    async def _understand(self) -> None:
        said = (self._said.value or "").strip()
        if not said:
            refuse(self._said, text("Say in words what it should do."))
        found = await view.api(operations.propose, said, LANGUAGE.get())
        self._build(WatcherRequest.model_validate(found.watcher))
        await self._draw()

    def _build(self, given: WatcherRequest | None) -> None:
        """Show the parts of a watcher as controls."""
        self._given, self._drawn = given, None
        self._told.clear()
        for source in given.topics.values() if given else ():
            self._add_value(source, source.topic)
        with sb.refilled(self._place):
            with sb.card(text("When"), icon="schedule"):
                self._build_when(given)
            with sb.card(text("Then"), icon="bolt"):
                self._steps = [_Step(each) for each in given.then] if given else [_Step(_EMPTY)]
                self._list = sb.stack()
                self._build_steps()
                with sb.actions().classes("sb-start"):
                    add = partial(self._change_steps, add=True)
                    view.button(text("Add a step"), add, icon="add", kind="flat")
            with sb.card():
                said = self._said.value or "" if self._watcher is None else ""
                self._own_title = given.title if given else title_of(said)
                self._title = text_field(text("Name"), self._own_title)
                dry_run = text("Dry run: decide and report, but call nothing")
                self._dry = switch(dry_run, bool(given and given.dry_run))
                with sb.actions():
                    view.button(text("Cancel"), lambda: view.go("/watchers"), kind="flat")
                    label = text("Save") if self._watcher else text.of("a watcher", "Make it")
                    view.button(label, self._make, icon="check", kind="primary")
        self._follow()

    # -- the sentence -----------------------------------------------------------------------------

    def _follow(self) -> None:
        """Draw the sentence whenever a control changes that is there now."""
        for each in self._place.descendants():
            if isinstance(each, ValueElement) and each.id not in self._followed:
                self._followed.add(each.id)
                each.on_value_change(self._draw)

    async def _draw_sentence(self) -> None:
        try:
            request = self._request(is_final=False)
            if request == self._drawn:
                return
            said = (await view.api(operations.propose, watcher=request)).sentence
            controls = self._controls(request)
        except StrawberryError:
            return  # half typed: the last sentence stays
        with sb.refilled(self._told), sb.card(classes="sb-attention"):
            sb.sentence(text.message(said), "sb-lead sb-wrap", controls=controls)
            sb.note(text("Press a bold part to change it."))
        is_first, self._drawn = self._drawn is None, request
        title = title_of(_PLACE.sub("", text.message(plain(said))))
        if is_first and self._watcher is not None:
            self._own_title = title
        elif self._title.value == self._own_title and not (is_first and self._own_title):
            self._title.value = self._own_title = title

    def _controls(self, watcher: WatcherRequest) -> list[ValueElement[Any]]:
        """Return the controls of the bold parts of the sentence, in their order."""
        made: list[ValueElement[Any]] = []
        if watcher.schedule:
            timed = self._begins.value in ("day", "weekday", "weekend", "code")
            first = self._time if timed else self._begins
            made += [first, self._time][: schedule_text(watcher.schedule).count("**") // 2]
        if self._code is not None:
            made.append(self._code)
        else:
            for _, value, relation, limit in self._complete_rows():
                made += [value, limit] if relation.value in _LIMITS else [value]
            made += [self._from, self._until] if self._only.value == "between" else []
            made += [self._held] if self._held.value and watcher.predicate else []
        return made + [control for each in self._steps for control in each.controls()]

    # -- when -------------------------------------------------------------------------------------

    def _build_when(self, given: WatcherRequest | None) -> None:
        times = times_of(given.schedule or "") if given else ("value", "")
        days = {each: text.message(each.title()) for each in WEEKDAYS}
        begins = {
            "value": text("When something is so"),
            "day": text("Every day"),
            "weekday": text("On weekdays"),
            "weekend": text("At weekends"),
            **days,
            "sunset": text("At sunset"),
            "sunrise": text("At sunrise"),
            "code": text("At other times"),
        }
        with sb.row().classes("sb-search"):
            self._begins = choice(text("Begins"), begins, times[0]).classes("sb-narrow")
            self._time = text_field(text("Time"), times[1] or "07:00").classes("sb-narrow")
            dated = {"day", "weekday", "weekend", "code", *WEEKDAYS}
            self._time.bind_visibility_from(self._begins, "value", lambda value: value in dated)
        predicate = (given.predicate or "") if given else ""
        topics = given.topics if given else {}
        found = condition_of(predicate, topics) if predicate else Condition()
        self._code: Any = None
        if found is None:
            sb.note(text("This condition has no controls: it is changed as code."))
            with sb.folded(text("As code")):
                self._code = text_field(text("Predicate"), predicate, lines=True).props("input-class=sb-mono")
            return
        self._rows = []
        self._conditions = sb.stack()
        is_timed = times[0] != "value"
        for each in found.parts or (() if is_timed else (Part(),)):
            self._add_row(each, topics)
        with sb.actions().classes("sb-start"):
            view.button(text("Add a condition"), lambda: self._add_row(Part(), {}), icon="add", kind="flat")
        only = {
            "": text("At any time"),
            "between": text("Between two times"),
            "down": text("While it is dark"),
            "up": text("While it is light"),
        }
        with sb.row().classes("sb-search"):
            self._only = choice(text("Only"), only, found.only).classes("sb-narrow")
            self._from = text_field(text("From"), found.begin or "22:00").classes("sb-narrow")
            self._until = text_field(text("Until"), found.end or "06:00").classes("sb-narrow")
            self._held = _delay(text("For how long"), found.held, text("At once"))
        for time in (self._from, self._until):
            time.bind_visibility_from(self._only, "value", value="between")

    def _add_row(self, given: Part, topics: Mapping[str, WatchedValue]) -> None:
        relations = {
            ">": text("is above"),
            "<": text("is below"),
            ">=": text("is at least"),
            "<=": text("is at most"),
            "==": text("is"),
            "!=": text("is not"),
            "on": text("is on"),
            "off": text("is off"),
            "changed": text("changes"),
        }
        with self._conditions, sb.row().classes("sb-search") as line:
            key = _key(topics[given.name]) if given.name else None
            value = choice(text("Value"), self._names, key).classes("sb-grow")
            relation = choice(text("Compared"), relations, given.relation).classes("sb-narrow")
            limit = text_field(text("Limit"), given.limit).classes("sb-narrow")
            limit.bind_visibility_from(relation, "value", lambda value: value in _LIMITS)
            entry = (given.name, value, relation, limit)
            self._rows.append(entry)

            async def remove() -> None:
                self._rows.remove(entry)
                line.delete()
                await self._draw()

            sb.icon_button("close", text("Remove this condition"), remove)
        self._follow()

    def _complete_rows(self, *, is_final: bool = False) -> Iterator[tuple[str, Any, Any, Any]]:
        for kept, value, relation, limit in self._rows:
            lacks_limit = relation.value in _LIMITS and not limit.value
            if value.value is not None and not lacks_limit:
                yield kept, value, relation, limit
            elif is_final and value.value:
                refuse(limit, text("This is needed."))
            elif is_final:
                refuse(value, text("Choose a value"))

    def _read_when(self, *, is_final: bool) -> tuple[dict[str, WatchedValue], str | None, str | None]:
        schedule = schedule_of(self._begins.value, (self._time.value or "").strip())
        if self._code is not None:
            return dict(self._given_topics()), self._code.value or None, schedule
        sources: dict[str, WatchedValue] = {}
        parts: list[Part] = []
        for kept, value, relation, limit in self._complete_rows(is_final=is_final):
            source = self._values[value.value]
            # A name that only a text has is of its value alone.
            taken = {**self._given_topics(), **sources}
            name = next((each for each, known in taken.items() if known == source), "")
            name = name or (
                kept if kept and kept not in sources else free_name(source.topic or source.ask or "", taken)
            )
            sources[name] = source
            parts.append(Part(name, relation.value, limit.value or ""))
        condition = Condition(
            tuple(parts), self._only.value, self._from.value, self._until.value, self._held.value
        )
        return sources, predicate_of(condition) or None, schedule

    # -- then -------------------------------------------------------------------------------------

    def _build_steps(self) -> None:
        with sb.refilled(self._list):
            for number, each in enumerate(self._steps):
                with ui.element("fieldset").classes("sb-fieldset sb-form"):
                    sb.Words("legend", text("Step {n}", n=number + 1))
                    self._build_step(each)
                    with sb.row():
                        if number:
                            self._mover(number, number - 1, "arrow_upward", text("Earlier"))
                        if number + 1 < len(self._steps):
                            self._mover(number, number + 1, "arrow_downward", text("Later"))
                        remove = partial(self._change_steps, remove=number)
                        sb.icon_button("close", text("Remove this step"), remove)
        self._follow()

    def _mover(self, number: int, other: int, icon: str, label: str) -> None:
        sb.icon_button(icon, label, partial(self._change_steps, swap=(number, other)))

    async def _change_steps(
        self, *, add: bool = False, remove: int | None = None, swap: tuple[int, int] | None = None
    ) -> None:
        """Change the list; what was typed so far stays."""
        self._steps = [_Step(each.read(False)) for each in self._steps]
        if add:
            self._steps.append(_Step(_EMPTY))
        elif remove is not None:
            del self._steps[remove]
        elif swap is not None:
            one, other = swap
            self._steps[one], self._steps[other] = self._steps[other], self._steps[one]
        self._build_steps()
        await self._draw()

    def _build_step(self, made: _Step) -> None:
        """Make the fields of a step."""
        given = made.step
        methods = self._choices.methods
        does = {_TELL: text("Tell me"), **{path: self._choices.method(path) for path in methods}}
        if given.call and given.call not in does:
            does[given.call] = given.call
        what = choice(text("What is done"), does, given.call or _TELL)
        told = text_field(text("Text"), given.notify or "", hint=text("Names in braces stand for values."))
        told.bind_visibility_from(what, "value", value=_TELL)
        place = sb.stack()
        form: SchemaForm | None = None

        def show(arguments: Mapping[str, Json]) -> None:
            nonlocal form
            form = None
            with sb.refilled(place):
                skill, method = methods.get(what.value, (None, None))
                if skill and method and method.parameters.get("properties"):
                    label = labels_of(skill)
                    form = SchemaForm(method.parameters, arguments, doc=method.doc, label=label)
            self._follow()

        show(given.arguments)
        what.on_value_change(lambda: show({}))
        with sb.row().classes("sb-search"):
            after = _delay(text("After"), given.after or "", text("At once"))
            still = switch(text("Only if it is still so"), given.if_still)
            still.bind_visibility_from(after, "value", bool)

        def read(is_final: bool) -> Step:
            delayed = Step.model_construct(
                after=after.value or None, if_still=bool(after.value and still.value)
            )
            if what.value == _TELL:
                if is_final and not told.value:
                    refuse(told, text("This is needed."))
                return delayed.model_copy(update={"notify": told.value or ""})
            kept = given.arguments if what.value == given.call else {}
            arguments = kept if form is None else form.values(is_final=is_final)
            return delayed.model_copy(update={"call": what.value, "arguments": arguments})

        made.read = read
        made.controls = lambda: [*([after] if after.value else []), told if what.value == _TELL else what]

    # -- making -----------------------------------------------------------------------------------

    def _request(self, *, is_final: bool) -> WatcherRequest:
        topics, predicate, schedule = self._read_when(is_final=is_final)
        then = [each.read(is_final).model_dump(exclude_none=True) for each in self._steps]
        told = " ".join(each.get("notify", "") for each in then)
        # Values that the texts alone name have no controls, and stay.
        named = {name: each for name, each in self._given_topics().items() if f"{{{name}}}" in told}
        topics = named | topics
        title = (self._title.value if is_final else "") or text("New watcher")
        dry_run = is_final and self._dry.value
        given = {"name": title, "topics": topics, "predicate": predicate, "schedule": schedule}
        return validated(WatcherRequest, {**given, "then": then, "dry_run": dry_run})

    def _given_topics(self) -> dict[str, WatchedValue]:
        return self._given.topics if self._given is not None else {}

    async def _make(self) -> None:
        request = self._request(is_final=True)
        if self._watcher is not None:
            changed = request.model_dump(include={"title", "topics", "schedule", "then", "dry_run"})
            # Without a schedule each change counts, also where there was one before.
            others = {"predicate": request.predicate or "", "on_change": request.schedule is None or None}
            edit = Edit.model_validate({**changed, **others})
            await view.api(operations.edit, self._watcher.name, edit)
            view.go(f"/watchers/{part(self._watcher.name)}")
            return
        told = (await view.api(operations.propose, watcher=request)).sentence
        if request.calls and not await view.ask(
            text("Make this watcher?"),
            text("It does this without asking again:"),
            yes=text.of("a watcher", "Make it"),
            show=lambda: sb.sentence(text.message(told), "sb-lead sb-wrap"),
        ):
            return
        made = await view.api(operations.create, request)
        view.go(f"/watchers/{part(made.name)}")

    def _add_value(self, source: WatchedValue, name: str) -> None:
        self._values.setdefault(_key(source), source)
        self._names.setdefault(_key(source), name)


def _key(source: WatchedValue) -> str:
    return f"{source.link} {source.topic or source.ask} {source.path or ''}"


def _delay(label: str, given: str, none: str) -> ui.select:
    delays = dict.fromkeys((*_DELAYS, given))
    known = {each: lasting(duration_of(each)) if each else none for each in delays}
    return choice(label, known, given).classes("sb-narrow")
