"""Calls of skills from a page: asked about where a person must confirm them, with what is really sent."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from nicegui import ui

from contracts.errors import InvalidMessage
from contracts.wire import Json
from hub_web.api import ConfirmationNeeded
from hub_web.parts.code import as_json, code
from hub_web.parts.forms import SchemaForm
from hub_web.parts.layout import Tone, Words, badge, problem
from hub_web.parts.schema import fields_of
from hub_web.texts import Text
from hub_web.view import View

_FLAG_TONES: Final[dict[str, Tone]] = {
    "destructive": "bad",
    "open_world": "warn",
    "confirm": "warn",
    "read_only": "good",
}


def human(name: str) -> str:
    """Return the name of a skill or a method as people write it: ``set_brightness``, ``LampSkill``."""
    words = "".join(f" {each}" if each.isupper() else each for each in name.removesuffix("Skill"))
    words = " ".join((words if words.count(" ") < len(name) / 2 else name).replace("_", " ").split())
    return words[:1].upper() + words[1:].lower()


def _flags(text: Text) -> dict[str, tuple[str, str]]:
    """Return the flags of methods in words, each with what it means."""
    lost = text("Asked first where somebody else's text was read before.")
    outside = text("Something leaves this home; asked first where somebody else's text was read before.")
    return {
        "read_only": (text("only reads"), text("It changes nothing; guests may call it, too.")),
        "idempotent": (text("can be repeated"), text("Twice is the same as once.")),
        "destructive": (text("can lose something"), lost),
        "open_world": (text("reaches outside"), outside),
        "confirm": (text("asks first"), text("A person is asked each time.")),
        "untrusted_output": (text("text of strangers"), text("What it returns may be written by anybody.")),
    }


def flag_words(view: View, flag: str) -> str:
    """Return a flag of a method in words."""
    return _flags(view.text).get(flag, (flag, ""))[0]


def flags(view: View, names: Collection[str]) -> None:
    """Show the flags of a method."""
    known = _flags(view.text)
    for name in names:
        words, meaning = known.get(name, (name, ""))
        badge(words, _FLAG_TONES.get(name, "plain")).props["title"] = meaning or name


def flag_legend(view: View) -> None:
    """Show what the flags mean, folded."""
    with ui.element("details").classes("sb-more"):
        Words("summary", view.text("What the labels mean"))
        with ui.element("dl").classes("sb-meanings"):
            for name, (words, meaning) in _flags(view.text).items():
                with ui.element("dt"):
                    badge(words, _FLAG_TONES.get(name, "plain"))
                Words("dd", meaning)


async def call(
    view: View,
    device: str,
    skill: str,
    method: str,
    arguments: Mapping[str, Json],
    *,
    secret: Collection[str] = (),
) -> dict[str, Any] | None:
    """Call a method, and ask the person where it needs a confirmation.

    Args:
        secret: Arguments that are not shown.

    Returns:
        The result, and ``text`` in words; None where the person said no.

    Raises:
        StrawberryError: Where there is no result.
    """
    body = {"device": device, "skill": skill, "method": method, "kwargs": dict(arguments), "text": True}
    try:
        answer: dict[str, Any] = await view.api.post("/api/skills/call", body)
    except ConfirmationNeeded as asked:
        if not await confirmed(view, asked.more, secret=secret):
            return None
        answer = await view.api.post("/api/skills/call", {**body, "confirmation": asked.more["confirmation"]})
    return answer


async def call_by_form(
    view: View,
    form: SchemaForm,
    skill: Mapping[str, Any],
    method: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Call a method with what was filled in; None where that is wrong, which the form says, or not wanted."""
    arguments = form.read()
    if arguments is None:
        return None
    secret = [field.name for field in fields_of(method["parameters"]) if field.kind == "secret"]
    try:
        return await call(view, skill["device"], skill["skill"], method["name"], arguments, secret=secret)
    except InvalidMessage as error:
        form.complain(error)
        return None


async def confirmed(view: View, asked: Mapping[str, Any], *, secret: Collection[str] = ()) -> bool:
    """Ask whether a call may run, with its real arguments, and return the answer.

    Args:
        asked: ``device_name``, ``method`` and ``arguments``, as the hub tells them.
    """
    text = view.text
    given = {name: "••••••" if name in secret else value for name, value in dict(asked["arguments"]).items()}

    def show() -> None:
        if given:
            as_json_escaped(given, label=text("Arguments"))
        else:
            Words("p", text("Without arguments."), "sb-muted")
        # Below the arguments, which are of any length: nothing in them can hide these.
        with ui.element("p"):
            Words("span", escaped(str(asked["method"])), "sb-mono sb-strong")
            Words("span", " " + text("on") + " ")
            Words("span", escaped(str(asked["device_name"])), "sb-strong")

    return await view.ask(text("Run this?"), yes=text("Run it"), show=show)


def escaped(text: str) -> str:
    """Return a text in which characters that are not seen, or turn others round, are written as numbers."""
    return "".join(each if each.isprintable() or each == "\n" else f"\\u{ord(each):04x}" for each in text)


def as_json_escaped(value: Any, *, label: str = "") -> ui.element:
    """Make a block with a JSON value that may be a stranger's."""
    return code(escaped(json.dumps(value, indent=2, ensure_ascii=False)), label=label)


def show_result(view: View, answer: Mapping[str, Any]) -> None:
    """Show a result in words, and as it is."""
    words, result = str(answer.get("text") or ""), answer.get("result")
    if words:
        Words("p", words, "sb-text")
    if not words or isinstance(result, (dict, list)):
        as_json(result, label=view.text("Result"))


async def run_by_form(view: View, skill: Mapping[str, Any], method: Mapping[str, Any]) -> None:
    """Open a dialog that runs a method with a form of its arguments.

    Args:
        skill: As ``/api/skills/methods`` gives it.
        method: One of it.
    """
    text = view.text

    async def run() -> bool:
        outcome.clear()
        answer = await call_by_form(view, form, skill, method)
        if answer is not None:
            with outcome:
                Words("h3", text("Result"), "sb-h3")
                show_result(view, answer)
        # It stays open, to be run again.
        return False

    with view.form(human(method["name"]), run, yes=text("Run"), no=text("Close"), wide=True):
        Words("p", method["summary"], "sb-muted")
        with ui.element("div").classes("sb-row"):
            badge(skill["device_name"], icon="devices")
            flags(view, method["flags"])
        if skill["unavailable"]:
            problem(
                text(
                    "{device} is {state} right now.", device=skill["device_name"], state=skill["unavailable"]
                )
            )
        form = SchemaForm(text, method["parameters"], doc=method["doc"])
        outcome = ui.element("div").classes("sb-stack").props("aria-live=polite")
