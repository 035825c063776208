"""A watcher made of one sentence without a model, where it has one of the commonest shapes."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from agent_core.search.targets import find_path
from agent_core.search.words import STOP_WORDS, naming_words, singular_words
from agent_core.sentences.index import SentenceCall, SentenceChoice
from agent_core.sentences.understanding import Meaning
from contracts import topics
from contracts.errors import CallError, InvalidMessage
from contracts.phrases import Phrase
from contracts.validation import validated
from contracts.wire import Json
from hub_live.watchers.definition import WatchedValue, WatcherRequest, free_name
from hub_live.watchers.words.sentence import Naming, state_name
from hub_live.watchers.words.shapes import Found, Shapes
from hub_live.world.thing import Thing

_ON_OFF: Final = ("on", "off")
_IS_ON: Final = "on"
"""The meaning of a condition that says only that something is there: "there is motion"."""
_NOON: Final = 12
_PAIRS: Final = (
    *(("turn_on", "turn_off"), ("switch_on", "switch_off"), ("play", "pause")),
    *(("open", "close"), ("open_cover", "close_cover")),
)
_OPPOSITES: Final = {**dict(_PAIRS), **{end: begin for begin, end in _PAIRS}}
_MOST_PARTS: Final = 6
"""Conditions or steps of one sentence: what is longer is for a model."""
_MOST_TEXTS: Final = 24
"""Of which the call of one sentence is looked for: each takes up to a second."""
_MOST_TITLE: Final = 80


@dataclass
class Reading:
    """One sentence as it is read.

    Attributes:
        naming: Names the things of the home.
        user: Id of the person who said it.
        understand: Finds the call that a sentence means.
        sources: The values that it names, by the name in the predicate.
        texts: The notification of each of them.
        subject: What the sentence has named last, for which "it" may stand.
    """

    naming: Naming
    user: str
    shapes: Shapes
    language: str
    understand: Callable[[str], Awaitable[Meaning]]
    title: str = ""
    sources: dict[str, WatchedValue] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    subject: str = ""
    _meanings: dict[str, Meaning] = field(default_factory=dict)

    async def watcher(self, sentence: str) -> WatcherRequest | None:
        """Return the watcher that a sentence asks for; None where it has no known shape."""
        self.title = title_of(sentence)
        for found, _ in self.shapes.found("orders", self.shapes.tidy(sentence)):
            self.sources.clear()
            self.texts.clear()
            made: dict[str, Any] = {"name": self.title}
            if "times" in found and (made_of := self._time("times", found["times"])[0]):
                made["schedule"] = made_of
            elif "condition" in found and (made_of := self._condition(*self.shapes.cut(found["condition"]))):
                made["predicate"] = made_of
            else:
                continue
            if "text" in found:
                then = [self._notify(found["text"])]
            else:
                then = await self._steps(action) if (action := _action(found)) else [self._told()]
            if then:
                made["topics"] = {name: each.model_dump() for name, each in self.sources.items()}
                try:
                    return validated(WatcherRequest, {**made, "then": then})
                except InvalidMessage:
                    continue
        return None

    async def once(self, sentence: str) -> tuple[str, dict[str, Json]] | None:
        """Return the method of `WatcherSkill`, with its arguments, for what is done once at a time of day.

        Returns:
            None where the time comes again, and for several steps: a timer makes one call.
        """
        for found, _ in self.shapes.found("orders", self.shapes.tidy(sentence)):
            if "times" not in found:
                continue
            time, day = self._time("moments", found["times"])
            match await self._steps(action) if time and (action := _action(found)) else []:
                case [{"notify": text, **more}] if not more:
                    return "remind_at", {"time": time, "text": text, "day": day}
                case [{"call": path, "arguments": given, **more}] if not more and self._is_exact:
                    called = {"call": path, "arguments": given, "text": title_of(action)}
                    return "call_at", {"time": time, "day": day, **called}
        return None

    # -- when -------------------------------------------------------------------------------------

    def _time(self, table: str, text: str) -> tuple[str, str]:
        """Return a time in the form of a table, and the day on which alone it is."""
        for found, meaning in self.shapes.found(table, text):
            said = {name: each.lower() for name, each in found.items()}
            for name, table in (("day", "days"), ("sun", "suns"), ("side", "sides")):
                if name in said:
                    said[name] = self.shapes.data[table][said[name]]
            if "time" in said:
                said["time"] = said["time"].removesuffix("uhr").strip()
                is_late = said["time"].endswith("m") or int(re.split(r"\D", said["time"])[0]) >= _NOON
                said["evening"] = said["time"] if is_late else f"{said['time']} pm"
            return meaning.format(**said), said.get("on", "")
        return "", ""

    def _condition(self, text: str, held: str = "", *, parts: int = _MOST_PARTS) -> str:
        made = self._one(text)
        for first, rest in self.shapes.parts("joins", text) if not made and parts else ():
            if (one := self._one(first)) and (other := self._condition(rest, parts=parts - 1)):
                made = f"{one} and {other}"
                break
        return f'{made} for "{held}"' if made and held else made

    def _one(self, text: str) -> str:
        for found, meaning in self.shapes.found("conditions", text):
            if "value" not in found:
                times = {name: _clock(each) for name, each in found.items()}
                return meaning.format(**times)
            number = re.sub("^(?:−|minus )", "-", found.get("number", "").lower()).replace(",", ".")
            if (thing := self._thing(found["value"], is_number=bool(number))) is None:
                continue
            if meaning == _IS_ON and not isinstance(thing.state, bool | str):
                continue
            source = source_of(thing)
            name = next((each for each, known in self.sources.items() if known == source), "")
            name = name or free_name((thing.id if thing.link == "bus" else thing.name), self.sources)
            self.sources[name] = source
            called = self._called(source)
            self.subject = found["value"]
            if "state" not in found and meaning != _IS_ON:
                unit = f" {thing.unit}" if thing.unit else ""
                self.texts.append(f"{called}: {{{name}}}{unit}")
                return meaning.format(name=name, number=number)
            word = found.get("state", self.shapes.data["on"]).lower()
            state, truth, *told = self.shapes.data["states"][word]
            self.texts.append(f"{called}: {told[0] if told else word}")
            return _is_state(name, thing, state, truth)
        return ""

    def _thing(self, text: str, *, is_number: bool) -> Thing | None:
        """Find the value that is called so: of the right kind, and with the fewest other words."""
        words = singular_words(text) - STOP_WORDS
        world, found = self.naming.world, list[tuple[bool, int, str, Thing]]()
        for each in (*world.device_states(self.user), *world.entities.list()):
            names = each.words | self._other_words(each)
            if each.topic is None or not words or not words <= names | each.kind_words:
                continue
            thing = world.current(each)
            is_other = (
                isinstance(thing.state, int | float) and not isinstance(thing.state, bool)
            ) is not is_number
            found.append((is_other, len(names), thing.id, thing))
        return min(found, key=lambda each: each[:3])[3] if found else None

    def _other_words(self, thing: Thing) -> frozenset[str]:
        place = topics.STATE.place(thing.topic or "") if thing.link == "bus" else None
        entry = self.naming.devices.get(place["device"]) if place is not None else None
        skill = entry.skills.get(place["skill"]) if entry is not None and place is not None else None
        if place is None or skill is None:
            return frozenset()
        called = state_name(skill.registration.labels, self.language, place["skill"], place["property"])
        return naming_words(called)

    def _called(self, source: WatchedValue) -> str:
        name, _ = self.naming.named(source)
        said = name.values.get(self.language, name) if isinstance(name, Phrase) else name
        return str(said).replace("{", "(").replace("}", ")")

    # -- what is done -----------------------------------------------------------------------------

    async def _steps(
        self, text: str, parts: int = _MOST_PARTS, before: dict[str, Json] | None = None
    ) -> list[dict[str, Json]]:
        # Whole last: a free slot of a sentence would take "and tell me" in.
        for first, rest in self.shapes.parts("steps", text) if parts else ():
            step = await self._step(first, before)
            if step is not None and (others := await self._steps(rest, parts - 1, step)):
                return [step, *others]
        step = await self._step(text, before)
        return [step] if step is not None else []

    async def _step(self, text: str, before: dict[str, Json] | None) -> dict[str, Json] | None:
        for found, _ in self.shapes.found("tell", text):
            told = found.get("text", "").strip("\"'“”„ ,")
            return self._notify(told) if told else self._told()
        for found, _ in self.shapes.found("delays", text):
            if step := await self._step(_action(found), before):
                return {**step, "after": self.shapes.duration(found["duration"])}
        for _, methods in self.shapes.found("undo", text):
            if before is not None and (step := self._undone(before, methods.split())):
                return step
        if self.subject:
            text = re.sub(self.shapes.data["pronoun"], self.subject, text, count=1, flags=re.IGNORECASE)
        if text not in self._meanings:
            if len(self._meanings) >= _MOST_TEXTS:
                return None
            self._meanings[text] = await self.understand(text)
        match self._meanings[text]:
            case SentenceCall() as call:
                pass
            case SentenceChoice(calls=(call,), is_later=False):
                pass
            case _:
                return None
        if call.target.method.flags.read_only:
            return None
        return {"call": call.target.path, "arguments": call.arguments}

    @property
    def _is_exact(self) -> bool:
        # A `SentenceChoice` only resembles what was said.
        return not any(isinstance(each, SentenceChoice) for each in self._meanings.values())

    def _undone(self, step: dict[str, Json], methods: list[str]) -> dict[str, Json] | None:
        """Return the call of one of some methods that ends what a step has begun."""
        skill, _, method = str(step.get("call", "")).rpartition(".")
        if (opposite := _OPPOSITES.get(method)) not in methods:
            return None
        try:
            target = find_path(self.naming.devices, f"{skill}.{opposite}", current=None)
        except CallError:
            return None
        known, given = target.method.parameters.get("properties", {}), step["arguments"]
        arguments = {name: value for name, value in given.items() if name in known}
        is_whole = set(target.method.parameters.get("required", ())) <= arguments.keys()
        return {"call": target.path, "arguments": arguments} if is_whole else None

    def _notify(self, text: str) -> dict[str, Json]:
        for pattern, instead in self.shapes.data["told"]:
            text = re.sub(pattern, instead, text)
        return {"notify": text[:1].upper() + text[1:]}

    def _told(self) -> dict[str, Json]:
        return {"notify": ", ".join(dict.fromkeys(self.texts)) or self.title}


def source_of(thing: Thing) -> WatchedValue:
    """Return what follows the state of a thing; that of a skill is its value anyway."""
    link = thing.link or "bus"
    return WatchedValue(topic=thing.topic or "", value=thing.field if link != "bus" else None, link=link)


def title_of(sentence: str) -> str:
    """Return what a watcher is called that was made of a sentence."""
    said = " ".join(sentence.split()).rstrip(" .!")
    said = said if len(said) <= _MOST_TITLE else f"{said[:_MOST_TITLE].rpartition(' ')[0]} …"
    return said[:1].upper() + said[1:]


def _action(found: Found) -> str:
    # The action may stand before and after its time.
    return " ".join(found[each] for each in ("first", "action", "rest") if each in found)


def _is_state(name: str, thing: Thing, text: str, truth: bool) -> str:
    """Return the condition that a value is in a state, by the kind of value that it has."""
    if thing.on_off:
        raw = thing.on_off[not truth]
        if raw not in ("True", "False"):
            return f'{name} == "{raw}"'
        truth = raw == "True"
    elif isinstance(thing.state, str):
        is_switch = thing.kind == "binary_sensor" or thing.state.lower() in _ON_OFF
        return f'{name} == "{_ON_OFF[not truth] if is_switch else text}"'
    return name if truth else f"not {name}"


def _clock(text: str) -> str:
    """Return a time of the day as conditions have it: ``22:00`` of ``10 pm``."""
    hour, *minute = map(int, re.findall(r"\d+", text))
    if text.lower().endswith("m"):
        hour = hour % 12 + 12 * ("p" in text.lower())
    return f"{hour:02}:{minute[0] if minute else 0:02}"
