"""Tools for models to which code comes hard: methods that fit the message, and the search for others."""

import re
from dataclasses import dataclass, replace

from agent_core.gateway.protocol import ToolCall, ToolSpec
from agent_core.search.catalogue import Catalogue, SearchPage
from agent_core.tools.native_specs import NativeTool, native_tool
from agent_core.tools.output import search_text
from agent_core.tools.toolset import TOOL_SPECS, SkillToolset, ToolOutcome, failed
from agent_core.turn import TurnContext
from contracts.errors import CallError

_SEARCH = next(spec for spec in TOOL_SPECS if spec.name == "search_skills")
_SEARCH_SPEC = ToolSpec(
    _SEARCH.name,
    "Find more skills, by words in any order. What it finds can be called as a tool in the next step.",
    _SEARCH.parameters,
)


@dataclass(frozen=True)
class NativeLimits:
    """How much of a small model's context the tools may take.

    Attributes:
        tools: Methods that are offered at once; small models choose badly among many.
        tool_bytes: UTF-8 bytes of one; a larger one is not offered.
        total_bytes: UTF-8 bytes of all together, ``search_skills`` not counted.
        search_bytes: UTF-8 bytes of one search result.
    """

    tools: int = 8
    tool_bytes: int = 2_000
    total_bytes: int = 8_000
    search_bytes: int = 2_048


class NativeToolset:
    """The methods that fit best as tools of their own, beside ``search_skills``; for one turn.

    Calls go the way of ``python_exec``: the same rights, the same questions, the same marks on what
    comes from outside.

    Args:
        skills: Makes the calls; another toolset may share it.
    """

    def __init__(
        self, catalogue: Catalogue, skills: SkillToolset, *, limits: NativeLimits | None = None
    ) -> None:
        self._catalogue = catalogue
        self._skills = skills
        self._limits = limits or NativeLimits()
        self._tools: dict[str, NativeTool] = {}
        self._used: list[str] = []

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The search, and what was found so far, in the order in which it was found."""
        return (_SEARCH_SPEC, *(tool.spec for tool in self._tools.values()))

    async def offer(self, message: str) -> None:
        """Offer the methods that fit a message best."""
        await self._take(await self._catalogue.search(message))

    async def run(self, call: ToolCall, context: TurnContext) -> ToolOutcome:
        """See ``toolset.Toolset.run``."""
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
        page = replace(found, results=found.results[: self._limits.tools])
        tools = await self._take(page)
        return ToolOutcome(ok=True, text=search_text(page, query, self._limits.search_bytes, tools=tools))

    async def _take(self, page: SearchPage) -> dict[str, str]:
        """Offer what was found; gives the names of the tools by path.

        Where there is no room for all, what was found or called longest ago goes.
        """
        named: dict[str, str] = {}
        for found in page.results[: self._limits.tools]:
            tool = next((tool for tool in self._tools.values() if tool.path == found.path), None)
            if tool is None:
                try:
                    target = await self._catalogue.resolve(found.path)
                except CallError:
                    continue  # it went away since the search
                tool = native_tool(found, target, taken=(_SEARCH.name, *self._tools))
            if tool.size > self._limits.tool_bytes:
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
        limits = self._limits
        while (
            len(self._tools) > limits.tools
            or sum(tool.size for tool in self._tools.values()) > limits.total_bytes
        ):
            del self._tools[self._used.pop(0)]
