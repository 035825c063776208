"""A spoke on its own machine fetches the sandbox that its model needs, beside its work."""

from collections.abc import Mapping

import pytest

from tests.e2e.house import House, wait_for

pytestmark = pytest.mark.slow

MODEL = """
[[models]]
name = "own"
provider = "openai"
model = "never asked"
base_url = "http://127.0.0.1:9/v1"
tools = "{tools}"
"""


@pytest.mark.parametrize(("tools", "is_wanted"), [("code", True), ("native", False)])
def test_a_spoke_serves_before_its_sandbox_is_there_and_without_where_it_cannot_be_had(
    house: House, journal: Mapping[str, str], tools: str, is_wanted: bool
) -> None:
    home = house.directory / "attic_pc"
    home.mkdir()
    # No sandbox can be put where a file is.
    (home / "sandbox").write_text("in the way")
    spoke = house.add_spoke("Attic PC", journal, settings=MODEL.format(tools=tools))
    if is_wanted:
        wait_for(lambda: "models get skills as tools of their own" in house.log(spoke.id), what="the word")
    assert house.json("call", "Attic PC", "JournalSkill.write", "text=all the same") == "wrote all the same"
    assert ("sandbox  not available" in house.log(spoke.id)) is is_wanted
