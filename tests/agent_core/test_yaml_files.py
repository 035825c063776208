import pytest
from pydantic import BaseModel, ConfigDict

from agent_core.files.yaml_files import parse_yaml
from contracts.errors import FileProblem


class Lamp(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    level: int = 0
    rooms: list[str] = []
    then: "Lamp | None" = None


def test_a_file_becomes_a_model() -> None:
    lamp = parse_yaml("name: hall\nlevel: 3\nrooms: [a, b]\nthen:\n  name: next\n", Lamp)
    assert lamp == Lamp(name="hall", level=3, rooms=["a", "b"], then=Lamp(name="next"))


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("name: hall\nlevl: 3\n", 2, "did you mean 'level'?"),
        ("name: hall\nrooms:\n  - a\n  - {b: 1}\n", 4, "rooms[1] must be a string"),
        ("level: 3\nthen:\n  level: 4\n", 1, "'name' is missing"),
        ("name: a\nthen:\n  level: 4\n", 2, "'name' is missing in then"),
        ("name: [\n", 2, "expected the node content"),
        ("name: hall\nname: kitchen\n", 2, "'name' is given twice"),
        ("name: &a hall\n", 1, "anchors"),
        ("name: hall\nrooms: *a\n", 2, "anchors"),
        ("name: hall\nlevel: !!int ''\n", 2, "tags"),
        ("name: !!python/object/apply:os.system [x]\n", 1, "tags"),
        ("name: " + "[" * 50_000, 1, "nested too deep"),
        ("name: hall\nlevel: " + "9" * 60_000, 2, "cannot be read"),
        ("name: 2026-99-99\n", 1, "cannot be read"),
        ("name: hall\n\nlevel: \x07\n", 3, "a character"),
        ("name: a\n--- b\n", 2, "another document"),
        ("? [a]\n: b\n", 1, "unhashable"),
        ("- a\n", None, "holds no settings"),
        ("", None, "holds no settings"),
    ],
)
def test_a_mistake_has_its_line(text: str, line: int | None, says: str) -> None:
    with pytest.raises(FileProblem) as problem:
        parse_yaml(text, Lamp)
    assert problem.value.line == line
    assert says in problem.value.message
