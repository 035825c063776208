import os
from pathlib import Path

import pytest

from agent_core.files.edited_file import MAX_BYTES, EditedFile
from contracts.errors import FileProblem


def numbers(text: str) -> list[int]:
    """Read a number a line."""
    made = []
    for place, line in enumerate(text.splitlines(), 1):
        if not line.isdecimal():
            raise FileProblem(f"{line!r} is no number", line=place)
        made.append(int(line))
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "numbers"


@pytest.fixture
def edited(path: Path) -> EditedFile[list[int]]:
    return EditedFile(path, numbers, absent=[])


def test_a_change_counts_at_the_next_use(path: Path, edited: EditedFile[list[int]]) -> None:
    assert edited.value == []
    path.write_text("1\n2\n")
    assert edited.value == [1, 2]
    path.write_text("3\n")
    assert edited.value == [3]
    path.unlink()
    assert (edited.value, edited.problem) == ([], None)


def test_a_file_put_in_its_place_counts_whatever_its_age_and_size(
    path: Path, edited: EditedFile[list[int]]
) -> None:
    path.write_text("1\n")
    assert edited.value == [1]
    other = path.with_name("other")
    other.write_text("2\n")
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    assert edited.value == [2]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"1\ntwo\n", ":2: 'two' is no number"),
        (b"1\n2\n\xff\xfe\n", ":3: is not UTF-8 text"),
        (b"1\n" * (MAX_BYTES // 2 + 1), f":{MAX_BYTES // 2 + 1}: is longer than {MAX_BYTES} bytes"),
    ],
)
def test_a_broken_file_is_named_once_while_the_last_good_one_stays(
    path: Path,
    edited: EditedFile[list[int]],
    caplog: pytest.LogCaptureFixture,
    content: bytes,
    said: str,
) -> None:
    path.write_text("7\n")
    assert edited.value == [7]
    path.write_bytes(content)
    for _ in range(3):
        assert edited.value == [7]
    assert edited.problem is not None
    assert edited.problem.message == f"{path}{said}"
    assert [record.getMessage().startswith(f"{path}{said}") for record in caplog.records] == [True]
    path.write_text("8\n")
    assert (edited.value, edited.problem) == ([8], None)


def test_what_is_no_file_is_not_read(path: Path, edited: EditedFile[list[int]]) -> None:
    os.mkfifo(path)
    assert edited.value == []
    assert edited.problem is not None
    assert "is not a file" in edited.problem.message
