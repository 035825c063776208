"""Calls of skills from a page: asked about where a person must confirm them, with what is really sent."""

import json
from collections.abc import Collection, Mapping
from functools import partial

from nicegui import ui

from agent_core.skills.labels import Labels
from chat.http.errors import status_of
from contracts.answers.skills import CallResult, MethodBody, SkillBody
from contracts.chat.messages import CallToConfirm
from contracts.errors import StrawberryError
from contracts.text import escaped
from contracts.wire import Json
from hub_agent.calls.confirmations import ConfirmationNeeded
from hub_agent.calls.direct import CallBody
from hub_server.http.skills import call_skill
from hub_web import sb
from hub_web.parts.calls.forms import SchemaForm
from hub_web.texts import LANGUAGE, text
from hub_web.view import view


def human(name: str) -> str:
    return Labels({}, LANGUAGE.get())(name)


def labels_of(skill: SkillBody) -> Labels:
    return Labels(skill.labels, LANGUAGE.get())


def method_words(skill: SkillBody, method: MethodBody) -> str:
    """Return a method in words, with its device: ``Lamp: Turn on (living room)``."""
    label = labels_of(skill)
    return f"{label(skill.skill)}: {label(method.name)} ({skill.device_name})"


def method_summary(skill: SkillBody, method: MethodBody) -> str:
    """Return what a method does; empty where it has a name in the language of the page, and no summary."""
    said = text.message(method.summary)
    is_named = method.name in skill.labels.get(LANGUAGE.get(), {})
    return "" if is_named and said == method.summary and LANGUAGE.get() != "en" else said


def _flags() -> dict[str, tuple[sb.Tone, str, str]]:
    """Return the flags of methods: how each looks, its words, and what it means."""
    lost = text("Asks first if text from outside was read before.")
    outside = text("Something leaves this home; asks first if text from outside was read before.")
    return {
        "read_only": ("good", text("only reads"), text("It changes nothing; guests may call it, too.")),
        "idempotent": ("plain", text("can be repeated"), text("Twice is the same as once.")),
        "destructive": ("bad", text("can lose something"), lost),
        "open_world": ("warn", text("reaches outside"), outside),
        "confirm": ("warn", text("asks first"), text("A person is asked each time.")),
        "untrusted_output": (
            "plain",
            text("text of strangers"),
            text("What it returns may be written by anybody."),
        ),
        "unknown": (
            "bad",
            text("effect not known"),
            text("Its author declared no flags; the assistant asks first."),
        ),
    }


def flags(names: Collection[str]) -> None:
    """Show the flags of a method."""
    known = _flags()
    for name in names:
        tone, words, meaning = known.get(name, ("plain", name, name))
        sb.badge(words, tone).props["title"] = meaning


def flag_legend() -> None:
    """Show what the flags mean, folded."""
    with sb.folded(text("What the labels mean")), ui.element("dl").classes("sb-meanings"):
        for tone, words, meaning in _flags().values():
            with ui.element("dt"):
                sb.badge(words, tone)
            sb.Words("dd", meaning)


async def call(device: str, skill: str, method: str, arguments: Mapping[str, Json]) -> CallResult | None:
    """Call a method, and ask the person where it needs a confirmation.

    Returns:
        The result, and ``text`` in words; None where the person said no.

    Raises:
        StrawberryError: Where there is no result.
    """
    body = CallBody(device=device, skill=skill, method=method, kwargs=dict(arguments), text=True)
    try:
        return await view.api(call_skill, body)
    except ConfirmationNeeded as needed:
        asked = needed.call
        show = partial(show_call, asked)
        if not await view.ask(as_question(asked) or text("Run this?"), yes=text("Run it"), show=show):
            return None
        confirmed = body.model_copy(update={"confirmation": needed.confirmation})
        return await view.api(call_skill, confirmed)


async def call_by_form(form: SchemaForm, skill: SkillBody, method: MethodBody) -> CallResult | None:
    """Call a method with what was filled in; None where that is wrong, which the form says, or not wanted."""
    arguments = form.read()
    if arguments is None:
        return None
    try:
        return await call(skill.device, skill.skill, method.name, arguments)
    except StrawberryError as error:
        if status_of(error)[0] != 422:
            raise
        form.complain(error)
        return None


def as_question(asked: CallToConfirm) -> str:
    """Return what a call that a person must confirm does, as a question; empty where that is not known."""
    if told := _watcher(asked):
        return f"{text('Make this watcher?')} {text.message(told)}"
    return asked.question(LANGUAGE.get())


def _watcher(asked: CallToConfirm) -> str:
    """Return what a watcher does that is to be made, as a sentence; only the hub's own skill has one."""
    told: str = asked.arguments.get("does") or ""
    return told if asked.method.startswith("WatcherSkill.") else ""


def show_call(asked: CallToConfirm, *, cut: bool = False) -> None:
    """Show a call that a person must confirm, with its real arguments but for secrets.

    Args:
        cut: Whether the arguments are not whole.
    """
    is_said = bool(asked.questions.get(LANGUAGE.get()) or _watcher(asked))
    with ui.element("dl").classes("sb-facts"):
        # All arguments are in the question; as they are sent, they are one click behind.
        if not is_said:
            _show_arguments(asked, cut=cut)
        # Below the arguments, which are of any length: nothing in them can hide these.
        sb.Words("dt", text("Device"))
        sb.Words("dd", escaped(asked.device_name), "sb-strong")
        if not is_said:
            _show_method(asked)
    if is_said:
        with sb.folded(text("What exactly is called")), ui.element("dl").classes("sb-facts"):
            _show_arguments(asked, cut=cut)
            _show_method(asked)


def _show_arguments(asked: CallToConfirm, *, cut: bool) -> None:
    label = Labels(asked.labels, LANGUAGE.get())
    for name, value in asked.arguments.items():
        said = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        sb.Words("dt", escaped(label(name, of=asked.method.rpartition(".")[2])))
        sb.Words("dd", escaped(said, keep="\n"), "sb-mono")
    if cut:
        sb.Words("dd", text("Some of it is too long to be shown whole."), "sb-muted")


def _show_method(asked: CallToConfirm) -> None:
    sb.Words("dt", text("Action"))
    sb.Words("dd", escaped(asked.method), "sb-strong sb-mono")


def show_result(answer: CallResult) -> None:
    """Show a result in words, and as it is."""
    if answer.text:
        sb.Words("p", answer.text, "sb-text")
    if not answer.text or isinstance(answer.result, (dict, list)):
        sb.as_json(answer.result, label=text("Result"))


async def run_by_form(skill: SkillBody, method: MethodBody) -> None:
    """Open a dialog that runs a method of a skill with a form of its arguments."""

    async def run() -> bool:
        outcome.clear()
        answer = await call_by_form(form, skill, method)
        if answer is not None:
            with outcome:
                sb.Words("h3", text("Result"), "sb-h3")
                show_result(answer)
        # It stays open, to be run again.
        return False

    label = labels_of(skill)
    with view.form(label(method.name), run, yes=text("Run"), no=text("Close"), wide=True):
        if told := method_summary(skill, method):
            sb.Words("p", told, "sb-muted")
        with sb.row():
            sb.badge(skill.device_name, icon="devices")
            flags(method.flags)
        if skill.unavailable:
            sb.problem(f"{skill.device_name}: {text.message(skill.unavailable)}")
        form = SchemaForm(method.parameters, doc=method.doc, label=partial(label, of=method.name))
        outcome = sb.stack().props("aria-live=polite")
