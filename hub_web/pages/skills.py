"""Skills: found as the model finds them, described as it reads them, and sentences that are tried."""

import re
from functools import partial
from typing import Final

from nicegui import ui

from agent_core.skills.labels import Labels
from contracts.answers.skills import ResultBody
from contracts.text import escaped
from hub_registry.http.devices import list_devices
from hub_registry.http.skills import describe_skill, list_methods, search_skills
from hub_server.http.sentences import CallOfSentence, SentenceTried, sayable
from hub_server.http.sentences import attempt as attempt_sentence
from hub_web import limits, sb
from hub_web.pages.devices.device import method_row
from hub_web.parts.calls.calls import call, flag_legend, flags, human, show_result
from hub_web.parts.calls.forms import choice, search_field, text_field
from hub_web.shell import page
from hub_web.texts import LANGUAGE, text
from hub_web.view import view

_SLOT: Final = re.compile(r"<\w+>")
"""What a sentence leaves to its person, as an example shows it."""


@page("/skills", title="Skills", icon="extension", menu=30)
async def skills() -> None:
    """Show what can be said, and, folded, what developers look for."""
    await _sayable()
    with ui.element("details").classes("sb-more"):
        sb.Words("summary", text("For developers"))
        await _methods()


async def _sayable() -> None:
    """Show the sentences that work without a model, by room and skill."""

    @sb.one_at_a_time
    async def show() -> None:
        groups = await view.api(sayable, str(words.value or ""), LANGUAGE.get())
        with sb.refilled(found):
            if not groups:
                sb.empty("search_off", text("Nothing found"), text("Other words may find it."))
            for group in groups[: limits.SKILLS_SHOWN]:
                place = " · ".join(filter(None, (group.area, group.device)))
                label = Labels(group.labels, LANGUAGE.get())
                sb.heading(" · ".join(filter(None, (label(group.skill), place))), level=3)
                with ui.element("ul").classes("sb-said"):
                    for said in group.sentences[: limits.SENTENCES_SHOWN]:
                        sb.Words("li", _SLOT.sub("…", said))
            if (more := len(groups) - limits.SKILLS_SHOWN) > 0:
                sb.note(text("{n} more: narrower words find fewer.", n=more))

    with sb.card(text("What can I say?"), icon="chat_bubble_outline"):
        sb.note(
            text("These work at once, also without a model. Anything else you can ask in your own words.")
        )
        words = search_field(text("Find a sentence"), view.showing(show))
        found = ui.element("div").classes("sb-groups").props("aria-live=polite")
    await show()


async def _methods() -> None:
    """Show the search, and what a sentence would call."""
    devices = await view.api(list_devices)
    names: dict[str | None, str] = {None: text("No device")} | {each.key: each.name for each in devices}

    @sb.one_at_a_time
    async def search() -> None:
        answer = await view.api(search_skills, words.value or "", limits.SKILLS_SHOWN, current.value)
        with sb.refilled(found):
            for each in answer.failing:
                sb.problem(f"{each.device}: {human(each.skill)}: {text.message(each.reason)}")
            if not answer.results and not answer.failing:
                sb.empty("search_off", text("Nothing found"), text("Other words may find it."))
            for result in answer.results:
                _result(result)
            if answer.more:
                sb.note(text("{n} more: narrower words find fewer.", n=answer.more))
            if answer.silent:
                sb.note(text("Not heard for long, so left out: {names}", names=", ".join(answer.silent)))

    async def attempt() -> None:
        if said := (sentence.value or "").strip():
            answer = await view.api(attempt_sentence, said, here.value)
            with sb.refilled(meant):
                _understood(answer)

    with sb.card(text("Try a sentence"), icon="chat_bubble_outline"):
        sb.note(text("A sentence that a skill declares acts without a model. Trying it runs nothing."))
        with sb.row().classes("sb-search"):
            sentence = text_field(text("Sentence"), hint=text("For example: turn on the lamp"))
            sentence.classes("sb-grow").on("keydown.enter", view.showing(attempt))
            here = choice(text("Said on"), names, None).classes("sb-narrow")
            view.button(text("Try"), attempt, kind="primary")
        meant = sb.stack().props("aria-live=polite")
    with sb.card(text("Search as the assistant does"), icon="search"):
        with sb.row().classes("sb-search"):
            words = search_field(text("Words"), view.showing(search)).classes("sb-grow")
            current = choice(text("Current device"), names, None).classes("sb-narrow")
            current.on_value_change(view.showing(search))
        flag_legend()
        found = ui.element("div").props("aria-live=polite")
    await search()


