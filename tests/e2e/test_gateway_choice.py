"""Which gateway a hub asks its models through is the user's choice."""

import psutil

from tests.e2e.house import House, wait_for
from tests.model_server import Fails, Says, ScriptedModel


def test_models_are_asked_without_tensorzero_where_the_settings_say_so(
    house: House, model: ScriptedModel
) -> None:
    model.script = [Says(text="Through it."), Says(text="Past it.")]
    assert house.json("chat", "hello")["answer"] == "Through it."
    assert _has_tensorzero(house)

    house.kill("hub")
    with (house.home / "strawberry.toml").open("a") as settings:
        settings.write('[gateway]\nkind = "direct"\n')
    house.start_hub()
    assert house.json("chat", "hello")["answer"] == "Past it."
    assert not _has_tensorzero(house)

    model.script = lambda _: Fails(status=503)
    house.cli("chat", "hello")
    (listed,) = house.json("models", "list", "--no-ask")["models"]
    assert "skipped by the hub" in listed["detail"]
    assert "answered with status 503" in listed["skipped"]


def test_a_running_hub_takes_the_models_of_setup(house: House, model: ScriptedModel) -> None:
    model.script = lambda _: Fails(status=401)
    with ScriptedModel(lambda _: Says(text="Here.")) as other:
        added = house.cli(
            "setup",
            "--provider",
            "openai",
            "--base-url",
            other.base_url,
            "--model",
            "m",
            "--name",
            "other",
            "--no-test",
        )
        assert "from the next message on" in added.stdout
        wait_for(lambda: "now house, other" in house.log("hub"), what="the hub to take the new model")
        assert house.json("chat", "hello")["answer"] == "Here."
        (house.home / "strawberry.toml").write_text("[[models]]\nname = ")
        wait_for(lambda: "cannot be used" in house.log("hub"), what="the broken file to be noticed")
        assert house.json("chat", "hello")["answer"] == "Here."


def _has_tensorzero(house: House) -> bool:
    loaded = psutil.Process(house.processes["hub"].pid).memory_maps()
    return any("tensorzero" in file.path for file in loaded)
