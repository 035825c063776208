"""The hub's own skills: their base class, who calls, and their host.

They are offered in the directory on the virtual device ``hub``, and run in this process.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, get_origin

from agent_core.search.catalogue import SkillCall
from agent_core.search.directory import HUB_KEY, RegisteredSkill, SkillDirectory
from agent_core.skills.loading.exposure import LoadedSkill, expose
from agent_core.skills.running.runner import SkillRunner
from agent_core.skills.skill import Skill, options_of
from chat.operations import Needs, Operation, Resource
from contracts.devices.rpc import Actor
from contracts.errors import CallError, ErrorCode, Forbidden, InvalidMessage, LinkError, NotFound
from contracts.names import HUB_SKILLS
from contracts.wire import Json, json_for_models
from hub_agent.calls.audit import Origin
from hub_registry.access.accounts import Accounts, User
from hub_registry.access.bearer import Bearer
from hub_registry.devices.directory import Entry
from identity.tokens import make_claims

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

RemoteCall: TypeAlias = Callable[[Actor, SkillCall, Origin, str | None], Coroutine[Any, Any, Json]]
"""Calls a method in another process of this hub; raises ``CallError``."""


@dataclass(frozen=True)
class Asking:
    """Who calls a method of the hub's own skills, and how.

    Attributes:
        user: The person on whose behalf it is called.
        actor: Through what it is called: a turn, a device, an agent, a watcher.
        origin: The token that it is called with.
        confirmed: Whether a person confirmed exactly this call.
        untrusted: Whether text that may be a stranger's was in the turn's context before the call.
        by_sentence: See `SkillCall`; likewise ``has_read``.
        conversation: In which it is called, where there is one.
        waiting: See `SkillCall`.
    """

    user: User
    actor: Actor
    origin: Origin
    confirmed: bool = False
    untrusted: bool = False
    by_sentence: bool = False
    conversation: str | None = None
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext
    has_read: bool = False

    def bearer(self, needs: Needs) -> Bearer:
        """Return who asks, whose rights suffice for an operation.

        The assistant and what else acts for a person may look and call. A device that asks without what a
        person said to it has the rights of a device.

        Raises:
            Forbidden: If a right is missing.
        """
        device = self.origin.through if self.actor.turn is None else None
        claims = make_claims(
            hub_id="",
            subject=device or self.user.id,
            kind="client" if device is None else "device",
            owner=self.user.id,
            scopes=("chat", "call"),
            lifetime_s=60,
        )
        token = self.origin.confirmed_by or self.origin.token
        bearer = Bearer(claims.model_copy(update={"jti": token}), self.user, self.confirmed)
        bearer.require(needs)
        return bearer

    def need_confirmation(
        self, message: str, *, hint: str = "", shown: Mapping[str, Json] | None = None
    ) -> None:
        """Go on only with a person's confirmation of exactly this call; where one can be asked, it is.

        Args:
            hint: The hint of the error where it is not confirmed.
            shown: What the person is shown beside the arguments.

        Raises:
            CallError: ``needs_confirmation`` unless it was confirmed.
        """
        if not self.confirmed:
            raise CallError(ErrorCode.NEEDS_CONFIRMATION, message, hint=hint, shown=shown)


_ASKING: Final[ContextVar[Asking]] = ContextVar("asking")
"""Set for the time of a call."""


class HubSkill(Skill):
    """Base class of the hub's own skills.

    Methods are ``async`` and call the service that commands and routes call, too. One that returns text which
    people of this home did not write (payloads, names that devices give) is ``untrusted_output``.
    """

    # The service behind a skill has bounds of its own; a slow call must not keep others waiting.
    concurrency: ClassVar[int] = 64

    is_offered: bool = True
    """Whether it is there now; `OwnSkills.refresh` looks again."""

    @property
    def asking(self) -> Asking:
        """Return the caller of the running method.

        Raises:
            LookupError: Outside of a call.
        """
        return _ASKING.get()

    def need_person(self) -> None:
        """Ask a person where text of strangers would end something, or have it act.

        Raises:
            CallError: ``needs_confirmation``.
        """
        if self.asking.untrusted:
            self.asking.need_confirmation("text of strangers was read before this call")


SkillT = TypeVar("SkillT", bound=HubSkill)


def offers(resource: Resource[Any, Bearer], *, on: str) -> Callable[[type[SkillT]], type[SkillT]]:
    """Make methods of a skill of the operations that are marked for one (``skill="pause"``).

    Of the docstring a model is shown the first paragraph and the parameters. Where text of strangers was
    read, a person agrees to what is not ``read_only``.

    Args:
        on: The attribute with the service that the operations work on.
    """

    def add(owner: type[SkillT]) -> type[SkillT]:
        for operation in resource.operations:
            if operation.skill:
                setattr(owner, operation.skill, _method(operation, on))
        return owner

    return add


def _method(operation: Operation[Any, Any], on: str) -> Callable[..., Any]:
    @wraps(operation.function)
    async def method(self: HubSkill, **arguments: Any) -> Any:
        bearer = self.asking.bearer(operation.needs)
        if not options_of(type(self), operation.skill).flags.read_only:
            self.need_person()
        made = await operation(getattr(self, on), bearer, **arguments)
        return [*map(json_for_models, made)] if isinstance(made, list) else json_for_models(made)

    first, _, *others = inspect.signature(operation.function).parameters.values()
    method.__signature__ = inspect.Signature([first, *others])  # type: ignore[attr-defined]
    text, _, more = (inspect.getdoc(operation.function) or "").partition("\n\n")
    _, args, named = more.partition("Args:\n")
    method.__doc__ = f"{text}\n\n{args}{named}" if args else text
    # Of an answer a model is shown no name of a type: it would have to look up what that has.
    kind = list[dict[str, Any]] if get_origin(operation.answer) is list else dict[str, Any]
    method.__annotations__ = {each.name: operation.hints[each.name] for each in others} | {"return": kind}
    del method.__wrapped__
    return method


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
        self._remote: dict[str, RegisteredSkill] = {}
        self._call_remote: RemoteCall | None = None

    @asynccontextmanager
    async def offering(self, skills: Iterable[HubSkill]) -> AsyncIterator[None]:
        """Offer these skills within the block, in place of those of the block around it."""
        before = self._runner
        async with SkillRunner(map(_loaded, skills)) as runner:
            self._runner = runner
            self.refresh()
            try:
                yield
            finally:
                self._runner, self._foreign = before, {}
                self.refresh()

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

    def put_remote(self, skills: Iterable[RegisteredSkill], call: "RemoteCall") -> None:
        """Offer skills that another process of this hub runs, beside those of this one."""
        own = {each.name for each in self.offered}
        self._remote, self._call_remote = {each.name: each for each in skills if each.name not in own}, call
        self._put()

    @property
    def offered(self) -> list[RegisteredSkill]:
        return [*self._own, *(skill for skill, _ in self._foreign.values())]

    def _put(self) -> None:
        own = self.offered
        here = {each.name for each in own}
        self._directory.put_own([*own, *(each for each in self._remote.values() if each.name not in here)])

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
        if self._call_remote is not None and all(each.name != skill for each in self._own):
            return await self._call_remote(actor, call, origin, conversation)
        user = await self._accounts.get(actor.user)
        # What the method runs in is a copy of this context.
        how = (call.confirmed, call.untrusted, call.by_sentence)
        has_read = call.has_read or call.untrusted
        asking = Asking(user, actor, origin, *how, conversation, call.waiting, has_read)
        asked = _ASKING.set(asking)
        try:
            return await self._runner.run(
                skill, method, (), call.arguments, confirmed=call.confirmed, progress=report
            )
        except CallError as error:
            code = next((code for kind, code in _CODES if isinstance(error.__cause__, kind)), error.code)
            raise CallError(code, error.message, hint=error.hint, device=HUB_KEY, shown=error.shown) from None
        finally:
            _ASKING.reset(asked)


def _loaded(skill: HubSkill) -> LoadedSkill:
    loaded, problems = expose(skill)
    if loaded.name not in HUB_SKILLS:
        raise ValueError(f"{loaded.name} is not reserved: a device may register it, too")
    if problems:
        raise ValueError(f"{problems[0].path}: {problems[0].message}")
    return loaded
