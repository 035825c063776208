"""The log that a process keeps itself, where nothing keeps what it writes, and what is read of it."""

import logging
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from deploy.home.directory import Home
from deploy.logs.log_files import LogFile, LogTail, read_logs
from deploy.logs.logs import RedactingFormatter
from deploy.service.windows import log_of, task_logs
from tests.deploy.strawberry import COMMAND, environment_of, run
from tests.e2e.house import wait_for


@contextmanager
def _writing(path: Path, *, largest: int = 200) -> Iterator[logging.Logger]:
    log = logging.getLogger(str(path))
    log.propagate = False
    log.setLevel(logging.INFO)
    handler = LogFile(path, largest=largest)
    handler.setFormatter(RedactingFormatter("%(message)s"))
    log.addHandler(handler)
    try:
        yield log
    finally:
        log.removeHandler(handler)
        handler.close()


def test_a_log_is_for_its_owner_alone_and_takes_no_more_than_three_files(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "spoke.log"
    before = os.umask(0)
    try:
        with _writing(path) as log:
            for number in range(100):
                log.info("line %d", number)
    finally:
        os.umask(before)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["spoke.log", "spoke.log.1", "spoke.log.2"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_size <= 200 for file in files)
    kept = LogTail(path).new_lines()
    assert kept == [f"line {number}" for number in range(100 - len(kept), 100)]
    assert len(kept) > 30


def test_a_log_goes_on_where_the_last_process_left_it(tmp_path: Path) -> None:
    for word in ("first", "second"):
        with _writing(tmp_path / "hub.log") as log:
            log.info(word)
    assert LogTail(tmp_path / "hub.log").new_lines() == ["first", "second"]


def test_a_directory_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with _writing(tmp_path / "hub.log") as log:
        log.info("line")
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_secret_is_not_in_the_file(tmp_path: Path) -> None:
    token = f"{secrets.token_hex(6)}.{secrets.token_urlsafe(24)}"
    with _writing(tmp_path / "spoke.log") as log:
        log.info("joins with %s", token)
    text = (tmp_path / "spoke.log").read_text()
    assert text == "joins with [secret]\n"


@pytest.mark.parametrize("batch", [1, 3, 14, 20], ids=lambda batch: f"{batch} lines at a time")
def test_who_follows_gets_every_line_once_also_when_the_next_file_begins(tmp_path: Path, batch: int) -> None:
    tail, got = LogTail(tmp_path / "spoke.log"), list[str]()
    assert tail.new_lines() == []
    with _writing(tmp_path / "spoke.log") as log:
        for number in range(200):
            log.info("line %03d with\n\nits end", number)
            if number % batch == batch - 1:
                got += tail.new_lines()
    got += tail.new_lines()
    # Twenty such lines fill two files and a half.
    assert got == [line for number in range(200) for line in (f"line {number:03d} with", "", "its end")]
    assert tail.new_lines() == []


def test_where_what_was_read_last_is_gone_all_that_is_left_is_new(tmp_path: Path) -> None:
    path = tmp_path / "spoke.log"
    path.write_text("a long first line\n")
    tail = LogTail(path)
    assert tail.new_lines() == ["a long first line"]
    # Perhaps in the same place on the disk, which is how files are told apart.
    path.unlink()
    path.write_text("left\n")
    assert tail.new_lines() == ["left"]


def test_a_line_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "spoke.log"
    path.write_bytes(b"whole\n\xc3")
    tail = LogTail(path)
    assert tail.new_lines() == ["whole"]
    with path.open("ab") as file:
        file.write(b"\xa4hm\n")
    assert tail.new_lines() == ["ähm"]


def test_a_file_that_cannot_be_moved_is_written_on_with(tmp_path: Path) -> None:
    class Held(LogFile):
        def rotate(self, source: str, dest: str) -> None:
            raise PermissionError(f"{source} is open, so it does not become {dest}")

    handler = Held(tmp_path / "hub.log", largest=10)
    for word in ("first of all", "second of all"):
        handler.emit(logging.makeLogRecord({"msg": word}))
    handler.close()
    assert (tmp_path / "hub.log").read_text() == "first of all\nsecond of all\n"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_end_of_a_log_is_as_long_as_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    path.write_text("one\ntwo\nthree\n")
    for lines, wanted in ((0, []), (2, ["two", "three"]), (9, ["one", "two", "three"])):
        assert [line for _, line in read_logs([path], lines=lines, follow=False)] == wanted


def test_who_follows_hears_of_a_task_that_starts_later(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with _writing(log_of(home, "hub")) as hub:
        hub.info("early")
        told = task_logs(home, ("hub", "spoke"), lines=5, follow=True)
        assert next(told) == ("hub", "early")
        with _writing(log_of(home, "spoke")) as spoke:
            spoke.info("late")
            assert next(told) == ("spoke", "late")
            starts = threading.Timer(0.1, hub.info, ("again",))
            starts.start()
            assert next(told) == ("hub", "again")
            starts.join()


def test_the_spoke_of_up_is_part_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "up.log").write_text("up\n")
    (tmp_path / "logs" / "up-spoke.log").write_text("its spoke\n")
    (tmp_path / "logs" / "hub.log").write_text("another\n")
    told = list(task_logs(Home(tmp_path), ("up",), lines=5, follow=False))
    assert told == [("up", "up"), ("up", "its spoke")]


def test_where_no_task_ever_ran_the_command_that_sets_one_up_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no log") as error:
        list(task_logs(Home(tmp_path), ("hub",), lines=5, follow=False))
    assert "service install" in error.value.hint


def test_a_process_keeps_what_it_says_and_logs_and_why_it_ended(tmp_path: Path) -> None:
    home, token = tmp_path / "home", f"{secrets.token_hex(6)}.{secrets.token_urlsafe(24)}"
    log = log_of(Home(home), "spoke")
    words = ["spoke", "run", f"--home={home}", f"--log-file={log}"]
    refused = run(environment_of(tmp_path / "other"), *words, "--token-file=/no/such")
    assert refused.returncode == 1
    assert refused.stderr.count("cannot read the token file") == 1
    assert "ERROR   strawberry: cannot read the token file /no/such" in log.read_text()
    nowhere = "--hub=http://127.0.0.1:9"
    environment = environment_of(tmp_path / "other", HUB_DEVICE_TOKEN=token)
    with subprocess.Popen([*COMMAND, *words, nowhere], env=environment, stderr=subprocess.PIPE) as process:
        try:
            # It goes on trying.
            wait_for(lambda: "cannot be reached" in log.read_text(), what="its complaint")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert b"cannot be reached" in said
    assert token not in log.read_text()
    assert token[-20:] not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
