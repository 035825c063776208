"""A person at home who chats, calls and confirms, and the house that it happens in."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from deploy.directory import Home
from tests.adversary.attacks import Plan, Spoils
from tests.adversary.device import Credentials
from tests.e2e.house import PATIENCE_S, House, Spoke
from tests.forkserver import COMMAND
from tests.model_server import Says, ScriptedModel, SeenRequest

SECRET: Final = "aardvark"
"""In all that the person says to the model, and in nothing else."""
CONVERSATION: Final = "kitchen"
RING: Final = "ring the bell"
UNLOCK: Final = "unlock the door"

SKILLS: Final = '''
from pathlib import Path

from spoke import Skill, skill_method


def _write(line):
    with Path(__file__).with_name("journal.txt").open("a") as file:
        file.write(line + "\\n")


class BellSkill(Skill):
    """A bell."""

    device_agnostic = True

    @skill_method(sentences={"en": ["ring the bell"]})
    def ring(self) -> str:
        """Ring the bell."""
        _write("rung")
        return "It rings."


class LockSkill(Skill):
    """A lock."""

    @skill_method(confirm=True, sentences={"en": ["unlock the door"]})
    def unlock(self) -> str:
        """Unlock the door."""
        _write("unlocked")
        return "It is open."
'''


def tell_all(seen: SeenRequest) -> Says:
    """Answer with the secret wherever it is in what the model was given."""
    told = (text for role in ("system", "user", "assistant") for text in seen.said(role))
    return Says(text=SECRET if any(SECRET in text for text in told) else "I know nothing.")


@dataclass(frozen=True)
class Act:
    """One thing that the person did.

    Attributes:
        problem: Why it did not work; empty where it did.
    """

    kind: str
    seconds: float
    problem: str = ""


@dataclass
class Person:
    """Does one thing after another, as the owner of the house."""

    http: httpx.AsyncClient
    spoke: Spoke
    acts: list[Act] = field(default_factory=list)

    async def act(self, number: int) -> None:
        """Do the next thing; every tenth is a question to the model, of which there may be one a second."""
        kinds = {0: self.ask, 3: self.confirm, 6: self.confirm}
        do = kinds.get(number % 10, self.say if number % 2 else self.call)
        begun = time.perf_counter()
        try:
            problem = await do()
        except (httpx.HTTPError, ValueError, KeyError) as error:
            problem = repr(error)
        self.acts.append(Act(do.__name__, time.perf_counter() - begun, problem))

    async def say(self) -> str:
        """Say an exact sentence."""
        answer = await self._chat(RING, f"said-{random.randbytes(8).hex()}")
        return "" if answer.get("answer") == "It rings." else str(answer)

    async def ask(self) -> str:
        """Ask the model."""
        answer = await self._chat(f"Remember {SECRET} {random.randbytes(4).hex()}.", CONVERSATION)
        return "" if SECRET in str(answer.get("answer")) else str(answer)

    async def call(self) -> str:
        """Call a skill on whichever device serves."""
        body = {"device": "hub", "skill": "BellSkill", "method": "ring"}
        answer = await self.http.post("/api/skills/call", json=body)
        return "" if answer.json() == {"result": "It rings."} else answer.text

    async def confirm(self) -> str:
        """Say what needs a confirmation, and give it."""
        body = {"model": "assistant", "stream": True, "messages": [{"role": "user", "content": UNLOCK}]}
        texts = ""
        headers = {"X-Strawberry-Confirm": "true"}
        async with self.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as stream:
            async for line in stream.aiter_lines():
                texts += line
                event = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {}
                told = event.get("x_strawberry", {})
                if told.get("kind") == "confirmation":
                    path = f"/api/turns/{told['turn']}/confirmations/{told['id']}"
                    (await self.http.post(path, json={"approve": True})).raise_for_status()
                if told.get("kind") == "final":
                    return "" if told["answer"] == "It is open." else str(told)
        return texts

    async def _chat(self, text: str, conversation: str) -> dict[str, Any]:
        body = {"message": text, "conversation": conversation}
        answer: dict[str, Any] = (await self.http.post("/api/chat", json=body)).json()
        return answer


@contextmanager
def home_of_a_person(
    directory: Path,
    sandbox: Path,
    *,
    servers: Sequence[str] = COMMAND,
    debug: bool = True,
    settings: str = "",
) -> Iterator[tuple[House, Spoke]]:
    """Run broker, hub and a spoke with a bell and a lock.

    Args:
        servers: How broker and hub are started.
        debug: See `House`.
        settings: More of the hub's ``strawberry.toml``.
    """
    with ScriptedModel(tell_all) as model, House(directory, sandbox=sandbox, debug=debug) as house:
        house.use_model(model.base_url)
        with (house.home / "strawberry.toml").open("a") as file:
            file.write(settings)
        house.program = servers
        house.start_broker()
        house.start_hub()
        house.program = COMMAND
        yield house, house.add_spoke("Bedroom PC", {"things.py": SKILLS})


@asynccontextmanager
async def person_of(house: House, spoke: Spoke) -> AsyncIterator[Person]:
    """Let the owner of a house act."""
    token = Home(house.home).token_file.read_text().strip()
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=house.url, headers=headers, timeout=PATIENCE_S) as http:
        yield Person(http, spoke)


async def live(person: Person, seconds: float) -> list[Act]:
    """Act for some time, with a tenth of a second between two acts; return what was done."""
    person.acts = []
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        await person.act(number)
        number += 1
        await asyncio.sleep(0.1)
    return person.acts


def percentile(acts: list[Act], share: float) -> float:
    """Return the time in seconds that this share of the acts took at most."""
    times = sorted(act.seconds for act in acts)
    return times[min(len(times) - 1, int(share * len(times)))]


@dataclass
class Adversary:
    """A process that attacks."""

    process: "subprocess.Popen[str]"
    spoils: Spoils | None = None

    def end(self) -> Spoils:
        """Wait until its time is over and return what came of it."""
        out, _ = self.process.communicate(timeout=PATIENCE_S * 2)
        return Spoils(**json.loads(out.splitlines()[-1]))


@contextmanager
def attacked(house: House, credentials: Credentials, seconds: float, *only: str) -> Iterator[Adversary]:
    """Attack a house with all that a device can do, or with some attacks only."""
    plan = Plan(
        credentials=asdict(credentials),
        seconds=seconds,
        secret=SECRET,
        conversation=CONVERSATION,
        confirm=UNLOCK,
        skill=("BellSkill", "ring", RING),
        only=only,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.adversary.attacks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(plan)) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "attacking\n"
        yield Adversary(process)
    finally:
        process.kill()
        process.communicate()
