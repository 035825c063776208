from pathlib import Path

import pytest
import tzlocal

from agent_core.models.entries import read_variable
from agent_core.prompt import Household
from agent_core.turn import TurnLimits
from contracts.errors import ConfigError
from deploy.directory import Home
from deploy.settings.settings import (
    BrokerTable,
    HomeBrokerTable,
    check_settings,
    read_embeddings,
    read_gateway,
    read_household,
    read_limits,
    read_table,
)
from hub_agent.settings import WatcherSettings


def write(home: Path, text: str) -> Home:
    (home / "strawberry.toml").write_text(text)
    return Home(home)


def test_rules_of_the_home_are_one_line_each(tmp_path: Path) -> None:
    home = write(tmp_path, '[household]\nrules = ["Never open the garage."]\n')
    assert read_household(home).rules == ("Never open the garage.",)
    with pytest.raises(ConfigError, match=r"household\.rules"):
        read_household(write(tmp_path, '[household]\nrules = ["a\\nb"]\n'))


def test_a_household_is_as_the_file_says(tmp_path: Path) -> None:
    home = write(
        tmp_path, '[household]\nlanguage = "de-AT"\ntime_zone = "Europe/Vienna"\nunits = "imperial"\n'
    )
    assert read_household(home) == Household(language="de-AT", time_zone="Europe/Vienna", units="imperial")


def test_what_the_file_leaves_out_is_the_default_and_the_machines_time_zone(tmp_path: Path) -> None:
    expected = Household(time_zone=tzlocal.get_localzone_name())
    assert read_household(Home(tmp_path)) == expected
    assert read_household(write(tmp_path, "[household]\n")) == expected


