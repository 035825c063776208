"""``strawberry skills new``: a skill that works, with its test."""

import argparse
import re
from pathlib import Path
from typing import Final

from contracts.errors import ConfigError
from deploy.cli.terminal.output import Output
from deploy.directory import Home

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}\Z")

_SKILL: Final = '''\
"""{title}."""

from typing import Annotated

from pydantic import Field

from strawberry_skills import Skill, skill_method


class {owner}(Skill):
    """{title}."""

    def __init__(self) -> None:
        self._made = 0

    @skill_method(
        sentences={{"en": ["make [me] a {words}", "make [me] {{cups}} cups of {words}"]}},
        responses={{"en": "Here you are: {{result}} in all."}},
    )
    def make(self, cups: Annotated[int, Field(ge=1, le=10)] = 1) -> int:
        """Make some, and return how many there were in all.

        Args:
            cups: How many cups.
        """
        self._made += cups
        self.state("made", self._made)
        self.emit("{name}_made", {{"cups": cups}})
        return self._made

    @skill_method(read_only=True)
    def made(self) -> int:
        """Return how many were made since the start."""
        return self._made
'''

_TEST: Final = '''\
"""What {owner} does, tried without a home: ``strawberry skills test``."""

import pytest
from {name} import {owner}
from strawberry_skills.testing import CallError, Host


def test_it_counts_what_it_makes(host: Host) -> None:
    skill = host({owner})
    assert skill.call("make") == 1
    assert skill.call("make", cups="2") == 3
    assert skill.states == {{"made": 3}}
    assert skill.events[-1] == ("{name}_made", {{"cups": 2}})


def test_it_makes_no_more_than_ten_at_once(host: Host) -> None:
    with pytest.raises(CallError, match="cups"):
        host({owner}).call("make", cups=11)
'''

_README: Final = """\
# {owner}

A skill for Strawberry. Put this folder into `~/.strawberry/skills`: it is loaded at once, and again when you
save a file.

    strawberry skills test {name}     # run its tests; no home is needed
    strawberry skills lint {name}     # see what a model or a person may stumble over
    strawberry skills try {name}      # be the model yourself
    strawberry chat "make me 2 cups of {words}"
"""


def new(options: argparse.Namespace) -> None:
    """Make a skill that works, with a test and a README.

    Makes a folder with a skill that works, its test and a README, in the skills of this machine.
    """
    name = options.name.removesuffix("_skill")
    if not _NAME.match(name):
        raise ConfigError(
            "{name!r} cannot be the name of a skill",
            name=options.name,
            hint="Use small letters, digits and '_', a letter first: coffee, garden_pump.",
        )
    folder = (Path(options.folder) if options.folder else Home.named().skills).absolute() / name
    if folder.exists() or folder.with_suffix(".py").exists():
        raise ConfigError(f"{folder} is there already", hint="Choose another name.")
    words = name.replace("_", " ")
    made = {
        "name": name,
        "words": words,
        "title": words.capitalize(),
        "owner": "".join(map(str.capitalize, name.split("_"))) + "Skill",
    }
    folder.mkdir(parents=True)
    for file, text in ((f"{name}.py", _SKILL), (f"test_{name}.py", _TEST), ("README.md", _README)):
        (folder / file).write_text(text.format(**made), "utf-8")
    Output(options.json).result(
        {"folder": str(folder), "skill": made["owner"]},
        text=f"{made['owner']} is in {folder}. It is loaded as soon as it is saved.\n"
        f"Next: strawberry skills test {name}",
    )
