import os
from pathlib import Path

import pytest

from agent_core.models.entries import LOCAL_ONLY, ModelEntry, choose, parse_entries, read_entries, read_keys
from contracts.errors import ConfigError

TOML = """
[[models]]
name = "house"
provider = "openai"
model = "some-model"
base_url = "http://127.0.0.1:9000/v1"
api_key_env = "HOUSE_KEY"

[[models]]
name = "local"
provider = "ollama"
model = "qwen3:4b"
"""


def test_entries_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "strawberry.toml").write_text(TOML, "utf-8")
    house, local = read_entries(tmp_path)
    assert (house.name, house.key_variable, house.address) == (
        "house",
        "HOUSE_KEY",
        "http://127.0.0.1:9000/v1",
    )
    assert (local.name, local.key_variable, local.address) == ("local", None, "http://127.0.0.1:11434")


def test_no_file_and_no_list_are_no_models(tmp_path: Path) -> None:
    assert read_entries(tmp_path) == ()
    (tmp_path / "strawberry.toml").write_text("[hub]\n", "utf-8")
    assert read_entries(tmp_path) == ()


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[[models]]\nname = ", "is not TOML"),
        ("models = 3", "must be a list"),
        ("[models]\nname = 'x'", "must be a list"),
        ("[[models]]\nname = 'x'\nprovider = 'openai'", "number 1: setting 'model' is missing"),
        (
            "[[models]]\nname = 'x'\nprovider = 'bard'\nmodel = 'm'",
            "provider: there is none called 'bard'; there are openai",
        ),
        (
            "[[models]]\nname = 'x'\nprovder = 'openai'\nmodel = 'm'",
            "number 1: unknown setting 'provder'; did you mean 'provider'?",
        ),
        ("[[models]]\nname = 'x'\nprovider = 'opnai'\nmodel = 'm'", "did you mean 'openai'?"),
        ("[[models]]\nname = 'x'\nprovider = 'openai'\nmodel = 'm'\nbase_url = 'localhost:1'", "http://"),
        (
            "[[models]]\nname = 'x'\nprovider = 'google'\nmodel = 'm'\nbase_url = 'http://h/v1'",
            "only for openai",
        ),
        (TOML.replace("local", "house"), "two models are named 'house'"),
    ],
)
def test_a_wrong_file_is_told_with_the_place(tmp_path: Path, toml: str, says: str) -> None:
    (tmp_path / "strawberry.toml").write_text(toml, "utf-8")
    with pytest.raises(ConfigError) as error:
        read_entries(tmp_path)
    assert says in error.value.message
    assert "strawberry.toml" in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint


def test_keys_come_from_the_environment_before_the_file(tmp_path: Path) -> None:
    lines = ["# mine", "", "export A=one", "B = 'two # 2'", 'C="three"', "D=four # a note", "E="]
    (tmp_path / ".env").write_text("\n".join(lines), "utf-8")
    keys = read_keys(tmp_path, {"A": "", "C": "other", "F": "six"})
    assert keys == {"A": "one", "B": "two # 2", "C": "other", "D": "four", "E": "", "F": "six"}
    assert read_keys(tmp_path / "none", {"F": "six"}) == {"F": "six"}


def test_a_wrong_line_is_told_by_number_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\nsk-secret-without-a-name\n", "utf-8")
    with pytest.raises(ConfigError, match="line 2") as error:
        read_keys(tmp_path, {})
    assert "secret" not in f"{error.value.message}{error.value.hint}"


def test_a_key_never_shows_in_a_representation(tmp_path: Path) -> None:
    entry = ModelEntry(
        name="m", provider="openai", model="m", base_url="http://127.0.0.1/v1", api_key_env="K"
    )
    models = choose((entry,), {"K": "sk-secret"}, home=tmp_path)
    assert len(models.usable) == 1
    assert "sk-secret" not in repr(models)


def test_without_entries_the_hint_names_the_file(tmp_path: Path) -> None:
    hint = choose((), {}, home=tmp_path).hint
    assert str(tmp_path / "strawberry.toml") in hint
    assert "strawberry setup" in hint


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_loopback_is_known(host: str) -> None:
    entry = ModelEntry(name="m", provider="openai", model="m", base_url=f"http://{host}:1/v1")
    assert entry.on_loopback


def test_in_tests_only_this_machine_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.environ[LOCAL_ONLY]
    far = {"name": "far", "provider": "openai", "model": "m", "base_url": "http://models.example/v1"}
    (entry,) = parse_entries([far], file=tmp_path)
    assert choose((entry,), {}, home=tmp_path).usable == ()
    monkeypatch.delenv(LOCAL_ONLY)
    assert len(choose((entry,), {}, home=tmp_path).usable) == 1
