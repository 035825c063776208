"""Controls of a skill for a small screen, made from the schemas of its simple methods."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from nicegui import ui

from agent_core.skills.labels import Labels
from agent_core.skills.settings import SETTINGS_METHODS
from contracts.answers.skills import MethodBody, SkillBody
from contracts.wire import Json
from hub_web import sb
from hub_web.parts.calls.calls import call, method_summary
from hub_web.parts.calls.forms import choice, number_field, slider, switch, text_field
from hub_web.parts.calls.schema import BadValue, Field, fields_of, read_value, shown_value
from hub_web.texts import text
from hub_web.view import view

ON: Final = frozenset({"on", "true", "playing", "open", "unlocked", "home", "heat", "cool", "cleaning"})
OFF: Final = frozenset({"off", "false", "paused", "stopped", "idle", "closed", "locked"})
"""States of things that are on or off, in any case."""

_PAIRS: Final = (("turn_on", "turn_off"), ("switch_on", "switch_off"), ("on", "off"))
POWER: Final = frozenset({"power", "is_on", "on", "state", "light", "switch"})
_COLOR: Final = re.compile("#[0-9a-fA-F]{6}")
_SWATCHES: Final = {
    "white": "#ffffff",
    "red": "#ff0000",
    "orange": "#ffa500",
    "yellow": "#ffff00",
    "green": "#00ff00",
    "turquoise": "#40e0d0",
    "blue": "#0000ff",
    "purple": "#800080",
    "pink": "#ffc0cb",
}
COLOR_NAMES: Final = {color: name for name, color in _SWATCHES.items()}
_CHOSEN: Final = "(event) => emit(event.target.value)"


def is_on(state: Json) -> bool | None:
    """Return whether a state means that something is on; None where it means neither."""
    word = str(state).casefold()
    return True if word in ON else False if word in OFF else None


@dataclass
class Controls:
    """What one skill of one device offers.

    Attributes:
        power: The two methods and the state of a switch, where there is one.
        simple: Methods that need at most one argument, with it; the state that it sets, where there is one.
        states: Names of states that no control shows.
    """

    power: tuple[MethodBody, MethodBody, str] | None = None
    simple: list[tuple[MethodBody, Field | None, str | None]] = field(default_factory=list)
    states: list[str] = field(default_factory=list)


def controls_of(methods: Sequence[MethodBody], states: Mapping[str, Json]) -> Controls:
    """Choose controls for a skill.

    Args:
        states: Values of the skill's states by name.
    """
    acting = {
        each.name: each
        for each in methods
        if not {"read_only", "destructive", "unknown"} & set(each.flags) and each.name not in SETTINGS_METHODS
    }
    made = Controls()
    shown: set[str] = set()
    for on, off in _PAIRS:
        power = next((name for name in states if name in POWER and is_on(states[name]) is not None), None)
        if on in acting and off in acting and power is not None:
            made.power = (acting.pop(on), acting.pop(off), power)
            shown.add(power)
            break
    for method in acting.values():
        fields = fields_of(method.parameters, doc=method.doc)
        needed = [each for each in fields if each.required]
        argument = needed[0] if needed else None
        if argument is None and len(fields) == 1 and fields[0].kind != "text":
            argument = fields[0]
        if len(needed) > 1 or (argument is not None and not _is_simple(argument)):
            continue
        state = None
        if argument is not None:
            names = (argument.name, method.name.removeprefix("set_"))
            state = next((name for name in names if name in states), None)
            if state is not None and (argument.kind != "text" or _is_color(states[state])):
                shown.add(state)
        made.simple.append((method, argument, state))
    # Buttons in a row first, then what takes a line of its own.
    made.simple.sort(key=lambda each: each[1] is not None)
    made.states = [name for name in states if name not in shown]
    return made


def _is_color(value: Json) -> bool:
    return isinstance(value, str) and _COLOR.fullmatch(value) is not None


def _is_simple(argument: Field) -> bool:
    return argument.kind in ("switch", "choice", "number", "text") and not argument.long


class Panel:
    """The controls of a skill as they are shown, kept up to date by `show`.

    Args:
        states: Values of the skill's states by name.
        label: What the person calls its members.
        units: Of states by name, where the schema of an argument has none.
    """

    def __init__(
        self,
        skill: SkillBody,
        states: Mapping[str, Json],
        *,
        label: Labels,
        units: Mapping[str, str] | None = None,
    ) -> None:
        self._skill = skill
        self._label = label
        self._units = units or {}
        self._states = dict(states)
        self._showing = False
        self._shows: dict[str, list[Callable[[Json], Any]]] = {}
        self.controls = controls_of(skill.methods, states)

    def show(self, name: str, value: Json) -> None:
        """Show the new value of a state."""
        self._states[name] = value
        self._showing = True
        try:
            for show in self._shows.get(name, ()):
                show(value)
        finally:
            self._showing = False

    def _bind(self, state: str | None, show: Callable[[Json], Any]) -> None:
        if state is not None:
            self._shows.setdefault(state, []).append(show)

    @property
    def names(self) -> dict[str, str]:
        """Return the names of the controls that are shown, by method or state."""
        methods = [method.name for method, _, _ in self.controls.simple]
        return {name: self._label(name) for name in [*methods, *self.controls.states]}

    def power(self) -> None:
        """Make the switch, where there is one."""
        if self.controls.power is None:
            return
        on, off, state = self.controls.power
        made = ui.switch(value=bool(is_on(self._states[state]))).classes("sb-power").props("size=lg")
        sb.named(made, f"{self._label(self._skill.skill)}, {self._skill.device_name}")

        def change(event: Any) -> Any:
            return None if self._showing else self._run(on if event.value else off, {}, state)

        made.on_value_change(change)
        self._bind(state, lambda value: made.set_value(bool(is_on(value))))

    def rest(self) -> None:
        """Make the other controls."""
        buttons = [each for each in self.controls.simple if each[1] is None]
        if buttons:
            with sb.row().classes("sb-buttons"):
                for method, _, _ in buttons:
                    self._button(method, self._label(method.name), {})
        for method, argument, state in self.controls.simple:
            if argument is not None:
                self._control(method, argument, state)

    def _button(self, method: MethodBody, label: str, arguments: dict[str, Json]) -> None:
        view.button(label, lambda: self._run(method, arguments, None)).tooltip(
            method_summary(self._skill, method)
        )

    def _control(self, method: MethodBody, argument: Field, state: str | None) -> None:
        known = self._states.get(state) if state is not None else None
        name = self._name(method, argument, state)
        if argument.kind == "number" and argument.is_bounded:
            self._slider(method, argument, name, state, known)
        elif argument.kind == "switch" and state is not None:
            made = switch(name, bool(known)).classes("sb-wide-switch")
            made.on_value_change(lambda event: self._changed(method, argument, event.value, state))
            self._bind(state, lambda value: made.set_value(bool(value)))
        elif argument.kind == "switch":
            with sb.row(wrap=False):
                sb.Words("span", name)
                ui.element("div").classes("sb-grow")
                self._button(method, text("On"), {argument.name: True})
                self._button(method, text("Off"), {argument.name: False})
        elif argument.kind == "choice":
            options = {each: self._label.value(str(each)) for each in argument.choices}
            chosen = choice(name, options, shown_value(argument, known))
            chosen.on_value_change(lambda event: self._changed(method, argument, event.value, state))
            self._bind(state, lambda value: chosen.set_value(shown_value(argument, value)))
        elif argument.kind == "text" and state is not None and _is_color(known):
            self._color(method, argument, name, state)
        else:
            self._entry(method, argument, name)

    def _name(self, method: MethodBody, argument: Field, state: str | None) -> str:
        """Return the name of a control: of its method, and of the argument where that says more."""
        name = self._label(method.name)
        sets = method.name.removeprefix("set_")
        if sets != method.name and (state is not None or argument.unit or argument.name in sets):
            return name
        return f"{name}: {self._label(argument.name, of=method.name)}"

    def _color(self, method: MethodBody, argument: Field, name: str, state: str) -> None:
        """Make swatches of common colours, and a field for any other."""

        def send(color: str) -> Any:
            return self._run(method, {argument.name: color}, state)

        with sb.named(ui.element("div").classes("sb-colors").props("role=group"), name):
            sb.Words("span", name)
            with sb.row():
                for word, color in _SWATCHES.items():
                    swatch = self._swatch("button", "type=button", self._label.value(word))
                    swatch.style(f"background: {color}")
                    swatch.on("click", lambda _, color=color: send(color))
                other = self._swatch("input", "type=color", text("{name}: any", name=name))
                other.on("change", lambda event: send(str(event.args)), js_handler=_CHOSEN)

        def show(value: Json) -> None:
            if _is_color(value):
                other.props["value"] = str(value).lower()
                other.update()

        show(self._states[state])
        self._bind(state, show)

    def _swatch(self, tag: str, props: str, label: str) -> ui.element:
        made = sb.named(ui.element(tag).classes("sb-swatch").props(props), label)
        made.props["title"] = label
        return made

    def _slider(self, method: MethodBody, argument: Field, name: str, state: str | None, known: Json) -> None:
        begin = shown_value(argument, known)
        argument = replace(argument, unit=argument.unit or self._units.get(state or "", ""))
        made = slider(argument, argument.default if begin is None else begin, label=name)
        # Called when it is let go, not at each step in between.
        made.on("change", lambda event: self._run(method, {argument.name: event.args}, state))

        def show(value: Json) -> None:
            if (number := shown_value(argument, value)) is not None:
                made.set_value(number)

        self._bind(state, show)

    def _entry(self, method: MethodBody, argument: Field, name: str) -> None:
        async def send() -> None:
            try:
                value = read_value(argument, made.value)
            except BadValue as error:
                made.error = str(error)
                return
            if value is None and argument.required:
                made.error = text("This is needed.")
                return
            made.error = None
            arguments = {} if value is None else {argument.name: value}
            if await self._run(method, arguments, None):
                made.value = None if argument.kind == "number" else ""

        with sb.row(wrap=False).classes("sb-entry-line"):
            made: Any = number_field(name) if argument.kind == "number" else text_field(name)
            made.classes("sb-grow").on("keydown.enter", send)
            if argument.description:
                made.tooltip(argument.description)
            view.tool("send", f"{name}: {text('send')}", send)

    def _changed(self, method: MethodBody, argument: Field, value: Json, state: str | None) -> Any:
        if self._showing or value is None:
            return None
        return self._run(method, {argument.name: value}, state)

    async def _run(self, method: MethodBody, arguments: dict[str, Json], state: str | None) -> bool:
        """Call a method; where that fails the control shows what is."""
        skill = self._skill
        try:
            async with view.busy():
                answer = await call(skill.device, skill.skill, method.name, arguments)
        except Exception as error:  # noqa: BLE001  shown as any other error of a handler is
            answer = None
            view.fail(error)
        if answer is None and state is not None:
            self.show(state, self._states[state])
        if answer is not None and state is None and answer.text:
            view.notify(answer.text[:300])
        return answer is not None
