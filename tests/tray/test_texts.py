"""Texts of the tray: every sentence has its German, and every German entry its sentence."""

import ast
import tomllib
from pathlib import Path

import tray
from tray.texts import Translator

FOLDER = Path(tray.__file__).parent
GERMAN: dict[str, str] = tomllib.loads((FOLDER / "locale" / "de.toml").read_text("utf-8"))


def test_every_sentence_has_its_german_and_no_entry_is_left_over() -> None:
    said: set[str] = set()
    for source in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
                "text",
                "_text",
            ):
                said |= {each.value for each in node.args[:1] if isinstance(each, ast.Constant)}
    assert said == set(GERMAN)


def test_the_first_language_that_there_is_counts() -> None:
    assert Translator(["fr", "de-AT", "en"])("Quit") == "Beenden"
    assert Translator(["en-GB", "de"])("Quit") == "Quit"
    assert Translator(["../de"])("Quit") == "Quit"
