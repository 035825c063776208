"""A house of fake skills: their catalogue, their caller, and the person who is asked."""

from collections.abc import Callable, Iterable
from pathlib import Path

from agent_core.search.catalogue import (
    FoundMethod,
    SearchPage,
    SkillCall,
    Target,
    describe_target,
)
from agent_core.skills.loading.folders import SkillFolders
from agent_core.skills.loading.loader import ContextFactory, LoadedSkills
from contracts.devices.registration import Method, MethodFlags
from contracts.errors import CallError, ErrorCode
from contracts.wire import Json

LEVEL: dict[str, Json] = {"level": {"type": "integer", "minimum": 0, "maximum": 100}}


def method(
    name: str,
    doc: str,
    properties: dict[str, Json] | None = None,
    *,
    needed: int = 1,
    signature: str = "",
    **flags: bool,
) -> Method:
    """Make a method whose first parameters are needed; by default it takes a level."""
    known = LEVEL if properties is None else properties
    return Method(
        name=name,
        signature=signature or f"{name}({', '.join(known)})",
        doc=doc,
        parameters={
            "type": "object",
            "properties": known,
            "required": list(known)[:needed],
            "additionalProperties": False,
        },
        positional=list(known),
        flags=MethodFlags(**{"unknown": False, **flags}),
    )


class House:
    """A house with these methods, each after ``<key>.<Skill>`` of its device.

    Attributes:
        page: What every search finds; None for what has its words.
        result: What every call gives; None for the level.
        called: Path, arguments, and whether it was confirmed, of each call.
        yes: What the person answers.
    """

    expires_s = 30.0

    def __init__(self, *methods: tuple[str, Method], yes: bool = True) -> None:
        self.methods = {f"devices.{path}.{each.name}": each for path, each in methods}
        self.called: list[tuple[str, dict[str, Json], bool]] = []
        self.result: Json = None
        self.asked = 0
        self.page: SearchPage | None = None
        self.yes = yes

    async def search(self, query: str) -> SearchPage:
        """Find by whole words of the names; a method that several devices have is found once."""
        if self.page is not None:
            return self.page
        found: dict[str, FoundMethod] = {}
        for path, each in self.methods.items():
            _, device, skill, name = path.split(".")
            if query and not any(word in f"{skill} {each.doc}".lower() for word in query.lower().split()):
                continue
            known = found.get(f"{skill}.{name}")
            devices = (*known.devices, device) if known else (device,)
            found[f"{skill}.{name}"] = FoundMethod(
                known.path if known else path, each.signature, each.summary, devices, each.flags
            )
        return SearchPage(tuple(found.values()), len(found))

    async def describe(self, path: str) -> str:
        return describe_target(await self.resolve(path), ("pc", "tv"))

    async def describe_skill(self, name: str) -> dict[str, Json]:
        return {"name": name}

    async def resolve(self, path: str) -> Target:
        path = path.replace("device_manager.", "devices.")
        if path not in self.methods:
            raise CallError(ErrorCode.UNKNOWN_SKILL, f"there is no {path}", hint="nearest: plain")
        _, device, skill, _ = path.split(".")
        return Target(path, device, device.title(), skill, self.methods[path])

    async def call(self, call: SkillCall) -> Json:
        self.called.append((call.target.path, dict(call.arguments), call.confirmed))
        return self.result if self.result is not None else {"level": call.arguments.get("level")}

    async def ask(self, tell: Callable[[str], None]) -> bool:
        self.asked += 1
        tell("q1")
        return self.yes


def load_skills(directories: Iterable[Path], *, make_context: ContextFactory) -> LoadedSkills:
    """Load every skill of some folders."""
    folders = SkillFolders(directories, make_context=make_context)
    folders.load()
    return folders.found
