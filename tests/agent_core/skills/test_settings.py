"""What the owner of a device sets of a skill."""

import asyncio
import json
import logging
import stat
from dataclasses import replace
from typing import Literal

import pytest
from pydantic import BaseModel, Field, SecretStr, model_validator

from agent_core.schemas.arguments import check_arguments, without_secrets
from agent_core.skills.availability import secrets_of
from agent_core.skills.loading.exposure import expose
from agent_core.skills.running.runner import SkillRunner
from agent_core.skills.skill import Skill, attach, every
from contracts.errors import CallError, ErrorCode


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


async def test_a_stored_value_that_no_longer_fits_is_left_out_and_kept(hosted, tmp_path, caplog):
    file = tmp_path / "data" / "CoffeeSkill" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"cups": 9, "strength": "strong", "gone": 1}')
    with caplog.at_level(logging.WARNING):
        skill = hosted().skills["CoffeeSkill"].instance
    assert (skill.settings.cups, skill.settings.strength) == (1, "strong")
    assert "cups" in caplog.text
    async with hosted() as runner:
        await runner.run("CoffeeSkill", "change_settings", kwargs={"strength": "mild"}, confirmed=True)
    assert json.loads(file.read_text()) == {"cups": 9, "strength": "mild", "gone": 1}
    file.write_text("{")
    assert hosted().skills["CoffeeSkill"].instance.settings.strength == "mild"


def test_a_skill_has_the_defaults_while_nobody_hosts_it():
    assert CoffeeSkill().brew() == "1 mild "


class WeatherSkill(Skill):
    """The weather outside."""

    was_set_up = 0

    class Settings(BaseModel):
        city: str
        key: SecretStr = Field(min_length=4)
        days: int = 3

    async def setup(self) -> None:
        self.was_set_up += 1

    def forecast(self) -> str:
        """Return the forecast."""
        return f"{self.settings.city} {self.settings.key.get_secret_value()} {self.settings.days}"


async def test_a_skill_waits_for_what_its_settings_lack_and_is_set_up_once_they_are_there(hosted):
    async with hosted(WeatherSkill) as runner:
        skill = runner.skills["WeatherSkill"].instance
        with pytest.raises(CallError, match="WeatherSkill is unavailable: a setting is missing: city, key"):
            await runner.run("WeatherSkill", "forecast")
        assert await runner.run("WeatherSkill", "get_settings") == {"days": 3}
        await runner.run("WeatherSkill", "change_settings", kwargs={"city": "Bonn"}, confirmed=True)
        with pytest.raises(CallError, match="a setting is missing: key"):
            await runner.run("WeatherSkill", "forecast")
        assert skill.was_set_up == 0
        shown = await runner.run("WeatherSkill", "change_settings", kwargs={"key": "s3cret"}, confirmed=True)
        assert shown == {"city": "Bonn", "key": "**********", "days": 3}
        assert await runner.run("WeatherSkill", "forecast") == "Bonn s3cret 3"
        assert (skill.was_set_up, runner.unavailable) == (1, {})


def test_settings_come_from_the_variables_of_the_folder_until_a_person_sets_them(make_context, tmp_path):
    def hosted(**variables: str) -> WeatherSkill:
        skill = WeatherSkill()
        attach(skill, replace(make_context("WeatherSkill"), variables=variables))
        return skill

    variables = {"WEATHER_CITY": "Bonn", "WEATHER_KEY": "from .env", "WEATHER_DAYS": "many"}
    skill = hosted(**variables)
    assert skill.forecast() == "Bonn from .env 3"
    skill.stored_settings.change({"city": "Ulm"})
    assert hosted(**variables).forecast() == "Ulm from .env 3"
    assert "from .env" not in (tmp_path / "data" / "WeatherSkill" / "settings.json").read_text()


async def test_no_error_shows_a_secret(hosted):
    async with hosted(WeatherSkill) as runner:
        method = runner.skills["WeatherSkill"].methods["change_settings"].contract
        with pytest.raises(CallError) as told:
            await runner.run("WeatherSkill", "change_settings", kwargs={"key": "s3c"}, confirmed=True)
        assert "s3c" not in f"{told.value}{told.value.hint}{told.value.__cause__}"
        with pytest.raises(CallError) as told:
            check_arguments(method, [], {"key": "s3c"})
        assert "s3c" not in f"{told.value}{told.value.hint}"
        shown = without_secrets(method, {"city": "Bonn", "key": "s3cret"})
        assert shown == {"city": "Bonn", "key": "••••••"}
        # Of which the audit keeps the hash.
        assert runner.shown("WeatherSkill.change_settings", [], {"key": "1234"}) == [[], {"key": "••••••"}]


class SlowSkill(Skill):
    """Takes its time."""

    began: int = 0

    class Settings(BaseModel):
        key: str

    async def setup(self) -> None:
        type(self).began += 1
        await asyncio.sleep(0.05)

    @every("1h")
    def look(self) -> None: ...


async def test_settings_that_are_completed_twice_at_once_set_a_skill_up_once(hosted):
    async with hosted(SlowSkill) as runner:
        change = ("SlowSkill", "change_settings", (), {"key": "a"})
        await asyncio.gather(*(runner.run(*change, confirmed=True) for _ in range(3)))
        assert runner.unavailable == {}
        assert SlowSkill.began == 1


class Account(BaseModel):
    name: str
    password: SecretStr


class MailSkill(Skill):
    """Mail."""

    class Settings(BaseModel):
        accounts: list[Account] = []
        keys: dict[str, SecretStr] = {}

    def key(self) -> str:
        """Return a key."""
        if self.settings.keys.get("office"):
            raise RuntimeError(f"wrong: {self.settings.keys['office'].get_secret_value()}")
        (account,) = self.settings.accounts
        return f"{account.password.get_secret_value()} {self.settings.keys['home'].get_secret_value()}"


async def test_secrets_inside_of_settings_are_kept_and_hidden_like_others(hosted, caplog):
    given = {"accounts": [{"name": "ann", "password": "hunter2"}], "keys": {"home": "s3cret"}}
    async with hosted(MailSkill) as runner:
        shown = await runner.run("MailSkill", "change_settings", kwargs=given, confirmed=True)
        assert shown["keys"] == {"home": "**********"}
        contract = runner.skills["MailSkill"].methods["change_settings"].contract
        assert without_secrets(contract, given) == {"accounts": "••••••", "keys": "••••••"}
        assert sorted(secrets_of(runner.skills["MailSkill"].instance)) == ["hunter2", "s3cret"]
        await runner.run("MailSkill", "change_settings", kwargs=shown, confirmed=True)
    async with hosted(MailSkill) as runner:
        assert await runner.run("MailSkill", "key") == "hunter2 s3cret"
        keys = {"office": "0ff1ce"}
        await runner.run("MailSkill", "change_settings", kwargs={"keys": keys}, confirmed=True)
        with pytest.raises(CallError, match="wrong: …"):
            await runner.run("MailSkill", "key")
        assert "Traceback" in caplog.text
        assert "0ff1ce" not in caplog.text
