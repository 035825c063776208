"""A watcher as one sentence, with the parts that can be changed in bold, as in Markdown."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Final

from agent_core.search.targets import AnyDirectory, find_path
from agent_core.sentences.responses import duration_text
from agent_core.skills.labels import DeclaredLabels, Labels
from agent_core.skills.questions import spoken_questions
from agent_core.times import UNITS
from contracts import topics
from contracts.answers.watchers import Allowed, Step
from contracts.errors import CallError, PredicateError
from contracts.phrases import SAID, Phrase
from contracts.text import escaped, shortened
from contracts.wire import Json
from hub_live import limits
from hub_live.watchers.decisions.approved import is_range
from hub_live.watchers.definition import WatchedValue, WatcherRequest, duration_of
from hub_live.watchers.predicates import parse
from hub_live.watchers.predicates.clock import DAYS, WEEKDAYS, time_text
from hub_live.watchers.predicates.syntax import Node
from hub_live.watchers.schedule import Schedule
from hub_live.watchers.words.parts import between
from hub_live.world.thing import Thing
from hub_live.world.world import World

_COMPARED: Final = {
    ">": "{value} goes above {limit}",
    ">=": "{value} reaches {limit}",
    "<": "{value} goes below {limit}",
    "<=": "{value} falls to {limit}",
    "==": "{value} is {limit}",
    "!=": "{value} is not {limit}",
}
_HELD: Final = {
    ">": "{value} is above {limit}",
    ">=": "{value} is at least {limit}",
    "<": "{value} is below {limit}",
    "<=": "{value} is at most {limit}",
}
"""Of a condition that is true, as against one that becomes so."""
_MIRRORED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "==", "!=": "!="}
_OF_VALUES: Final = {
    "age": "the time since the last {value}",
    "count": "the number of times that {value} came within {time}",
    "last": "{value}",
    "max": "the highest {value} within {time}",
    "mean": "the mean of {value} within {time}",
    "min": "the lowest {value} within {time}",
    "rate": "the change per second of {value} within {time}",
}
_TIMES: Final = {
    "*": "Every day at {time}",
    "1-5": "On weekdays at {time}",
    "0,6": "At weekends at {time}",
}
_AT: Final = re.compile(r"(\d+) (\d+) \* \* (\S+)")
_EACH: Final = re.compile(r"(?:\*/(\d+) \*|0 \*/(\d+)) \* \* \*")
_ON_OFF: Final = {"on": {"en": "on", "de": "an"}, "off": {"en": "off", "de": "aus"}}
"""As one says that something is; its label stands by itself."""
_BOLD: Final = "**{part}**"
lasting: Final = partial(duration_text, units=len(UNITS))
"""Writes a duration with all its units: ``1 d 30 min 5 s``."""
_PLAIN: Final = frozenset({"on", "is_on", "power", "state"})
"""Names of states that say no more than the skill itself."""


class _Unsaid(Exception):
    """A condition that has no words here."""


@dataclass(frozen=True)
class Naming:
    """Names what the watchers of a person see and call.

    Attributes:
        devices: Those of the person.
        with_values: Whether the present values are named.
        held: The values by name at which a condition was true, which is told as that; None for one to come.
    """

    world: World
    devices: AnyDirectory
    with_values: bool = False
    held: Mapping[str, Json] | None = None

    def sentence(self, watcher: WatcherRequest) -> Phrase:
        """Return what a watcher does, as a sentence."""
        does = self._steps(watcher.then) if watcher.then else self._judged(watcher)
        condition = self.condition(watcher.predicate, watcher.topics) if watcher.predicate else None
        if watcher.schedule is not None:
            times = schedule_text(watcher.schedule)
            if condition is None:
                return Phrase("{times}: {steps}.", times=times, steps=does)
            return Phrase("{times}, if {condition}: {steps}.", times=times, condition=condition, steps=does)
        if condition is not None:
            return Phrase("When {condition}: {steps}.", condition=condition, steps=does)
        if watcher.interval_s is not None:
            return Phrase("Every {time}: {steps}.", time=_bold(lasting(watcher.interval_s)), steps=does)
        values = Phrase.joined(", ", [self.value(each) for each in watcher.topics.values()])
        return Phrase("Each time that {values} changes: {steps}.", values=values, steps=does)

    def value(self, source: WatchedValue) -> Phrase:
        """Return what a value is called, with its place, and how it is now."""
        if source.ask is not None:
            return self.call(Allowed(path=source.ask, arguments=source.arguments or {}))
        name, place = self.named(source)
        now = self._now(source) if self.with_values else ""
        return _with_details(name, place, Phrase("now {value}", value=now) if now else "")

    def call(self, call: Allowed) -> Phrase:
        """Return a call in the words of its skill: a sentence of it, or its names."""
        try:
            target = find_path(self.devices, call.path, current=None)
        except CallError:
            return _bold(f"{call.path}({_given(call.arguments, str)})")
        entry = self.devices.hub if target.is_hub_own else self.devices.get(target.device)
        skill = entry.skills.get(target.skill) if entry is not None else None
        declared = skill.registration.labels if skill is not None else {}
        said = {
            language: f"{question[:1].lower()}{question[1:].removesuffix('?')}"
            for language, question in spoken_questions(target.method, call.arguments).items()
        }
        for language in {"en", "de", *declared} - said.keys():
            label = Labels(declared, language)
            given = _given(call.arguments, partial(label, of=target.method.name))
            words = f"{label(target.skill)}: {label(target.method.name)}"
            said[language] = f"{words} ({given})" if given else words
        words = _bold(Phrase.said(said))
        if target.is_hub_own:
            return words
        return Phrase("{call} ({device})", call=words, device=_safe(target.device_name))

    # -- the condition ----------------------------------------------------------------------------

    def condition(self, predicate: str, sources: Mapping[str, WatchedValue]) -> Phrase:
        """Return a condition in words; one that has none as it is written."""
        try:
            parsed = parse(predicate, sources)
            said = self._said(parsed.root, sources)
        except (_Unsaid, PredicateError):
            becomes = "{expression} becomes true" if self.held is None else "{expression} is true"
            return Phrase(becomes, expression=_bold(predicate))
        if parsed.for_s:
            return Phrase("{condition} for {time}", condition=said, time=_bold(lasting(parsed.for_s)))
        return said

    def parts(self, predicate: str, sources: Mapping[str, WatchedValue]) -> dict[str, str]:
        """Return the parts that a condition is joined of in words, by how they are written."""
        said: dict[str, str] = {}
        for node in parse(predicate, sources).parts:
            with suppress(_Unsaid):
                said[node.source] = self._said(node, sources)
        return said

    def _said(self, node: Node, sources: Mapping[str, WatchedValue]) -> Phrase:
        parts = node.parts
        match node.op:
            case "and" | "or" if (times := between(node)) is not None:
                return Phrase("it is between {begin} and {end}", begin=_bold(times[0]), end=_bold(times[1]))
            case "and":
                every = [self._said(each, sources) for each in parts]
                return reduce(lambda one, other: Phrase("{one} and {other}", one=one, other=other), every)
            case "or":
                every = [self._said(each, sources) for each in parts]
                return reduce(lambda one, other: Phrase("{one} or {other}", one=one, other=other), every)
            case "name":
                return Phrase("{value} is on", value=self.value(sources[str(node.value)]))
            case "not" if parts[0].op == "name":
                return Phrase("{value} is off", value=self.value(sources[str(parts[0].value)]))
            case "changed":
                value = self._seen(str(node.value), sources)
                if node.window_s is None:
                    changes = "{value} changes" if self.held is None else "{value} has changed"
                    return Phrase(changes, value=value)
                time = _bold(lasting(node.window_s))
                return Phrase("{value} has changed within {time}", value=value, time=time)
        if node.op not in _COMPARED:
            raise _Unsaid
        left, right = parts
        op, left, right = (
            (_MIRRORED[node.op], right, left) if left.op == "constant" else (node.op, left, right)
        )
        if right.op != "constant":
            raise _Unsaid
        if left.op == "clock":
            return _clock(op, left, right.value)
        if right.kind == "truth" and left.op == "name":
            template = "{value} is on" if right.value is (op == "==") else "{value} is off"
            return Phrase(template, value=self.value(sources[str(left.value)]))
        value = self._operand(left, sources, is_said=op == "==")
        template = _COMPARED[op] if self.held is None else _HELD.get(op, _COMPARED[op])
        return Phrase(template, value=value, limit=self._limit(left, right.value, sources))

    def _operand(self, node: Node, sources: Mapping[str, WatchedValue], *, is_said: bool) -> Phrase:
        if node.op == "name" and not is_said:
            return self._seen(str(node.value), sources)
        if node.op != "name" and node.op not in _OF_VALUES:
            raise _Unsaid
        time = _bold(lasting(node.window_s)) if node.window_s else ""
        template = _OF_VALUES.get(node.op, "{value}")
        return Phrase(template, value=self.value(sources[str(node.value)]), time=time)

    def _seen(self, name: str, sources: Mapping[str, WatchedValue]) -> Phrase:
        """Return what a value is called, with the one at which the condition was true."""
        source = sources[name]
        if self.held is None or source.ask is not None:
            return self.value(source)
        return _with_details(*self.named(source), self._state(self.held.get(name), self._thing(source).unit))

    def _limit(self, node: Node, limit: float | str | bool, sources: Mapping[str, WatchedValue]) -> Phrase:
        if isinstance(limit, str):
            return _bold(self._state(limit))
        if node.kind == "time":
            return _bold(lasting(limit))
        source = sources[str(node.value)]
        unit = "" if node.op in ("count", "rate") else self._thing(source).unit or ""
        return _bold(f"{limit:.6g} {unit}".strip())

    # -- what is done -----------------------------------------------------------------------------

    def _steps(self, steps: Iterable[Step]) -> Phrase:
        made: list[str] = []
        for step in steps:
            if step.call is not None:
                what = self.call(Allowed(path=step.call, arguments=step.arguments))
            else:
                what = Phrase("{tell} “{text}”", tell=_bold(Phrase("tell me")), text=_safe(step.notify or ""))
            if step.after is not None:
                template = (
                    "if it is still so after {time}, {step}" if step.if_still else "after {time}, {step}"
                )
                what = Phrase(template, time=_bold(lasting(duration_of(step.after))), step=what)
            made.append(Phrase("then {step}", step=what) if made else what)
        return Phrase.joined(", ", made)

    def _judged(self, watcher: WatcherRequest) -> Phrase:
        said = _bold(watcher.instruction.rstrip(" ."))
        if not watcher.allow:
            return Phrase("a model decides whether to tell me: {instruction}", instruction=said)
        calls = Phrase.joined(", ", [self.call(each) for each in watcher.allow])
        return Phrase(
            "a model decides what to do, and may use {calls}: {instruction}", calls=calls, instruction=said
        )

    # -- names ------------------------------------------------------------------------------------

    @cached_property
    def _entities(self) -> Mapping[tuple[str | None, ...], Thing]:
        return {(each.link, each.topic, each.field): each for each in self.world.entities.list()}

    def _thing(self, source: WatchedValue) -> Thing:
        of_entity = (source.link, source.topic, source.path)
        found = self._entities.get(of_entity) if source.link != "bus" else None
        unknown = Thing(
            kind="state", id=source.topic, name=source.topic, topic=source.topic, link=source.link
        )
        return self.world.current(found or unknown)

    def named(self, source: WatchedValue) -> tuple[str, str]:
        """Return what a value is called, and where it is."""
        place = topics.STATE.place(source.topic) if source.link == "bus" else None
        entry = self.devices.get(place["device"]) if place is not None else None
        if place is None or entry is None:
            thing = self._thing(source)
            return thing.name, thing.area or thing.device or ""
        skill = entry.skills.get(place["skill"])
        declared = skill.registration.labels if skill is not None else {}
        names = {
            each: state_name(declared, each, place["skill"], place["property"])
            for each in ("en", "de", *declared)
        }
        return Phrase.said(names), entry.display_name

    def _now(self, source: WatchedValue) -> str:
        thing = self._thing(source)
        return self._state(thing.state, thing.unit)

    def _state(self, state: Json, unit: str | None = None) -> str:
        """Return a value in words; empty for one that has none."""
        state = ("off", "on")[state] if isinstance(state, bool) else state
        if isinstance(state, str) and state.lower() in _ON_OFF:
            return Phrase.said(_ON_OFF[state.lower()])
        if isinstance(state, int | float):
            return f"{state:.6g} {unit or ''}".strip()
        if not isinstance(state, str):
            return ""
        text = shortened(f"{state} {unit or ''}".strip(), limits.MOST_TEXT_VALUE)
        said = {each: Labels({}, each).value(text) for each in ("en", "de")}
        if set(said.values()) == {text}:
            return _safe(text)
        return Phrase.said({language: _lowered(words) for language, words in said.items()})


def state_name(declared: DeclaredLabels, language: str, skill: str, name: str) -> str:
    """Return what people call a state of a skill: ``Tank level``."""
    label = Labels(declared, language)
    if name in _PLAIN:
        return label(skill)
    return f"{label(skill)} {_lowered(label(name))}" if language == "en" else f"{label(skill)}: {label(name)}"


def schedule_text(schedule: str) -> Phrase:
    """Return the times of a schedule in words."""
    times = Schedule.parse(schedule)
    if times.sun:
        sun = _bold(Phrase("sunset" if times.sun == "sunset" else "sunrise"))
        if not (seconds := times.offset.total_seconds()):
            return Phrase("Every day at {sun}", sun=sun)
        template = "Every day {time} before {sun}" if seconds < 0 else "Every day {time} after {sun}"
        return Phrase(template, time=_bold(lasting(abs(seconds))), sun=sun)
    if each := _EACH.fullmatch(times.cron):
        return Phrase("Every {time}", time=_bold(f"{each[1]} min" if each[1] else f"{each[2]} h"))
    if at := _AT.fullmatch(times.cron):
        time = _bold(f"{int(at[2]):02}:{int(at[1]):02}")
        if at[3] in _TIMES:
            return Phrase(_TIMES[at[3]], time=time)
        if at[3].isdecimal():
            return Phrase("Every {day} at {time}", day=_bold(Phrase(DAYS[int(at[3]) - 1])), time=time)
    return _bold(schedule)


def plain(sentence: str) -> str:
    """Return a sentence without its marks; a phrase stays one."""
    if not isinstance(sentence, Phrase) or sentence.template == SAID:
        return sentence.replace("**", "") if not isinstance(sentence, Phrase) else sentence
    values: dict[str, str] = {
        name: plain(each) if isinstance(each, Phrase) else each for name, each in sentence.values.items()
    }
    if sentence.template == _BOLD:
        return values["part"]
    return Phrase(sentence.template.replace("**", ""), **values)


def _clock(op: str, node: Node, value: float | str | bool) -> Phrase:
    if node.kind == "clock" and op in (">", ">=", "<", "<="):
        time = _bold(time_text(float(value)))
        return Phrase("it is after {time}" if op[0] == ">" else "it is before {time}", time=time)
    if op != "==" or not isinstance(value, str):
        raise _Unsaid
    if value in WEEKDAYS:
        return Phrase("it is {day}", day=_bold(Phrase(value.title())))
    return Phrase("the sun is down" if value == "down" else "the sun is up")


def _given(arguments: Mapping[str, Json], named: Callable[[str], str]) -> str:
    return ", ".join(f"{named(name)} {_argument(value)}" for name, value in arguments.items())


def _argument(value: Json) -> str:
    if is_range(value):
        return "/".join(
            map(str, value.get("enum") or (f"{value.get('minimum', '…')}–{value.get('maximum', '…')}",))
        )
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _with_details(name: str, place: str, value: str) -> Phrase:
    """Return the name of a value with where and how it is."""
    if place and value:
        return Phrase("{name} ({place}, {value})", name=_bold(name), place=_safe(place), value=value)
    more = _safe(place) or value
    return Phrase("{name} ({more})", name=_bold(name), more=more) if more else _bold(name)


def _lowered(name: str) -> str:
    return name if name.isupper() else name[:1].lower() + name[1:]


def _safe(text: str) -> str:
    # Text of a device or a person must not look like markup of ours.
    return text if isinstance(text, Phrase) else escaped(text).replace("*", "∗")


def _bold(text: str) -> Phrase:
    return Phrase(_BOLD, part=_safe(text))
