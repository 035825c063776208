"""``strawberry skills new``: a skill that works, with its test."""

import argparse
import re
from pathlib import Path
from string import Template
from typing import Final

from contracts.errors import ConfigError
from deploy.cli.terminal.output import Output
from deploy.directory import Home

_TEMPLATES: Final = Path(__file__).parent / "new_skill"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}\Z")


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
    files = {"skill.py.txt": f"{name}.py", "test.py.txt": f"test_{name}.py", "README.md": "README.md"}
    for template, file in files.items():
        text = Template((_TEMPLATES / template).read_text("utf-8")).substitute(made)
        (folder / file).write_text(text, "utf-8")
    Output(options.json).result(
        {"folder": str(folder), "skill": made["owner"]},
        text=f"{made['owner']} is in {folder}. It is loaded as soon as it is saved.\n"
        f"Next: strawberry skills test {name}",
    )
