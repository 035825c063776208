"""Integrations are loaded where they were turned on, with the settings that were given."""

from pathlib import Path

from spoke.settings import SpokeSettings
from spoke.skill_host import SkillHost
from tests.deploy.strawberry import environment_of, run
from tests.spoke.samples.conftest import RecordingSink


async def skills_of(home: Path) -> dict[str, str]:
    """Return the skills that a spoke of this home has, with the description of each."""
    host = await SkillHost.load(SpokeSettings(home=home), device="pc", sink=RecordingSink())
    assert host.problems == []
    return {each.skill: each.doc for each in host.registrations}


async def test_an_integration_is_off_until_it_is_turned_on(tmp_path):
    def strawberry(*words):
        return run(environment_of(tmp_path), "skills", *words)

    assert await skills_of(tmp_path) == {}
    assert strawberry("enable", "weather", "place=Berlin").returncode == 0
    assert list(await skills_of(tmp_path)) == ["WeatherSkill"]
    assert '"place": "Berlin"' in (tmp_path / "spoke/data/WeatherSkill/settings.json").read_text()
    listed = strawberry("available").stdout
    assert "Weather now and in the next days" in listed
    for wrong, said in (
        (["wether"], "weather"),
        (["weather", "plaice=x"], "plaice"),
        (["weather", "x"], "x"),
    ):
        refused = strawberry("enable", *wrong)
        assert refused.returncode == 1
        assert said in refused.stderr
    assert strawberry("disable", "weather").returncode == 0
    assert await skills_of(tmp_path) == {}


async def test_a_broken_list_turns_all_off_and_says_so(tmp_path, caplog):
    (tmp_path / "spoke").mkdir()
    (tmp_path / "spoke" / "integrations.json").write_text("{")
    assert await skills_of(tmp_path) == {}
    assert "no integration is on" in caplog.text
