"""What a program in the sandbox can do, and what comes back from it."""

import pytest

from sandbox_host import PoolSettings, RunLimits, RunStatus, Session, open_pool
from tests.sandbox_host.house import House, run, run_alone

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_value_of_the_last_expression_comes_back(session: Session, house: House) -> None:
    result = await run(session, house, "a = 1\na + 1")
    assert result.ok
    assert (result.value, result.repr, result.plain) == (2, "2", True)


async def test_a_program_that_ends_in_a_statement_has_no_value(session: Session, house: House) -> None:
    result = await run(session, house, "a = 1")
    assert (result.status, result.value, result.repr) == (RunStatus.OK, None, "")


async def test_variables_imports_and_functions_stay_for_the_next_program(
    session: Session, house: House
) -> None:
    result = await run(
        session, house, "import math\ndef double(n):\n    return 2 * n", "double(math.floor(2.5))"
    )
    assert result.value == 4
    assert not result.fresh


async def test_usual_values_become_plain_data_and_others_stay_text(session: Session, house: House) -> None:
    program = """
from dataclasses import dataclass
from datetime import date
@dataclass
class Song:
    title: str
    when: date
[Song("a", date(2026, 1, 2)), {1}, range(2)]
"""
    plain = await run(session, house, program)
    assert plain.value == [{"title": "a", "when": "2026-01-02"}, [1], [0, 1]]
    other = await run(session, house, "object()")
    assert other.value is None
    assert not other.plain
    assert other.repr.startswith("<object object at ")
    assert not (await run(session, house, "float('nan')")).plain


async def test_output_and_errors_are_captured_in_order(session: Session, house: House) -> None:
    program = """
import os, sys
print("one")
print("two", file=sys.stderr)
sys.stdout.write("three\\n")
os.write(1, b"four\\n")
print("fünf \\ud800")
"""
    result = await run(session, house, program)
    assert result.stdout == "one\ntwo\nthree\nfour\nfünf \\ud800\n"


async def test_output_is_cut_at_the_cap_and_says_so(session: Session, house: House) -> None:
    result = await run(
        session, house, "for i in range(100): print('x' * 99)", limits=RunLimits(output_bytes=1000)
    )
    assert result.ok
    assert result.truncated
    assert result.stdout == ("x" * 99 + "\n") * 10 + "\n[output cut at 1000 bytes]\n"


@pytest.mark.parametrize(
    ("program", "kept"),
    [
        ("print('ä' * 5000)", "ä" * 500),
        ("import sys\n_ = sys.stdout.buffer.write(bytes([255]) * 5000)", "\ufffd" * 1001),
    ],
    ids=["in the middle of a letter", "bytes that are no text"],
)
async def test_a_cap_counts_what_was_printed(program: str, kept: str, session: Session, house: House) -> None:
    result = await run(session, house, program, limits=RunLimits(output_bytes=1001))
    assert result.ok
    assert result.stdout == f"{kept}\n[output cut at 1001 bytes]\n"


async def test_a_value_that_is_too_large_comes_as_a_cut_text(session: Session, house: House) -> None:
    result = await run(session, house, "'x' * 1_000_000")
    assert result.ok
    assert result.truncated
    assert (result.value, result.plain) == (None, False)
    assert "[cut: 1000002 characters in all]" in result.repr
    assert len(result.repr) < 20_000


async def test_a_value_that_is_nested_very_deep_comes_as_text(session: Session, house: House) -> None:
    result = await run(session, house, "x = []\nfor _ in range(500): x = [x]\nx")
    assert result.ok
    assert not result.plain


async def test_a_traceback_shows_the_users_lines_and_nothing_else(
    settings: PoolSettings, house: House
) -> None:
    program = """
import json
def parse(text):
    return json.loads(text)

parse("{")
"""
    result = await run_alone(settings, house, program)
    assert result.status is RunStatus.ERROR
    assert 'File "<run 1>", line 6, in <module>\n    parse("{")' in result.traceback
    assert 'File "<run 1>", line 4, in parse\n    return json.loads(text)' in result.traceback
    assert result.traceback.count("File ") == 2
    assert result.traceback.splitlines()[-1].startswith("json.decoder.JSONDecodeError: ")


async def test_a_traceback_names_the_program_that_a_function_came_from(
    settings: PoolSettings, house: House
) -> None:
    result = await run_alone(settings, house, "def half(n):\n    return n / 0", "\n\nhalf(1)")
    assert 'File "<run 2>", line 3, in <module>\n    half(1)' in result.traceback
    assert 'File "<run 1>", line 2, in half\n    return n / 0' in result.traceback


async def test_a_syntax_error_names_the_line(settings: PoolSettings, house: House) -> None:
    result = await run_alone(settings, house, "a = 1\nb = = 2")
    assert result.status is RunStatus.ERROR
    assert 'File "<run 1>", line 2' in result.traceback
    assert "SyntaxError" in result.traceback


async def test_an_error_in_repr_is_the_programs_error(session: Session, house: House) -> None:
    program = "class Odd:\n    def __repr__(self):\n        return 1 / 0\nOdd()"
    result = await run(session, house, program)
    assert result.status is RunStatus.ERROR
    assert "line 3, in __repr__" in result.traceback


async def test_leaving_by_sys_exit_ends_the_program_and_keeps_the_variables(
    session: Session, house: House
) -> None:
    assert (await run(session, house, "import sys\nsys.exit()")).ok
    failed = await run(session, house, "import sys\nsys.exit('no lamp')")
    assert failed.status is RunStatus.ERROR
    assert "SystemExit: no lamp" in failed.traceback
    assert (await run(session, house, "import sys\na = 5\nsys.exit(1)", "a")).value == 5


async def test_a_program_that_asks_for_input_gets_an_error(session: Session, house: House) -> None:
    result = await run(session, house, "input()")
    assert result.status is RunStatus.ERROR


async def test_a_program_that_is_too_long_is_not_run(session: Session, house: House) -> None:
    result = await run(session, house, "#" * 1001, limits=RunLimits(code_bytes=1000))
    assert result.status is RunStatus.ERROR
    assert result.problem == "the program is larger than 1000 bytes"


async def test_two_processes_draw_different_random_numbers(settings: PoolSettings, house: House) -> None:
    program = "import os, random, uuid\n[random.random(), os.urandom(8).hex(), str(uuid.uuid4())]"
    async with open_pool(settings) as pool:
        one, other = [
            (await (await pool.session(name)).run(program, house)).value for name in ("one", "other")
        ]
    assert all(a != b for a, b in zip(one, other, strict=True))
