"""People who talk to a spoke of a house through the command line, and models that say what a test wants."""

import json
import queue
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, Final

from tests.e2e.house import PATIENCE_S, House, Spoke
from tests.forkserver import COMMAND
from tests.model_server import Says, ScriptedModel, SeenRequest, calls

WAITING_SKILL: Final = '''
"""Waits until a test tells it to go on, and writes down when it began and when it ended."""
import time
from pathlib import Path

from spoke import Skill, skill_method

FILE = Path(__file__).with_name("journal.txt")


def _write(line):
    with FILE.open("a") as file:
        file.write(line + "\\n")


class WaitingSkill(Skill):
    """Waits."""

    @skill_method(timeout_s=300)
    def wait(self, text: str) -> str:
        """Wait until a file with this name lies beside the journal."""
        _write(f"{text} begun")
        while not FILE.with_name(text).exists():
            time.sleep(0.02)
        _write(f"{text} done")
        return f"waited for {text}"
'''


def own_model(model: ScriptedModel) -> str:
    """Give the ``strawberry.toml`` of a spoke whose own model this is; it gets skills as tools."""
    return (
        '[[models]]\nname = "own"\nprovider = "openai"\nmodel = "scripted"\ntools = "native"\n'
        f'base_url = "{model.base_url}"\n'
    )


def acts(text: str) -> Callable[[SeenRequest], Says]:
    """A small model that writes a line into the journal, where it is given the means."""

    def script(seen: SeenRequest) -> Says:
        if seen.results:
            return Says(text="It is done.")
        tools = [tool for tool in seen.tools if tool.endswith("JournalSkill_write")]
        return calls(tools[0], text=text) if tools else Says(text="I can do nothing here.")

    return script


@dataclass
class Talk:
    """Somebody at a spoke.

    Attributes:
        begun: What was started and may still run.
        listening: What reads along with it.
    """

    house: House
    spoke: Spoke
    begun: list["subprocess.Popen[str]"] = field(default_factory=list)
    listening: list[threading.Thread] = field(default_factory=list)

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start ``strawberry chat`` on the spoke's machine."""
        process = subprocess.Popen(
            [*COMMAND, "chat", *arguments],
            env=self.house.environment(self.spoke.home, {"PYTHONUNBUFFERED": "1"}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.begun.append(process)
        return process

    def say(self, message: str) -> dict[str, Any]:
        """Say something in a conversation of its own that must be answered."""
        return answer_of(self.begin(message, "--json"))

    def converse(self) -> "Conversation":
        """Begin a conversation of several messages."""
        conversation = Conversation(self.begin("--json"))
        self.listening += conversation.threads
        return conversation

    def end(self) -> None:
        """Leave nothing behind that still runs."""
        for process in self.begun:
            process.kill()
            process.wait()
        for thread in self.listening:
            thread.join()
        for process in self.begun:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


class Conversation:
    """One ``strawberry chat`` that is given line after line.

    Attributes:
        threads: Read what it prints until it ends.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._said: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        assert process.stderr is not None
        streams = (process.stdout, process.stderr)
        self.threads = [threading.Thread(target=self._listen, args=(stream,)) for stream in streams]
        for thread in self.threads:
            thread.start()

    def say(self, message: str) -> dict[str, Any]:
        """Say something, and give the answer; where there is none, what the person is told instead."""
        assert self._process.stdin is not None
        self._process.stdin.write(message + "\n")
        self._process.stdin.flush()
        line = self._said.get(timeout=PATIENCE_S)
        answer: dict[str, Any] = json.loads(line) if line.startswith("{") else {"mode": "", "told": line}
        return answer

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            # The hint of an error stands in a line of its own.
            if not line.startswith("  "):
                self._said.put(line)


def answer_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Give the answer of a ``strawberry chat --json``."""
    out, err = process.communicate(timeout=2 * PATIENCE_S)
    answer: dict[str, Any] = json.loads(out or "{}")
    assert answer, err
    return answer


def notices(answer: dict[str, Any]) -> list[str]:
    """Give what a person was told beside an answer."""
    return [event["text"] for event in answer["events"] if event["kind"] == "notice"]
