"""Which gateway a hub asks its models through is the user's choice."""

from tests.e2e.house import House, wait_for
from tests.model_server import Fails, Says, ScriptedModel


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
