"""What the owner of a device sets of a skill."""

import logging
import stat
from typing import Literal

import pytest
from pydantic import BaseModel, Field, SecretStr, model_validator

from agent_core.skills.loader import expose
from agent_core.skills.runner import SkillRunner
from agent_core.skills.skill import Skill, attach
from contracts.errors import CallError, ConfigError, ErrorCode


class CoffeeSkill(Skill):
    """A coffee machine."""

    class Settings(BaseModel):
        cups: int = Field(1, ge=1, le=4, description="How many by default.")
        strength: Literal["mild", "strong"] = "mild"
        key: SecretStr = SecretStr("")

        @model_validator(mode="after")
        def _fits(self) -> "CoffeeSkill.Settings":
            if self.cups == 4 and self.strength == "strong":
                raise ValueError("four strong cups are too much")
            return self

    def brew(self) -> str:
        """Brew."""
        return f"{self.settings.cups} {self.settings.strength} {self.settings.key.get_secret_value()}"


@pytest.fixture
def hosted(make_context):
    def make(kind: type[Skill] = CoffeeSkill) -> SkillRunner:
        skill = kind()
        attach(skill, make_context(kind.__name__))
        return SkillRunner([expose(skill)[0]])

    return make


async def test_settings_are_changed_by_a_confirmed_call_and_kept_for_the_owner_alone(hosted, tmp_path):
    async with hosted() as runner:
        with pytest.raises(CallError, match="confirmation"):
            await runner.run("CoffeeSkill", "change_settings", kwargs={"cups": 3})
        await runner.run("CoffeeSkill", "change_settings", kwargs={"cups": "3", "key": "s3"}, confirmed=True)
        assert await runner.run("CoffeeSkill", "brew") == "3 mild s3"
    file = tmp_path / "data" / "CoffeeSkill" / "settings.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with hosted() as runner:
        shown = await runner.run("CoffeeSkill", "get_settings")
        assert shown == {"cups": 3, "strength": "mild", "key": "**********"}
        await runner.run("CoffeeSkill", "change_settings", kwargs={"strength": "strong"}, confirmed=True)
        assert await runner.run("CoffeeSkill", "brew") == "3 strong s3"
        for wrong in ({"cups": 5}, {"cups": 4}, {"cup": 1}):
            with pytest.raises(CallError) as caught:
                await runner.run("CoffeeSkill", "change_settings", kwargs=wrong, confirmed=True)
            assert caught.value.code == ErrorCode.BAD_ARGUMENTS
        assert await runner.run("CoffeeSkill", "brew") == "3 strong s3"


def test_the_schema_of_the_settings_is_that_of_the_call(hosted):
    contract = hosted().skills["CoffeeSkill"].methods["change_settings"].contract
    assert "required" not in contract.parameters
    cups = contract.parameters["properties"]["cups"]
    described = {"description": "How many by default.", "default": 1}
    assert cups == {"type": "integer", "minimum": 1, "maximum": 4, **described}
    assert contract.parameters["properties"]["key"]["format"] == "password"
    assert contract.flags.confirm


def test_a_stored_value_that_no_longer_fits_is_left_out(hosted, tmp_path, caplog):
    file = tmp_path / "data" / "CoffeeSkill" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"cups": 9, "strength": "strong", "gone": 1}')
    with caplog.at_level(logging.WARNING):
        skill = hosted().skills["CoffeeSkill"].instance
    assert (skill.settings.cups, skill.settings.strength) == (1, "strong")
    assert "cups" in caplog.text
    file.write_text("{")
    assert hosted().skills["CoffeeSkill"].instance.settings.strength == "mild"


def test_a_skill_has_the_defaults_while_nobody_hosts_it_and_each_setting_has_one(hosted):
    assert CoffeeSkill().brew() == "1 mild "

    class NeedySkill(Skill):
        class Settings(BaseModel):
            host: str

        def go(self) -> None: ...

    with pytest.raises(ConfigError, match="host has no default"):
        hosted(NeedySkill)
