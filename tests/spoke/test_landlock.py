"""What skills cannot read although they run as the user who runs the hub."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spoke.landlock import has_landlock

pytestmark = pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock (Linux 5.19)")

PROGRAM = """
import json, os, subprocess, sys, threading
from pathlib import Path
from spoke.landlock import hide

home, parent = Path(sys.argv[1]), sys.argv[2]
secret = home / "hub" / "key.pem"
assert hide(home, but=[home / "spoke"])

def outcome(work):
    try:
        return work() or "done"
    except OSError as error:
        return os.strerror(error.errno)

seen = {
    "its own": outcome((home / "spoke" / "state").read_text),
    "beside": outcome((home.parent / "music" / "song").read_text),
    "secret": outcome(secret.read_text),
    "through a link": outcome((home.parent / "link" / "hub" / "key.pem").read_text),
    "through the hub": outcome(Path(f"/proc/{parent}/root{secret}").read_text),
    "the hub's memory": outcome(lambda: open(f"/proc/{parent}/mem").close()),
    "moved": outcome(lambda: secret.rename(home / "spoke" / "key.pem")),
    "linked": outcome(lambda: os.link(secret, home / "spoke" / "key.pem")),
    "the directory moved": outcome(lambda: (home / "hub").rename(home / "spoke" / "hub")),
    "moved beside": outcome(lambda: os.rename(home / "spoke" / "state", home.parent / "music" / "state")),
    "a program": subprocess.run(["cat", secret], capture_output=True, text=True).stdout,
}
thread = threading.Thread(target=lambda: seen.update({"a thread": outcome(secret.read_text)}))
thread.start()
thread.join()
print(json.dumps(seen))
"""


def test_a_process_reads_nothing_of_what_is_hidden_and_everything_else(tmp_path: Path) -> None:
    home = tmp_path / "ann" / ".strawberry"
    for name, text in (("hub/key.pem", "secret"), ("spoke/state", "own"), ("../music/song", "la")):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home.parent / "link").symlink_to(home)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as hub:
        command = [sys.executable, "-c", PROGRAM, str(home), str(hub.pid)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        hub.kill()
    assert ran.stderr == ""
    denied, elsewhere = "Permission denied", "Invalid cross-device link"
    assert json.loads(ran.stdout) == {
        "its own": "own",
        "beside": "la",
        "secret": denied,
        "a thread": denied,
        "through a link": denied,
        "through the hub": denied,
        "the hub's memory": denied,
        "moved": elsewhere,
        "linked": elsewhere,
        "the directory moved": elsewhere,
        "moved beside": "done",
        "a program": "",
    }
