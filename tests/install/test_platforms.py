"""Each platform that docs/install.md names has wheels of everything, and each role is as small as it says."""

import re

import pytest

from benchmarks.wheels import PI, megabytes, resolve
from tests.install.conftest import ROOT

PAGE = (ROOT / "docs" / "install.md").read_text("utf-8")
TRIXIE = "aarch64-manylinux_2_39"
WINDOWS = "x86_64-pc-windows-msvc"
pytestmark = pytest.mark.slow

_TABLE = re.findall(r"^\| [^|]+ \| `strawberry-home(?:\[([\w,]+)\])?` \| ([\d.]+) \|", PAGE, re.MULTILINE)


def test_a_spoke_stays_small_and_does_without_tensorzero() -> None:
    wheels = resolve(platform="x86_64-manylinux_2_28")
    assert megabytes(wheels) <= 60
    assert not {"tensorzero", "deno", "nicegui", "numpy"} & set(wheels)


@pytest.mark.parametrize(
    ("platform", "python", "extras"),
    [
        (
            PI,
            "3.11",
            ("hub", "voice", "gpio", "serial", "mcp", "embeddings", "otel", "notifications", "plots"),
        ),
        (TRIXIE, "3.13", ("hub", "voice", "esphome", "desktop", "gpio", "serial", "skills")),
        (WINDOWS, "3.13", ("hub", "voice", "desktop")),
        ("aarch64-manylinux_2_28", "3.12", ("hub",)),
        ("aarch64-apple-darwin", "3.12", ("hub",)),
    ],
)
def test_every_dependency_has_a_wheel(platform: str, python: str, extras: tuple[str, ...]) -> None:
    assert "amqtt" in resolve(*extras, platform=platform, python=python)


def test_no_marker_compares_the_kernel() -> None:
    # As a version, which "6.8.0-60-generic" is none: the pipx of Debian 12 and Ubuntu 24.04 fails then.
    assert not re.search(r"platform_release *[<>=]", (ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.mark.parametrize(("extras", "size"), _TABLE)
def test_the_sizes_of_the_page_hold(extras: str, size: str) -> None:
    measured = megabytes(resolve(*filter(None, extras.split(",")), platform=TRIXIE, python="3.13"))
    assert measured == pytest.approx(float(size), rel=0.15)


def test_the_page_has_a_table_of_sizes() -> None:
    assert len(_TABLE) >= 4
