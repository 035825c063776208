"""``strawberry skills try``: you are the model, with its prompt, its tools and the skills of this machine."""

import argparse
import asyncio
import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deploy.cli.authors import checks
from deploy.cli.terminal.output import note
from deploy.cli.terminal.parser import Actions
from deploy.directory import Home
from deploy.logs.terminal import visible

if TYPE_CHECKING:
    from agent_core.gateway.protocol import ToolCall
    from agent_core.prompt import Section
    from agent_core.skills.results import Publication
    from agent_core.tools.toolset import SandboxSession
    from spoke.settings import SpokeSettings

_PATH: Final = "a skill by its name, a file or a folder; default: all skills of this machine"
_HELP: Final = """\
search WORDS      the tool search_skills
describe PATH     the tool describe_function
anything else     Python for the tool python_exec; a block ends with an empty line
prompt, tools     what the model reads before all that
Ctrl-D            end"""


def try_skills(options: argparse.Namespace) -> None:
    """Be the model: use its tools on the skills of this machine.

    Loads skills as a device does, with their settings and data, and gives you what a model gets: the
    prompt, the three tools and their answers, each with its size and time. Skills that you save are loaded
    again. It needs no hub. Calls are real, and may ask you, as a person, for a yes. What a spoke that runs
    beside it does at times or events is not done twice, unless --triggers asks for it.
    """
    from agent_core.skills.loading.loader import is_skill
    from agent_core.skills.running.runner import RunnerSettings
    from deploy.settings.options import sample_names
    from deploy.settings.settings import read_household
    from spoke.settings import SpokeSettings

    home, path = Home.find(), checks.path_of(options.path)
    with _alone(path) if is_skill(path) else nullcontext(path) as folder:
        settings = SpokeSettings(
            home=home.directory,
            skills=(folder,),
            samples=sample_names(options.samples),
            household=read_household(home),
            runner=RunnerSettings(runs_triggers=options.triggers),
        )
        asyncio.run(_serve(settings, _Person(as_json=options.json_lines)))


