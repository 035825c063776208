"""A skill that writes down what really ran, so that a test can count it."""

from typing import Final

JOURNAL_BEGINNING: Final = '''
import time
from pathlib import Path

from spoke import Skill, skill_method

FILE = Path(__file__).with_name("journal.txt")


def _write(line):
    with FILE.open("a") as file:
        file.write(line + "\\n")


class JournalSkill(Skill):
    """Writes down what really ran."""

    @skill_method()
    def write(self, text: str) -> str:
        """Write a line."""
        _write(text)
        return f"wrote {text}"
'''
"""Its first half: each suite adds the methods that its tests call."""
