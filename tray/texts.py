"""What the tray says, in the language of the desktop: the English sentence is the key of its translation."""

import tomllib
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from PySide6.QtCore import QLocale


class Translator:
    """Translates into the first of some languages that there is; what has no translation stays English.

    Args:
        languages: BCP 47, the best first; those of the desktop where none are given.
    """

    def __init__(self, languages: Iterable[str] | None = None) -> None:
        self._catalogue: dict[str, str] = {}
        self.language = "en"
        for each in QLocale.system().uiLanguages() if languages is None else languages:
            language = each.split("-")[0].lower()
            file = files("tray") / "locale" / f"{language}.toml"
            if language == "en":
                return
            if language.isalpha() and file.is_file():
                self.language = language
                self._catalogue = tomllib.loads(file.read_text("utf-8"))
                return

    def __call__(self, sentence: str, /, **values: Any) -> str:
        return self._catalogue.get(sentence, sentence).format(**values)