def test_watchers_have_a_model_and_limits_and_the_household_a_place(tmp_path: Path) -> None:
    text = (
        '[watchers]\nmodel = "small"\ntokens_per_day = 5000\n[household]\nlatitude = 52.5\nlongitude = 13.4\n'
    )
    home = write(tmp_path, text)
    assert read_table(home, "watchers", WatcherSettings) == WatcherSettings(
        model="small", tokens_per_day=5_000
    )
    assert read_household(home).latitude == 52.5
    assert read_table(write(tmp_path, ""), "watchers", WatcherSettings) is None
    with pytest.raises(ConfigError, match=r"watchers\.actions_per_hour"):
        check_settings(write(tmp_path, "[watchers]\nactions_per_hour = 0\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[household]\ntime_zone = "Europe/Atlantis"\n', "household.time_zone: there is no time zone"),
        ('[household]\ntime_zone = "../../etc/passwd"\n', "household.time_zone: there is no time zone"),
        ('[household]\ntime_zone = ""\n', "household.time_zone: there is no time zone"),
        (
            '[household]\nlanguage = "English please"\n',
            "household.language must be a language such as de or pt-BR",
        ),
        ('[household]\nunits = "furlongs"\n', "household.units must be 'metric'"),
        ('[household]\nzone = "UTC"\n', "unknown setting 'zone' in household; did you mean 'time_zone'"),
        ("household = 5\n", "household must be a table"),
        ("[skills.GpioSkill]\n", "unknown table 'skills'; a skill is set on the page of its device"),
        ('[[model]]\nname = "house"\n', "unknown table 'model'; did you mean 'models'?"),
        ("[household\n", "is not TOML"),
        pytest.param(f"a = {'[' * 5_000}", "is not TOML", id="nested"),
        pytest.param(f"a = {'1' * 5_000}", "is not TOML", id="large number"),
    ],
)
def test_a_mistake_names_the_file_and_the_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_household(write(tmp_path, text))
    assert "strawberry.toml" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[broker]\nurl = "http://x"\n', "broker.url must be an address such as mqtt://host:1883"),
        (
            "[broker]\ntrust = true\n",
            "url is missing: the other settings are for a broker that runs elsewhere",
        ),
        (
            '[broker]\nurl = "mqtt://nas"\nport = 1\n',
            "port is for the broker that Strawberry runs itself: leave out port, or url",
        ),
        (
            '[home_assistant]\nurl = "nope"\n',
            "home_assistant.url must be an address without a path, such as http://host:8123",
        ),
        ('[notifications]\nurls = "x"\n', "notifications.urls must be a list"),
        (
            '[[models]]\nname = "a"\nprovider = "ollama"\nmodel = "b"\ntimeout_s = "abc"\n',
            "timeout_s must be a number",
        ),
    ],
)
def test_a_wrong_value_is_told_in_words(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(write(tmp_path, text))
    assert caught.value.message.endswith(said)


def test_a_turn_ends_where_the_file_says(tmp_path: Path) -> None:
    assert read_limits(Home(tmp_path)) == TurnLimits()
    home = write(tmp_path, "[turns]\niterations = 3\nseconds = 90\n")
    assert read_limits(home) == TurnLimits(iterations=3, seconds=90)


@pytest.mark.parametrize("line", ["iterations = 0", "iterations = 1.5", "seconds = 901", "steps = 3"])
def test_a_mistake_about_turns_names_the_field(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=line.partition(" ")[0]) as caught:
        read_limits(write(tmp_path, f"[turns]\n{line}\n"))
    assert caught.value.hint == "Settings of [turns]: iterations, seconds, context_tokens."


def test_models_are_asked_as_the_file_says(tmp_path: Path) -> None:
    assert read_gateway(Home(tmp_path)) == "tensorzero"
    assert read_gateway(write(tmp_path, '[gateway]\nkind = "direct"\n')) == "direct"
    with pytest.raises(ConfigError, match=r"gateway\.kind must be") as caught:
        read_gateway(write(tmp_path, '[gateway]\nkind = "other"\n'))
    assert caught.value.hint == "Settings of [gateway]: kind."


def test_embeddings_name_a_model_and_its_key(tmp_path: Path) -> None:
    assert read_embeddings(Home(tmp_path)) is None
    table = '[embeddings]\nprovider = "ollama"\nmodel = "nomic-embed-text"\n'
    model = read_embeddings(write(tmp_path, table))
    assert model is not None
    assert (model.entry.model, model.entry.address) == ("nomic-embed-text", "http://127.0.0.1:11434")
    with pytest.raises(ConfigError, match="SECRET is not set"):
        read_embeddings(write(tmp_path, f'{table}api_key_env = "SECRET"\n'))
    with pytest.raises(ConfigError, match="provider"):
        read_embeddings(write(tmp_path, '[embeddings]\nprovider = "anthropic"\nmodel = "m"\n'))


def test_brokers_are_as_the_file_says(tmp_path: Path) -> None:
    home = write(
        tmp_path,
        '[broker]\nurl = "mqtts://nas.local"\nusername = "berry"\npassword_env = "BUS"\nca = "nas.pem"\n'
        'trust = true\n\n[home_broker]\nurl = "mqtt://homeassistant.local:1883"\n'
        'publish = ["zigbee2mqtt/+/set"]\n',
    )
    bus = read_table(home, "broker", BrokerTable)
    other = read_table(home, "home_broker", HomeBrokerTable)
    assert bus is not None
    assert (bus.url, bus.username, bus.password_env, bus.ca, bus.trust) == (
        "mqtts://nas.local",
        "berry",
        "BUS",
        "nas.pem",
        True,
    )
    assert other is not None
    assert (other.url, other.username) == ("mqtt://homeassistant.local:1883", None)
    assert other.publish == ("zigbee2mqtt/+/set",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[broker]\ntrust = true\n", "broker: url is missing"),
        ('[broker]\nurl = "http://nas"\n', "broker.url must"),
        ('[broker]\nurl = "mqtt://nas"\npassword = "secret"\n', "unknown setting 'password' in broker"),
        ('[home_broker]\nurl = "mqtt://nas"\ntrust = true\n', "unknown setting 'trust' in home_broker"),
        ('[home_broker]\nurl = "mqtt://nas"\npublish = ["a/#/b"]\n', "'a/#/b' is not a topic filter"),
        ('[home_broker]\nurl = "mqtt://nas"\npassword_env = "not a name"\n', "home_broker.password_env must"),
    ],
)
def test_a_mistake_about_a_broker_names_the_field_and_no_value(tmp_path: Path, text: str, said: str) -> None:
    home = write(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as caught:
        check_settings(home)
    assert '"secret"' not in caught.value.message


def test_a_variable_comes_from_the_file_of_secrets_or_is_named(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(ConfigError, match="HOUSE_BUS is not set") as caught:
        read_variable(home.directory, "HOUSE_BUS")
    assert "HOUSE_BUS=…" in caught.value.hint
    (tmp_path / ".env").write_text("HOUSE_BUS=hush\n")
    assert read_variable(home.directory, "HOUSE_BUS") == "hush"
