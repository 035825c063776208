"""Captures: what is recorded, how much of it there is, its plot and its files."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from nicegui import ui

from contracts.answers.live import LinkName, RecordingState
from contracts.errors import InvalidMessage
from hub_live.captures import CaptureInfo, CaptureSpec, TopicChoice, operations
from hub_live.captures.files.formats import FORMATS
from hub_live.captures.files.series import CapturedFile
from hub_live.events.kinds import CaptureData
from hub_live.world.operations import Wanted, look
from hub_live.world.world import ENTITY
from hub_web import sb
from hub_web.limits import MANY_TOPICS
from hub_web.parts.calls.forms import choice, number_field, switch, text_field
from hub_web.parts.files import download_link
from hub_web.parts.names import load_names
from hub_web.parts.plots import plot
from hub_web.shell import page
from hub_web.texts import size, text
from hub_web.view import part, view

Place = tuple[LinkName, str]
"""A link and a topic on it."""


@page("/captures", title="Captures", icon="fiber_smart_record", menu=50, writer=True)
async def captures() -> None:
    """Show all captures, live."""

    @sb.one_at_a_time
    async def show() -> None:
        found = await view.api(operations.list_captures)
        names = await load_names()
        world = await view.api(look, Wanted(kind=ENTITY, limit=MANY_TOPICS))
        values.clear()
        for thing in world.things:
            if thing.topic:
                values.setdefault((thing.link or "bus", thing.topic), names.value(thing))
        with sb.refilled(place):
            if not found:
                with sb.empty(
                    "fiber_smart_record",
                    text("No capture yet"),
                    text("Record the values of your home to look at them later, or to try watchers on them."),
                ):
                    view.button(text("Start a capture"), new, icon="add", kind="primary")
                return
            with sb.grid(least=360):
                for each in found:
                    _card(each, values, show)

    values: dict[Place, str] = {}
    new = partial(_ask, values, show)
    with sb.row():
        sb.note(text("Values recorded into files, until you stop them."))
        ui.element("div").classes("sb-grow")
        view.button(text("New capture"), new, icon="add", kind="primary")
    place = ui.element("div")
    # First, so that nothing happens unheard in between.
    view.on_event(CaptureData, lambda _: show())
    await show()


def _card(capture: CaptureInfo, values: Mapping[Place, str], show: sb.Callback) -> None:
    states: dict[RecordingState, tuple[str, sb.Tone]] = {
        "active": (text("recording"), "good"),
        "stopped": (text("stopped"), "plain"),
        "full": (text("no room"), "warn"),
        "failed": (text("cannot record"), "bad"),
    }
    name = capture.id if capture.owner else text("Watchers")
    with sb.card(name, icon="fiber_smart_record") as tools:
        with tools:
            sb.badge(*states[capture.state])
        if capture.problem:
            sb.problem(capture.problem)
        sb.facts(
            (text("Values"), ", ".join(_value(each, values) for each in capture.topics)),
            (text("Messages"), text.number(capture.messages)),
            (text("Size"), f"{size(capture.bytes)}, " + text.count(capture.files, "{n} file", "{n} files")),
            (text("Gaps"), text.number(capture.gaps) if capture.gaps else ""),
            (text("Since"), view.ago(capture.created_at)),
        )
        with sb.folded(text("As code")):
            sb.facts(
                (text("Topics"), ", ".join(each.topic for each in capture.topics)),
                (text("Format"), capture.format + (" (zstd)" if capture.zstd else "")),
            )
        if not capture.owner:
            sb.note(text("What watchers see, kept for their back-tests."), classes="sb-small")
        with sb.actions():
            if capture.state != "stopped" and capture.owner:
                view.button(text("Stop"), partial(_stop, capture.id, show), icon="stop", kind="flat")
            if FORMATS[capture.format].is_series and capture.files:
                view.button(text("Plot"), partial(_plot, capture.id), icon="show_chart")
            view.button(text("Files"), partial(_files, capture.id), icon="folder_open")


def _value(chosen: TopicChoice, values: Mapping[Place, str]) -> str:
    if found := values.get((chosen.link, chosen.topic)):
        return found
    return text("several values") if {"+", "#"} & set(chosen.topic.split("/")) else chosen.topic


async def _stop(capture: str, show: sb.Callback) -> None:
    if await view.ask(text("Stop {name}?", name=capture), text("Its files stay."), yes=text("Stop")):
        await view.api(operations.stop, capture)
        await show()


async def _plot(capture: str) -> None:
    numbers = await view.api(operations.numbers, capture)
    with view.dialog(capture, wide=True, close=text("Close")):
        if not numbers.lines:
            sb.note(text("There are no numbers in it."))
        for name, line in numbers.lines.items():
            topic, _, field = name.rpartition(" ")
            sb.heading(field, level=3, classes="sb-mono")
            sb.cut("p", topic, "sb-muted sb-small")
            plot(line, label=name, steps=True)
        if numbers.more:
            sb.note(text("and {n} more", n=numbers.more))
        if numbers.cut:
            sb.note(text("Only the newest files are drawn."))


async def _files(capture: str) -> None:
    path = f"/api/captures/{part(capture)}/files"
    found = await view.api(operations.list_files, capture)
    with view.dialog(text("Files of {name}", name=capture), wide=True, close=text("Close")):
        if not found:
            sb.note(text("There is no file yet."))
        else:
            columns = (text("Name"), text("Size"), text("Changed"), "")
            sb.table(columns, (_file(path, each) for each in reversed(found)), label=text("Files"))


def _file(path: str, file: CapturedFile) -> tuple[sb.Cell, ...]:
    return (
        file.name,
        size(file.bytes),
        view.ago(file.changed_at),
        partial(download_link, file.name, f"{path}/{part(file.name)}"),
    )


async def _ask(values: Mapping[Place, str], show: sb.Callback) -> None:
    async def start() -> None:
        lines = (line.strip() for line in (topics.value or "").splitlines())
        named = [*chosen.value, *((link.value, line) for line in lines if line)]
        if not named or not path.value:
            raise InvalidMessage(text("It needs values and a file."))
        # The operation checks it, and explains what is wrong.
        spec = CaptureSpec.model_construct(
            topics=tuple(TopicChoice.model_construct(topic=topic, link=of) for of, topic in named),
            path=path.value,
            format=kind.value,
            zstd=zstd.value,
            keep_days=keep.value or None,
        )
        await view.api(operations.start, spec)
        await show()

    with view.form(text("New capture"), start, yes=text("Start")):
        chosen = choice(text("Values of your home"), values, [], several=True)
        name = f"{datetime.now(view.zone):%Y-%m-%d}.jsonl"
        path = text_field(text("File"), name, hint=text("In the folder for captures"))
        keep = number_field(text("Keep days"), least=1)
        with sb.folded(text("As code")):
            hint = text("One in each line; + and # are wildcards")
            topics = text_field(text("Other topics"), hint=hint, lines=True)
            brokers = {"bus": text("Strawberry's bus"), "home": text("the home broker")}
            link = choice(text("Broker of these topics"), brokers, "bus")
            kind = choice(text("Format"), list(FORMATS), "jsonl")
            zstd = switch(text("Compress"))