@contextmanager
def _alone(skill: Path) -> Iterator[Path]:
    """Make a folder that has one skill."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / skill.name).symlink_to(skill)
        yield Path(folder)


async def _serve(settings: "SpokeSettings", person: "_Person") -> None:
    from agent_core.tools.skill_calls import Consent
    from agent_core.tools.toolset import SkillToolset
    from agent_core.turn import TurnContext
    from chat.tasks import open_tasks, supervise
    from contracts.devices.joining import DeviceProfile
    from contracts.devices.rpc import Actor
    from spoke.chat.own_skills import OwnCaller, OwnSkills
    from spoke.skill_host import SkillHost

    name = socket.gethostname()
    host = await SkillHost.load(settings, device=name, sink=person.published)
    async with host, open_tasks() as tasks:
        profile = DeviceProfile(name=name, key="this_device")
        skills = OwnSkills(host.registrations, device=name, profile=lambda: profile)
        host.changed = lambda: skills.offer(host.registrations)
        supervise(tasks, host.follow, name="load saved skills")
        caller = OwnCaller(host, Actor(user="author"), epoch=1)
        sandbox = _sandbox(settings, tasks)
        context = TurnContext("try", person.asked, nullcontext)
        person.begin(_sections(settings), host.available)
        async for call in person.calls():
            # Each is a turn of its own: a no holds for one.
            toolset = SkillToolset(skills, caller=caller, session=sandbox, consent=Consent(person))
            began = time.monotonic()
            outcome = await toolset.run(call, context)
            person.show(call, outcome.text, ok=outcome.ok, took_ms=(time.monotonic() - began) * 1000)
        skills.close()


def _sections(settings: "SpokeSettings") -> list["Section"]:
    from agent_core.prompt import PromptDevice, context_sections, devices_section, system_sections

    own = PromptDevice("this_device", socket.gethostname())
    more = (devices_section((own,)),)
    context = context_sections(settings.household, datetime.now(UTC), current=own, more=more)
    return [*system_sections(settings.household), *context]


def _sandbox(settings: "SpokeSettings", tasks: asyncio.TaskGroup) -> "SandboxSession":
    from agent_core.lazy import Lazy
    from sandbox_host import Pool, PoolSettings, install, open_pool

    @asynccontextmanager
    async def installed() -> AsyncIterator[Pool]:
        files = settings.home / "sandbox"
        await install(files, progress=note)
        async with open_pool(PoolSettings(files, processes=1, spares=0)) as pool:
            yield pool

    opened = Lazy(installed, tasks=tasks, name="sandbox")

    class Session:
        async def run(self, *args: Any, **options: Any) -> Any:
            session = await (await opened.get()).session("try")
            return await session.run(*args, **options)

    return Session()


class _Person:
    """The one who plays the model: calls come from standard input, and what comes of them is printed.

    Args:
        as_json: Whether it is a program: one JSON object a line, both ways.
    """

    expires_s = float("inf")

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._sections: list[Section] = []

    def begin(self, sections: "list[Section]", skills: Sequence[str]) -> None:
        """Show what the model reads, and begin to read."""
        from agent_core.prompt import estimate_tokens

        loop, self._sections = asyncio.get_running_loop(), sections
        # A thread of its own, which Ctrl-C need not wait for.
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()
        tools = json.dumps(_tools(), ensure_ascii=False)
        if self._as_json:
            prompt = [{"name": each.name, "tokens": each.tokens, "text": each.text} for each in sections]
            self._print(prompt=prompt, tools=_tools(), skills=skills)
            return
        tokens = sum(each.tokens for each in sections)
        print(f"Skills: {', '.join(skills) or 'none'}")
        print(f"The prompt takes about {tokens} tokens, the tools {estimate_tokens(tools)}.\n{_HELP}")

    async def calls(self) -> AsyncIterator["ToolCall"]:
        """Yield what is to be called, until the end of the input."""
        from agent_core.gateway.protocol import ToolCall

        while True:
            if not self._as_json:
                print("> ", end="", flush=True)
            line = await self._lines.get()
            if not line:
                return
            name, arguments = self._json_call(line) if self._as_json else await self._typed_call(line)
            if name:
                yield ToolCall("1", name, json.dumps(arguments), arguments)

    def show(self, call: "ToolCall", text: str, *, ok: bool, took_ms: float) -> None:
        """Show what the model would read of a call."""
        from agent_core.prompt import estimate_tokens

        size = {"characters": len(text), "tokens": estimate_tokens(text), "ms": round(took_ms, 1)}
        if self._as_json:
            self._print(tool=call.name, ok=ok, text=text, **size)
        else:
            print(visible(text))
            print("({characters} characters, about {tokens} tokens, {ms} ms)".format(**size))

    def published(self, publication: "Publication") -> None:
        """Show what a skill publishes; a ``SkillSink``."""
        skill, name, value, unit = publication.skill, publication.name, publication.value, publication.unit
        match publication.kind:
            case "state":
                text = f"state {skill}.{name} = {value!r}{f' {unit}' if unit else ''}"
            case "clear":
                text = f"state {skill}.{name} cleared"
            case "event":
                text = f"event {name}: {value!r}"
        if self._as_json:
            self._print(published=text)
        else:
            note(visible(text))

    async def ask(self, tell: Callable[[str], None]) -> bool:
        """See ``agent_core.tools.skill_calls.Confirmer``."""
        tell("1")
        line = (await self._lines.get()).strip()
        return (_object(line).get("yes") is True) if self._as_json else line.lower() in ("y", "yes")

    def asked(self, event: object) -> None:
        """Show the question of a call; other events of a turn are not shown."""
        from contracts.chat.messages import ConfirmationWanted

        if isinstance(event, ConfirmationWanted):
            if self._as_json:
                self._print(confirm=event.method, arguments=event.arguments)
            else:
                print(
                    visible(f"{event.method} {json.dumps(event.arguments)}: do it? [y/N] "),
                    end="",
                    flush=True,
                )

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop has ended
            for line in sys.stdin:
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, "")

    def _json_call(self, line: str) -> tuple[str, dict[str, Any]]:
        given = _object(line)
        name, arguments = given.get("tool"), given.get("arguments", {})
        if isinstance(name, str) and isinstance(arguments, dict):
            return name, arguments
        self._print(problem='write {"tool": "search_skills", "arguments": {"query": "lamp"}}')
        return "", {}

    async def _typed_call(self, line: str) -> tuple[str, dict[str, Any]]:
        word, _, rest = line.strip().partition(" ")
        match word:
            case "":
                return "", {}
            case "search":
                return "search_skills", {"query": rest}
            case "describe":
                return "describe_function", {"path": rest}
            case "prompt" | "tools" if not rest:
                text = json.dumps(_tools(), indent=2) if word == "tools" else ""
                print(visible(text or "\n".join(each.text for each in self._sections)))
                return "", {}
        code = line
        while code.rstrip().endswith(":") or (code != line and line.strip()):
            line = await self._lines.get()
            code += line
        return "python_exec", {"code": code}

    def _print(self, **members: Any) -> None:
        print(visible(json.dumps(members, ensure_ascii=False)), flush=True)


def _tools() -> list[dict[str, Any]]:
    from agent_core.tools.toolset import TOOL_SPECS

    return [asdict(each) for each in TOOL_SPECS]


def _object(line: str) -> dict[str, Any]:
    try:
        given = json.loads(line)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def add_author_actions(actions: Actions) -> None:
    """Declare the actions of 'strawberry skills' that are for authors."""
    command = actions.add_parser("new", run=checks.new)
    command.takes("name", "in small letters, for example coffee")
    command.takes("--folder", "where to put it; default: skills of this machine", metavar="DIR")
    command = actions.add_parser("test", run=checks.test)
    command.takes("path", _PATH, nargs="?")
    command.takes("pytest", "for pytest, behind --: -- -k cups -x", metavar="OPTION", nargs="*")
    command = actions.add_parser("try", run=try_skills)
    command.takes("path", _PATH, nargs="?")
    command.takes("--samples", "samples to offer too, as media,lamp", metavar="NAMES", default="none")
    command.add_flag("--triggers", "run methods at times and events, too")
    command.add_flag("--json-lines", "for programs: one JSON object a line, both ways")
    actions.add_parser("lint", run=checks.lint).takes("path", _PATH, nargs="?")
