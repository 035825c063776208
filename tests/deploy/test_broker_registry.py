"""Which broker is ours is read from files that only this home writes; nothing is asked of the broker."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from contracts.errors import ConfigError
from deploy.directory import Home
from deploy.home.brokers.registry import OurBroker, announced, find_ours, keep_provisioned
from identity import files
from identity.files import is_held, only_one

URL = "mqtt://127.0.0.1:1883"
EMBEDDED = OurBroker(
    "embedded", urls=(URL,), websocket="ws://127.0.0.1:9001", addresses=("mqtts://pi.local:8883",)
)


def test_a_broker_is_ours_while_a_process_of_this_home_runs_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert find_ours(home, URL) is None
    with only_one(home.broker, what="a broker", hint=""), announced(home, EMBEDDED):
        found = find_ours(home, "mqtt://localhost")
        assert found == EMBEDDED
        assert find_ours(home, "mqtt://127.0.0.1:1884") is None
        assert find_ours(home, "mqtt://192.168.1.9:1883") is None
    assert find_ours(home, URL) is None


def test_what_a_killed_process_left_behind_makes_no_broker_ours(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with announced(home, EMBEDDED):
        assert find_ours(home, URL) is None, "nobody holds the directory"


def test_a_directory_is_held_by_any_process_that_says_so(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from identity.files import only_one\n"
        "with only_one(Path(sys.argv[1]), what='x', hint=''):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert is_held(tmp_path)
        holder.kill()
    assert not is_held(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no shared locks")
def test_who_only_looks_keeps_nobody_out_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    looking = (tmp_path / "lock").open("w")
    fcntl.flock(looking, fcntl.LOCK_SH)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            looking.close()

    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=wait))
    with only_one(tmp_path, what="a broker", hint=""):
        assert len(waited) == 3
        # Who has it is not waited for.
        with (
            pytest.raises(ConfigError, match="a broker already runs"),
            only_one(tmp_path, what="a broker", hint=""),
        ):
            pass
    assert len(waited) == 4


def test_a_mosquitto_that_was_set_up_is_ours_whether_it_runs_or_not(tmp_path: Path) -> None:
    home = Home(tmp_path)
    keep_provisioned(home, url="mqtts://nas.local", ca="PEM")
    found = find_ours(home, "mqtts://nas.local:8883")
    assert found is not None
    assert (found.kind, found.ca) == ("mosquitto", "PEM")
    assert find_ours(home, "mqtt://nas.local:8883") is None, "without TLS it may be anybody"


def test_a_damaged_file_is_told_and_trusts_nobody(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.hub.mkdir()
    for text in ("[]", "{", "null"):
        home.provisioned_file.write_text(text)
        with pytest.raises(ConfigError, match="damaged"):
            find_ours(home, URL)
    home.provisioned_file.write_text(json.dumps({"url": URL, "kind": "embedded"}))
    assert find_ours(home, URL) is not None


def test_what_a_killed_process_left_behind_is_not_believed_of_the_next_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with announced(home, EMBEDDED):
        left = json.loads(home.broker_run_file.read_text())
    home.broker_run_file.write_text(json.dumps({**left, "pid": left["pid"] + 1}))
    with only_one(home.broker, what="a broker", hint=""):
        assert find_ours(home, URL) is None, "it has not said yet where it listens"
        with announced(home, EMBEDDED):
            assert find_ours(home, URL) == EMBEDDED
