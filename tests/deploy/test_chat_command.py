"""What a person reads while an answer is in the making."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.strawberry import environment_of, run
from tests.forkserver import COMMAND

SKILL = {"kind": "skill", "state": "called", "path": "devices.hall.LampSkill.turn_on"}
FINAL = {"kind": "final", "answer": "It is on.", "mode": "online"}
BROKEN = {"kind": "error", "code": "broken", "message": "the hub went away", "hint": "Look."}
ANSWERS: dict[str, list[str | dict[str, str]]] = {
    "turn on the lamp": ["Let me", " see.", SKILL, "\n\nIt is on.", FINAL],
    "a long story": ["Once upon", BROKEN],
}


@pytest.fixture
def hub() -> Iterator[str]:
    """A hub that tells of turns what stands above."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for told in ANSWERS[body["messages"][-1]["content"]]:
                choices = [{"index": 0, "delta": {"content": told}}]
                chunk = (
                    {"choices": choices} if isinstance(told, str) else {"choices": [], "x_strawberry": told}
                )
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def read_at_a_terminal(hub: str, home: Path, message: str) -> str:
    """Give everything that a terminal shows of a message and its answer."""
    master, slave = os.openpty()
    words = [*COMMAND, "chat", message, "--hub", hub]
    environment = environment_of(home, STRAWBERRY_TOKEN="any")
    with subprocess.Popen(words, env=environment, stdin=slave, stdout=slave, stderr=slave) as asking:
        os.close(slave)
        seen = b""
        try:
            while piece := os.read(master, 4096):
                seen += piece
        except OSError:
            # The other end is closed.
            pass
        asking.wait()
    os.close(master)
    # The line is cleared before the answer: until then a clock may have been there.
    return seen.decode().replace("\r\n", "\n").rpartition("\r\x1b[K")[2]


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of the test's own is one of POSIX")
def test_at_a_terminal_what_is_done_on_the_way_stands_in_lines_of_its_own(hub: str, tmp_path: Path) -> None:
    seen = read_at_a_terminal(hub, tmp_path, "turn on the lamp")
    assert seen == f"Let me see.\n  · {SKILL['path']} …\n\n\nIt is on.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of the test's own is one of POSIX")
def test_at_a_terminal_an_answer_that_broke_off_is_not_run_together_with_the_note(
    hub: str, tmp_path: Path
) -> None:
    seen = read_at_a_terminal(hub, tmp_path, "a long story")
    assert seen == "Once upon\nstrawberry: the hub went away\n  Look.\n"


def test_a_file_gets_the_answer_and_nothing_else(hub: str, tmp_path: Path) -> None:
    environment = environment_of(tmp_path, STRAWBERRY_TOKEN="any")
    done = run(environment, "chat", "turn on the lamp", "--hub", hub)
    assert done.stdout == "Let me see.\n\nIt is on.\n"
    assert done.stderr == f"  · {SKILL['path']} …\n"
    broken = run(environment, "chat", "a long story", "--hub", hub)
    assert (broken.returncode, broken.stdout) == (1, "Once upon")
    assert "the hub went away" in broken.stderr
