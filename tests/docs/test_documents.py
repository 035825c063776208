"""Every command and every snippet in the documents works as it stands there."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_core.models import read_entries, read_tables
from deploy.home import Home
from deploy.settings import read_household
from tests.e2e.house import House, wait_for

ROOT = Path(__file__).parents[2]
SKILLS_PAGE = ROOT / "spoke" / "samples" / "README.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def blocks(language: str) -> list[tuple[str, str]]:
    """All fenced blocks of a language, with the name of their document."""
    return [(file.name, block) for file in DOCUMENTS for block in blocks_of(file, language)]


def blocks_of(file: Path, language: str) -> list[str]:
    """The fenced blocks of a language in one document, in order."""
    fence = re.compile(rf"^ *```{language}\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in fence.findall(file.read_text("utf-8"))]


def commands() -> list[str]:
    """All command lines, in the order of the documents."""
    return [
        line.removeprefix("$ ")
        for block in [*(block for _, block in blocks("console")), *blocks_of(SKILLS_PAGE, "console")]
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path) -> Iterator[House]:
    with House(tmp_path_factory.mktemp("documents") / "house", sandbox=sandbox_files) as home:
        skills = home.home / "skills"
        skills.mkdir()
        (skills / "coffee.py").write_text(blocks_of(SKILLS_PAGE, "python")[0])
        home.start("up", "up", "--http-port", str(home.http_port), "--mqtt-port", str(home.mqtt_port))
        wait_for(lambda: "Ready" in home.log("up") or home.ended("up"), what="strawberry up")
        bin_directory = home.directory / "bin"
        bin_directory.mkdir()
        shim = bin_directory / "strawberry"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m deploy.cli.main "$@"\n')
        shim.chmod(0o755)
        yield home


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_documents_succeeds(house: House, command: str) -> None:
    done = subprocess.run(
        ["bash", "-euc", command],
        env=house.environment(house.home, {"PATH": f"{house.directory / 'bin'}:{os.environ['PATH']}"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(
    "target", sorted({t for _, b in blocks("sh") for t in re.findall(r"^make (\w+)$", b, re.MULTILINE)})
)
def test_a_make_target_of_the_documents_exists(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(("document", "block"), blocks("toml"))
def test_a_settings_snippet_of_the_documents_is_understood(document: str, block: str, tmp_path: Path) -> None:
    (tmp_path / "strawberry.toml").write_text(block)
    assert read_entries(tmp_path) or read_tables(tmp_path).get("household"), document
    read_household(Home(tmp_path))


@pytest.mark.parametrize(("document", "block"), blocks("python"))
def test_a_skill_of_the_documents_is_offered_by_a_spoke(
    document: str, block: str, house: House, tmp_path: Path
) -> None:
    spoke = house.add_spoke(f"Reader of {document}", {"documented.py": block})
    rows = [row for row in house.json("skills", "list") if spoke.id in str(row["devices"])]
    assert rows


def test_whoever_looks_into_the_skills_folder_finds_how_to_write_one(house: House) -> None:
    assert (house.home / "skills" / "README.md").read_text("utf-8") == SKILLS_PAGE.read_text("utf-8")


def test_every_link_between_the_documents_leads_somewhere() -> None:
    for file in [*DOCUMENTS, SKILLS_PAGE]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text("utf-8")):
            assert (file.parent / target).exists(), f"{file.name}: {target}"
