"""A running hub or spoke asks the models that the settings name now."""

import pytest

from tests.e2e.house import House, wait_for
from tests.e2e.talks import own_model
from tests.model_server import Fails, Says, ScriptedModel

pytestmark = pytest.mark.slow


def setup_of(model: ScriptedModel) -> list[str]:
    """Return the command that adds a model."""
    words = f"setup --provider openai --base-url {model.base_url} --model m --name other --no-test"
    return words.split()


def test_a_running_hub_takes_the_models_of_setup(house: House, model: ScriptedModel) -> None:
    model.script = lambda _: Fails(status=401)
    with ScriptedModel(lambda _: Says(text="Here.")) as other:
        added = house.cli(*setup_of(other))
        assert "from the next message on" in added.stdout
        wait_for(lambda: "now house, other" in house.log("hub"), what="the hub to take the new model")
        assert house.json("chat", "hello")["answer"] == "Here."
        (house.home / "strawberry.toml").write_text("[[models]]\nname = ")
        wait_for(lambda: "cannot be used" in house.log("hub"), what="the broken file to be noticed")
        assert house.json("chat", "hello")["answer"] == "Here."


def test_a_running_spoke_takes_the_models_of_setup_and_shows_which_it_skips(
    house: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    model.script = lambda _: Fails(status=500)
    pc = house.add_spoke("Bedroom PC", journal, settings=own_model(model))
    house.kill("hub")
    own = {"STRAWBERRY_HOME": str(pc.home)}
    with ScriptedModel(lambda _: Says(text="Here.")) as other:
        added = house.cli(*setup_of(other), **own)
        assert "A running spoke uses it from the next message on" in added.stdout
        wait_for(lambda: "now own, other" in house.log(pc.id), what="the spoke to take the new model")
        assert pc.ask("/api/chat", {"message": "hello"})["answer"] == "Here."
        listed = house.cli("models", "list", "--no-ask", **own)
    assert "skipped by the spoke for" in listed.stdout, listed.stderr
