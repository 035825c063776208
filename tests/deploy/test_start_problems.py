"""What hinders a start is one line, and what to do about it."""

import errno
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from contracts.addresses import BROKER_PORTS
from contracts.errors import PortTaken
from deploy.directory import explained
from deploy.settings.options import BrokerPorts, LanOptions, check_broker_ports
from identity.keys import KeyPair
from tests.deploy.strawberry import environment_of, run
from tests.forkserver import COMMAND


def _assert_one_line_and_a_hint(done: "subprocess.CompletedProcess[str]", problem: str) -> None:
    assert done.returncode == 1, done.stdout
    told = done.stderr.splitlines()
    assert len(told) == 2, done.stderr
    assert told[0].startswith("strawberry: ")
    assert problem in told[0]
    assert told[1].startswith("  ")


@pytest.mark.parametrize("words", [["up"], ["hub"], ["broker", "run"], ["spoke", "run"], ["certs"]])
def test_a_data_directory_that_is_a_file(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    done = run(environment_of(tmp_path / "home"), *words)
    _assert_one_line_and_a_hint(done, "is a file")


def test_only_a_missing_right_is_answered_with_the_right_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRAWBERRY_HOME", str(tmp_path))
    file = tmp_path / "hub"
    for name in (str(file), os.fsencode(file)):
        for code in (errno.EACCES, errno.EPERM, errno.EROFS):
            assert "right to write" in explained(OSError(code, "no", name))[1]
        for code in (errno.ENOENT, errno.ENOTDIR, errno.EMFILE):
            assert explained(OSError(code, "no", name)) == (f"{file}: no", "")


def test_a_damaged_database(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    KeyPair.load_or_create(tmp_path / "hub" / "key.pem")
    (tmp_path / "hub" / "hub.db").write_bytes(b"this is no database" * 1000)
    done = run(environment_of(tmp_path), "up", "--no-spoke", "--mqtt-port", "0", "--http-port", "0")
    _assert_one_line_and_a_hint(done, "hub.db")
    assert "key.pem" not in done.stderr


def test_trust_in_a_broker_that_is_not_named(tmp_path: Path) -> None:
    done = run(environment_of(tmp_path), "up", "--trust-broker")
    _assert_one_line_and_a_hint(done, "needs the address")


def test_a_wrong_setting_and_a_busy_port_are_found_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for option in ("--http-port", "--mqtt-port"):
            others = {"--http-port": "0", "--mqtt-port": "0"} | {option: port}
            done = run(environment_of(tmp_path), "up", *(word for each in others.items() for word in each))
            _assert_one_line_and_a_hint(done, f"port {port}: it is in use")
            assert f"choose another port with {option} N" in done.stderr
            assert done.stdout == ""
    (tmp_path / "strawberry.toml").write_text("[household]\nlangage = 'de'\n")
    done = run(environment_of(tmp_path), "up")
    _assert_one_line_and_a_hint(done, "unknown setting 'langage' in household; did you mean 'language'?")


def test_a_broker_whose_default_port_is_taken_uses_the_next_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setitem(BROKER_PORTS, "mqtt", port)
        ports, moved = check_broker_ports(BrokerPorts(), LanOptions(), setting=None)
        assert ports.mqtt is not None
        assert port < ports.mqtt < port + 10
        assert moved is not None
        assert (f"port {port}: it is in use" in moved, f"using port {ports.mqtt}" in moved) == (True, True)
        for chosen, setting in ((BrokerPorts(mqtt=port), None), (BrokerPorts(), port)):
            with pytest.raises(PortTaken):
                check_broker_ports(chosen, LanOptions(), setting=setting)


def test_a_server_ends_by_a_signal_also_where_the_reader_of_its_output_went_away(tmp_path: Path) -> None:
    words = ("broker", "run", "--mqtt-port", "0", "--json")
    with subprocess.Popen(
        [*COMMAND, *words], env=environment_of(tmp_path), stdout=subprocess.PIPE, start_new_session=True
    ) as server:
        assert server.stdout is not None
        while b'"ready"' not in server.stdout.readline():
            assert server.poll() is None
        server.stdout.close()
        server.terminate()
        try:
            assert server.wait(120) == 0
        finally:
            server.kill()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system without a byte left."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        with (disk / "filling").open("wb", buffering=0) as filling, suppress(OSError):
            while True:
                filling.write(bytes(4096))
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_a_disk_that_is_mounted_for_reading_only(full_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(full_disk)], check=True)
    for home in (full_disk, full_disk / "home"):
        done = run(environment_of(home), "up")
        _assert_one_line_and_a_hint(done, f"{home}: Read-only file system")
    assert "mounted for reading only" in run(environment_of(full_disk), "doctor").stdout


@pytest.mark.slow
def test_a_full_disk(full_disk: Path) -> None:
    done = run(environment_of(full_disk), "up", "--no-spoke", "--mqtt-port", "0", "--http-port", "0")
    _assert_one_line_and_a_hint(done, "No space left on device")
    told = run(environment_of(full_disk), "doctor").stdout
    assert f"0 MB free on the disk of {full_disk}" in told
