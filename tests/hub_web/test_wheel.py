"""What a new device installs: the wheel that the hub makes of itself, and what fetches it."""

import csv
import io
import os
import shlex
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from hub_web.joining.files import (
    FILES,
    LINUX,
    WINDOWS,
    card_file,
    file_to_open,
    install_lines,
    install_steps,
    join_line,
)
from hub_web.joining.wheel import make_wheel, wheel_name


def test_the_wheel_installs_and_its_record_names_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / wheel_name()
    file.write_bytes(make_wheel())
    with zipfile.ZipFile(file) as wheel:
        contents = {name: wheel.read(name) for name in wheel.namelist()}
    (record,) = (each for each in contents if each.endswith(".dist-info/RECORD"))
    listed = {name: digest for name, digest, _ in csv.reader(io.StringIO(contents[record].decode()))}
    digests = {
        name: f"sha256={urlsafe_b64encode(sha256(each).digest()).decode().rstrip('=')}"
        for name, each in contents.items()
    }
    assert listed == digests | {record: ""}
    assert {"deploy/container/compose.yaml", "hub_web/static/sw.js", "identity/py.typed"} <= contents.keys()
    assert not [name for name in contents if "__pycache__" in name or "/.env" in name]
    target = tmp_path / "installed"
    install = ["-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--no-index", "--target"]
    subprocess.run([sys.executable, *install, str(target), str(file)], check=True)
    asked = subprocess.run(
        [sys.executable, target / "bin" / "strawberry", "--version"],
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert version("strawberry-home") in asked.stdout


def test_a_device_gets_the_wheel_from_its_hub_and_from_no_index() -> None:
    plain = install_lines("http://192.0.2.1:8321/home", "")
    assert plain["Linux, Raspberry Pi"].endswith(
        f"pipx install http://192.0.2.1:8321/home/join/{wheel_name()}"
    )
    pinned = install_lines("https://192.0.2.1:8443", "AbC+/=")
    for platform, line in pinned.items():
        fetch = f'-fk --pinnedpubkey "sha256//AbC+/=" -O https://192.0.2.1:8443/join/{wheel_name()}'
        assert fetch in line, platform
        assert line.endswith(f"pipx install ./{wheel_name()}")
    # Behind a proxy with a certificate that all trust, pip asks by itself.
    assert "curl" not in install_lines("https://home.example.org", "")["macOS"]


def test_the_file_for_windows_has_the_lines_of_the_page() -> None:
    url, pin = "https://192.0.2.1:8443", "AbC+/="
    made = file_to_open(FILES[WINDOWS], url, pin).decode()
    lines = made.split("\r\n")
    assert "\n" not in "".join(lines)
    steps = [*install_steps(url, pin)[WINDOWS], join_line(url)]
    assert [line for line in lines if line.endswith("|| goto failed")] == [
        f"{s} || goto failed" for s in steps
    ]
    # A label that is missing would end the file, and with it its window.
    assert {each.split("goto ")[1] for each in lines if "goto " in each} <= {each[1:] for each in lines}
    assert lines[-2:] == ["pause", ""]


def test_the_file_for_a_card_is_a_script_in_which_nothing_given_is_code() -> None:
    url, token = "https://192.0.2.1:8443", "it's $(false) `false`"
    made = card_file(url, "AbC+/=", token=token, hub_key="ABCD")
    checked = subprocess.run(["sh", "-n"], input=made, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")
    words = shlex.split(made.decode(), comments=True)
    assert token in words
    assert " && ".join(install_steps(url, "AbC+/=")[LINUX][1:]) + ";" in words
    assert words[words.index("--hub") :] == ["--hub", url, "--hub-key", "ABCD"]
