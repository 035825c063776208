"""One tray for each data directory."""

from pathlib import Path

import pytest

from contracts.errors import ConfigError
from tray.instance import only_tray


def test_a_path_too_long_for_a_socket_is_told(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 120)
    with pytest.raises(ConfigError, match="cannot listen") as raised, only_tray(directory, lambda: None):
        pass
    assert "STRAWBERRY_HOME" in raised.value.hint
