"""What an agent sees of the skills and what it may call; decided here, never by its model."""

from dataclasses import dataclass, replace
from typing import Final

from agent_core.finder import DirectoryCatalogue, SkillFinder
from agent_core.search.catalogue import FoundMethod, SearchPage, SkillCall, Target
from agent_core.search.directory import HUB_KEY
from agent_core.sentences.index import SentenceCall, SentenceChoice
from contracts.errors import CallError, ErrorCode
from contracts.text import shortened
from contracts.wire import Json
from hub_agent import limits
from hub_agent.agents.profile import matches
from hub_agent.calls.device_manager import ActingCaller

_LATER: Final = tuple(f"devices.{HUB_KEY}.WatcherSkill.{each}" for each in ("call_later", "call_at"))


class AllowedCatalogue(DirectoryCatalogue):
    """The skills that an agent may call, as they are seen from a device.

    Args:
        allow: See ``hub_agent.agents.agents.Agent``.
    """

    def __init__(
        self, finder: SkillFinder, current: str | None, *, user: str, allow: tuple[str, ...] | None
    ) -> None:
        super().__init__(finder, current, user=user)
        self._allow = allow

    async def search(self, query: str) -> SearchPage:
        """See ``agent_core.search.catalogue.Catalogue``."""
        if self._allow is None:
            return await super().search(query)
        page = await self.finder.find(
            query, current=self.current, user=self.user, max_bytes=limits.SEARCHED_BYTES
        )
        found = tuple(allowed for each in page.results if (allowed := self._allowed(each)) is not None)
        failing = (
            each for each in page.failing if matches(self._allow, f"devices.{each.device}.{each.skill}.*")
        )
        return SearchPage(found, len(found), tuple(failing))

    async def resolve(self, path: str) -> Target:
        """See ``agent_core.search.catalogue.Catalogue``."""
        target = await super().resolve(path)
        if not matches(self._allow, target.path):
            raise _refusal(target.path, target.device)
        return target

    def _allowed(self, found: FoundMethod) -> FoundMethod | None:
        """Return a result with the devices on which the agent may call it; None where there is none."""
        _, first, *method = found.path.split(".")
        if first == HUB_KEY:
            return found if matches(self._allow, found.path) else None
        paths = {key: ".".join(("devices", key, *method)) for key in found.devices}
        devices = tuple(key for key, path in paths.items() if matches(self._allow, path))
        if not devices:
            return None
        return replace(found, path=paths[devices[0]], devices=devices, more_devices=0)


@dataclass(frozen=True)
class AllowedCaller(ActingCaller):
    """A ``SkillCaller`` that calls what an agent may call, and nothing else."""

    allow: tuple[str, ...] | None = None

    async def call(self, call: SkillCall) -> Json:
        """See ``agent_core.tools.skill_calls.SkillCaller``."""
        path, later = call.target.path, call.arguments.get("call")
        if not matches(self.allow, path):
            self.note_refused(call)
            raise _refusal(path, call.target.device)
        # What a timer calls for an agent is a call of that agent.
        if path in _LATER and not matches(self.allow, str(later)):
            self.note_refused(call)
            raise _refusal(str(later), call.target.device)
        return await super().call(call)


def allowed_sentence(
    matched: SentenceCall | SentenceChoice | None, allow: tuple[str, ...] | None
) -> SentenceCall | SentenceChoice | None:
    """Return what is left of the meanings of an utterance if those go that an agent may not call."""
    match matched:
        case SentenceCall():
            return matched if matches(allow, matched.target.path) else None
        case SentenceChoice():
            calls = tuple(call for call in matched.calls if matches(allow, call.target.path))
            # What was only near to a sentence stays a question, also where it has one meaning.
            is_question = len(calls) > 1 or ((matched.said or matched.is_later) and calls)
            return replace(matched, calls=calls) if is_question else next(iter(calls), None)
    return None


def _refusal(path: str, device: str) -> CallError:
    return CallError(
        ErrorCode.REFUSED,
        "this agent may not call {path}",
        path=shortened(path, 200),
        hint="Its profile lists what it may call under skills: allow.",
        device=device,
    )
