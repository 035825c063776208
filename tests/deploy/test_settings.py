from pathlib import Path

import pytest
import tzlocal

from agent_core.prompt import Household
from contracts.errors import ConfigError
from deploy.home import Home
from deploy.settings import read_household


def write(home: Path, text: str) -> Home:
    (home / "strawberry.toml").write_text(text)
    return Home(home)


def test_a_household_is_as_the_file_says(tmp_path: Path) -> None:
    home = write(
        tmp_path, '[household]\nlanguage = "de-AT"\ntime_zone = "Europe/Vienna"\nunits = "imperial"\n'
    )
    assert read_household(home) == Household(language="de-AT", time_zone="Europe/Vienna", units="imperial")


def test_what_the_file_leaves_out_is_the_default_and_the_machines_time_zone(tmp_path: Path) -> None:
    expected = Household(time_zone=tzlocal.get_localzone_name())
    assert read_household(Home(tmp_path)) == expected
    assert read_household(write(tmp_path, "[household]\n")) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[household]\ntime_zone = "Europe/Atlantis"\n', "household.time_zone: there is no time zone"),
        ('[household]\ntime_zone = "../../etc/passwd"\n', "household.time_zone: there is no time zone"),
        ('[household]\ntime_zone = ""\n', "household.time_zone: there is no time zone"),
        ('[household]\nlanguage = "English please"\n', "household.language: "),
        ('[household]\nunits = "furlongs"\n', "household.units: .*metric"),
        ('[household]\nzone = "UTC"\n', "household.zone: "),
        ("household = 5\n", "household must be a table"),
        ('[[model]]\nname = "house"\n', "nothing is called 'model'"),
        ("[household\n", "is not TOML"),
    ],
)
def test_a_mistake_names_the_file_and_the_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_household(write(tmp_path, text))
    assert "strawberry.toml" in caught.value.message
    assert caught.value.hint
