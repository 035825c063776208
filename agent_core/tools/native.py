"""Skills as tools of their own, for small models: found by the message, called by name."""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from agent_core import limits
from agent_core.gateway.protocol import ToolCall, ToolSpec
from agent_core.models.entries import Models
from agent_core.provenance import Origin, Prompt, Text, render, render_name, render_schema
from agent_core.search.catalogue import Catalogue, FoundMethod, SearchPage, Target
from agent_core.tools.output import search_text
from agent_core.tools.toolset import TOOL_SPECS, SkillToolset, ToolOutcome, Toolset, failed
from agent_core.turn import TurnContext
from contracts.errors import CallError
from contracts.text import shortened
from contracts.wire import Json

_DEVICE_ARGUMENTS: Final = ("device", "on_device", "which_device")

_SEARCH: Final = next(spec for spec in TOOL_SPECS if spec.name == "search_skills")
_MORE: Final = (
    "Find more skills, by words in any order. What it finds can be called as a tool in the next step."
)
_SEARCH_SPEC: Final = replace(_SEARCH, description=Prompt(_MORE))


class NativeToolset:
    """The methods that fit best as tools of their own, beside ``search_skills``; for one turn.

    Calls go the way of ``python_exec``: the same rights, the same questions, the same marks on what
    comes from outside.

    Args:
        skills: Makes the calls; another toolset may share it.
    """

    def __init__(self, catalogue: Catalogue, skills: SkillToolset) -> None:
        self._catalogue = catalogue
        self._skills = skills
        self._tools: dict[str, NativeTool] = {}
        self._used: list[str] = []

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return (_SEARCH_SPEC, *(tool.spec for tool in self._tools.values()))

    async def offer(self, message: str) -> None:
        await self._take(await self._catalogue.search(message))

    async def run(self, call: ToolCall, context: TurnContext) -> ToolOutcome:
        if call.name == _SEARCH.name:
            return await self._search(call)
        tool = self._tools.get(re.sub(r"[^A-Za-z0-9_-]", "_", call.name))
        if tool is None:
            known = ", ".join(spec.name for spec in self.specs)
            return failed(
                f"there is no tool {call.name!r}", f"The tools are {known}. Find others with search_skills."
            )
        if call.arguments is None:
            expected = ", ".join(tool.spec.parameters["properties"]) or "none"
            return failed(f"the arguments are no JSON object: {call.raw[:200]}", f"Arguments: {expected}.")
        self._use(tool.spec.name)
        path, arguments = tool.aim(call.arguments)
        return await self._skills.call(path, arguments, context)

    async def _search(self, call: ToolCall) -> ToolOutcome:
        query = (call.arguments or {}).get("query") or ""
        if call.arguments is None or not isinstance(query, str):
            return failed(
                f"search_skills takes a text: {call.raw[:200]}", 'Expected: {"query": "a few words"}'
            )
        found = await self._catalogue.search(query)
        page = replace(found, results=found.results[: limits.NATIVE_TOOLS])
        tools = await self._take(page)
        return ToolOutcome(ok=True, text=search_text(page, query, limits.NATIVE_SEARCH_BYTES, tools=tools))

    async def _take(self, page: SearchPage) -> dict[str, str]:
        """Offer what was found; return the names of the tools by path.

        Where there is no room for all, what was found or called longest ago goes.
        """
        named: dict[str, str] = {}
        for found in page.results[: limits.NATIVE_TOOLS]:
            tool = next((tool for tool in self._tools.values() if tool.path == found.path), None)
            if tool is None:
                try:
                    target = await self._catalogue.resolve(found.path)
                except CallError:
                    continue  # it went away since the search
                tool = native_tool(found, target, taken=(_SEARCH.name, *self._tools))
            if tool.size > limits.NATIVE_TOOL_BYTES:
                continue
            self._tools.setdefault(tool.spec.name, tool)
            named[found.path] = tool.spec.name
        # The best one is used last, so that it is the last to go.
        for name in reversed(named.values()):
            self._use(name)
        self._make_room()
        return {path: name for path, name in named.items() if name in self._tools}

    def _use(self, name: str) -> None:
        if name in self._used:
            self._used.remove(name)
        self._used.append(name)

    def _make_room(self) -> None:
        while (
            len(self._tools) > limits.NATIVE_TOOLS
            or sum(tool.size for tool in self._tools.values()) > limits.NATIVE_TOOLS_BYTES
        ):
            del self._tools[self._used.pop(0)]


