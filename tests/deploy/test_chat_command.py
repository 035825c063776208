"""What a person reads while an answer is in the making."""

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from deploy.cli.chat.prompt import matching
from tests.deploy.strawberry import environment_of, run
from tests.forkserver import COMMAND
from tests.proofs import ProvingHandler, serving

SKILL = {"kind": "skill", "state": "called", "path": "devices.hall.LampSkill.turn_on"}
FINAL = {"kind": "final", "answer": "It is on.", "mode": "online"}
BROKEN = {"kind": "error", "code": "broken", "message": "the hub went away", "hint": "Look."}
EVIL = "\n\n**Bold** and [a link](http://other.example) &#27;[2J\x1b[2J\n\n```\nprint(1)\n```\n"
WANTED = {
    "kind": "confirmation",
    "id": "q",
    "turn": "t",
    "device_name": "Front door",
    "method": "LockSkill.unlock",
    "arguments": {"note": "\x1b[2J\n" + "x" * 50_000, "la\nst": "?"},
}
WATCHER = {
    **WANTED,
    "device_name": "Hub",
    "method": "WatcherSkill.watch",
    "arguments": {
        "does": "When Disk (nas, now 50 %) goes above 95 %: tell me “Full”.",
        "predicate": "d > 95",
    },
}
ANSWERS: dict[str, list[str | dict[str, Any]]] = {
    "unlock the door": [WANTED, FINAL],
    "tell me when the disk is full": [WATCHER, FINAL],
    "turn on the fan": [{"kind": "final", "answer": "It is away.", "mode": "sentence", "failed": True}],
    "turn on the lamp": ["Let me", " see.", SKILL, "\n\nIt is on.", FINAL],
    "a long story": ["Once upon", BROKEN],
    "show me": ["Some ", "*text*", EVIL, FINAL],
}


@pytest.fixture
def asked() -> list[tuple[str, str]]:
    """Agent and text of each message that the hub got."""
    return []


@pytest.fixture
def hub(asked: list[tuple[str, str]]) -> Iterator[str]:
    """A hub with these answers; as a real one, it sends an error as an event and again at the end."""

    class Handler(ProvingHandler, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({"data": [{"id": "assistant"}, {"id": "cook"}]})

        def do_POST(self) -> None:
            body = self.body()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            if "confirmations" in self.path:
                return
            chunks: list[dict[str, Any]] = []
            asked.append((body["model"], body["messages"][-1]["content"]))
            for piece in ANSWERS.get(asked[-1][1], [FINAL]):
                if isinstance(piece, str):
                    chunks.append({"choices": [{"index": 0, "delta": {"content": piece}}]})
                else:
                    chunks.append({"choices": [], "x_strawberry": piece})
                    chunks += [{"error": piece}] if piece["kind"] == "error" else []
            for chunk in chunks:
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

    with serving(Handler) as url:
        yield url


def read_at_a_terminal(hub: str, home: Path, message: str, term: str = "dumb") -> str:
    """Give everything that a terminal shows of a message and its answer."""
    seen, _ = at_a_terminal(home, "chat", message, "--hub", hub, TERM=term, COLUMNS="80", LINES="24")
    # A clock may have been shown until the first piece came; its line is cleared.
    return seen.replace("\r\n", "\n").rpartition("\r\x1b[K")[2]


def at_a_terminal(home: Path, *words: str, typed: bytes = b"", **variables: str) -> tuple[str, int]:
    """Run a command at a terminal; give everything that it shows, and its exit code."""
    master, slave = os.openpty()
    environment = environment_of(home, STRAWBERRY_TOKEN=ProvingHandler.token(), **variables)
    streams: dict[str, Any] = {"stdin": slave, "stdout": slave, "stderr": slave}
    with subprocess.Popen([*COMMAND, *words], env=environment, **streams) as process:
        os.close(slave)
        os.write(master, typed)
        seen = b""
        # The other end is closed at its end.
        with contextlib.suppress(OSError):
            while piece := os.read(master, 4096):
                seen += piece
    os.close(master)
    return seen.decode(), process.returncode


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal is one of POSIX")
def test_at_a_simple_terminal_notes_and_errors_stand_in_lines_of_their_own(hub: str, tmp_path: Path) -> None:
    seen = read_at_a_terminal(hub, tmp_path, "turn on the lamp")
    assert seen == f"Let me see.\n  · {SKILL['path']} …\n\n\nIt is on.\n"
    seen = read_at_a_terminal(hub, tmp_path, "a long story")
    assert seen == "Once upon\nstrawberry: the hub went away\n  Look.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal is one of POSIX")
