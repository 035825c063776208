"""Fields with labels, and forms made from the JSON Schema of a method or of settings."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from nicegui import ui

from contracts.errors import InvalidMessage, StrawberryError
from contracts.phrases import Phrase
from contracts.wire import Json
from hub_web import limits, sb
from hub_web.parts.calls.schema import BadValue, Field, fields_of, read_value, shown_value
from hub_web.texts import text


def text_field(
    label: str, value: str = "", *, hint: str = "", lines: bool = False, secret: bool = False
) -> ui.input | ui.textarea:
    """Make a field for text.

    Args:
        lines: Whether it takes several.
        secret: Whether what is typed is hidden.
    """
    made: ui.input | ui.textarea
    if lines:
        made = ui.textarea(label, value=value).props("outlined dense autogrow")
    else:
        made = ui.input(label, value=value, password=secret).props("outlined dense")
    return _hinted(made.classes("sb-field"), hint)


def search_field(label: str, search: Callable[[], Any]) -> ui.input | ui.textarea:
    return text_field(label).props("clearable debounce=120 type=search").on_value_change(search)


def number_field(
    label: str,
    value: float | None = None,
    *,
    least: float | None = None,
    most: float | None = None,
    step: float | None = None,
    hint: str = "",
) -> ui.number:
    """Make a field for a number."""
    made = ui.number(label, value=value, min=least, max=most, step=step)
    return _hinted(made.props("outlined dense").classes("sb-field"), hint)


def choice(
    label: str,
    options: Sequence[Any] | Mapping[Any, str],
    value: Any = None,
    *,
    several: bool = False,
    hint: str = "",
) -> ui.select:
    """Make a choice of one or several of the options; of many, one types a part.

    Args:
        options: Values, or by value how it is shown.
    """
    given = dict(options) if isinstance(options, Mapping) else list(options)
    made = ui.select(
        given, label=label, value=value, multiple=several, with_input=len(given) > limits.OPTIONS_TYPED
    )
    made.props("outlined dense options-dense" + (" use-chips" if several else "")).classes("sb-field")
    return _hinted(made, hint)


def switch(label: str, value: bool = False, on_change: Callable[[bool], Any] | None = None) -> ui.switch:
    """Make a switch."""
    made = ui.switch(label, value=value)
    if on_change is not None:
        made.on_value_change(lambda event: on_change(event.value))
    return made


def refuse(field: Any, message: str) -> NoReturn:
    """Mark a field as wrong, and say why.

    Raises:
        InvalidMessage: Always.
    """
    field.error = message
    raise InvalidMessage(message)


def _hinted(made: sb.Made, hint: str) -> sb.Made:
    if hint:
        made.props["hint"] = hint
    return made


class SchemaForm:
    """A form for an object, with a field for each property that its JSON Schema names.

    What is left empty is not in the values, so that its default counts.

    Args:
        schema: Of an object.
        values: What the fields have at first, in place of the defaults.
        doc: The docstring that may describe them.
        label: Returns what people call a property.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        values: Mapping[str, Any] | None = None,
        *,
        doc: str = "",
        label: Callable[[str], str] | None = None,
    ) -> None:
        self._inputs: dict[str, _Input] = {}
        with ui.element("div").classes("sb-form"):
            self._problem = ui.element("div").props("role=alert")
            self._problem.set_visibility(False)
            for field in fields_of(schema, doc=doc):
                if label is not None:
                    field = replace(field, called=label(field.name))
                self._add(field, (), values or {})
            if not self._inputs:
                sb.Words("p", text("This needs nothing more."), "sb-muted")

    def _add(self, field: Field, above: tuple[str, ...], values: Mapping[str, Any]) -> None:
        place = (*above, field.name)
        given = values.get(field.name, field.default)
        if field.kind == "object":
            with ui.element("fieldset").classes("sb-fieldset sb-form"):
                sb.Words("legend", field.label, "sb-h3")
                for part in field.fields:
                    self._add(part, place, given if isinstance(given, dict) else {})
            return
        self._inputs[".".join(place)] = _Input(field, given)

    def values(self, *, is_final: bool = True) -> dict[str, Json]:
        """Return what was filled in; where it is not final, only what can be read.

        Raises:
            InvalidMessage: If something is missing, or cannot be read; shown by its field, too.
        """
        self.clear()
        made: dict[str, Json] = {}
        problems: list[str] = []
        for path, each in self._inputs.items():
            wrong, value = "", None
            try:
                value = read_value(each.field, each.element.value)
            except BadValue as error:
                wrong = str(error)
            if value is None and each.field.required and not wrong:
                wrong = text("This is needed.")
            if wrong and is_final:
                each.complain(wrong)
                problems.append(f"{each.field.label}: {wrong}")
            elif value is not None:
                *above, name = path.split(".")
                inner = made
                for part in above:
                    inner = inner.setdefault(part, {})
                inner[name] = value
        if problems:
            raise InvalidMessage(problems[0])
        return made

    def read(self) -> dict[str, Json] | None:
        """Return what was filled in; None where something is wrong, which its field says."""
        try:
            return self.values()
        except InvalidMessage:
            return None

    def clear(self) -> None:
        """Remove all complaints."""
        self._problem.clear()
        self._problem.set_visibility(False)
        for each in self._inputs.values():
            each.complain("")

    def complain(self, error: StrawberryError) -> None:
        """Show a refusal of the hub by the field that it names; above all where it names none."""
        self.clear()
        # As in "set_brightness: percent: 300 is greater than the maximum of 100".
        for start in (0, 1):
            *_, path, rest = ["", "", *error.message.split(": ", start + 1)]
            each = self._inputs.get(re.sub(r"\[\d+\]", "", path))
            if each is not None:
                each.complain(text.sentence(_end(Phrase(error.message), rest)))
                return
        self._problem.set_visibility(True)
        with self._problem:
            sb.failure(error)


