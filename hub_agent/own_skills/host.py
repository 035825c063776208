"""The host of the hub's own skills: offered in the directory, run in this process."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from agent_core.search.catalogue import SkillCall
from agent_core.search.directory import HUB_KEY, RegisteredSkill, SkillDirectory
from agent_core.skills.loader import LoadedSkill, expose
from agent_core.skills.runner import SkillRunner
from contracts.devices.rpc import Actor
from contracts.errors import CallError, ErrorCode, Forbidden, InvalidMessage, LinkError, NotFound
from contracts.names import HUB_SKILLS
from contracts.wire import Json
from hub_agent.calls.audit import Origin
from hub_agent.own_skills.skill import ASKING, Asking, HubSkill
from hub_registry.access.accounts import Accounts
from hub_registry.devices.directory import Entry

_CODES: Final = (
    (Forbidden, ErrorCode.REFUSED),
    (InvalidMessage, ErrorCode.BAD_ARGUMENTS),
    (NotFound, ErrorCode.BAD_ARGUMENTS),
    (LinkError, ErrorCode.OFFLINE),
)
"""What the errors of the services behind the skills are as errors of calls; others are ``skill_error``."""

ForeignCall: TypeAlias = Callable[
    [str, Mapping[str, Json], Callable[[Json], None] | None], Coroutine[Any, Any, Json]
]
"""Calls a method by name with its arguments, and takes what it reports on the way; raises ``CallError``."""


class OwnSkills:
    """Offers the hub's own skills and runs them.

    Args:
        directory: Where they are found.
        accounts: Knows the people on whose behalf they are called.
    """

    def __init__(self, directory: SkillDirectory[Entry], accounts: Accounts) -> None:
        self._directory = directory
        self._accounts = accounts
        self._runner = SkillRunner([])
        self._own: list[RegisteredSkill] = []
        self._foreign: dict[str, tuple[RegisteredSkill, ForeignCall]] = {}

    @asynccontextmanager
    async def offering(self, skills: Iterable[HubSkill]) -> AsyncIterator[None]:
        """Offer these skills within the block."""
        async with SkillRunner(map(_loaded, skills)) as runner:
            self._runner = runner
            self.refresh()
            try:
                yield
            finally:
                self._own, self._foreign = [], {}
                self._put()

    def put_foreign(self, name: str, skill: RegisteredSkill | None, call: ForeignCall) -> None:
        """Offer a skill that another program serves to the hub, or no longer.

        Args:
            name: Of its class, which is none of the hub's own.
            call: Calls a method of it with checked arguments.
        """
        self._foreign.pop(name, None)
        if skill is not None:
            self._foreign[name] = skill, call
        self._put()

    def _put(self) -> None:
        self._directory.put_own([*self._own, *(skill for skill, _ in self._foreign.values())])

    def refresh(self) -> None:
        """Offer those that are there now."""
        there = [each for each in self._runner.skills.values() if getattr(each.instance, "is_offered", True)]
        self._own = [RegisteredSkill.of(each.registration, "") for each in there]
        self._put()

    async def call(self, actor: Actor, call: SkillCall, *, origin: Origin, conversation: str | None) -> Json:
        """Run a method whose flags the actor keeps to; see ``DeviceManager.call``.

        Raises:
            CallError: If there is no result.
        """

        async def report(value: Json) -> None:
            if call.on_progress is not None:
                call.on_progress(value)

        skill, method = call.target.skill, call.target.method.name
        if (foreign := self._foreign.get(skill)) is not None:
            return await foreign[1](method, call.arguments, call.on_progress)
        user = await self._accounts.get(actor.user)
        # What the method runs in is a copy of this context.
        asked = ASKING.set(
            Asking(user, actor, origin, call.confirmed, call.untrusted, conversation, call.waiting)
        )
        try:
            return await self._runner.run(
                skill, method, (), call.arguments, confirmed=call.confirmed, progress=report
            )
        except CallError as error:
            code = next((code for kind, code in _CODES if isinstance(error.__cause__, kind)), error.code)
            raise CallError(code, error.message, hint=error.hint, device=HUB_KEY, shown=error.shown) from None
        finally:
            ASKING.reset(asked)


def _loaded(skill: HubSkill) -> LoadedSkill:
    loaded, problems = expose(skill)
    if loaded.name not in HUB_SKILLS:
        raise ValueError(f"{loaded.name} is not reserved: a device may register it, too")
    if problems:
        raise ValueError(f"{problems[0].path}: {problems[0].message}")
    return loaded
