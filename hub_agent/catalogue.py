"""The skills of the home as one turn sees them: from its current device."""

from dataclasses import dataclass

from agent_core.catalogue import FoundMethod, SearchPage, Target, describe_target, split_path
from agent_core.skills.nearest import suggestion
from agent_core.skills.search import SearchResult
from contracts.errors import CallError, ErrorCode
from contracts.registration import MethodFlags
from hub_agent.device_manager import DeviceManager, Names
from hub_registry.directory import Directory
from hub_registry.search import SkillSearch


@dataclass(frozen=True)
class HubCatalogue:
    """A ``Catalogue`` over the directory.

    Attributes:
        current: Id of the current device, where there is one.
    """

    directory: Directory
    index: SkillSearch
    manager: DeviceManager
    current: str | None = None

    async def search(self, query: str) -> SearchPage:
        """See ``agent_core.skill_calls.Catalogue``."""
        answer = self.index.search(query, current=self.current)
        return SearchPage(
            tuple(_found(result) for result in answer.results), len(answer.results) + answer.more
        )

    async def resolve(self, path: str) -> Target:
        """See ``agent_core.skill_calls.Catalogue``."""
        parts = split_path(path)
        names = Names(current=self.current, only_keys=True)
        return self.manager.target(parts.device, parts.skill, parts.method, names)

    async def describe(self, path: str) -> str:
        """See ``agent_core.skill_calls.Catalogue``."""
        target = self.find(path)
        return describe_target(target, tuple(entry.key for entry in self.manager.having(target)))

    def find(self, path: str) -> Target:
        """Find a method by its path, or by ``Skill.method`` alone.

        Raises:
            CallError: ``unknown_skill`` with the nearest names.
        """
        path = path.strip().partition("(")[0]
        match path.split("."):
            case [skill, method] if skill and method:
                return self.manager.target(self._device_with(skill, method), skill, method, Names())
        parts = split_path(path)
        return self.manager.target(parts.device, parts.skill, parts.method, Names(current=self.current))

    def _device_with(self, skill: str, method: str) -> str:
        known: dict[str, list[str]] = {}
        for entry in self.directory.entries():
            for owned in entry.skills.values():
                for name in owned.methods:
                    known.setdefault(f"{owned.name}.{name}", []).append(entry.id)
        having = known.get(f"{skill}.{method}")
        if having is None:
            raise CallError(
                ErrorCode.UNKNOWN_SKILL,
                f"no device has {skill}.{method}",
                hint=suggestion(f"{skill}.{method}", known),
            )
        return self.current if self.current in having else having[0]


def _found(result: SearchResult) -> FoundMethod:
    unavailable = "; ".join(f"{key}: {reason}" for key, reason in result.unavailable.items())
    return FoundMethod(
        path=result.path,
        signature=result.signature,
        summary=result.summary,
        devices=tuple(result.devices),
        flags=MethodFlags.model_validate(dict.fromkeys(result.flags, True)),
        unavailable="" if result.available else unavailable,
    )
