"""Calls without end, each with a token of its own, and what their answers allow to have happened."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

JOURNAL_SKILL: Final = '''
"""Writes down what really ran, so that a test can count it."""
import os
import time

from spoke import Skill, skill_method


class _Journal(Skill):
    def _note(self, line):
        # One write of a file that is only ever appended to: whole or not at all, whoever dies.
        file = os.open(self.data_dir / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, (line + "\\n").encode())
        os.close(file)

    def _run(self, token, seconds):
        self._note(f"begun {token}")
        time.sleep(seconds)
        self._note(f"done {token}")
        return token


class JournalSkill(_Journal):
    """Keeps a journal."""

    @skill_method(timeout_s=10)
    def write(self, token: str, seconds: float) -> str:
        """Write into the journal."""
        return self._run(token, seconds)

    @skill_method(timeout_s=10, idempotent=True)
    def put(self, token: str, seconds: float) -> str:
        """Write what may be written twice."""
        return self._run(token, seconds)

    @skill_method(timeout_s=10, read_only=True)
    def look(self, token: str, seconds: float) -> str:
        """Change nothing that counts."""
        return self._run(token, seconds)


class AnywhereSkill(_Journal):
    """Keeps a journal on whichever device serves."""

    device_agnostic = True

    @skill_method(timeout_s=10)
    def write(self, token: str, seconds: float) -> str:
        """Write into a journal."""
        return self._run(token, seconds)

    @skill_method(timeout_s=10, sentences={"en": ["sign the guest book as {token}"]})
    def sign(self, token: str) -> str:
        """Write into a journal."""
        return self._run(token, 0.0)
'''

_PATIENCE_S = 180.0
"""A call that has no answer by then hangs: its own time, with every grace, is over long before."""

PAUSE_S = 0.1
"""After a call that failed, which may have been at once."""


class Ran(Enum):
    """What the one who called may conclude."""

    ONCE = auto()
    NEVER = auto()
    PERHAPS = auto()
    """It may have run, once."""


NO_ANSWER: Final = "no answer"
"""The connection ended after the request was sent."""
NOT_HEARD: Final = "not heard"
"""Nobody listened, so nothing was sent."""

MEANING: Final[Mapping[str, Ran]] = {
    "result": Ran.ONCE,
    "offline": Ran.NEVER,
    "busy": Ran.NEVER,
    "stale_epoch": Ran.NEVER,
    "expired": Ran.NEVER,
    NOT_HEARD: Ran.NEVER,
    "outcome_unknown": Ran.PERHAPS,
    "timeout": Ran.PERHAPS,
    NO_ANSWER: Ran.PERHAPS,
}
"""Every answer that a call of this load may honestly get; any other is a fault of ours."""


@dataclass(frozen=True)
class Kind:
    """A method that is called.

    Attributes:
        most: How often one call of it may run at most; None where that does not matter.
    """

    skill: str
    method: str
    most: int | None


LOOK: Final = Kind("JournalSkill", "look", None)

KINDS: Final = {
    Kind("JournalSkill", "write", 1): 0.5,
    Kind("AnywhereSkill", "write", 1): 0.3,
    # Made anew, once, for a device that has restarted in between.
    Kind("JournalSkill", "put", 2): 0.1,
    LOOK: 0.1,
}
"""What is called how often."""


@dataclass(frozen=True)
class Answered:
    """One call and its answer.

    Attributes:
        began: By the monotonic clock, as `ended`.
        code: A key of `MEANING`.
        said: The value, or the error's message.
    """

    token: str
    kind: Kind
    device: str
    began: float
    ended: float
    code: str
    said: str

    def __str__(self) -> str:
        what = f"{self.device} {self.kind.skill}.{self.kind.method} {self.token}"
        return f"{what}: {self.code} after {self.ended - self.began:.1f} s: {self.said}"


class Load:
    """Keeps so many calls in flight through the hub's HTTP API, on devices drawn at random.

    Args:
        ports: Of the hub, or of all its replicas.
    """

    def __init__(self, *, ports: Sequence[int], token: str, devices: Sequence[str], seed: int) -> None:
        self.answered: list[Answered] = []
        self._ports = ports
        self._token = token
        self.devices = devices
        self._chance = random.Random(seed)
        self._over = asyncio.Event()

    def stop(self) -> None:
        """Begin no more calls."""
        self._over.set()

    async def run(self, in_flight: int) -> None:
        """Call until stopped, and wait for the last answers."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(in_flight):
                tasks.create_task(self._caller(), name=f"caller {number}")

    async def call(self, device: str, kind: Kind, seconds: float) -> Answered:
        """Make one call and give its answer."""
        token, began = uuid4().hex, time.monotonic()
        named = "hub" if kind.skill == "AnywhereSkill" else device
        body = {
            "device": named,
            "skill": kind.skill,
            "method": kind.method,
            "kwargs": {"token": token, "seconds": seconds},
        }
        try:
            async with asyncio.timeout(_PATIENCE_S):
                code, said = await self._ask(body)
        except TimeoutError:
            code, said = "hangs", f"no answer after {_PATIENCE_S:.0f} s"
        return Answered(token, kind, named, began, time.monotonic(), code, said)

    async def _caller(self) -> None:
        while not self._over.is_set():
            kind = self._chance.choices(list(KINDS), weights=list(KINDS.values()))[0]
            seconds = self._chance.choice([0.0, 0.0, 0.1, 0.3, 2.0])
            answered = await self.call(self._chance.choice(self.devices), kind, seconds)
            self.answered.append(answered)
            if answered.code != "result":
                await asyncio.sleep(PAUSE_S)

    async def _ask(self, body: Mapping[str, Any]) -> tuple[str, str]:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._chance.choice(self._ports))
        except OSError as error:
            return NOT_HEARD, str(error)
        payload = json.dumps(body).encode()
        try:
            writer.write(
                b"POST /api/skills/call HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                + f"Authorization: Bearer {self._token}\r\n".encode()
                + f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n".encode()
                + payload
            )
            answer = await reader.read()
        except OSError as error:
            return NO_ANSWER, str(error)
        finally:
            writer.close()
        head, _, content = answer.partition(b"\r\n\r\n")
        try:
            document = json.loads(content)
        except ValueError:
            return NO_ANSWER, f"cut off after {len(answer)} bytes"
        if head.split(b" ", 2)[1] == b"200":
            return "result", str(document["result"])
        return document["code"], document["detail"]


def read_journals(homes: Iterable[Path]) -> Counter[str]:
    """Count the lines of all journals."""
    lines: Counter[str] = Counter()
    for home in homes:
        for file in home.glob("spoke/data/*/journal"):
            lines.update(file.read_text().splitlines())
    return lines


def judge(
    answered: Sequence[Answered], journal: Mapping[str, int], meanings: Mapping[str, Ran] = MEANING
) -> list[str]:
    """Hold every answer against what really ran; give what is not true."""
    faults = []
    for call in answered:
        begun, done = journal.get(f"begun {call.token}", 0), journal.get(f"done {call.token}", 0)
        meaning = meanings.get(call.code)
        if meaning is None:
            faults.append(f"not an honest answer: {call}")
            continue
        most = call.kind.most
        if most is not None and begun > most:
            faults.append(f"ran {begun} times: {call}")
        if meaning is Ran.ONCE and (not done or call.said != call.token):
            faults.append(f"did not run to its end, or gave another's result: {call}")
        # What changes nothing may be given up at any time.
        if meaning is Ran.NEVER and begun and most is not None:
            faults.append(f"ran all the same: {call}")
    return faults