@dataclass(frozen=True)
class NativeMode:
    """What models with ``tools = "native"`` get in place of the turn's system prompt and tools."""

    system: str
    toolset: Toolset


async def native_mode(
    models: Models, catalogue: Catalogue, skills: SkillToolset, *, system: str, said: Iterable[str]
) -> NativeMode | None:
    """Make what models with ``tools = "native"`` get in a turn; None where no model is such.

    Args:
        skills: Makes the calls.
        system: Their system prompt.
        said: What the person said, the newest last: it may be about what came before.
    """
    if all(model.entry.tools == "code" for model in models.usable):
        return None
    tools = NativeToolset(catalogue, skills)
    for text in said:
        await tools.offer(text)
    return NativeMode(system, tools)


@dataclass(frozen=True)
class NativeTool:
    """One method as a tool.

    Attributes:
        path: Of the method, on the first of its devices.
        paths: By the key of each device, where it is on several.
        device_argument: The argument that chooses among them; empty where there is no choice.
    """

    spec: ToolSpec
    path: str
    paths: Mapping[str, str]
    device_argument: str = ""

    @property
    def size(self) -> int:
        """UTF-8 bytes that it takes of a prompt."""
        return len(
            json.dumps(
                [self.spec.name, self.spec.description, self.spec.parameters], ensure_ascii=False
            ).encode()
        )

    def aim(self, arguments: Mapping[str, Json]) -> tuple[str, dict[str, Json]]:
        """Separate the device that is meant from the arguments of the method.

        Returns the path, and the arguments of the method; a device that is none of its own is left to the
        catalogue, which reports it.
        """
        given = dict(arguments)
        if not self.device_argument or given.get(self.device_argument) is None:
            given.pop(self.device_argument, None)
            return self.path, given
        key = str(given.pop(self.device_argument))
        return self.paths.get(key) or _on(self.path, key), given


def native_tool(found: FoundMethod, target: Target, *, taken: Collection[str]) -> NativeTool:
    """Make the tool of a method.

    Args:
        found: How it was found, with the devices that have it.
        target: The same method on the first of them.
        taken: Names that other tools have.
    """
    first = found.path.split(".")[1]
    several = found.devices if first in found.devices and len(found.devices) > 1 else ()
    parameters = {**render_schema(target.method.parameters), "type": "object"}
    properties: dict[str, Any] = dict(parameters.get("properties", {}))
    argument = ""
    if several:
        argument = next((name for name in _DEVICE_ARGUMENTS if name not in properties), "")
    if argument:
        properties[argument] = _which_device(several, found.more_devices)
    parameters["properties"] = properties
    return NativeTool(
        spec=ToolSpec(_name(found.path, taken), _description(found, target, several), parameters),
        path=found.path,
        paths={key: _on(found.path, key) for key in several} if argument else {},
        device_argument=argument,
    )


def _which_device(keys: tuple[str, ...], more: int) -> dict[str, Json]:
    made: dict[str, Json] = {
        "type": "string",
        "description": f"Which device; {keys[0]} where the user names none",
    }
    if more:
        # An enum would forbid those that are not listed.
        made["description"] = (
            f"{made['description']}. The key of any that has it: {', '.join(keys)} and {more} more"
        )
    else:
        made["enum"] = list(keys)
    return made


def _on(path: str, key: str) -> str:
    root, _, *rest = path.split(".")
    return ".".join((root, key, *rest))


def _name(path: str, taken: Collection[str]) -> str:
    """Name it by class and method, and by more where another tool has that name."""
    _, device, skill, method = path.split(".")
    for words in ((skill, method), (device, skill, method)):
        name = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(words))
        if name not in taken and len(name) <= limits.MAX_TOOL_NAME:
            return name
    mark = hashlib.sha256(path.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', f'{skill}_{method}')[: limits.MAX_TOOL_NAME - 9]}_{mark}"


def _description(found: FoundMethod, target: Target, several: tuple[str, ...]) -> Prompt:
    doc = shortened(" ".join(target.method.doc.split()), limits.MAX_TOOL_DESCRIPTION)
    parts = [render(Text(Origin.DEVICE, doc))] if doc else []
    if not several:
        parts.append(Prompt(f"Device: {render_name(target.device_name)}."))
    if found.flags.confirm or found.flags.unknown:
        parts.append(Prompt("The user is asked first."))
    if found.unavailable:
        parts.append(Prompt(f"Cannot be called right now: {found.unavailable}."))
    return render(*parts)