def _understood(meant: SentenceTried) -> None:
    """Show what a sentence would call."""
    if not meant.calls:
        sb.Words("p", text("No skill declares this; a model would answer."), "sb-strong")
        if meant.examples:
            sb.note(text("These would work: {sentences}", sentences=" · ".join(meant.examples)))
    if meant.question:
        sb.Words("p", text("It may mean several; it would ask:"), "sb-strong")
        sb.note(meant.question)
    for each in meant.calls:
        _call(each)


def _call(meant: CallOfSentence) -> None:
    _, device, skill, method = meant.path.split(".")
    with ui.element("div").classes("sb-method"):
        with sb.stack().classes("sb-tight sb-grow"):
            sb.Words("p", f"{human(skill)}: {human(method)}", "sb-strong")
            sb.Words("p", meant.path, "sb-mono sb-small sb-text")
            sb.Words("p", meant.summary, "sb-muted")
            with sb.row():
                sb.badge(meant.device_name, icon="devices")
                flags(meant.flags)
                if why := meant.unavailable:
                    sb.badge(text.message(why), "bad")
            if meant.arguments:
                sb.as_json(meant.arguments, label=text("Arguments"))
            outcome = sb.stack()

        async def run() -> None:
            answer = await call(device, skill, method, meant.arguments)
            outcome.clear()
            if answer is not None:
                with outcome:
                    show_result(answer)

        view.button(text("Run"), run, icon="play_arrow")


def _result(result: ResultBody) -> None:
    _, _, skill, method = result.path.split(".")
    with ui.element("div").classes("sb-method"):
        with sb.stack().classes("sb-tight sb-grow"):
            sb.Words("p", f"{human(skill)}: {human(method)}", "sb-strong")
            sb.Words("p", f"{skill}.{result.signature}", "sb-mono sb-small sb-text")
            sb.Words("p", result.summary, "sb-muted")
            with sb.row():
                for each in result.devices:
                    why = result.unavailable.get(each, "")
                    made = sb.badge(
                        f"{each}: {text.message(why)}" if why else each, "bad" if why else "plain"
                    )
                    made.props["title"] = why or each
                if result.more_devices:
                    sb.badge(text("and {n} more", n=result.more_devices))
                flags(result.flags)
                if not result.available:
                    sb.badge(text("cannot be called now"), "bad")
        more = text("More about {method}", method=f"{skill}.{method}")
        view.tool("chevron_right", more, partial(_describe, result.path))


async def _describe(path: str) -> None:
    """Show what the model reads of a method, its sentences, and the form that runs it."""
    _, device, skill, method = path.split(".")
    described = await view.api(describe_skill, path)
    found = await view.api(list_methods, device, skill)
    with view.dialog(f"{human(skill)}: {human(method)}", wide=True, close=text("Close")):
        sb.code(escaped(described.text, keep="\n"), label=text("As the assistant reads it")).classes(
            "sb-wrap"
        )
        for each in found.skills[:1]:
            here = [one for one in each.methods if one.name == method]
            for one in here:
                if one.sentences:
                    sb.heading(text("Sentences"), level=3)
                    for language, templates in one.sentences.items():
                        for template in templates:
                            with sb.row(wrap=False):
                                sb.badge(language)
                                sb.Words("span", template, "sb-text")
                method_row(each, one)
