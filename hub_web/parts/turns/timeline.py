"""Where the time of a turn went: as a bar of shares, and as a timeline of its spans."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nicegui import ui

from contracts.tracing.trace import SpanDetail, TurnSpan
from hub_web import limits, sb
from hub_web.texts import milliseconds, text

_INDENT: Final = 14
"""Pixels of a level."""
_STEPS: Final = (1, 2, 5)
_MARKED: Final = re.compile(r"<data [^>]*>\n(.*)\n</data>", re.DOTALL)


def kind_names() -> dict[str, str]:
    """Return how the kinds of spans are called, in their order."""
    return {
        "model": text("Model"),
        "skill": text("Skill"),
        "bus": text("Bus"),
        "sandbox": text("Sandbox"),
        "tool": text("Tool"),
        "confirmation": text("Waiting for a person"),
        "hub": text("Hub"),
    }


def shares(ms_by_kind: Mapping[str, float], *, of_ms: float | None = None) -> ui.element:
    """Make a bar of how the time was divided.

    Args:
        of_ms: What the whole width stands for; by default all of the time.
    """
    names = kind_names()
    given = {kind: ms_by_kind[kind] for kind in names if ms_by_kind.get(kind, 0) > 0}
    whole = max(of_ms or 0, sum(given.values()), 0.001)
    said = ", ".join(f"{names[kind]} {milliseconds(ms)}" for kind, ms in given.items())
    made = sb.named(
        ui.element("div").classes("sb-shares").props("role=img"), said or text("No time was measured")
    )
    with made:
        for kind, ms in given.items():
            if ms / whole >= limits.LEAST_SHARE:
                part = ui.element("span").classes(f"sb-kind-{kind}").style(f"--part: {100 * ms / whole:.2f}%")
                part.props["title"] = f"{names[kind]}: {milliseconds(ms)}"
    return made


def legend(ms_by_kind: Mapping[str, float] | None = None) -> ui.element:
    """Make the names of the colours, with the time of each where it is given."""
    with ui.element("ul").classes("sb-legend") as made:
        for kind, name in kind_names().items():
            if ms_by_kind is None or ms_by_kind.get(kind, 0) > 0:
                with ui.element("li"):
                    ui.element("span").classes(f"sb-kind sb-kind-{kind}").props("aria-hidden=true")
                    sb.Words("span", name)
                    if ms_by_kind is not None:
                        sb.Words("span", milliseconds(ms_by_kind[kind]), "sb-strong")
    return made


class Timeline:
    """The spans of a turn in the order in which they began, each folded with what was said in it.

    Args:
        devices: Names of devices by id.
    """

    def __init__(self, spans: Sequence[TurnSpan], devices: Mapping[str, str]) -> None:
        self._devices = devices
        self._names = kind_names()
        end = max((span.start_ms + span.ms for span in spans), default=0)
        self._whole = max(end, 1)
        with ui.element("div").classes("sb-timeline"):
            self._axis()
            depths: list[int] = []
            for span in spans:
                depths.append(
                    0 if span.parent is None else min(depths[span.parent] + 1, limits.MAX_TIMELINE_DEPTH)
                )
                self._span(span, depths[-1])

    def _axis(self) -> None:
        with ui.element("div").classes("sb-span-row sb-axis-row").props("aria-hidden=true"):
            ui.element("span")
            with ui.element("span").classes("sb-track"):
                step = _step(self._whole / limits.TIMELINE_TICKS)
                for number in range(int(self._whole / step) + 1):
                    at = 100 * number * step / self._whole
                    # The last one would stand beyond the edge.
                    if at < 94:
                        sb.Words("span", milliseconds(number * step), "sb-tick").style(f"--from: {at:.2f}%")
            ui.element("span")

    def _span(self, span: TurnSpan, depth: int) -> None:
        is_bad = span.outcome in ("failed", "cancelled")
        with ui.element("details").classes("sb-span"):
            with ui.element("summary").classes("sb-span-row"):
                with ui.element("span").classes("sb-span-name").style(f"--indent: {depth * _INDENT}px"):
                    ui.icon("chevron_right").classes("sb-chevron")
                    ui.element("span").classes(f"sb-kind sb-kind-{span.kind}").props("aria-hidden=true")
                    sb.Words("span", self._names[span.kind], "sb-only-read")
                    sb.cut("span", span_name(span))
                    if is_bad:
                        ui.icon("error_outline").classes("sb-span-bad").props("aria-hidden=true")
                        sb.Words("span", self._outcome(span), "sb-only-read")
                with ui.element("span").classes("sb-track").props("aria-hidden=true"):
                    start, wide = 100 * span.start_ms / self._whole, 100 * span.ms / self._whole
                    bar = ui.element("span").classes(f"sb-span-bar sb-kind-{span.kind}")
                    bar.classes("sb-span-failed" if is_bad else "")
                    bar.style(f"--from: {start:.3f}%; --wide: {wide:.3f}%")
                    if (first := span.detail.first_ms) is not None and span.ms > 0:
                        ui.element("span").classes("sb-span-first").style(
                            f"--from: {start + 100 * first / self._whole:.3f}%"
                        )
                sb.Words("span", milliseconds(span.ms), "sb-span-ms")
            with ui.element("div").classes("sb-span-detail").style(f"--indent: {depth * _INDENT}px"):
                self._detail(span)

    def _outcome(self, span: TurnSpan) -> str:
        return {
            "ok": "",
            "running": text("still running"),
            "failed": text.of("a part", "failed"),
            "cancelled": text("was stopped"),
        }[span.outcome]

    def _detail(self, span: TurnSpan) -> None:
        detail, device = span.detail, span.device
        if detail.error:
            sb.Words("p", text.message(detail.error), "sb-span-error")
        sb.facts(
            (text("What"), self._names[span.kind]),
            (text("State"), self._outcome(span)),
            (text("Device"), self._devices.get(device, device) if device else ""),
            (text("Began"), text("after {time}", time=milliseconds(span.start_ms))),
            (text("Took"), milliseconds(span.ms)),
            *self._facts(detail).items(),
        )
        show_work(detail.arguments, detail.result)

    def _facts(self, detail: SpanDetail) -> dict[str, str]:
        def shown(show: Callable[[float], str], value: float | None) -> str:
            return "" if value is None else show(value)

        return {
            text("First word after"): shown(milliseconds, detail.first_ms),
            text("Of this, running"): shown(milliseconds, detail.run_ms),
            text("Of this, on the device"): shown(milliseconds, detail.ran_ms),
            text("Asked"): f"{detail.provider} · {detail.model or ''}" if detail.provider else "",
            text("Tokens in"): shown(text.number, detail.input_tokens),
            text("Tokens out"): shown(text.number, detail.output_tokens),
            text("Cost"): shown(cost_words, detail.cost),
            text("Ended"): text("at the model's limit of length") if detail.stop == "length" else "",
            text("Variables were gone"): detail.lost or "",
        }


def show_work(arguments: Any, result: Any) -> None:
    """Show what a tool or a skill was given, its program apart from the rest, and what it returned."""
    given, program = arguments, None
    if isinstance(arguments, dict) and isinstance(arguments.get("code"), str):
        program, given = arguments["code"], {k: v for k, v in arguments.items() if k != "code"}
    for label, value in ((text("Program"), program), (text("Arguments"), given), (text("Result"), result)):
        if value not in (None, "", {}):
            sb.Words("p", label, "sb-muted sb-small")
            sb.code(_written(value), label=label)


def _written(value: Any) -> str:
    """Return a text as it is, without the mark that tells a model where it is from; anything else as JSON."""
    if not isinstance(value, str):
        return json.dumps(value, indent=2, ensure_ascii=False)
    marked = _MARKED.fullmatch(value)
    return marked[1] if marked else value


def span_name(span: TurnSpan) -> str:
    """Return what a span is called on a line of the timeline."""
    names = {
        ("hub", "prompt"): text("Put the prompt together"),
        ("hub", "queue"): text("Wait for the turn before"),
        ("hub", "gateway"): text("Open the way to the models"),
        ("sandbox", "program"): text("Run the program"),
    }
    return names.get((span.kind, span.name), span.name)


def cost_words(cost: float) -> str:
    return text.number(cost, 2 if cost >= 1 else 5)


def _step(least: float) -> float:
    """Return the next round number."""
    scale = 1.0
    while scale * 10 <= least:
        scale *= 10
    return next((scale * each for each in _STEPS if scale * each >= least), scale * 10)
