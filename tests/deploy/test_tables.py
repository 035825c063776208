"""Tables as people read them."""

from datetime import UTC, datetime

import pytest

from deploy.cli.terminal.output import moment, table

COLUMNS = ("path", "summary")
ROWS = [
    ["devices.hall.LampSkill.turn_on", "Turn the lamp on, and wait until it is as bright as it was."],
    ["devices.hall.LampSkill.status", "Return how the lamp is set."],
]


def test_a_program_gets_each_row_as_one_line() -> None:
    assert table(ROWS, COLUMNS).splitlines()[1] == "  ".join(ROWS[0])


def test_a_terminal_gets_prose_wrapped_and_names_whole() -> None:
    assert table(ROWS, COLUMNS, width=60).splitlines() == [
        "PATH                            SUMMARY",
        "devices.hall.LampSkill.turn_on  Turn the lamp on, and wait",
        "                                until it is as bright as it",
        "                                was.",
        "devices.hall.LampSkill.status   Return how the lamp is set.",
    ]


def test_what_is_too_wide_even_so_stands_one_below_the_other() -> None:
    assert table(ROWS[1:], COLUMNS, width=40).splitlines() == [
        "PATH     devices.hall.LampSkill.status",
        "SUMMARY  Return how the lamp is set.",
    ]
    assert table(ROWS[1:], COLUMNS, width=30).splitlines()[1:] == [
        "SUMMARY  Return how the lamp",
        "         is set.",
    ]


def test_letters_that_take_two_columns_are_counted_as_two() -> None:
    assert table([["電灯", "on"], ["Küche", "off"]], ("name", "state")).splitlines() == [
        "NAME   STATE",
        "電灯   on",
        "Küche  off",
    ]


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ("2026-01-01T12:00:00Z", "just now"),
        ("2026-01-01T11:58:10.5Z", "1 min ago"),
        ("2026-01-01T09:00:00Z", "3 h ago"),
        ("2026-01-01T12:09:59Z", "in 10 min"),
        (None, ""),
        ("soon", "soon"),
    ],
)
def test_times_are_relative_to_now(at: str | None, shown: str) -> None:
    assert moment(at, now=datetime(2026, 1, 1, 12, tzinfo=UTC)) == shown
