import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from contracts.errors import NotFound
from contracts.tracing.trace import MAX_CHARS, MAX_SPANS, SpanDetail, Trace, own_ms, place, span, within


@pytest.fixture
def trace() -> Iterator[Trace]:
    """A trace that is being recorded; its clock goes on by a second whenever it is read."""
    made = Trace(clock=count().__next__)
    with within((made, None)):
        yield made


async def test_spans_are_within_those_that_run_around_them_also_in_other_tasks(trace: Trace) -> None:
    async def call(name: str) -> None:
        with span("skill", name):
            pass

    with span("tool", "python_exec"):
        there = place()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(call("a"))
            tasks.create_task(call("b"))
    with span("model", "house", leaf=True), span("tool", "beside"):
        pass
    with within(None), span("skill", "of no turn"):
        pass
    with within(there), span("skill", "later"):
        pass
    assert [(each.name, each.parent) for each in trace.spans()] == [
        ("python_exec", None),
        ("a", 0),
        ("b", 0),
        ("house", None),
        ("beside", None),
        ("later", 0),
    ]


def test_a_span_says_how_it_ended(trace: Trace) -> None:
    with span("model", "fine") as at:
        at.mark("first_ms")
    with pytest.raises(NotFound), span("skill", "wrong"):
        raise NotFound("there is no lamp")
    with pytest.raises(asyncio.CancelledError), span("skill", "stopped"):
        raise asyncio.CancelledError
    with span("bus", "still there"):
        trace.close()
        with span("bus", "too late"):
            pass
    spans = trace.spans()
    assert [each.outcome for each in spans] == ["ok", "failed", "cancelled", "cancelled"]
    assert spans[0].detail == SpanDetail(first_ms=1000)
    assert (spans[0].start_ms, spans[0].ms) == (1000, 2000)
    assert spans[1].detail == SpanDetail(error="there is no lamp")


def test_however_much_is_said_a_trace_stays_small(trace: Trace) -> None:
    for _ in range(MAX_SPANS + 5):
        with span("skill", "x" * 1_000) as at:
            at.note(arguments={"text": "y" * 100_000, "more": [["z" * 50] * 1_000]}, result="\ud800")
    spans = trace.spans()
    assert (len(spans), trace.left_out) == (MAX_SPANS, 5)
    assert sum(len(str(each.detail)) for each in spans) < 2 * MAX_CHARS
    assert spans[0].detail.arguments["text"].endswith("…")
    assert spans[0].detail.result == "?"


def test_time_counts_for_the_innermost_part_and_once_where_parts_run_together(trace: Trace) -> None:
    ticks = iter([0, 0, 1, 2, 3, 9, 10, 20])  # tool 0-10 has two calls within, 1-3 and 2-9
    trace.clock = ticks.__next__
    with span("tool", "python_exec"):
        first, second = span("skill", "a", leaf=True), span("bus", "b", leaf=True)
        next(ticks)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
    assert own_ms(trace.spans()) == {"tool": 2_000, "skill": 2_000, "bus": 7_000}