def test_a_terminal_shows_markdown_and_obeys_nothing_in_it(hub: str, tmp_path: Path) -> None:
    seen = read_at_a_terminal(hub, tmp_path, "show me", term="xterm-256color")
    assert "\x1b[1mBold\x1b[0m" in seen
    assert "**" not in seen
    assert "http://other.example" in seen
    assert "\x1b[2J" not in seen
    assert seen.count("\\u001b[2J") >= 2
    broken = read_at_a_terminal(hub, tmp_path, "a long story", term="xterm-256color")
    assert "Once upon" in broken
    assert broken.replace("\x1b[?25h", "").endswith(
        "\n\x1b[1;31mstrawberry\x1b[0m: the hub went away\n  Look.\n"
    )


def test_a_question_ends_with_device_and_method_whatever_the_arguments(hub: str, tmp_path: Path) -> None:
    environment = environment_of(tmp_path, STRAWBERRY_TOKEN=ProvingHandler.token())
    done = run(environment, "chat", "unlock the door", "--hub", hub, text="n\n")
    *_, shown, asked, _ = done.stderr.split("\n")
    assert shown.startswith("Front door: LockSkill.unlock(note='\\x1b[2J\\nxxx")
    assert shown.endswith("xxx … (cut))")
    assert len(shown) < 1_200
    assert asked.startswith("Front door: LockSkill.unlock? [y/N]")


def test_a_watcher_is_asked_about_in_the_sentence_that_says_what_it_does(hub: str, tmp_path: Path) -> None:
    environment = environment_of(tmp_path, STRAWBERRY_TOKEN=ProvingHandler.token())
    done = run(environment, "chat", "tell me when the disk is full", "--hub", hub, text="y\n")
    does = "When Disk (nas, now 50 %) goes above 95 %: tell me “Full”."
    assert done.stderr.startswith(f"Make this watcher? {does} [y/N]")


def test_a_file_gets_the_answer_and_nothing_else(hub: str, tmp_path: Path) -> None:
    environment = environment_of(tmp_path, STRAWBERRY_TOKEN=ProvingHandler.token())
    done = run(environment, "chat", "turn on the lamp", "--hub", hub)
    assert done.stdout == "Let me see.\n\nIt is on.\n"
    assert done.stderr == f"  · {SKILL['path']} …\n"
    broken = run(environment, "chat", "a long story", "--hub", hub)
    assert (broken.returncode, broken.stdout) == (1, "Once upon")
    assert "the hub went away" in broken.stderr


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_a_sentence_that_failed_ends_with_1(hub: str, tmp_path: Path, how: tuple[str, ...]) -> None:
    environment = environment_of(tmp_path, STRAWBERRY_TOKEN=ProvingHandler.token())
    done = run(environment, "chat", "turn on the fan", "--hub", hub, *how)
    assert (done.returncode, done.stderr) == (1, "")
    assert "It is away." in done.stdout


def test_json_tells_what_came_of_a_broken_answer(hub: str, tmp_path: Path) -> None:
    environment = environment_of(tmp_path, STRAWBERRY_TOKEN=ProvingHandler.token())
    done = run(environment, "chat", "a long story", "--json", "--hub", hub)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["answer"], told["mode"]) == ("Once upon", None)
    assert told["error"] == {"message": "the hub went away", "hint": "Look."}
    assert [event["kind"] for event in told["events"]] == ["text", "error"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["hello", "world"], ("assistant", "hello world")),
        (["cook", "hello world"], ("cook", "hello world")),
        (["cook", "hello"], ("assistant", "cook hello")),
        (["please", "hello world"], ("assistant", "please hello world")),
        (["--agent", "cook", "hello", "world"], ("cook", "hello world")),
    ],
)
def test_an_agent_is_an_option_or_a_known_name_before_one_quoted_message(
    hub: str, asked: list[tuple[str, str]], tmp_path: Path, words: list[str], expected: tuple[str, str]
) -> None:
    run(environment_of(tmp_path, STRAWBERRY_TOKEN=ProvingHandler.token()), "chat", *words, "--hub", hub)
    assert asked == [expected]


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal is one of POSIX")
def test_the_prompt_takes_messages_and_commands(
    hub: str, asked: list[tuple[str, str]], tmp_path: Path
) -> None:
    typed = b"/nwe\rfirst\r/new\rsec\x7f\x7f\x7fsecond\r/exit\r"
    variables = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    shown, code = at_a_terminal(tmp_path, "chat", "--hub", hub, typed=typed, **variables)
    assert code == 0
    assert "unknown command '/nwe'; did you mean '/new'?" in shown
    assert asked == [("assistant", "first"), ("assistant", "second")]
    assert "A new conversation." in shown
    assert "Continue with: strawberry chat --conversation" in shown
    history = tmp_path / "chat_history"
    assert "second" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_names_of_several_words_are_completed() -> None:
    names = ["Living room PC", "LampSkill.turn_on", "living_room_pc"]
    found = [(each.text, each.start_position) for each in matching("is the living r", names)]
    assert found == [("Living room PC", -8)]
    assert [each.text for each in matching("call lamp", names)] == ["LampSkill.turn_on"]
    assert list(matching("", names)) == list(matching("nothing ", names)) == []