def _end(said: Phrase, rest: str) -> str:
    """Return the phrase in another one that says the rest of it."""
    while said != rest and isinstance(said.values.get("text"), str):
        said = Phrase(said.values["text"])
    return said if said == rest else rest


class _Input:
    """One field as it is shown."""

    def __init__(self, field: Field, given: Json) -> None:
        self.field = field
        self._error: sb.Words | None = None
        self.element: Any
        value = shown_value(field, given)
        label = field.label + ("" if field.required else f" ({text('optional')})")
        if field.kind == "switch" or _is_slider(field):
            with sb.stack().classes("sb-tight"):
                self.element = slider(field, value) if _is_slider(field) else switch(field.label, bool(value))
                if field.description:
                    sb.Words("p", field.description, "sb-muted sb-small")
                self._error = sb.Words("p", "", "sb-error sb-small").props("role=alert")
                self._error.set_visibility(False)
            return
        self.element = _control(field, label, value)
        if not field.required and field.kind == "choice":
            self.element.props("clearable")

    def complain(self, message: str) -> None:
        """Show what is wrong; an empty text takes it away."""
        if self._error is not None:
            self._error.set(message)
            self._error.set_visibility(bool(message))
        else:
            self.element.error = message or None


def _control(field: Field, label: str, value: Any) -> Any:
    hint = field.description
    match field.kind:
        case "choice":
            return choice(label, _options(field), value, hint=hint)
        case "number":
            return number_field(label, value, step=field.step, hint=hint)
        case "list" if field.choices:
            return choice(label, _options(field), value, several=True, hint=hint)
        case "list":
            return text_field(label, value, hint=hint or text("One in each line"), lines=True)
        case "json":
            return text_field(label, value, hint=hint or text("As JSON"), lines=True)
        case "secret":
            # What is stored is never shown; an empty field changes nothing.
            return text_field(label, hint=hint, secret=True).props("autocomplete=new-password")
    return text_field(label, value, hint=hint, lines=field.long)


def _options(field: Field) -> dict[Any, str]:
    names = {True: text("Yes"), False: text("No")}
    return {
        each: names[each] if isinstance(each, bool) else str(each)
        for each in field.choices
        if isinstance(each, (str, int, float))
    }


def _is_slider(field: Field) -> bool:
    if field.minimum is None or field.maximum is None or field.kind != "number":
        return False
    # One that may be left out has no place on it for that.
    has_start = field.required or field.default is not None
    return has_start and (field.maximum - field.minimum) / (field.step or 1) <= limits.SLIDER_STEPS


def slider(field: Field, value: Json, *, label: str = "") -> ui.slider:
    """Make a slider for a number between two bounds, with its name and its present value above it."""
    assert field.minimum is not None
    assert field.maximum is not None
    step = field.step or (field.maximum - field.minimum) / 100
    begin = shown_value(field, value)
    with ui.element("div").classes("sb-slider"):
        with sb.row(wrap=False):
            name = sb.Words("span", label or field.label, "sb-cut")
            name.props["id"] = name.html_id
            ui.element("div").classes("sb-grow")
            shown = sb.Words("span", "–", "sb-strong")
        made = ui.slider(
            min=field.minimum, max=field.maximum, step=step, value=field.minimum if begin is None else begin
        )
        made.props["aria-labelledby"] = name.html_id

    def say(number: float) -> None:
        whole = field.integer or float(number).is_integer()
        shown.set(text.number(number, 0 if whole else 1) + (f" {field.unit}" if field.unit else ""))

    if begin is not None:
        say(begin)
    made.on_value_change(lambda event: say(event.value))
    return made
