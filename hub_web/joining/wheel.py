"""The wheel that a new device installs: the version that runs here, made of its installed files."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Final

_DISTRIBUTION: Final = "strawberry-home"
_WHEEL: Final = "Wheel-Version: 1.0\nGenerator: strawberry\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_ABOUT: Final = ("METADATA", "entry_points.txt", "top_level.txt")


def wheel_name() -> str:
    return f"strawberry_home-{distribution(_DISTRIBUTION).version}-py3-none-any.whl"


@cache
def make_wheel() -> bytes:
    """Return the wheel: the files of all packages, without what an installation adds; takes a second.

    Of a checkout, which is installed as a link to it, these are its files as they are now.
    """
    about = f"strawberry_home-{distribution(_DISTRIBUTION).version}.dist-info"
    made, record = io.BytesIO(), f"{about}/RECORD,,\n"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in (*_package_files(), *_about_files(about)):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            record += f"{name},sha256={digest},{len(content)}\n"
            wheel.writestr(name, content)
        wheel.writestr(f"{about}/RECORD", record)
    return made.getvalue()


def _package_files() -> Iterator[tuple[str, bytes]]:
    for package in (distribution(_DISTRIBUTION).read_text("top_level.txt") or "").split():
        top = Path(str(files(package)))
        for path in sorted(top.rglob("*")):
            inner = path.relative_to(top.parent)
            # An .env beside compose.yaml has the password of a broker.
            hidden = any(part.startswith(".") or part == "__pycache__" for part in inner.parts)
            if not hidden and path.is_file() and not path.is_symlink():
                yield inner.as_posix(), path.read_bytes()


def _about_files(about: str) -> Iterator[tuple[str, bytes]]:
    found = distribution(_DISTRIBUTION)
    for name in _ABOUT:
        content = found.read_text(name)
        if content is None and name == "METADATA":
            content = found.read_text("PKG-INFO")  # of a checkout that setuptools has made ready
        yield f"{about}/{name}", (content or "").encode()
    yield f"{about}/WHEEL", _WHEEL.encode()
