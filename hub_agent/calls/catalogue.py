"""The skills of the home as one turn sees them: from its current device."""

from dataclasses import dataclass

from agent_core.search.catalogue import FoundMethod, SearchPage, Target, split_path
from agent_core.search.index import SearchResult
from contracts.registration import MethodFlags
from contracts.wire import Json
from hub_agent.calls.device_manager import DeviceManager, Names
from hub_registry.devices.directory import Directory
from hub_registry.devices.search import SkillSearch
from hub_registry.devices.targets import describe, skill_info


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
        """See ``agent_core.search.catalogue.Catalogue``."""
        answer = self.index.search(query, current=self.current)
        return SearchPage(
            tuple(_found(result) for result in answer.results), len(answer.results) + answer.more
        )

    async def resolve(self, path: str) -> Target:
        """See ``agent_core.search.catalogue.Catalogue``."""
        parts = split_path(path)
        names = Names(current=self.current, only_keys=True)
        return self.manager.target(parts.device, parts.skill, parts.method, names)

    async def describe(self, path: str) -> str:
        """See ``agent_core.search.catalogue.Catalogue``."""
        return describe(self.directory, path, current=self.current)

    async def describe_skill(self, name: str) -> dict[str, Json]:
        """See ``agent_core.search.catalogue.Catalogue``."""
        return skill_info(self.directory, name, current=self.current)


def _found(result: SearchResult) -> FoundMethod:
    unavailable = "; ".join(f"{key}: {reason}" for key, reason in result.unavailable.items())
    return FoundMethod(
        path=result.path,
        signature=result.signature,
        summary=result.summary,
        devices=tuple(result.devices),
        flags=MethodFlags.model_validate(dict.fromkeys(result.flags, True)),
        unavailable="" if result.available else unavailable,
        more_devices=result.more_devices,
    )
