"""What several tests of speech stand in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.voice.room import Room


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    (tmp_path / "room").mkdir()
    with Room(tmp_path / "room") as room:
        yield room
